"""The page of ``tune``: the chosen setting, and the others tried."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastio.report.page import Bar, Bars, Code, Page, Prose, Section, Table
from fastio.report.steps import rate
from fastio.types.units import counted, per_second

__all__ = ["tune_page"]

_BARS = 20  # settings shown as bars; the table has all


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
    caption = "Samples per second, median of the rounds; among settings within 3 % of the best, the cheapest wins"
    rows = [(_words(point["settings"]), per_second(point["samples_per_s"]), str(point["rounds"])) for point in tried]
    table = Table(("setting", "samples/s", "rounds"), rows, (1, 2), "Ordered by how long each stayed in the race")
    sections = [
        Section("Paste this", [Code(report["code"].rstrip())]),
        Section("Rates", [Bars(caption, bars)]),
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
