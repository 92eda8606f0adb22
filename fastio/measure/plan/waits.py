"""When a training would wait for its disks: its reads, in their order, at given rates of steps and of reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastio.measure.plan.read_jobs import ReadJobs

__all__ = ["EpochWaits", "simulate_waits"]


@dataclass(frozen=True, slots=True)
class EpochWaits:
    """
    How long all ranks wait in an epoch of ``seconds``.

    ``start_s`` is the wait for the first batch, before which nothing can be read ahead; ``later_s`` are all other
    waits together, in ``steps`` steps, the first of them ``first_step`` (None: none waits).
    """

    seconds: float
    start_s: float
    later_s: float
    steps: int
    first_step: int | None


def simulate_waits(
    nodes: Sequence[tuple[ReadJobs, NDArray[np.int64]]],
    steps_s: Sequence[float],
    *,
    depth: int,
    disk_bytes_per_s: float,
) -> EpochWaits:
    """
    Let steps of these lengths wait for the jobs of all nodes.

    ``nodes`` has each node's jobs, and the bytes of each that its disk must read. A disk reads one job after the
    other, in the order in which they are asked for. Batches are asked for ``depth`` batches ahead, as a loader does.
    A step begins when all of its jobs are done on all nodes: ranks wait for each other.
    """
    disks = [_NodeDisk(jobs, missed, disk_bytes_per_s) for jobs, missed in nodes]
    done = [0.0] * len(steps_s)  # when the last job for each step is done
    now = start_s = later_s = 0.0
    waiting: list[int] = []
    for step, length in enumerate(steps_s):
        for disk in disks:
            disk.begin(step + depth, now, done)
        wait = max(0.0, done[step] - now)
        if step == 0:
            start_s = wait
        elif wait > 0:
            later_s += wait
            waiting.append(step)
        now += wait + length
    return EpochWaits(now, start_s, later_s, len(waiting), waiting[0] if waiting else None)


class _NodeDisk:
    """A node's disk, and the jobs that it has not begun."""

    def __init__(self, jobs: ReadJobs, missed: NDArray[np.int64], bytes_per_s: float) -> None:
        self._asked = jobs.asked.tolist()
        self._needed = jobs.needed.tolist()
        self._seconds = (missed / bytes_per_s).tolist()
        self._next = 0
        self._free_at = 0.0

    def begin(self, batch: int, now: float, done: list[float]) -> None:
        """Begin the jobs that are asked for before ``batch`` begins, and note in ``done`` when they end."""
        while self._next < len(self._asked) and self._asked[self._next] <= batch:
            self._free_at = max(self._free_at, now) + self._seconds[self._next]
            needed = self._needed[self._next]
            done[needed] = max(done[needed], self._free_at)
            self._next += 1
