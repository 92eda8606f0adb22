"""The page of ``bench train``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastio.report.page import Bar, Bars, Page, Section, verdict_of
from fastio.report.steps import losses_plot, ms, timeline_plot, times_table
from fastio.types.units import number, per_second, size

__all__ = ["training_page"]


def training_page(report: Mapping[str, Any]) -> Page:
    """Build the page from the form ``fastio.bench.train``."""
    ranks = [(f"rank {i}" if len(report["ranks"]) > 1 else "", summary) for i, summary in enumerate(report["ranks"])]
    sections = []
    if len(ranks) > 1:
        rates = [(name, summary["steady_samples_per_s"]) for name, summary in ranks]
        bars = [Bar(name, value, per_second(value), "training") for name, value in rates]
        sections.append(Section("Ranks", [Bars("Samples per second of each rank", bars)]))
    plot = timeline_plot(report["timeline"])
    if plot is not None:
        sections.append(Section("Step by step", [plot]))
    if report["losses"]:
        sections.append(Section("Loss", [losses_plot(report["losses"])]))
    sections.append(Section("Times", [times_table(ranks)]))
    first = ranks[0][1]
    figures = [
        ("samples/s" + (", all ranks" if len(ranks) > 1 else ""), per_second(report["samples_per_s"])),
        ("waits for data", f"{max(summary['loading_share'] for _, summary in ranks):.1%}"),
        ("training per step", ms(first["training"]["mean_s"])),
        ("parameters", number(report["parameters"])),
        ("device", report["device"]),
    ]
    if report["peak_bytes"] is not None:
        figures.append(("memory of the device", size(report["peak_bytes"])))
    if report["test_accuracy"] is not None:
        figures.append(("accuracy", f"{report['test_accuracy']:.2%}"))
    verdict = None if report["verdict"] is None else verdict_of(report["verdict"])
    return Page(f"Training {report['model']}", report["data"], sections, verdict, figures)
