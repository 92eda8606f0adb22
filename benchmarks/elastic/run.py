"""Stop an epoch and go on with other ranks: what is missing, what comes twice, who gets fewer batches, in which order.

python -m benchmarks.elastic.run [--only TEXT] [--no-write]

An epoch of 1,000 samples is stopped and continued, once or twice, with other ranks and batches. Each library is used as
its documentation shows, with its defaults, shuffled, without workers: real processes, over gloo where it has torch. The
first move is the control, which goes on with as many ranks as before.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import chain, zip_longest
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
    package: str
    environment: str = ""
    loader: str = "loader"


_OURS = {
    "fastio": Peer("of_fastio", "fastio"),
    'fastio, shuffle="full"': Peer("of_fastio", "fastio", loader="full"),
    "fastio, Mixture": Peer("of_fastio", "fastio", loader="mixture"),
    "fastio, buckets": Peer("of_fastio", "fastio", loader="buckets"),
    "fastio, packs": Peer("of_fastio", "fastio", loader="packs"),
    "fastio, token windows": Peer("of_fastio", "fastio", loader="windows"),
}
_PEERS = {
    "MosaicML Streaming": Peer("of_streaming", "mosaicml-streaming", "streaming"),
    "Grain, ElasticIterator": Peer("of_grain", "grain", "grain", "elastic"),
    "Grain": Peer("of_grain", "grain", "grain"),
    "LitData": Peer("of_litdata", "litdata", "litdata"),
    "LitData, drop_last=False": Peer("of_litdata", "litdata", "litdata", "keeping_loader"),
    "torchdata": Peer("of_torchdata", "torchdata"),
    "Hugging Face datasets": Peer("of_datasets", "datasets"),
}
_MIXED = {
    "MosaicML Streaming, streams": Peer("of_streaming", "mosaicml-streaming", "streaming", "mixture"),
    "Grain, mix, ElasticIterator": Peer("of_grain", "grain", "grain", "elastic_mixture"),
    "Grain, mix": Peer("of_grain", "grain", "grain", "mixture"),
    "LitData, combined": Peer("of_litdata", "litdata", "litdata", "mixture"),
    "torchdata, nodes": Peer("of_torchdata", "torchdata", loader="mixture"),
    "Hugging Face datasets, interleaved": Peer("of_datasets", "datasets", loader="mixture"),
    "Grain, first fit": Peer("of_grain", "grain", "grain", "packs"),
}


@dataclass(frozen=True, slots=True)
class Move:
    """Starts, each ``(ranks, batch size, steps)``; the last one takes all that is left."""

    legs: tuple[tuple[int, int, int], ...]

    @property
    def name(self) -> str:
        """As it stands in tables."""
        return " -> ".join(f"{ranks} x {batch}" for ranks, batch, _ in self.legs)

    @property
    def first_step(self) -> int:
        """How many samples the first start has in a step."""
        ranks, batch, _ = self.legs[0]
        return ranks * batch


_MOVES = (
    Move(((4, 10, 12), (4, 10, _ALL))),
    Move(((4, 10, 12), (3, 10, _ALL))),
    Move(((4, 10, 12), (5, 10, _ALL))),
    Move(((4, 10, 12), (6, 10, _ALL))),
    Move(((8, 10, 6), (5, 10, _ALL))),
    # The same number of samples in a step.
    Move(((4, 12, 10), (3, 16, _ALL))),
    Move(((4, 15, 8), (5, 12, _ALL))),
    Move(((4, 12, 10), (6, 8, _ALL))),
    Move(((8, 5, 12), (5, 8, _ALL))),
    # Numbers that divide nothing, and ranks that leave and join within an epoch.
    Move(((7, 9, 8), (5, 11, _ALL))),
    Move(((3, 7, 20), (13, 3, _ALL))),
    Move(((4, 10, 6), (3, 10, 9), (6, 10, _ALL))),
)

_Ranks = list[list[list[int]]]  # the numbers of each batch of each rank


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    What an epoch gave over all starts: in samples, and in batches of the ranks in the last one.

    ``is_order_kept``: each step has the samples that one process gets at these places, which has batches of one or as
    large as the steps of the first start.
    ``proof``: what the library says itself of all starts together; None: it says nothing.
    """

    missing: int
    twice: int
    fewest_batches: int
    most_batches: int
    is_order_kept: bool
    proof: str | None

    @classmethod
    def of(cls, starts: Sequence[_Ranks], orders: Sequence[list[int]], *, proof: str | None) -> Outcome:
        """Count the batches of all ranks of all starts."""
        came = Counter(chain.from_iterable(chain.from_iterable(chain.from_iterable(starts))))
        batches = [len(rank) for rank in starts[-1]]
        steps = [list(chain(*step)) for ranks in starts for step in zip_longest(*ranks, fillvalue=())]
        is_kept = any(_is_in_order(steps, order) for order in orders)
        return cls(_SAMPLES - len(came), came.total() - len(came), min(batches), max(batches), is_kept, proof)

    def __str__(self) -> str:
        """As it stands in tables."""
        batches = str(self.most_batches)
        if self.fewest_batches < self.most_batches:
            batches = f"{self.fewest_batches}-{self.most_batches}"
        words = ["same order" if self.is_order_kept else "another order"]
        words += [] if self.proof is None else [self.proof]
        return f"{self.missing} / {self.twice} / {batches}, {', '.join(words)}"


