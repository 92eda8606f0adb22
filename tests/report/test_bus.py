"""The page of bench bus, from figures that no GPU is needed for."""

from __future__ import annotations

from typing import Any

from fastio.report.bus import bus_page
from fastio.report.page import Bars


def rate(direction: str, memory: str, size_bytes: int, bytes_per_s: float) -> dict[str, Any]:
    """A line of the form."""
    spread = {"slowest_bytes_per_s": bytes_per_s / 2, "fastest_bytes_per_s": bytes_per_s * 2}
    about = {"direction": direction, "memory": memory, "size_bytes": size_bytes}
    return {**about, "bytes_per_s": bytes_per_s, **spread}


def test_pinned_stands_beside_pageable() -> None:
    """A section for each direction, its bars by size; the figures are the best rates."""
    rates = [
        rate("host to device", memory, size_bytes, size_bytes * factor)
        for memory, factor in (("pinned", 2.0), ("pageable", 1.0))
        for size_bytes in (1_000, 1_000_000)
    ]
    page = bus_page({"skipped": None, "rates": rates})
    (bars,) = page.sections[0].parts
    assert isinstance(bars, Bars)

    assert ["Host to device"] == [section.title for section in page.sections]
    assert ["pinned, 1.0 kB", "pageable, 1.0 kB", "pinned, 1.0 MB", "pageable, 1.0 MB"] == [
        bar.name for bar in bars.bars
    ]
    assert [("host to device, pinned", "2.0 MB/s"), ("host to device, pageable", "1.0 MB/s")] == list(page.figures)


def test_without_a_gpu() -> None:
    """The page says why nothing was measured."""
    page = bus_page({"skipped": "no CUDA device here", "rates": []})

    assert "no CUDA device here" in str(page.sections[0].parts)
