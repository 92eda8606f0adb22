"""The chart of a run with peers, from the JSON that is kept of it.

python -m benchmarks.chart RESULT.json OUT_FOLDER
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from benchmarks.peer_report import Row, rows

__all__ = ["draw_charts"]

CHARTED = ("random_224", "center_224")  # tasks that the same peers do
OURS, OURS_CHANGED, PEER, PEER_CHANGED, INK = "#1558b0", "#8fb8ea", "#9aa3ad", "#e0b070", "#20262d"


def draw_charts(report: dict[str, Any], folder: Path) -> Iterator[Path]:
    """Write a PNG of the photos, if the report has their tasks; give its path."""
    photos = [task for task in CHARTED if task in report["tasks"]]
    if photos:
        yield _save(_photos(report, photos), folder / "peers-photos.png")


def _photos(report: dict[str, Any], tasks: Sequence[str]) -> Figure:
    """A panel a task, and one for the disk; the peers in the order of the first task."""
    order = [row.name for row in rows(report, tasks[0])]
    figure = Figure(figsize=(12.5, 1.6 + 0.36 * len(order)), layout="constrained", facecolor="white")
    panels = figure.subplots(1, len(tasks) + 1, sharey=True, width_ratios=[3.0] * len(tasks) + [1.5])
    for axes, task in zip(panels, tasks, strict=False):
        found = {row.name: row for row in rows(report, task)}
        _rates(axes, [found[name] for name in order], report["tasks"][task]["title"])
    first = {row.name: row for row in rows(report, tasks[0])}
    _disk(panels[-1], [first[name] for name in order])
    _names(panels[0], [first[name] for name in order])
    handles = _legend(list(first.values()), report)
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    figure.suptitle(f"Images per CPU-second ({_where(report)})", fontsize=11, color=INK)
    return figure


def _rates(axes: Axes, found: Sequence[Row], title: str) -> None:
    """Bars and their values, a line over the rounds, a ring for the wall rate; a reason where there is no rate."""
    fastest = max((max(row.summary.fastest, row.summary.per_second) for row in found if row.summary), default=1.0)
    for place, row in enumerate(found):
        if row.summary is None:
            axes.text(fastest * 0.01, place, f"not run: {row.reason[:60]}", va="center", fontsize=8, color=INK)
            continue
        s = row.summary
        axes.barh(place, s.per_cpu_second, color=_colour(row), height=0.62)
        axes.plot([s.slowest, s.fastest], [place, place], color=INK, linewidth=1.2)
        axes.plot(s.per_second, place, marker="o", markersize=5, markerfacecolor="white", markeredgecolor=INK)
        value = f"{s.per_cpu_second:,.0f}"  # in a column of its own, where no ring can cover it
        column = axes.get_yaxis_transform()
        axes.text(1.0, place, value, transform=column, ha="right", va="center", fontsize=8.5, color=INK)
    axes.set_xlim(0, fastest * 1.22)
    _plain(axes, title)


def _disk(axes: Axes, found: Sequence[Row]) -> None:
    """What the packed form takes, as a multiple of the photos."""
    sizes = [row.size_mb for row in found if row.size_mb is not None and row.keeps_pixels]
    photos = min(sizes, default=1.0)
    for place, row in enumerate(found):
        if row.size_mb is not None:
            axes.barh(place, row.size_mb / photos, color=_colour(row), height=0.62)
            axes.annotate(
                f"{row.size_mb / photos:.2f}",
                (row.size_mb / photos, place),
                (4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
            )
    axes.set_xlim(0, 1.3 * max((row.size_mb or 0) / photos for row in found))
    _plain(axes, "disk, times the photos")


def _names(axes: Axes, found: Sequence[Row]) -> None:
    axes.set_yticks(range(len(found)), [f"{row.name}  ({row.remark})" if row.remark else row.name for row in found])
    axes.invert_yaxis()
    for label, row in zip(axes.get_yticklabels(), found, strict=True):
        label.set_fontsize(9)
        label.set_fontweight("bold" if row.ours else "normal")


def _plain(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=10, color=INK)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False, labelsize=8.5)
    axes.grid(axis="x", color="#e4e7eb", linewidth=0.8)
    axes.set_axisbelow(True)


def _colour(row: Row) -> str:
    if row.ours:
        return OURS if row.keeps_pixels else OURS_CHANGED
    return PEER if row.keeps_pixels else PEER_CHANGED


def _legend(found: Sequence[Row], report: dict[str, Any]) -> list[Any]:
    """The colours that are used, and the marks."""
    meanings = {
        OURS: "fastio",
        OURS_CHANGED: "fastio, pixels changed at packing",
        PEER: "peers",
        PEER_CHANGED: "peers, pixels changed at packing",
    }
    used = {_colour(row) for row in found}
    marks = f"ring: wall, {report['settings']['threads']} threads or workers; line: rounds"
    ring = Line2D([], [], color=INK, marker="o", markerfacecolor="white", markersize=5, linewidth=1.2, label=marks)
    return [*(Patch(color=colour, label=text) for colour, text in meanings.items() if colour in used), ring]


def _where(report: dict[str, Any]) -> str:
    rounds = report["settings"]["rounds"]
    return (
        f"{report['machine']['cpu']}, {report['date']}, {f'medians of {rounds} rounds' if rounds > 1 else 'one round'}"
    )


def _save(figure: Figure, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure).print_png(path)
    return path


def main(result: Path, folder: Path) -> None:
    """Draw the charts of a kept result anew."""
    for path in draw_charts(json.loads(result.read_text()), folder):
        print(f"drawn: {path}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
