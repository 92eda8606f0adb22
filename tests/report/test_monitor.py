"""The page of monitor: GPUs that come and go, and figures that nobody knows."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from fastio.measure.machine.gpus import GpuSample
from fastio.measure.machine.monitor import Sample
from fastio.report.monitor import monitor_page
from fastio.report.page import Plot

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
