"""Memory and time against the number of rows, from the JSON that is kept of a run.

python -m benchmarks.scale.chart RESULT.json OUT.png
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.chart import INK, OURS, OURS_CHANGED

__all__ = ["draw"]

# fastio in blues; the others in colours that can be told apart.
_OURS = (OURS, OURS_CHANGED, "#5b3fa8")
_PEERS = ("#20262d", "#d1495b", "#c77d0a", "#2e8b57", "#8a8f98", "#a0522d")
_MARKERS = "osD^vPX<>"
_PANELS = {
    "first_private_mb": "private memory after the first batch, MB",
    "first_dirty_mb": "of it no page of a file, MB",
    "first_wall_s": "seconds until the first batch",
    "first_cpu_s": "CPU seconds until the first batch",
}


def draw(report: dict[str, Any], path: Path) -> None:
    """Write a PNG with a panel of each figure, and a line a library."""
    names = list(dict.fromkeys(row["name"] for row in report["rows"]))
    ours = iter(_OURS)
    others = iter(_PEERS)
    colours = {name: next(ours if name.startswith("fastio") else others) for name in names}
    figure = Figure(figsize=(18.5, 5.4), layout="constrained", facecolor="white")
    panels = figure.subplots(1, len(_PANELS))
    for axes, (key, title) in zip(panels, _PANELS.items(), strict=True):
        for number, name in enumerate(names):
            rows = [row for row in report["rows"] if row["name"] == name]
            axes.plot(
                [row["rows"] for row in rows],
                [row[key] for row in rows],
                color=colours[name],
                marker=_MARKERS[number],
                markersize=5,
                linewidth=2.2 if name.startswith("fastio") else 1.4,
                label=name,
            )
        _plain(axes, title)
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False, fontsize=9
    )
    rounds = report["settings"]["rounds"]
    how = f"medians of {rounds} rounds" if rounds > 1 else "one round"
    figure.suptitle(
        f"Rows of 10 token ids ({report['machine']['cpu']}, {report['date']}, {how})", fontsize=11, color=INK
    )
    FigureCanvasAgg(figure).print_png(path)


def _plain(axes: Axes, title: str) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title(title, fontsize=10, color=INK)
    axes.set_xlabel("rows", fontsize=9, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8.5)
    axes.grid(color="#e4e7eb", linewidth=0.8)
    axes.set_axisbelow(True)


def main(result: Path, out: Path) -> None:
    """Draw the chart of a kept result anew."""
    draw(json.loads(result.read_text()), out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
