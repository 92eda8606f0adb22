"""Monitors the machine while something runs: CPUs, memory, disk, network, GPUs, and one process with its children."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from fastio.errors import FastioError
from fastio.measure.machine.gpus import Gpus, GpuSample, GpuSource, SmSource

__all__ = ["Monitor", "ProcessSample", "Sample"]

_Cpus = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """
    A process and all its descendants.

    ``cpu_percent`` is relative to one CPU: 200 means two of them. ``rss_bytes`` counts shared pages once per process.
    The disk's bytes are those that really came from or went to it, not to the page cache; None if the kernel does not
    tell, as for other users' processes.
    """

    pid: int
    processes: int
    cpu_percent: float
    rss_bytes: int
    disk_read_bytes_per_s: float | None
    disk_written_bytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class Sample:
    """
    The machine since the last sample; rates are bytes per second of all disks and of all networks.

    ``own_cpu_percent`` is the monitor's own use, relative to one CPU. ``process`` is None if none was asked for.
    ``gpu_source`` and ``sm_source`` name the sources of figures about GPUs and their multiprocessors, None without
    one.
    """

    time_s: float
    seconds: float
    cpu_percents: tuple[float, ...]
    memory_used_bytes: int
    memory_total_bytes: int
    disk_read_bytes_per_s: float
    disk_written_bytes_per_s: float
    network_received_bytes_per_s: float
    network_sent_bytes_per_s: float
    own_cpu_percent: float
    process: ProcessSample | None
    gpus: tuple[GpuSample, ...]
    gpu_source: GpuSource | None
    sm_source: SmSource | None

    @property
    def cpu_percent(self) -> float:
        """The mean over all CPUs."""
        return sum(self.cpu_percents) / len(self.cpu_percents)


class Monitor:
    """
    Counters of the machine, and of ``pid`` with its descendants; each ``sample()`` covers the time since the last
    one.

    ``sources`` says where the figures come from. Raises FastioError if there is no such process.
    """

    def __init__(self, pid: int | None = None) -> None:
        self._tree = None if pid is None else _Tree(pid)
        self._gpus = Gpus()
        self.sources = ("CPU, memory, disk and network figures from psutil", self._gpus.source)
        self._last = _Counters.now()

    def sample(self) -> Sample | None:
        """Return the machine since the last sample; None once the process to watch has ended."""
        process = None
        if self._tree is not None:
            process = self._tree.sample(max(time.perf_counter() - self._last.wall_s, 1e-9))
            if process is None:
                return None
        memory = psutil.virtual_memory()
        gpus = self._gpus.sample()
        last, now = self._last, _Counters.now()
        self._last = now
        seconds = max(now.wall_s - last.wall_s, 1e-9)
        return Sample(
            time_s=time.time(),
            seconds=seconds,
            cpu_percents=_busy_percents(last.cpus, now.cpus),
            memory_used_bytes=memory.total - memory.available,
            memory_total_bytes=memory.total,
            disk_read_bytes_per_s=(now.disk_read - last.disk_read) / seconds,
            disk_written_bytes_per_s=(now.disk_written - last.disk_written) / seconds,
            network_received_bytes_per_s=(now.received - last.received) / seconds,
            network_sent_bytes_per_s=(now.sent - last.sent) / seconds,
            own_cpu_percent=100 * (now.own_s - last.own_s) / seconds,
            process=process,
            gpus=gpus,
            gpu_source=self._gpus.gpu_source,
            sm_source=self._gpus.sm_source,
        )

    def close(self) -> None:
        """Release the GPU driver; calling it twice is harmless."""
        self._gpus.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class _Counters:
    """All counters at one moment; ``cpus`` holds, per CPU, the seconds without work and all seconds."""

    wall_s: float
    own_s: float
    cpus: _Cpus
    disk_read: int
    disk_written: int
    received: int
    sent: int

    @classmethod
    def now(cls) -> _Counters:
        disk, network = psutil.disk_io_counters(), psutil.net_io_counters()
        return cls(
            time.perf_counter(),
            time.process_time(),
            tuple(map(_idle_and_all, psutil.cpu_times(percpu=True))),
            0 if disk is None else disk.read_bytes,  # containers may show no disks
            0 if disk is None else disk.write_bytes,
            0 if network is None else network.bytes_recv,
            0 if network is None else network.bytes_sent,
        )


def _idle_and_all(times: Any) -> tuple[float, float]:
    """Return idle and total time. Waiting for a disk counts as idle. Guests' time is part of users', and not added."""
    spent = {name: value for name, value in times._asdict().items() if not name.startswith("guest")}
    return spent["idle"] + spent.get("iowait", 0.0), sum(spent.values())


def _busy_percents(last: _Cpus, now: _Cpus) -> tuple[float, ...]:
    """
    Return how busy each CPU was, in percent; 0 for a CPU that was added meanwhile, or whose clock stood still.

    Not by ``psutil.cpu_percent``, which remembers the last call per thread: the first one of another thread is 0.
    """
    before = (*last, *now[len(last) :])
    spent = [(idle - was_idle, whole - was) for (was_idle, was), (idle, whole) in zip(before, now, strict=False)]
    return tuple(min(100.0, max(0.0, 100 * (1 - idle / whole))) if whole > 0 else 0.0 for idle, whole in spent)


@dataclass(frozen=True, slots=True)
class _Used:
    """What one process has used since it began; None if the kernel does not tell."""

    cpu_s: float
    disk_read: int | None
    disk_written: int | None


class _Tree:
    """A process and its descendants: what they have used since the last sample."""

    def __init__(self, pid: int) -> None:
        try:
            self._root = psutil.Process(pid)
        except psutil.NoSuchProcess as exc:
            raise FastioError(f"pid {pid}: no such process; it may have ended already") from exc
        self._last: dict[int, _Used] = {}
        self._look()

    def sample(self, seconds: float) -> ProcessSample | None:
        if not self._root.is_running() or self._root.status() == psutil.STATUS_ZOMBIE:
            return None
        before = self._last
        rss = self._look()
        read, written = (_grown(before, self._last, name) for name in ("disk_read", "disk_written"))
        return ProcessSample(
            pid=self._root.pid,
            processes=len(self._last),
            cpu_percent=100 * (_grown(before, self._last, "cpu_s") or 0.0) / seconds,
            rss_bytes=rss,
            disk_read_bytes_per_s=None if read is None else read / seconds,
            disk_written_bytes_per_s=None if written is None else written / seconds,
        )

    def _look(self) -> int:
        """Record what each process has used; returns the memory of all."""
        used: dict[int, _Used] = {}
        rss = 0
        for pid in (self._root.pid, *_descendants(self._root.pid)):
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):  # ended meanwhile, or another user's
                process = psutil.Process(pid)
                used[pid] = _used(process)
                rss += process.memory_info().rss
        self._last = used
        return rss


def _used(process: psutil.Process) -> _Used:
    times = process.cpu_times()
    try:
        disk = process.io_counters()
    except psutil.AccessDenied:
        return _Used(float(times.user + times.system), None, None)
    return _Used(float(times.user + times.system), disk.read_bytes, disk.write_bytes)


def _grown(before: Mapping[int, _Used], now: Mapping[int, _Used], name: str) -> float | None:
    """Return the growth of a figure over all processes; a new process counts from its start. None if none is known."""
    known = [(pid, value) for pid, used in now.items() if (value := getattr(used, name)) is not None]
    if not known:
        return None
    return float(
        sum(max(0, value - ((getattr(before[pid], name) or 0) if pid in before else 0)) for pid, value in known)
    )


def _descendants(pid: int) -> Iterator[int]:
    """Yield children of children, as the kernel lists them: searching all processes would cost too much."""
    for task in _listed(Path(f"/proc/{pid}/task")):
        for child in _text(task / "children").split():
            yield int(child)
            yield from _descendants(int(child))


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:  # ended meanwhile
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
