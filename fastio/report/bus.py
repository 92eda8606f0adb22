"""The page of ``bench bus``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastio.report.page import Bar, Bars, Page, Part, Prose, Section
from fastio.types.units import size

__all__ = ["bus_page"]


def bus_page(said: Mapping[str, Any]) -> Page:
    """Build the page from the form ``fastio.bench.bus``."""
    title, subject = "How fast the bus to the GPU is", "copies between host memory and the CUDA device"
    rates = said["rates"]
    if not rates:
        return Page(title, subject, [Section("Nothing was measured", [Prose(str(said["skipped"]))])])
    sections = []
    figures = []
    for direction in dict.fromkeys(each["direction"] for each in rates):
        found = [each for each in rates if each["direction"] == direction]
        sections.append(Section(str(direction).capitalize(), [_bars(found)]))
        for memory in dict.fromkeys(each["memory"] for each in found):
            best = max(each["bytes_per_s"] for each in found if each["memory"] == memory)
            figures.append((f"{direction}, {memory}", f"{size(best)}/s"))
    return Page(title, subject, sections, figures=figures)


def _bars(rates: list[Mapping[str, Any]]) -> Part:
    """Return pinned beside pageable memory, size by size, so that both directions compare on one page."""
    bars = [
        Bar(
            f"{each['memory']}, {size(each['size_bytes'])}",
            each["bytes_per_s"],
            f"{size(each['bytes_per_s'])}/s",
            "training" if each["memory"] == "pinned" else "loading",
            (each["slowest_bytes_per_s"], each["fastest_bytes_per_s"]),
        )
        for each in sorted(rates, key=lambda each: (each["size_bytes"], each["memory"] != "pinned"))
    ]
    return Bars("Bytes per second by the size of a copy: median, slowest and fastest of ten", bars)
