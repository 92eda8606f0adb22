"""The page of ``bench train``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastio.report.page import Bar, Bars, Page, Section, verdict_of
from fastio.report.steps import losses_plot, ms, timeline_plot, times_table
from fastio.types.units import number, per_second, size

__all__ = ["training_page"]


def training_page(said: Mapping[str, Any]) -> Page:
    """Build the page from the form ``fastio.bench.train``."""
    ranks = [(f"rank {i}" if len(said["ranks"]) > 1 else "", each) for i, each in enumerate(said["ranks"])]
    sections = []
    if len(ranks) > 1:
        rates = [(name, each["steady_samples_per_s"]) for name, each in ranks]
        bars = [Bar(name, value, per_second(value), "training") for name, value in rates]
        sections.append(Section("Ranks", [Bars("Samples per second of each rank", bars)]))
    plot = timeline_plot(said["timeline"])
    if plot is not None:
        sections.append(Section("Step by step", [plot]))
    if said["losses"]:
        sections.append(Section("Loss", [losses_plot(said["losses"])]))
    sections.append(Section("Times", [times_table(ranks)]))
    first = ranks[0][1]
    figures = [
        ("samples/s" + (", all ranks" if len(ranks) > 1 else ""), per_second(said["samples_per_s"])),
        ("waits for data", f"{max(each['loading_share'] for _, each in ranks):.1%}"),
        ("training per step", ms(first["training"]["mean_s"])),
        ("parameters", number(said["parameters"])),
        ("device", said["device"]),
    ]
    if said["peak_bytes"] is not None:
        figures.append(("memory of the device", size(said["peak_bytes"])))
    if said["test_accuracy"] is not None:
        figures.append(("accuracy", f"{said['test_accuracy']:.2%}"))
    verdict = None if said["verdict"] is None else verdict_of(said["verdict"])
    return Page(f"Training {said['model']}", said["data"], sections, verdict, figures)
