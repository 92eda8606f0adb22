"""Stop an epoch and go on with another number of ranks: what is missing, what comes twice, who gets fewer batches.

python -m benchmarks.elastic.run [--only TEXT] [--no-write]

An epoch of 1,000 samples is stopped near its middle and continued from rank 0's state: ranks and batch size of one
start, then of the next. Each library is used as its documentation shows, with its defaults, shuffled, without workers:
real processes over gloo. The control goes on with as many ranks as before.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections import Counter
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.peers.environments import interpreter, process_environment, versions
from benchmarks.report import result_path, write_result
from benchmarks.rounds import CaseError, run_process

__all__ = ["main"]

_DATA = Path(__file__).parent.parent / ".data" / "elastic"
_SAMPLES = 1000
_ALL = -1


@dataclass(frozen=True, slots=True)
class Peer:
    """A library in one configuration; ``environment`` is the name of its virtual environment, "" the running one."""

    module: str
    environment: str
    loader: str = "loader"


_PEERS = {
    "fastio": Peer("of_fastio", ""),
    "LitData": Peer("of_litdata", "litdata"),
    "LitData, drop_last=False": Peer("of_litdata", "litdata", "keeping_loader"),
    "MosaicML Streaming": Peer("of_streaming", "streaming"),
}
_PACKAGES = {"": "fastio", "litdata": "litdata", "streaming": "mosaicml-streaming"}


@dataclass(frozen=True, slots=True)
class Move:
    """From ``(ranks, batch size)``, stopped after ``steps``, to another."""

    before: tuple[int, int]
    steps: int
    after: tuple[int, int]

    @property
    def name(self) -> str:
        """As it stands in tables."""
        (ranks, batch), (later, later_batch) = self.before, self.after
        return f"{ranks} x {batch} -> {later} x {later_batch}"


_MOVES = (
    Move((4, 10), 12, (4, 10)),
    Move((4, 10), 12, (3, 10)),
    Move((4, 10), 12, (5, 10)),
    Move((4, 10), 12, (6, 10)),
    Move((8, 10), 6, (5, 10)),
    # The same number of samples in a step.
    Move((4, 12), 10, (3, 16)),
    Move((4, 15), 8, (5, 12)),
    Move((4, 12), 10, (6, 8)),
    Move((8, 5), 12, (5, 8)),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an epoch gave over both starts: in samples, and in batches of the ranks after the resume."""

    missing: int
    twice: int
    fewest_batches: int
    most_batches: int

    @classmethod
    def of(cls, before: list[list[list[int]]], after: list[list[list[int]]]) -> Outcome:
        """Count the batches of all ranks of two starts."""
        came = Counter(chain.from_iterable(chain.from_iterable(chain(before, after))))
        batches = [len(rank) for rank in after]
        return cls(_SAMPLES - len(came), came.total() - len(came), min(batches), max(batches))

    def __str__(self) -> str:
        """As it stands in tables."""
        batches = str(self.most_batches)
        if self.fewest_batches < self.most_batches:
            batches = f"{self.fewest_batches}-{self.most_batches}"
        return f"{self.missing} / {self.twice} / {batches}"


@click.command()
@click.option("--only", default="", help="Only the libraries whose name contains this text.")
@click.option("--write/--no-write", default=True, show_default=True, help="Keep the result in benchmarks/results.")
def main(only: str, write: bool) -> None:
    """Run every library through every move, print a table."""
    outcomes: dict[str, dict[str, Outcome | str]] = {}
    for name, peer in _PEERS.items():
        if only.lower() in name.lower():
            outcomes[name] = _outcomes(peer)
    table = Table(
        "ranks x batch", *outcomes, title=f"{_SAMPLES} samples: missing / twice / batches of a rank at the end"
    )
    for move in _MOVES:
        table.add_row(move.name, *(str(moves[move.name]) for moves in outcomes.values()))
    Console(width=150).print(table)
    if write:
        names = {
            name: [line for line in versions(_PEERS[name].environment) if _is_named(line, name)] for name in outcomes
        }
        kept = {name: {move: _to_json(outcome) for move, outcome in moves.items()} for name, moves in outcomes.items()}
        settings = {"samples": _SAMPLES, "stopped_after_steps": {move.name: move.steps for move in _MOVES}}
        write_result(result_path("elastic", only), {"settings": settings, "versions": names, "outcomes": kept})


def _is_named(version: str, name: str) -> bool:
    return version.partition("==")[0] in (_PACKAGES[_PEERS[name].environment], "torch")


def _to_json(outcome: Outcome | str) -> dict[str, Any]:
    return {"failed": outcome} if isinstance(outcome, str) else dataclasses.asdict(outcome)


def _outcomes(peer: Peer) -> dict[str, Outcome | str]:
    """Return what each move gave, or why it could not be run."""
    outcomes: dict[str, Outcome | str] = {}
    folder = _DATA / peer.module
    shutil.rmtree(folder, ignore_errors=True)
    try:
        _run(peer, "pack", folder, _SAMPLES)
    except CaseError as exc:
        return {move.name: str(exc) for move in _MOVES}
    for move in _MOVES:
        (folder / "state.pt").unlink(missing_ok=True)
        try:
            before = _run(peer, "load", folder, peer.loader, *move.before, move.steps)["ranks"]
            after = _run(peer, "load", folder, peer.loader, *move.after, _ALL)["ranks"]
            outcomes[move.name] = Outcome.of(before, after)
        except CaseError as exc:
            outcomes[move.name] = str(exc)
    return outcomes


def _run(peer: Peer, action: str, folder: Path, *arguments: object) -> dict[str, Any]:
    return run_process(
        [
            interpreter(peer.environment), "-m", "benchmarks.elastic.start",
            action, peer.module, folder, *map(str, arguments),
        ],
        environment=process_environment(peer.environment),
    )  # fmt: skip


if __name__ == "__main__":
    main()
