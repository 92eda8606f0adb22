"""Where fastio is first among its peers and where it is not, from the results that are kept.

python -m benchmarks.standings [RESULT.json ...]     without names: the newest of all peers, and the newest remote one
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.peer_report import Row, rows
from benchmarks.report import RESULTS

__all__ = ["Standing", "main", "peer_standings", "remote_standings", "standings_table"]


@dataclass(frozen=True, slots=True)
class Standing:
    """
    fastio's best row of a task and the best peer's; rates are samples a CPU-second, or a second where ``unit`` says.

    Only rows that keep the pixels of the photos stand against each other; ``changed`` is the best peer that made
    other pictures of them when packing, if it is faster than fastio, with its rate.
    """

    title: str
    ours: str
    rate: float
    peer: str
    peer_rate: float
    unit: str = "CPU-s"
    changed: str = ""

    @property
    def ratio(self) -> float:
        """How many times the best peer's rate fastio's is."""
        return self.rate / self.peer_rate


def peer_standings(report: dict[str, Any]) -> Iterator[Standing]:
    """One a task in which both fastio and a peer could be run."""
    for name, task in report["tasks"].items():
        ran = [row for row in rows(report, name) if row.summary]
        ours = _best(row for row in ran if row.ours and row.keeps_pixels)
        peer = _best(row for row in ran if not row.ours and row.keeps_pixels)
        changed = _best(row for row in ran if not row.ours and not row.keeps_pixels)
        if ours is None or peer is None:
            continue
        faster = changed is not None and _rate(changed) > _rate(ours)
        remark = f"{changed.name}: {_rate(changed):,.0f} ({changed.remark})" if changed and faster else ""
        yield Standing(task["title"], ours.name, _rate(ours), peer.name, _rate(peer), changed=remark)


def remote_standings(report: dict[str, Any]) -> Iterator[Standing]:
    """One for each way in which the server was slow: photos a second, for the way is the limit."""
    rates = {
        tuple(name.split(": ")): statistics.median(run["samples"] / run["wall_s"] for run in runs)
        for name, runs in report["runs"].items()
    }
    for way in dict.fromkeys(way for way, _ in rates):
        peers = {peer: rate for (other, peer), rate in rates.items() if other == way and peer != "fastio"}
        if peers and (way, "fastio") in rates:
            best = max(peers, key=lambda peer: peers[peer])
            title = f"photos from a server: {way}"
            yield Standing(title, "fastio", rates[way, "fastio"], best, peers[best], unit="s")


def standings_table(standings: Iterable[Standing]) -> Table:
    """One line a task; a task in which fastio is not first says so."""
    table = Table(title="fastio and the best peer that keeps the pixels")
    for heading in ("task", "", "fastio", "samples", "best peer", "samples", "ratio", "faster with other pictures"):
        table.add_column(heading, justify="right" if heading in ("samples", "ratio") else "left")
    for standing in standings:
        table.add_row(
            standing.title,
            "first" if standing.ratio >= 1 and not standing.changed else "NOT FIRST",
            standing.ours,
            f"{standing.rate:,.0f} / {standing.unit}",
            standing.peer,
            f"{standing.peer_rate:,.0f}",
            f"{standing.ratio:.2f}",
            standing.changed,
        )
    return table


def _best(candidates: Iterable[Row]) -> Row | None:
    return max(candidates, key=_rate, default=None)


def _rate(row: Row) -> float:
    return row.summary.per_cpu_second if row.summary else 0.0


def _newest() -> Iterator[Path]:
    """The newest result of all peers at all tasks, and the newest remote one."""
    for ending in ("peers", "remote"):
        yield from sorted(RESULTS.glob(f"*-{ending}.json"))[-1:]


@click.command(help=__doc__)
@click.argument("results", type=click.Path(exists=True, dir_okay=False, path_type=Path), nargs=-1)
def main(results: tuple[Path, ...]) -> None:
    """Print the standings of kept results."""
    for path in results or _newest():
        report = json.loads(path.read_text())
        standings = peer_standings(report) if "tasks" in report else remote_standings(report)
        table = standings_table(standings)
        table.caption = f"{path.name}: {report['machine']['cpu']}, {report['date']}"
        Console(width=200).print(table)


if __name__ == "__main__":
    main()
