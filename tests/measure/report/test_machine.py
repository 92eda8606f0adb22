"""The page of bench bus, from figures that no GPU is needed for."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from fastio.measure.machine.gpus import GpuSample
from fastio.measure.machine.monitor import Sample
from fastio.measure.report.machine import bus_page, monitor_page
from fastio.measure.report.page import Bars, Plot, Table


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
    bars, table = page.sections[0].parts
    assert isinstance(bars, Bars)
    assert isinstance(table, Table)

    assert ["Host to device"] == [section.title for section in page.sections]
    assert ["pinned, 1.0 kB", "pageable, 1.0 kB", "pinned, 1.0 MB", "pageable, 1.0 MB"] == [
        bar.name for bar in bars.bars
    ]
    assert ("pinned", "1.0 kB", "2.0 kB/s", "1.0 kB/s", "4.0 kB/s") == table.rows[0]
    assert [("host to device, pinned", "2.0 MB/s"), ("host to device, pageable", "1.0 MB/s")] == list(page.figures)


def test_without_a_gpu() -> None:
    """The page says why nothing was measured."""
    page = bus_page({"skipped": "no CUDA device here", "rates": []})

    assert "no CUDA device here" in str(page.sections[0].parts)


# The page of monitor: GPUs that come and go, and figures that nobody knows.

GPU = GpuSample(1, None, "made up", 80.0, None, None, None, None, 3_000_000_000, 4_000_000_000, 50, None, None)


def sample(second: int, *gpus: GpuSample) -> dict[str, Any]:
    """A line of the log, as it is read back."""
    gpus_of = "NVML" if gpus else None
    every = Sample(float(second), 1.0, (50.0,), 1, 2, 0.0, 0.0, 0.0, 0.0, 0.1, None, gpus, gpus_of, None)
    return asdict(every)


def test_gpus_have_a_headline_and_plots_of_what_is_known() -> None:
    """Mean utilization at the top; no plot of activity that only DCGM tells."""
    page = monitor_page("train.py", [sample(1, GPU), sample(2, replace(GPU, utilization_percent=40.0))])
    section = page.sections[0]
    plots = [part for part in section.parts if isinstance(part, Plot)]

    assert ("GPU 1, mean utilization", "60.0%") in page.figures
    assert section.title == "GPU 1: made up"
    assert [["utilization"], ["memory"], ["temperature"]] == [[each.name for each in plot.series] for plot in plots]


def test_a_slice_without_utilization() -> None:
    """NVML knows none for a MIG slice: no headline, no plot of it."""
    page = monitor_page("train.py", [sample(1, replace(GPU, mig_index=0, utilization_percent=None))])

    assert page.sections[0].title == "GPU 1 slice 0: made up"
    assert [] == [name for name, _ in page.figures if "utilization" in name]


def test_no_gpu() -> None:
    """Said at the top, and no section of one."""
    page = monitor_page("train.py", [sample(1)])

    assert ("GPUs", "none seen") in page.figures
    assert ["CPUs", "Memory", "Disks", "Networks"] == [section.title for section in page.sections]
