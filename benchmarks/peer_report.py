"""The tables of a run with peers, from the JSON that is kept of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from benchmarks.report import Summary, summary

__all__ = ["Row", "case_name", "rows", "tables"]


@dataclass(frozen=True, slots=True)
class Row:
    """One peer at one task: a summary, or the reason why there is none."""

    name: str
    remark: str
    ours: bool
    keeps_pixels: bool
    size_mb: float | None
    summary: Summary | None
    error: float | None  # mean absolute difference from Pillow, of 255
    reason: str


def case_name(task: str, peer: str) -> str:
    """The name of a peer's runs of a task."""
    return f"{task}: {peer}"


def rows(report: dict[str, Any], task: str) -> list[Row]:
    """All peers of a task, the least CPU time first, those that could not be run last."""
    found = []
    for name, peer in report["tasks"][task]["peers"].items():
        runs = report["runs"].get(case_name(task, name))
        size = peer["packing"].get("size_bytes")
        found.append(
            Row(
                name=name,
                remark=peer["remark"],
                ours=not peer["environment"],
                keeps_pixels=peer["keeps_pixels"],
                size_mb=None if size is None else size / 1e6,
                summary=summary(runs) if runs else None,
                error=runs[0].get("error") if runs else None,
                reason=report["failed"].get(case_name(task, name), ""),
            )
        )
    return sorted(found, key=lambda row: row.summary.cpu_us if row.summary else float("inf"))


def tables(report: dict[str, Any]) -> Iterator[Table]:
    """One table a task."""
    for name, task in report["tasks"].items():
        table = Table(title=f"{task['title']}: samples a second, medians of {report['settings']['rounds']} rounds")
        for heading in ("peer", "per CPU-second", "min - max", "wall", "us CPU", "first batch s", "RSS MB", "disk MB"):
            table.add_column(heading, justify="left" if heading == "peer" else "right", no_wrap=True)
        table.add_column("off Pillow by", justify="right", no_wrap=True)
        table.add_column("remark")
        for row in rows(report, name):
            table.add_row(row.name, *_figures(row), row.remark if row.summary else f"not run: {row.reason}")
        yield table


def _figures(row: Row) -> list[str]:
    if row.summary is None:
        return [""] * 8
    s = row.summary
    return [
        f"{s.per_cpu_second:,.0f}",
        f"{s.slowest:,.0f} - {s.fastest:,.0f}",
        f"{s.per_second:,.0f}",
        f"{s.cpu_us:,.3g}" if s.cpu_us < 100 else f"{s.cpu_us:,.0f}",
        "" if s.first_batch_s is None else f"{s.first_batch_s:.2f}",
        "" if s.peak_rss_mb is None else f"{s.peak_rss_mb:,.0f}",
        "" if row.size_mb is None else f"{row.size_mb:,.0f}",
        "" if row.error is None else f"{row.error:.3g}",
    ]
