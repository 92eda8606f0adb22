"""The figures of a machine: what ``fastio monitor`` writes of each sample."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fastio.measure.machine.gpus import GpuSample
from fastio.measure.machine.monitor import ProcessSample, Sample
from fastio.measure.trackers.figures import Figure, Figures

__all__ = ["MachineFigures"]

_total = partial(Figure, kind="total")


class MachineFigures:
    """Turns samples of a Monitor into figures, one after the other, with totals since the first."""

    def __init__(self) -> None:
        self._samples = 0
        self._totals: dict[str, float] = {}

    def of(self, sample: Sample) -> Figures:
        """Return the figures of the next sample; unknown ones are left out."""
        self._samples += 1
        figures = [*self._machine(sample)]
        if sample.process is not None:
            figures += self._process(sample.process, sample.seconds)
        for gpu in sample.gpus:
            figures += _gpu(gpu)
        return Figures(self._samples, sample.time_s, tuple(figures))

    def _machine(self, sample: Sample) -> Iterator[Figure]:
        yield Figure("cpu", sample.cpu_percent / 100, "ratio", "Use of all CPUs.")
        yield Figure("busiest_cpu", max(sample.cpu_percents) / 100, "ratio", "Use of the busiest CPU.")
        yield Figure("cpus", len(sample.cpu_percents), "", "Number of CPUs.")
        yield Figure("memory_used", sample.memory_used_bytes, "bytes", "Memory in use.")
        yield Figure("memory_size", sample.memory_total_bytes, "bytes", "Memory of the machine.")
        for name, rate, meaning in (
            ("disk_read", sample.disk_read_bytes_per_s, "Bytes read from all disks."),
            ("disk_written", sample.disk_written_bytes_per_s, "Bytes written to all disks."),
            ("network_received", sample.network_received_bytes_per_s, "Bytes received from all networks."),
            ("network_sent", sample.network_sent_bytes_per_s, "Bytes sent to all networks."),
        ):
            yield from self._growing(name, rate, sample.seconds, meaning)
        own = self._grown("monitor_cpu", sample.own_cpu_percent / 100 * sample.seconds)
        yield _total("monitor_cpu", own, "seconds", "CPU time of this monitor itself.")

    def _process(self, process: ProcessSample, seconds: float) -> Iterator[Figure]:
        yield Figure("processes", process.processes, "", "The watched process and its descendants.")
        yield Figure("process_cpus", process.cpu_percent / 100, "", "CPUs in use by the watched processes.", "rate")
        used_s = self._grown("process_cpu", process.cpu_percent / 100 * seconds)
        yield _total("process_cpu", used_s, "seconds", "CPU time of the watched processes.")
        yield Figure("process_memory", process.rss_bytes, "bytes", "Resident memory of the watched processes.")
        for name, rate, meaning in (
            ("process_disk_read", process.disk_read_bytes_per_s, "Bytes that the watched processes read from disks."),
            ("process_disk_written", process.disk_written_bytes_per_s, "Bytes that they wrote to disks."),
        ):
            if rate is not None:
                yield from self._growing(name, rate, seconds, meaning)

    def _growing(self, name: str, rate: float, seconds: float, meaning: str) -> Iterator[Figure]:
        yield Figure(name, rate, "bytes_per_second", meaning, "rate")
        yield _total(name, self._grown(name, rate * seconds), "bytes", meaning)

    def _grown(self, name: str, growth: float) -> float:
        """Return the sum of a figure's growth so far."""
        self._totals[name] = self._totals.get(name, 0.0) + growth
        return self._totals[name]


def _gpu(gpu: GpuSample) -> Iterator[Figure]:
    labels = [("gpu", str(gpu.index))]
    if gpu.mig_index is not None:
        labels.append(("slice", str(gpu.mig_index)))
    for name, percent, meaning in (
        ("gpu_utilization", gpu.utilization_percent, "Share of time with any kernel running."),
        ("gpu_sm_active", gpu.sm_active_percent, "Mean share of multiprocessors with work."),
        ("gpu_sm_occupancy", gpu.sm_occupancy_percent, "Share of the multiprocessors' warp slots in use."),
        ("gpu_tensor_active", gpu.tensor_active_percent, "Share of time in which Tensor cores work."),
        ("gpu_dram_active", gpu.dram_active_percent, "Share of time in which GPU memory works."),
    ):
        if percent is not None:
            yield Figure(name, percent / 100, "ratio", meaning, labels=tuple(labels))
    for name, count, meaning in (
        ("gpu_memory_used", gpu.memory_used_bytes, "GPU memory in use."),
        ("gpu_memory_size", gpu.memory_total_bytes, "Memory of the GPU."),
    ):
        if count is not None:
            yield Figure(name, count, "bytes", meaning, labels=tuple(labels))
    if gpu.temperature_c is not None:
        yield Figure("gpu_temperature", gpu.temperature_c, "celsius", "Temperature.", labels=tuple(labels))
    for name, rate, meaning in (
        ("gpu_pcie_received", gpu.pcie_received_bytes_per_s, "Bytes per second that the GPU receives by PCIe."),
        ("gpu_pcie_sent", gpu.pcie_sent_bytes_per_s, "Bytes per second that the GPU sends by PCIe."),
    ):
        if rate is not None:
            yield Figure(name, rate, "bytes_per_second", meaning, labels=tuple(labels))
