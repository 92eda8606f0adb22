"""The page of ``bench both``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastio.report.page import Bar, Bars, Page, ReferenceLine, Section, verdict_of
from fastio.report.steps import ms, rate, timeline_plot, times_table

__all__ = ["halves_page"]


def halves_page(report: Mapping[str, Any]) -> Page:
    """Build the page from the form ``fastio.bench.both``."""
    io, training, loop = (report[f"{name}_samples_per_s"] for name in ("io", "training", "loop"))
    bars = Bars(
        "Samples per second; the dashed line is what training could use:",
        (
            Bar("loading alone", io, rate(io), "loading"),
            Bar("training alone", training, rate(training), "training"),
            Bar("both, the real loop", loop, rate(loop), "both"),
        ),
        ReferenceLine(training, rate(training)),
    )
    plot = timeline_plot(report["timeline"])
    sections = [
        Section("Rates", [bars]),
        *([Section("Step by step", [plot])] if plot else []),
        Section("Times", [times_table([("real loop", report["loop"]), ("training alone", report["training"])])]),
    ]
    figures = (
        ("waits for data", f"{report['loop']['loading_share']:.1%}"),
        ("loading per step", ms(report["loop"]["loading"]["mean_s"])),
        ("training per step", ms(report["loop"]["training"]["mean_s"])),
        ("first batch after", ms(report["io"]["first_batch_s"])),
    )
    return Page("Loading or training?", report["data"], sections, verdict_of(report["verdict"]), figures)
