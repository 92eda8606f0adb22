"""Times how torch's DataLoader makes its batches, where it makes them: in worker processes or in the loop itself.

torch makes a *fetcher* in each worker, and one in the loop where there are none; its ``fetch`` gets the samples of a
batch from the dataset and hands them to ``collate_fn``. Both are wrapped on that one object. Dataset, collate_fn and
loader stay the user's own, and what was wrapped in a worker ends with it.
"""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from weakref import finalize

from torch.utils.data import dataloader

from fastio.doctor.run_queue import RunQueue

__all__ = ["CAN_WATCH", "BatchCost", "WorkerStart", "fetchers_write_to", "leave_transforms", "read_costs"]

_BLOCK_BYTES = 512  # of ru_inblock
# torch has no public name for the place where fetchers are made; it has been this one since 1.2.
_KIND: Any = getattr(dataloader, "_DatasetKind", None)
_make: Any = getattr(_KIND, "create_fetcher", None)
CAN_WATCH = _make is not None


@dataclass(frozen=True, slots=True)
class BatchCost:
    """
    One batch: ``loader`` that it is of, when it was begun (``perf_counter``), how long it took.

    The rest is as in MakingFacts.
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


_NAMES = tuple(each.name for each in fields(BatchCost))


@contextmanager
def fetchers_write_to(folder: Path, loader: int) -> Iterator[None]:
    """Fetchers that are made meanwhile in this process write what batches cost; nothing happens without CAN_WATCH."""
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
    A ``worker_init_fn`` that lets a worker's fetcher write what batches cost, and then calls the user's own.

    It can be pickled where the user's can: spawned workers get it so.
    """

    folder: Path
    loader: int
    original: Callable[[int], object] | None

    def __call__(self, worker_id: int) -> None:
        """In the worker, before its fetcher is made."""
        if CAN_WATCH:
            _KIND.create_fetcher = staticmethod(_Maker(self.folder, self.loader))
        if self.original is not None:
            self.original(worker_id)


def read_costs(folder: Path, loader: int) -> list[BatchCost]:
    """What was written of this loader, by when it was begun; half a line of a killed worker is left out."""
    found = []
    for path in folder.glob(f"{loader}-*.jsonl"):
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                found.append(BatchCost(*json.loads(line)))
    return sorted(found, key=lambda cost: cost.begun_s)


class _Maker:
    """Makes fetchers as torch does, and watches them."""

    def __init__(self, folder: Path, loader: int) -> None:
        self._folder = folder
        self._loader = loader

    def __call__(self, kind: Any, dataset: Any, *rest: Any) -> Any:
        fetcher = _make(kind, dataset, *rest)
        _Watch(fetcher, self._loader, self._folder)
        return fetcher


class _Watch:
    """Stands in the place of one fetcher's ``fetch`` and ``collate_fn``, and ends with it."""

    def __init__(self, fetcher: Any, loader: int, folder: Path) -> None:
        self._fetch, self._collate = fetcher.fetch, fetcher.collate_fn
        self._loader = loader
        path = folder / f"{loader}-{os.getpid()}.jsonl"
        self._out = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        finalize(self, os.close, self._out)
        self._queue = RunQueue()
        self._gathered: tuple[_Moment, int] | None = None  # when the samples were there, and how many
        self._transform = _timed_transform(fetcher.dataset)
        fetcher.fetch, fetcher.collate_fn = self.fetch, self.collate

    def collate(self, samples: Any) -> Any:
        self._gathered = self._now(), len(samples) if isinstance(samples, (list, tuple)) else 1
        return self._collate(samples)

    def fetch(self, index: Any) -> Any:
        self._gathered = None
        if self._transform is not None:
            self._transform.seconds = 0.0
        begun = self._now()
        batch = self._fetch(index)
        # Some fetcher of later torch may not collate: it has samples only.
        made = self._now()
        gathered, samples = self._gathered or (made, 1)
        cost = BatchCost(
            loader=self._loader,
            begun_s=begun.wall_s,
            total_s=made.wall_s - begun.wall_s,
            samples=samples,
            samples_s=gathered.wall_s - begun.wall_s,
            cpu_s=_work_s(gathered.process_s - begun.process_s, gathered.thread_s - begun.thread_s),
            queued_s=gathered.queued_s - begun.queued_s,
            collate_s=max(0.0, made.wall_s - gathered.wall_s - (made.queued_s - gathered.queued_s)),
            transform_s=None if self._transform is None else self._transform.seconds,
            read_bytes=(gathered.blocks - begun.blocks) * _BLOCK_BYTES,
            major_faults=gathered.major_faults - begun.major_faults,
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
    """What only grows: the clock, CPU time, this thread's queueing, this process's reads."""

    wall_s: float
    process_s: float
    thread_s: float
    queued_s: float
    blocks: int
    major_faults: int


def _work_s(process_s: float, thread_s: float) -> float:
    """
    CPU time spent on samples. That of the thread, or, where others do most of the work, of the process.

    In the loop's own process torch's threads spin for a while after each step; in any, a native decoder has its own.
    """
    return thread_s if thread_s >= process_s / 2 else process_s


@dataclass(slots=True)
class _Timer:
    """Sums up the CPU time in one transform, which waiting for a CPU does not lengthen."""

    transform: Any
    seconds: float = 0.0


_timers: dict[int, _Timer] = {}  # by id of the transform
_wrapped: list[tuple[Any, Any]] = []  # classes, and the __call__ of their own that they had, None: an inherited one


def leave_transforms() -> None:
    """Take the timers of transforms away from this process."""
    for kind, own in _wrapped:
        if own is None:
            del kind.__call__
        else:
            kind.__call__ = own
    _wrapped.clear()
    _timers.clear()


def _timed_transform(dataset: Any) -> _Timer | None:
    """
    A timer of the dataset's ``transform``, None where it has none, or a plain function, which cannot be watched.

    Its class's ``__call__`` is wrapped in this process, for this one object: the dataset keeps what it had.
    """
    while not hasattr(dataset, "transform") and hasattr(dataset, "dataset"):  # a Subset
        dataset = dataset.dataset
    transform = getattr(dataset, "transform", None)
    if transform is None or not callable(transform) or not _can_be_wrapped(type(transform)):
        return None
    return _timers.setdefault(id(transform), _Timer(transform))


def _can_be_wrapped(kind: Any) -> bool:
    """Let calls of objects of this class that have a timer be timed. False for functions and classes written in C."""
    if any(kind is known for known, _ in _wrapped):
        return True
    original = kind.__call__

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        timer = _timers.get(id(self))
        if timer is None:
            return original(self, *arguments, **named)
        begun = time.thread_time()
        try:
            return original(self, *arguments, **named)
        finally:
            timer.seconds += time.thread_time() - begun

    own = vars(kind).get("__call__")
    try:
        kind.__call__ = call
    except TypeError:
        return False
    _wrapped.append((kind, own))
    return True
