"""CPU time and memory of a process with all its children, from /proc; needs nothing but the standard library."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["PeakMemory", "cpu_seconds", "descendants", "peak_memory", "resident_mb", "timed_epochs"]

_TICKS = os.sysconf("SC_CLK_TCK")
_SAMPLE_S = 0.25


def descendants(pid: int) -> list[int]:
    """The process ids of all living children of ``pid``, and of theirs."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in _read(path).split():
            found += [int(child), *descendants(int(child))]
    return found


def cpu_seconds() -> float:
    """User and system time of this process, its threads, and its children whether they live or have been waited for."""
    own, ended = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    total = own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime
    for pid in descendants(os.getpid()):
        # utime, stime, cutime and cstime are the 12th to 15th field after the name, which may hold anything.
        fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
        total += sum(map(int, fields[11:15])) / _TICKS
    return total


def timed_epochs(epoch: Callable[[], Iterable[int]], *, seconds: float) -> dict[str, Any]:
    """
    Run whole epochs until ``seconds`` have passed, at least one; ``epoch()`` gives the number of samples of each batch.

    ``samples``, ``epochs``, ``cpu_s`` and ``wall_s`` of all of them.
    """
    samples = epochs = 0
    cpu, wall = cpu_seconds(), time.perf_counter()
    while not epochs or time.perf_counter() - wall < seconds:
        for count in epoch():
            samples += count
        epochs += 1
    wall_s, cpu_s = time.perf_counter() - wall, cpu_seconds() - cpu
    return {"samples": samples, "epochs": epochs, "cpu_s": cpu_s, "wall_s": wall_s}


def resident_mb(pid: int) -> float:
    """
    The resident memory of ``pid`` and its children in MiB, pages that several of them share counted once.

    The sum of the kernel's "proportional set size". Pages of mapped files count as far as they are mapped in.
    """
    total = 0
    for process in (pid, *descendants(pid)):
        for line in _read(Path(f"/proc/{process}/smaps_rollup")).splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total / 1024


class PeakMemory:
    """The largest ``resident_mb`` that was seen."""

    mb = 0.0


@contextmanager
def peak_memory(pid: int) -> Iterator[PeakMemory]:
    """Look at the memory of ``pid`` and its children four times a second, in a thread."""
    peak, over = PeakMemory(), threading.Event()

    def watch() -> None:
        while not over.wait(_SAMPLE_S):
            peak.mb = max(peak.mb, resident_mb(pid))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


def _read(path: Path) -> str:
    """The text of a file of /proc; empty when the process has ended meanwhile."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
