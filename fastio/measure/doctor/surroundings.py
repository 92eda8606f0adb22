"""The machine while a training runs: sampled by a thread, reported as means."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from fastio.machine import available_cpus
from fastio.measure.doctor.facts import GpuFacts, MachineFacts
from fastio.measure.machine.monitor import Monitor, Sample

__all__ = [
    "Surroundings",
    "gpu_facts",
    "machine_facts",
]


_INTERVAL_S = 0.5
_SHM = Path("/dev/shm")  # noqa: S108 - workers pass batches through it, and fastio writes nothing there
_MEGABIT = 1e6 / 8


class Surroundings:
    """Takes ``samples`` of the machine, this process and its children while the ``with`` block runs."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="fastio-doctor", daemon=True)
        self._iowait_percent: float | None = None
        self.sources: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        self._monitor = Monitor(os.getpid())
        self._times = psutil.cpu_times()
        self.sources = self._monitor.sources
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()
        self._take()
        self._monitor.close()
        before, after = self._times, psutil.cpu_times()
        total = sum(after) - sum(before)
        if total > 0 and hasattr(after, "iowait"):
            self._iowait_percent = 100 * (after.iowait - before.iowait) / total

    def _watch(self) -> None:
        while not self._end.wait(_INTERVAL_S):
            self._take()

    def _take(self) -> None:
        sample = self._monitor.sample()
        if sample is not None:
            self.samples.append(sample)

    @property
    def machine(self) -> MachineFacts:
        """The facts about the machine, after the block has ended."""
        shm = shutil.disk_usage(_SHM) if _SHM.is_dir() else None
        return machine_facts(
            self.samples,
            MachineFacts(
                cpus=available_cpus(),
                iowait_percent=self._iowait_percent,
                shm_free_bytes=None if shm is None else shm.free,
                shm_total_bytes=None if shm is None else shm.total,
                network_limit_bytes_per_s=_network_limit(),
            ),
        )

    @property
    def gpus(self) -> tuple[GpuFacts, ...]:
        """The facts about the GPUs, after the block has ended."""
        return gpu_facts(self.samples)


def machine_facts(samples: list[Sample], known: MachineFacts | None = None) -> MachineFacts:
    """Return means over the samples, weighted by length, added to what is known, and the highest memory in use."""
    known = known or MachineFacts()
    seconds = sum(sample.seconds for sample in samples)
    if seconds <= 0:
        return known

    def mean(figures: list[float]) -> float:
        return sum(figure * sample.seconds for figure, sample in zip(figures, samples, strict=True)) / seconds

    processes = [sample.process for sample in samples]
    return MachineFacts(
        cpus=known.cpus,
        cpu_percent=mean([sample.cpu_percent for sample in samples]),
        iowait_percent=known.iowait_percent,
        process_cpus=mean([0.0 if process is None else process.cpu_percent / 100 for process in processes])
        if all(processes)
        else None,
        memory_used_bytes=max(sample.memory_used_bytes for sample in samples),
        memory_total_bytes=samples[-1].memory_total_bytes,
        shm_free_bytes=known.shm_free_bytes,
        shm_total_bytes=known.shm_total_bytes,
        disk_read_bytes_per_s=mean([sample.disk_read_bytes_per_s for sample in samples]),
        network_bytes_per_s=mean(
            [max(sample.network_received_bytes_per_s, sample.network_sent_bytes_per_s) for sample in samples]
        ),
        network_limit_bytes_per_s=known.network_limit_bytes_per_s,
    )


def gpu_facts(samples: list[Sample]) -> tuple[GpuFacts, ...]:
    """
    Return mean utilisation and highest memory of each GPU in the last sample. MIG slices have no utilisation of their
    own.
    """
    facts = []
    for last in samples[-1].gpus if samples else ():
        of_gpu = [
            gpu
            for sample in samples
            for gpu in sample.gpus
            if (gpu.index, gpu.mig_index) == (last.index, last.mig_index)
        ]
        used = [gpu.utilization_percent for gpu in of_gpu if gpu.utilization_percent is not None]
        memory = [gpu.memory_used_bytes for gpu in of_gpu if gpu.memory_used_bytes is not None]
        number = f"{last.index}" if last.mig_index is None else f"{last.index}, slice {last.mig_index}"
        facts.append(
            GpuFacts(
                name=f"GPU {number} ({last.name})",
                utilization_percent=sum(used) / len(used) if used else None,
                memory_used_bytes=max(memory, default=None),
                memory_total_bytes=last.memory_total_bytes,
            )
        )
    return tuple(facts)


def _network_limit() -> float | None:
    """Return the speed of the fastest interface that is up and reports it; loopback and most virtual ones do not."""
    speeds = [stats.speed for name, stats in psutil.net_if_stats().items() if stats.isup and stats.speed > 0]
    return max(speeds) * _MEGABIT if speeds else None