def _is_in_order(steps: list[list[int]], order: list[int]) -> bool:
    """Return whether each step has the next samples of ``order``; the last one may repeat others, too."""
    at = 0
    for step in steps[:-1]:
        if Counter(step) != Counter(order[at : at + len(step)]):
            return False
        at += len(step)
    return set(order[at : at + len(steps[-1])]) <= set(steps[-1])


@click.command()
@click.option("--only", default="", help="Only the libraries whose name contains this text.")
@click.option("--write/--no-write", default=True, show_default=True, help="Keep the result in benchmarks/results.")
def main(only: str, write: bool) -> None:
    """Run every library through every move, print tables: fastio, the others, their mixtures and packs."""
    outcomes: dict[str, dict[str, Outcome | str]] = {}
    for group in (_OURS, _PEERS, _MIXED):
        names = [name for name in group if only.lower() in name.lower()]
        outcomes |= {name: _outcomes(group[name]) for name in names}
        if names:
            table = Table("ranks x batch", *names, title=f"{_SAMPLES} samples: missing / twice / batches at the end")
            for move in _MOVES:
                table.add_row(move.name, *(str(outcomes[name][move.name]) for name in names))
            Console(width=220).print(table)
    if write:
        peers = {**_OURS, **_PEERS, **_MIXED}
        kept = {name: {move: _to_json(outcome) for move, outcome in moves.items()} for name, moves in outcomes.items()}
        settings = {"samples": _SAMPLES, "legs": {move.name: move.legs for move in _MOVES}}
        write_result(
            result_path("elastic", only),
            {"settings": settings, "versions": {name: _versions(peers[name]) for name in outcomes}, "outcomes": kept},
        )


def _versions(peer: Peer) -> list[str]:
    """Return what was measured: the library, and torch."""
    if not peer.environment:
        return [f"{name}=={version(name)}" for name in (peer.package, "torch")]
    return [line for line in versions(peer.environment) if line.partition("==")[0] in (peer.package, "torch")]


def _to_json(outcome: Outcome | str) -> dict[str, Any]:
    return {"failed": outcome} if isinstance(outcome, str) else dataclasses.asdict(outcome)


def _outcomes(peer: Peer) -> dict[str, Outcome | str]:
    """Return what each move gave, or why it could not be run."""
    folder = _DATA / peer.module
    shutil.rmtree(folder, ignore_errors=True)
    sizes = sorted({1, *(move.first_step for move in _MOVES)})
    moves = json.dumps([*(((1, size, _ALL),) for size in sizes), *(move.legs for move in _MOVES)])
    command = [interpreter(peer.environment), "-m", "benchmarks.elastic.start", peer.module, folder, peer.loader]
    try:
        answer = run_process([*command, str(_SAMPLES), moves], environment=process_environment(peer.environment))
    except CaseError as exc:
        return {move.name: str(exc) for move in _MOVES}
    alone, answers = answer["moves"][: len(sizes)], answer["moves"][len(sizes) :]
    orders = {
        size: list(chain.from_iterable(got["starts"][0][0]))
        for size, got in zip(sizes, alone, strict=True)
        if "failed" not in got
    }
    return {
        move.name: got["failed"]
        if "failed" in got
        else Outcome.of(
            got["starts"], [orders[size] for size in (1, move.first_step) if size in orders], proof=got["proof"]
        )
        for move, got in zip(_MOVES, answers, strict=True)
    }


if __name__ == "__main__":
    main()
