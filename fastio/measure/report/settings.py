"""Pages about settings that were compared: a grid of loaders, tuning, decoders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastio.measure.report.loop import ms, opened, rate
from fastio.measure.report.page import Bar, Bars, Cell, Code, HeatMap, Page, Part, Prose, ReferenceLine, Section, Table
from fastio.types.units import counted, number, per_second

__all__ = [
    "decode_page",
    "grid_page",
    "tune_page",
]


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
    """Return a row for each setting; the spread where there are repeats, files opened where there are files."""
    names = list(dict.fromkeys(name for row in rows for name in row["settings"]))
    is_spread = any(row["repeats"] > 1 for row in rows)
    opens = any(row["opens_per_s"] for row in rows)
    lines = [
        [
            *([row["data"]] if several else []),
            *(_value(row["settings"].get(name, "-")) for name in names),
            f"{row['loading_s'] * 1e3:,.2f}",
            *([" to ".join(f"{seconds * 1e3:,.2f}" for seconds in row["loading_s_spread"])] if is_spread else []),
            f"{row['training_s'] * 1e3:,.2f}",
            f"{row['start_s'] * 1e3:,.1f}",
            per_second(row["samples_per_s"]),
            *([opened(row["opens_per_s"])] if opens else []),
            f"{row['repeats']}{'*' if row['stopped_early'] else ''}",
        ]
        for row in rows
    ]
    figures = ["loading ms/step", *(["spread"] if is_spread else []), "training ms/step", "start ms", "samples/s"]
    figures += [*(["files opened/s"] if opens else []), "rounds"]
    titles = [*(["data"] if several else []), *names, *figures]
    right = range(len(titles) - len(figures), len(titles))
    return Table(titles, lines, right, "Least loading time first", folded=len(rows) > _OPEN_ROWS)


def _value(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


# The page of ``tune``: the chosen setting, and the others tried.

_BARS = 20  # settings shown as bars; the table has all
_LISTED = 5  # of which a terminal shows the best


def tune_page(report: Mapping[str, Any]) -> Page:
    """Build the page from the form ``fastio.tune``."""
    tried = report["tried"]
    shown = sorted(tried, key=lambda point: -point["samples_per_s"])[:_BARS]
    chosen = report["settings"]
    if all(point["settings"] != chosen for point in shown):
        shown[-1] = next(point for point in tried if point["settings"] == chosen)
    bars = [
        Bar(
            _words(point["settings"]),
            point["samples_per_s"],
            per_second(point["samples_per_s"]) + (", chosen" if point["settings"] == chosen else ""),
            "training" if point["settings"] == chosen else "plain",
        )
        for point in shown
    ]
    caption = "Samples per second, median of the rounds; among settings within 3% of the best, the cheapest wins"
    rows = [(_words(point["settings"]), per_second(point["samples_per_s"]), str(point["rounds"])) for point in tried]
    order = "Ordered by how long each stayed in the race"
    table = Table(("setting", "samples/s", "rounds"), rows, (1, 2), order, shown=_LISTED)
    paste: list[Part] = [Code(report["code"].rstrip())]
    if "'***'" in report["code"]:
        paste.append(
            Prose("*** stands for a secret: put yours there, or leave the option out where the environment has it.")
        )
    sections = [
        Section("Paste this", paste),
        Section("Rates", [Bars(caption, bars, tabled=True)]),
        Section("All settings", [table]),
    ]
    if not report["is_complete"]:
        line = "Time ran out before the best settings had met often enough to be sure: raise --seconds."
        sections.insert(1, Section("Not sure yet", [Prose(line)]))
    figures = [
        ("chosen", rate(report["samples_per_s"])),
        ("settings tried", counted(len(tried), "setting")),
        ("took", f"{report['seconds']:.0f} s"),
    ]
    return Page("The best setting of a loader", report["data"], sections, figures=figures)


def _words(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())


# The page of ``bench decode``.


def decode_page(report: Mapping[str, Any]) -> Page:
    """Build the page from the form ``fastio.bench.decode``; other decoders are compared with its first one."""
    decoders = report["decoders"]
    base = decoders[0]
    bars = Bars(
        "Images per second of one CPU, with the spread of the rounds",
        [
            Bar(
                decoder["name"],
                decoder["images_per_cpu_s"],
                f"{per_second(decoder['images_per_cpu_s'])} "
                f"({decoder['images_per_cpu_s'] / base['images_per_cpu_s']:.2f}x)",
                "training" if decoder["name"].startswith("fastio") else "plain",
                (decoder["slowest_images_per_cpu_s"], decoder["fastest_images_per_cpu_s"]),
            )
            for decoder in decoders
        ],
        ReferenceLine("the first decoder", base["images_per_cpu_s"], base["name"]),
        tabled=True,
    )
    rows = [
        (
            decoder["name"],
            per_second(decoder["images_per_cpu_s"]),
            f"{per_second(decoder['slowest_images_per_cpu_s'])} to {per_second(decoder['fastest_images_per_cpu_s'])}",
            f"{decoder['images_per_cpu_s'] / base['images_per_cpu_s']:.2f}x",
            f"{decoder['mean_difference']:.3f}",
            f"{decoder['p99_difference']:.0f}",
            str(decoder["max_difference"]),
        )
        for decoder in decoders
    ]
    titles = ("decoder", "images/CPU-s", "rounds", f"of {base['name']}", "mean difference", "99% below", "greatest")
    caption = f"Differences are those from the pixels of {base['name']}, of 255"
    table = Table(titles, rows, range(1, len(titles)), caption)
    figures = [("pictures", number(report["pictures"])), ("rounds", number(report["rounds"]))]
    figures.append(("crop", "none" if report["crop"] is None else f"{report['crop']} pixels"))
    sections = [Section("Rates", [bars]), Section("Rates and pixels", [table])]
    return Page("Decoders on one CPU", report["data"], sections, figures=figures)
