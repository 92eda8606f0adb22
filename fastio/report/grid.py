"""The page of ``bench grid``: every setting of a loader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastio.report.page import Cell, HeatMap, Page, Part, Prose, Section, Table
from fastio.report.steps import ms
from fastio.types.units import counted, number, per_second

__all__ = ["grid_page"]

_FIGURES = ("loading ms/step", "spread", "training ms/step", "start ms", "samples/s", "repeats")
_OPEN_ROWS = 40  # a longer table is folded


def grid_page(report: Mapping[str, Any]) -> Page:
    """Build the page from the form ``fastio.bench.grid``."""
    rows = report["rows"]
    data = list(dict.fromkeys(row["data"] for row in rows))
    best = rows[0]
    figures = [
        ("best loading", ms(best["loading_s"]) + "/step"),
        ("its samples/s", per_second(best["samples_per_s"])),
        ("slowest loading", ms(rows[-1]["loading_s"]) + "/step"),
        ("settings", number(len(rows))),
    ]
    settings = ", ".join(f"{name}={_value(value)}" for name, value in best["settings"].items())
    parts: list[Part] = [Prose(f"Best: {best['data']} with {settings}." if len(data) > 1 else f"Best: {settings}.")]
    parts += [heat for name in data if (heat := _heat([row for row in rows if row["data"] == name], name)) is not None]
    stopped = sum(row["stopped_early"] for row in rows)
    if stopped:
        parts.append(Prose(f"{counted(stopped, 'setting')} stopped early, marked *: much slower than the best one."))
    sections = [Section("Loading time", parts), Section("All settings", [_table(rows, several=len(data) > 1)])]
    return Page("Settings of a loader", ", ".join(data), sections, figures=figures)


def _heat(rows: list[Mapping[str, Any]], data: str) -> HeatMap | None:
    """Return loading time by the setting with most values, against all others that vary; None if nothing varies."""
    values = {name: list(dict.fromkeys(row["settings"][name] for row in rows)) for name in rows[0]["settings"]}
    varied = {name: sorted(distinct) for name, distinct in values.items() if len(distinct) > 1}
    if not varied:
        return None
    across = max(varied, key=lambda name: len(varied[name]))
    down = [name for name in varied if name != across]
    cells = {(tuple(row["settings"][name] for name in down), row["settings"][across]): row for row in rows}
    places = sorted({setting for setting, _ in cells})
    lines = [
        (
            ", ".join(f"{name} {_value(value)}" for name, value in zip(down, setting, strict=True)) or "all",
            [_cell(cells.get((setting, value))) for value in varied[across]],
        )
        for setting in places
    ]
    caption = f"{data}: median milliseconds per step that training waits; darker is better, the best is framed"
    return HeatMap(caption, across, [_value(value) for value in varied[across]], lines, less_is_better=True)


def _cell(row: Mapping[str, Any] | None) -> Cell | None:
    if row is None:
        return None
    return Cell(row["loading_s"], f"{row['loading_s'] * 1e3:,.2f}{'*' if row['stopped_early'] else ''}")


def _table(rows: list[Mapping[str, Any]], *, several: bool) -> Table:
    names = list(dict.fromkeys(name for row in rows for name in row["settings"]))
    lines = [
        [
            *([row["data"]] if several else []),
            *(_value(row["settings"].get(name, "-")) for name in names),
            f"{row['loading_s'] * 1e3:,.2f}",
            " to ".join(f"{seconds * 1e3:,.2f}" for seconds in row["loading_s_spread"]),
            f"{row['training_s'] * 1e3:,.2f}",
            f"{row['start_s'] * 1e3:,.1f}",
            per_second(row["samples_per_s"]),
            f"{row['repeats']}{'*' if row['stopped_early'] else ''}",
        ]
        for row in rows
    ]
    titles = [*(["data"] if several else []), *names, *_FIGURES]
    right = range(len(titles) - len(_FIGURES), len(titles))
    return Table(titles, lines, right, "Least loading time first", folded=len(rows) > _OPEN_ROWS)


def _value(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
