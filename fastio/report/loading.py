"""The page of ``bench io``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastio.report.page import Bar, Bars, Page, Section, Table
from fastio.report.steps import ms, rate
from fastio.types.units import number, per_second

__all__ = ["loading_page"]

_WITHOUT_WORKERS = "CPU time, without the workers'"


def loading_page(report: Mapping[str, Any]) -> Page:
    """Build the page from the form ``fastio.bench.io``."""
    bars = Bars(
        "Samples per second",
        (
            Bar("with the first batch", report["samples_per_s"], rate(report["samples_per_s"]), "loading"),
            Bar(
                "after the first batch", report["steady_samples_per_s"], rate(report["steady_samples_per_s"]), "loading"
            ),
        ),
    )
    figures = (
        ("samples", number(report["samples"])),
        ("batches", number(report["batches"])),
        ("time", f"{report['seconds']:.2f} s"),
        ("CPU time" if report["kind"] == "store" else _WITHOUT_WORKERS, f"{report['cpu_seconds']:.2f} s"),
        ("first batch after", ms(report["first_batch_s"])),
    )
    sections = [Section("Rates", [bars])]
    every = [report, *report["beside"]]
    if len(every) > 1:
        rows = [
            (measured["data"], rate(measured["samples_per_s"]), _opened(measured["opens_per_s"])) for measured in every
        ]
        sections.append(Section("Side by side", [Table(("data", "samples/s", "files opened/s"), rows, right=(1, 2))]))
    return Page(
        "How fast data can be loaded", ", ".join(measured["data"] for measured in every), sections, figures=figures
    )


def _opened(per_s: float | None) -> str:
    return "-" if per_s is None else per_second(per_s)
