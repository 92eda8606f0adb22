"""The table of a run, from the JSON that is kept of it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table

__all__ = ["LOCAL", "row_table", "table"]

LOCAL = "local files: fastio"  # the case that the others are compared with

_Run = dict[str, Any]


def table(report: dict[str, Any]) -> Table:
    """One line a case: medians, and the range of what varies; those that could not be run with the reason."""
    settings = report["settings"]
    result = Table(
        title=f"{settings['samples']:,} photos, {settings['photo_bytes'] / 1e9:.2f} GB, RandomResizedCrop(224), "
        f"{settings['rounds']} rounds"
    )
    for heading in (
        "case", "photos/s", "min - max", "of local", "/ CPU-s", "CPU-s/GiB", "first batch s", "GETs", "GETs/block",
        "bytes/set", "second epoch",
    ):  # fmt: skip
        result.add_column(heading, justify="left" if heading == "case" else "right")
    for name, runs in report["runs"].items():
        result.add_row(name, *_cells(runs, settings["photo_bytes"], report["runs"].get(LOCAL, [])))
    for name, reason in report["failed"].items():
        result.add_row(name, reason)
    return result


def row_table(report: dict[str, Any]) -> Table:
    """One line a case: medians; bytes are those of the samples, whatever a format adds to them."""
    settings = report["settings"]
    size, what = settings["size_bytes"], "PNGs" if settings["pictures"] else "rows"
    result = Table(title=f"{settings['samples']:,} {what}, {size / 1e6:.1f} MB, {settings['rounds']} rounds")
    for heading in ("case", "first batch s", "all s", "CPU-s", "requests", "bytes/set", "moved", "apart"):
        result.add_column(heading, justify="left" if heading == "case" else "right")
    for name, runs in report["runs"].items():
        cells = [f"{_median(runs, lambda run, key=key: run[key]):.2f}" for key in ("first_batch_s", "wall_s", "cpu_s")]
        cells.append(f"{_median(runs, lambda run: run['requests']['gets'] + run['requests']['others']):,.0f}")
        cells.append(f"{_median(runs, lambda run: run['requests']['sent_bytes'] / size):.3f}")
        if "moved" in runs[0]:
            cells += [f"{_median(runs, lambda run, key=key: run[key]):.3f}" for key in ("moved", "apart")]
        result.add_row(name, *cells)
    for name, reason in report["failed"].items():
        result.add_row(name, reason)
    return result


def _cells(runs: Sequence[_Run], size: int, local: Sequence[_Run]) -> list[str]:
    rates = [run["samples"] / run["wall_s"] for run in runs]
    of_local = [other["wall_s"] / run["wall_s"] for run, other in zip(runs, local, strict=False)]  # round by round
    cells = [
        f"{statistics.median(rates):,.0f}",
        f"{min(rates):,.0f} - {max(rates):,.0f}",
        f"{statistics.median(of_local):.2f}" if of_local else "",
        f"{_median(runs, lambda run: run['samples'] / run['cpu_s']):,.0f}",
        f"{_median(runs, lambda run: run['cpu_s'] / (size / 2**30)):.2f}",
        f"{_median(runs, lambda run: run['first_batch_s']):.2f}",
    ]
    if not runs[0]["requests"]["gets"]:
        return [*cells, "", "", "", ""]
    second = [run["epochs"][1]["sent_bytes"] / size for run in runs if len(run["epochs"]) > 1]
    return [
        *cells,
        f"{_median(runs, lambda run: run['requests']['gets']):,.0f}",
        f"{_median(runs, lambda run: run['requests']['gets'] / run['requests']['blocks']):.3f}",
        f"{_median(runs, lambda run: run['epochs'][0]['sent_bytes'] / size):.3f}",
        f"{statistics.median(second):.3f} of the bytes" if second else "",
    ]


def _median(runs: Sequence[_Run], value: Callable[[_Run], float]) -> float:
    return statistics.median(value(run) for run in runs)
