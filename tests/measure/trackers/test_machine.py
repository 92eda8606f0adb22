"""The figures of a machine, and the dashboard that draws them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from importlib.resources import files

from fastio import StepTimer
from fastio.measure.machine.gpus import GpuSample
from fastio.measure.machine.monitor import ProcessSample, Sample
from fastio.measure.trackers import Figures, openmetrics
from fastio.measure.trackers.machine import MachineFigures
from tests.measure.trackers.numbers import Kept, TokenLoader

GPU = GpuSample(0, None, "H200", 50.0, 40.0, 30.0, 20.0, 10.0, 3 * 10**9, 144 * 10**9, 61, 1e9, 2e9)
PROCESS = ProcessSample(42, 3, 150.0, 10**9, 5e6, 0.0)
SAMPLE = Sample(1e9, 2.0, (20.0, 60.0), 10, 40, 1e6, 2e6, 3e6, 4e6, 0.5, PROCESS, (GPU,), "NVML", "DCGM")


def test_a_sample_as_figures() -> None:
    """Shares from 0 to 1, bytes, and totals that grow by rate times seconds."""
    machine = MachineFigures()
    machine.of(SAMPLE)
    record = machine.of(SAMPLE)
    curves = record.curves()
    totals = {figure.path: figure.value for figure in record.figures if figure.kind == "total"}

    assert (2, 1e9) == (record.step, record.time_s)
    assert (0.4, 0.6, 10) == (curves["cpu_share"], curves["busiest_cpu_share"], curves["memory_used_bytes"])
    assert (1e6, 4e6) == (curves["disk_read_bytes_per_s"], totals["disk_read_bytes"])
    assert (1.5, 6.0) == (curves["process_cpus"], totals["process_cpu_s"])
    assert (0.5, 61) == (curves["gpu0/gpu_utilization_share"], curves["gpu0/gpu_temperature_c"])


def test_what_is_unknown_is_left_out() -> None:
    """A slice of a GPU has no utilisation; a machine without a process to watch has none of its figures."""
    unknown = GpuSample(1, 0, "MIG", None, 5.0, None, None, None, None, None, None, None, None)
    record = MachineFigures().of(replace(SAMPLE, process=None, gpus=(unknown,)))
    names = {figure.path for figure in record.figures}

    assert ["gpu1/slice0/gpu_sm_active_share"] == [name for name in names if "gpu" in name]
    assert not [name for name in names if "process" in name]


def exported(records: list[Figures]) -> set[str]:
    """The names that OpenMetrics serves."""
    return {
        openmetrics._name(figure) + "_total" * (figure.kind == "total")
        for record in records
        for figure in record.figures
        if figure.kind != "rate"
    }


def test_the_dashboard_asks_for_what_is_served() -> None:
    """Every query of grafana.json names a metric that a training or a monitor really serves."""
    kept = Kept()
    timer = StepTimer(trackers=[kept])
    for _ in timer(TokenLoader()):
        pass
    timer.close()
    names = exported([*kept.records, MachineFigures().of(SAMPLE)])
    dashboard = json.loads((files("fastio.measure.trackers") / "grafana.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    asked = {name for query in queries for name in re.findall(r"\bfastio_\w+", query)}

    assert len(queries) > 20
    assert set() == asked - names
