"""The page of ``bench bus``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastio.report.page import Bar, Bars, Page, Part, Prose, Section
from fastio.types.units import size

__all__ = ["bus_page"]


def bus_page(report: Mapping[str, Any]) -> Page:
    """Build the page from the form ``fastio.bench.bus``."""
    title, subject = "How fast the bus to the GPU is", "copies between host memory and the CUDA device"
    rates = report["rates"]
    if not rates:
        return Page(title, subject, [Section("Nothing was measured", [Prose(str(report["skipped"]))])])
    sections = []
    figures = []
    for direction in dict.fromkeys(rate["direction"] for rate in rates):
        one_way = [rate for rate in rates if rate["direction"] == direction]
        sections.append(Section(str(direction).capitalize(), [_bars(one_way)]))
        for memory in dict.fromkeys(rate["memory"] for rate in one_way):
            best = max(rate["bytes_per_s"] for rate in one_way if rate["memory"] == memory)
            figures.append((f"{direction}, {memory}", f"{size(best)}/s"))
    return Page(title, subject, sections, figures=figures)


def _bars(rates: list[Mapping[str, Any]]) -> Part:
    """Return pinned and pageable memory, size by size, so that both directions compare on one page."""
    bars = [
        Bar(
            f"{rate['memory']}, {size(rate['size_bytes'])}",
            rate["bytes_per_s"],
            f"{size(rate['bytes_per_s'])}/s",
            "training" if rate["memory"] == "pinned" else "loading",
            (rate["slowest_bytes_per_s"], rate["fastest_bytes_per_s"]),
        )
        for rate in sorted(rates, key=lambda rate: (rate["size_bytes"], rate["memory"] != "pinned"))
    ]
    return Bars("Bytes per second by the size of a copy: median, slowest and fastest of ten", bars)
