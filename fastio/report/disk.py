"""The page of ``bench disk``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastio.measure.machine.disk import EXPECTED_DISK, EXPECTED_NVME, expected_rate
from fastio.measure.machine.disk_kind import DiskKind, kind_in_words
from fastio.report.page import Bar, Bars, Page, Part, Prose, ReferenceLine, Section, Table
from fastio.types.units import number, per_second, size

__all__ = ["disk_page"]

_CACHES = {"cold": "From the disk", "warm": "From memory"}
_KINDS = {"nvme": "NVMe", "flash": "flash, no NVMe", "rotating": "rotating", None: "not told"}


def disk_page(report: Mapping[str, Any]) -> Page:
    """Build the page from the form ``fastio.bench.disk``."""
    sections = []
    for cache, title in _CACHES.items():
        rates = [rate for rate in report["rates"] if rate["cache"] == cache]
        if rates:
            sections.append(Section(title, _rates(rates, report.get("kind"), is_cold=cache == "cold")))
    sequential = report["sequential_bytes_per_s"]
    if sequential is None:
        sections.insert(0, Section("Nothing was cold", [Prose(_NEVER_COLD)]))
    figures = [
        ("sequential, cold", "unknown" if sequential is None else f"{size(sequential)}/s"),
        ("written and synced", f"{size(report['write_bytes_per_s'])}/s"),
        ("kind of disk", _KINDS[report.get("kind")]),
        ("file", size(report["size_bytes"])),
        ("small files", number(report["files"])),
    ]
    return Page("How fast the disk is", report["path"], sections, figures=figures)


_NEVER_COLD = (
    "This file system keeps its pages in memory (tmpfs, or one that ignores posix_fadvise), so these "
    "figures are those of memory."
)


def _rates(rates: list[Mapping[str, Any]], kind: DiskKind | None, *, is_cold: bool) -> list[Part]:
    bars = [
        Bar(_name(rate), rate["bytes_per_s"], f"{size(rate['bytes_per_s'])}/s", "loading" if is_cold else "memory")
        for rate in rates
    ]
    expected = expected_rate(kind) or EXPECTED_DISK
    mark = ReferenceLine(expected, f"{size(expected)}/s") if is_cold else None
    latencies = [
        (
            _name(rate),
            per_second(rate["reads_per_s"]),
            *(f"{rate[name] * 1e6:,.0f}" for name in ("p50_s", "p99_s", "max_s")),
        )
        for rate in rates
    ]
    caption = "Bytes per second"
    if is_cold:
        what = "a disk" if kind is None else kind_in_words(kind)
        nvme = f", an NVMe drive {size(EXPECTED_NVME)}/s" if kind is None else ""
        caption += f"; the dashed line is what to expect of {what}, read in order{nvme}:"
    titles = ("read", "reads/s", "p50 µs", "p99 µs", "longest µs")
    return [Bars(caption, bars, mark), Table(titles, latencies, range(1, 5), "Latency of one read")]


def _name(rate: Mapping[str, Any]) -> str:
    return str(rate["access"]) + (f", {rate['threads']} threads" if rate["threads"] > 1 else "")
