"""The page of ``bench io``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastio.report.page import Bar, Bars, Page, Section, Table
from fastio.report.steps import ms, rate
from fastio.types.units import number, per_second

__all__ = ["loading_page"]

_WITHOUT_WORKERS = "CPU time, without the workers'"


def loading_page(said: Mapping[str, Any]) -> Page:
    """Build the page from the form ``fastio.bench.io``."""
    bars = Bars(
        "Samples per second",
        (
            Bar("with the first batch", said["samples_per_s"], rate(said["samples_per_s"]), "loading"),
            Bar("after the first batch", said["steady_samples_per_s"], rate(said["steady_samples_per_s"]), "loading"),
        ),
    )
    figures = (
        ("samples", number(said["samples"])),
        ("batches", number(said["batches"])),
        ("time", f"{said['seconds']:.2f} s"),
        ("CPU time" if said["kind"] == "store" else _WITHOUT_WORKERS, f"{said['cpu_seconds']:.2f} s"),
        ("first batch after", ms(said["first_batch_s"])),
    )
    sections = [Section("Rates", [bars])]
    every = [said, *said["beside"]]
    if len(every) > 1:
        rows = [(each["data"], rate(each["samples_per_s"]), _opened(each["opens_per_s"])) for each in every]
        sections.append(Section("Side by side", [Table(("data", "samples/s", "files opened/s"), rows, right=(1, 2))]))
    return Page("How fast data can be loaded", ", ".join(each["data"] for each in every), sections, figures=figures)


def _opened(per_s: float | None) -> str:
    return "-" if per_s is None else per_second(per_s)
