"""Memory and time of opening and shuffling sets of many short rows, fastio and its peers.

python -m benchmarks.scale.run [--most 10000000] [--rounds 3] [--only TEXT] [--no-write]

A fresh process opens the set and takes the first shuffled batch of 256: each library's own way to shuffle all of it,
its defaults otherwise. Sets stay in ``benchmarks/.data/scale`` and are not packed again; delete them to do so.
"""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.peers.environments import interpreter, process_environment, versions
from benchmarks.report import result_path, write_result
from benchmarks.rounds import CaseError, interleaved, run_process
from benchmarks.scale.chart import draw

__all__ = ["main"]

_DATA = Path(__file__).parent.parent / ".data" / "scale"
_LEAST = 10_000
_FACTOR = 10  # each set has so many times the rows of the one before
_PACKED = "packed.json"
_FIGURES = {
    "opened_wall_s": "opened, s",
    "first_wall_s": "first batch, s",
    "first_cpu_s": "CPU, s",
    "opened_private_mb": "opened, MB",
    "first_private_mb": "first batch, MB",
    "first_dirty_mb": "of it no file's, MB",
}


@dataclass(frozen=True, slots=True)
class Peer:
    """A library in one configuration; ``environment`` is the name of its virtual environment, "" the running one."""

    module: str
    package: str
    environment: str = ""
    opened: str = "opened"
    batches: str = "batches"


_PEERS = {
    "fastio, shuffle=True": Peer("of_fastio", "fastio"),
    'fastio, shuffle="full"': Peer("of_fastio", "fastio", batches="full"),
    'fastio, LMDB, shuffle="full"': Peer("of_fastio", "fastio", opened="opened_lmdb", batches="full"),
    "FastDataset in torch's DataLoader": Peer("of_fastio", "fastio", batches="data_loader"),
    "torch, RandomSampler": Peer("of_torch", "torch"),
    "Hugging Face datasets": Peer("of_datasets", "datasets"),
    "MosaicML Streaming": Peer("of_streaming", "mosaicml-streaming", "streaming"),
    "LitData": Peer("of_litdata", "litdata", "litdata"),
    "Grain": Peer("of_grain", "grain", "grain"),
}


@click.command()
@click.option("--most", default=10_000_000, show_default=True, help="Rows of the largest set; the smallest has 10,000.")
@click.option("--packing-s", default=120.0, show_default=True, help="No set that takes more CPU time to pack.")
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--only", default="", help="Only the libraries whose name contains this text.")
@click.option("--write/--no-write", default=True, show_default=True, help="Keep the result in benchmarks/results.")
def main(most: int, packing_s: float, rounds: int, only: str, write: bool) -> None:
    """Pack, measure, print medians; keep all rounds as JSON and draw them."""
    peers = {name: peer for name, peer in _PEERS.items() if only.lower() in name.lower()}
    packed: dict[str, dict[str, Any]] = {}
    for module, peer in {peer.module: peer for peer in peers.values()}.items():
        packed[module] = dict(_sets(peer, most, packing_s))
    cases = {
        f"{name}: {count}": (name, count)
        for name, peer in peers.items()
        for count, facts in packed[peer.module].items()
        if "left_out" not in facts
    }

    def measure(case: str) -> dict[str, Any]:
        name, count = cases[case]
        return _run(peers[name], int(count), peers[name].opened, peers[name].batches)

    measured = interleaved(cases, measure, rounds=rounds)
    rows = [{"name": cases[case][0], "rows": int(cases[case][1]), "runs": runs} for case, runs in measured.runs.items()]
    report = {
        "settings": {"rounds": rounds},
        "versions": {name: _versions(peer) for name, peer in peers.items()},
        "packed": packed,
        "failed": measured.failed,
        "rows": [{**row, **_medians(row["runs"])} for row in rows],
    }
    _print(report)
    if write:
        path = result_path("scale-peers", only)
        draw(write_result(path, report), path.with_suffix(".png"))


def _sets(peer: Peer, most: int, packing_s: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Pack what is not there yet, from the smallest set on; give what is known of each, or why it is left out."""
    count, expected_s = _LEAST, 0.0
    while count <= most:
        folder = _DATA / peer.module / str(count)
        known = folder / _PACKED
        if known.exists():
            facts = json.loads(known.read_text())
        elif expected_s > packing_s:
            facts = {"left_out": f"packing would take about {expected_s:.0f} s of CPU"}
        else:
            shutil.rmtree(folder, ignore_errors=True)
            try:
                facts = _run(peer, count)
                known.write_text(json.dumps(facts))
            except CaseError as exc:
                facts = {"left_out": str(exc)}
        yield str(count), facts
        if "left_out" in facts:
            return
        # What starting takes does not grow: from 10^6 rows on it no longer matters.
        expected_s = _FACTOR * facts["packed_cpu_s"] if count >= 1_000_000 else 0.0
        count *= _FACTOR


def _run(peer: Peer, count: int, *functions: str) -> dict[str, Any]:
    """Run one process of ``measure.py``."""
    command = [interpreter(peer.environment), "-m", "benchmarks.scale.measure", peer.module]
    folder = _DATA / peer.module / str(count)
    environment = process_environment(peer.environment)
    return run_process([*command, folder, str(count), *functions], environment=environment)


def _versions(peer: Peer) -> list[str]:
    """Return what was measured: the library, and torch."""
    if not peer.environment:
        return [f"{name}=={version(name)}" for name in dict.fromkeys((peer.package, "torch"))]
    return [line for line in versions(peer.environment) if line.partition("==")[0] in (peer.package, "torch")]


def _medians(runs: list[dict[str, Any]]) -> dict[str, float]:
    return {figure: statistics.median(run[figure] for run in runs) for figure in _FIGURES}


def _print(report: dict[str, Any]) -> None:
    table = Table("rows", "library", *_FIGURES.values())
    for row in sorted(report["rows"], key=lambda row: row["rows"]):
        cells = (row[figure] for figure in _FIGURES)
        shown = [f"{cell:.3g}" if cell < 100 else f"{cell:,.0f}" for cell in cells]
        table.add_row(f"{row['rows']:,}", row["name"], *shown)
    console = Console(width=140)
    console.print(table)
    for name, reason in report["failed"].items():
        console.print(f"{name}: {reason}")


if __name__ == "__main__":
    main()
