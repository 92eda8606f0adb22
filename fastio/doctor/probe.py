"""Times how torch's DataLoader makes its batches: in worker processes, or in the loop itself.

torch creates a *fetcher* in each worker, or one in the loop if there are no workers; its ``fetch`` gets the samples
of a batch from the dataset and passes them to ``collate_fn``. Both are wrapped on that one object. Dataset,
collate_fn and loader stay the user's own, and what is wrapped in a worker ends with it.
"""

from __future__ import annotations

import json
import os
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from weakref import finalize

from torch.utils.data import dataloader

from fastio.doctor.run_queue import RunQueue
from fastio.doctor.transform_timers import TransformTimers, leave_transforms
from fastio.doctor.wait_sampler import Wait, end_samplers, sampler_of_this_thread

__all__ = ["CAN_WATCH", "BatchCost", "WorkerStart", "fetchers_write_to", "leave_process", "read_costs"]

_BLOCK_BYTES = 512  # of ru_inblock
# torch has no public name for what creates fetchers; it has been this one since 1.2.
_KIND: Any = getattr(dataloader, "_DatasetKind", None)
_make: Any = getattr(_KIND, "create_fetcher", None)
CAN_WATCH = _make is not None


@dataclass(frozen=True, slots=True)
class BatchCost:
    """
    The cost of one batch: the number of its ``loader``, when it was begun (``perf_counter``), and how long it took.

    ``transform_input`` is the type that the dataset's transform got. ``steps_s`` are the seconds of each of its steps
    by name. ``waits`` are the lines of code at which getting the samples was seen waiting, and how often. The rest is
    as in MakingFacts.
    """

    loader: int
    begun_s: float
    total_s: float
    samples: int
    samples_s: float
    cpu_s: float
    queued_s: float
    collate_s: float
    transform_s: float | None
    read_bytes: int
    major_faults: int
    transform_input: str | None = None
    steps_s: tuple[tuple[str, float], ...] = ()
    waits: tuple[tuple[Wait, int], ...] = ()


_NAMES = tuple(field.name for field in fields(BatchCost))


@contextmanager
def fetchers_write_to(folder: Path, loader: int) -> Iterator[None]:
    """Let fetchers created meanwhile in this process record what batches cost; does nothing without CAN_WATCH."""
    if not CAN_WATCH:
        yield
        return
    _KIND.create_fetcher = staticmethod(_Maker(folder, loader))
    try:
        yield
    finally:
        _KIND.create_fetcher = staticmethod(_make)


@dataclass(frozen=True, slots=True)
class WorkerStart:
    """
    A ``worker_init_fn`` that lets a worker's fetcher record what batches cost, and then calls the user's own.

    It can be pickled if the user's can: this is how spawned workers get it.
    """

    folder: Path
    loader: int
    original: Callable[[int], object] | None

    def __call__(self, worker_id: int) -> None:
        """Run in the worker, before its fetcher is created."""
        if CAN_WATCH:
            _KIND.create_fetcher = staticmethod(_Maker(self.folder, self.loader))
        if self.original is not None:
            self.original(worker_id)


def read_costs(folder: Path, loader: int) -> list[BatchCost]:
    """Return what was recorded for this loader, by start; an incomplete line of a killed worker is left out."""
    costs = []
    for path in folder.glob(f"{loader}-*.jsonl"):
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                costs.append(_cost(json.loads(line)))
    return sorted(costs, key=lambda cost: cost.begun_s)


def leave_process() -> None:
    """Remove from this process everything that watching installed."""
    leave_transforms()
    end_samplers()


def _cost(values: list[Any]) -> BatchCost:
    *figures, steps, waits = values
    named = dict(zip(_NAMES, figures, strict=False))  # the last two are lists
    named["steps_s"] = tuple((name, seconds) for name, seconds in steps)
    named["waits"] = tuple((Wait(*wait), count) for wait, count in waits)
    return BatchCost(**named)


class _Maker:
    """Creates fetchers as torch does, and watches them."""

    def __init__(self, folder: Path, loader: int) -> None:
        self._folder = folder
        self._loader = loader

    def __call__(self, kind: Any, dataset: Any, *rest: Any) -> Any:
        fetcher = _make(kind, dataset, *rest)
        _FetcherWatch(fetcher, self._loader, self._folder)
        return fetcher


class _FetcherWatch:
    """Replaces one fetcher's ``fetch`` and ``collate_fn``, and ends with it."""

    def __init__(self, fetcher: Any, loader: int, folder: Path) -> None:
        self._fetch, self._collate = fetcher.fetch, fetcher.collate_fn
        self._loader = loader
        path = folder / f"{loader}-{os.getpid()}.jsonl"
        self._out = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        finalize(self, os.close, self._out)
        self._queue = RunQueue()
        self._gathered: tuple[_Moment, int] | None = None  # when the samples had arrived, and how many
        self._timers = TransformTimers(fetcher.dataset)
        self._waits: Counter[Wait] = Counter()
        fetcher.fetch, fetcher.collate_fn = self.fetch, self.collate

    def collate(self, samples: Any) -> Any:
        self._waits = sampler_of_this_thread().end()
        self._gathered = self._now(), len(samples) if isinstance(samples, (list, tuple)) else 1
        return self._collate(samples)

    def fetch(self, index: Any) -> Any:
        self._gathered = None
        self._timers.reset()
        sampler = sampler_of_this_thread()
        begun = self._now()
        sampler.begin(_FetcherWatch.fetch.__code__)
        try:
            batch = self._fetch(index)
        finally:
            later = sampler.end()
        # A fetcher of a later torch may not collate: then only samples are timed.
        made = self._now()
        gathered, samples = self._gathered or (made, 1)
        waits = later if self._gathered is None else self._waits
        cost = BatchCost(
            loader=self._loader,
            begun_s=begun.wall_s,
            total_s=made.wall_s - begun.wall_s,
            samples=samples,
            samples_s=gathered.wall_s - begun.wall_s,
            cpu_s=_work_s(gathered.process_s - begun.process_s, gathered.thread_s - begun.thread_s),
            queued_s=gathered.queued_s - begun.queued_s,
            collate_s=max(0.0, made.wall_s - gathered.wall_s - (made.queued_s - gathered.queued_s)),
            transform_s=self._timers.seconds if self._timers else None,
            read_bytes=(gathered.blocks - begun.blocks) * _BLOCK_BYTES,
            major_faults=gathered.major_faults - begun.major_faults,
            transform_input=self._timers.input,
            steps_s=tuple(zip(self._timers.names, self._timers.steps_s, strict=True)),
            waits=tuple(waits.items()),
        )
        os.write(self._out, (json.dumps([getattr(cost, name) for name in _NAMES]) + "\n").encode())
        return batch

    def _now(self) -> _Moment:
        used = resource.getrusage(resource.RUSAGE_SELF)
        process_s = used.ru_utime + used.ru_stime
        return _Moment(
            time.perf_counter(), process_s, time.thread_time(), self._queue.waited_s, used.ru_inblock, used.ru_majflt
        )


@dataclass(frozen=True, slots=True)
class _Moment:
    """Counters that only grow: the clock, CPU time, this thread's queueing, this process's reads."""

    wall_s: float
    process_s: float
    thread_s: float
    queued_s: float
    blocks: int
    major_faults: int


def _work_s(process_s: float, thread_s: float) -> float:
    """
    Return the CPU time spent on samples: the thread's, or the process's if other threads do most of the work.

    In the loop's own process, torch's threads spin for a while after each step; in any process, a native decoder has
    its own threads.
    """
    return thread_s if thread_s >= process_s / 2 else process_s
