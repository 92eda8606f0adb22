"""
Times how torch's DataLoader makes its batches: in worker processes, or in the loop itself.

torch creates a *fetcher* in each worker, or one in the loop if there are no workers; its ``fetch`` gets the samples
of a batch from the dataset and passes them to ``collate_fn``. Both are wrapped on that one object. Dataset,
collate_fn and loader stay the user's own, and what is wrapped in a worker ends with it.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple
from weakref import finalize

from torch.utils.data import dataloader

from fastio.measure.doctor.transform_timers import TransformTimers, leave_transforms
from fastio.measure.loop.user_code import is_users_code

__all__ = [
    "CAN_WATCH",
    "BatchCost",
    "RunQueue",
    "Wait",
    "WaitSampler",
    "WorkerStart",
    "fetchers_write_to",
    "leave_process",
    "read_costs",
    "sampler_of_this_thread",
]


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


# Samples where a thread waits, and for what: its stack, and the kernel's view of its state.

# Sampled every 5 ms, a worker that decodes with Pillow took 1.03 to 1.05 of its CPU time, every 10 ms 1.01 (medians
# of 21 interleaved rounds on a Xeon).
_INTERVAL_S = 0.01
_READING = "D"  # uninterruptible waits: for disks and network file systems
_SLEEPING = "S"  # all other waits: sleep, locks, sockets, pipes, other processes


class Wait(NamedTuple):
    """
    A line of code at which a thread was seen waiting; ``is_reading`` means for a disk or a network file system.

    ``file``, ``line`` and ``function`` are the innermost of the user's own code; ``call`` is the library function
    below it, None if there is none.
    """

    is_reading: bool
    file: str
    line: int
    function: str
    call: str | None


class WaitSampler:
    """
    Samples the thread that creates it, from another thread, between ``begin`` and ``end``.

    The kernel tells whether the thread waits. A thread that waits for the GIL counts as runnable, because taking a
    sample releases the GIL. Without /proc, nothing is seen. ``looks`` counts the samples.
    """

    def __init__(self) -> None:
        self.looks = 0
        path = Path(f"/proc/self/task/{threading.get_native_id()}/stat")
        self._stat = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if path.exists() else None
        self._ident = threading.get_ident()
        self._waits: Counter[Wait] = Counter()
        self._root: CodeType | None = None
        self._is_wanted = threading.Event()
        self._is_over = False
        if self._stat is not None:
            threading.Thread(target=self._look_on, name="fastio-doctor-waits", daemon=True).start()

    def begin(self, root: CodeType) -> None:
        """Start sampling what the innermost function with this code calls."""
        self._root = root
        self._is_wanted.set()

    def end(self) -> Counter[Wait]:
        """Stop sampling; returns how often the thread was seen waiting since ``begin``, by line of code."""
        self._is_wanted.clear()
        waits, self._waits = self._waits, Counter()
        return waits

    def close(self) -> None:
        """Stop the sampling thread."""
        self._is_over = True
        self._is_wanted.set()

    def _look_on(self) -> None:
        assert self._stat is not None
        while not self._is_over:
            self._is_wanted.wait()
            time.sleep(_INTERVAL_S)
            if self._is_wanted.is_set() and not self._is_over:
                self._look(self._stat)
        os.close(self._stat)

    def _look(self, stat: int) -> None:
        try:
            state = os.pread(stat, 128, 0).rpartition(b")")[2].split(None, 1)[0].decode()
        except (OSError, IndexError):  # the thread has ended
            self._is_over = True
            return
        self.looks += 1
        frame = sys._current_frames().get(self._ident) if state in (_READING, _SLEEPING) else None
        if frame is not None:
            self._waits[_wait_of(frame, self._root, is_reading=state == _READING)] += 1


def sampler_of_this_thread() -> WaitSampler:
    """Return the sampler of this thread, created on first use; a forked child creates its own."""
    key = os.getpid(), threading.get_ident()
    if key not in _samplers:
        _samplers[key] = WaitSampler()
    return _samplers[key]


def end_samplers() -> None:
    """Stop all samplers of this process."""
    for (pid, _), sampler in _samplers.items():
        if pid == os.getpid():
            sampler.close()
    _samplers.clear()


_samplers: dict[tuple[int, int], WaitSampler] = {}


def _wait_of(innermost: FrameType, root: CodeType | None, *, is_reading: bool) -> Wait:
    """Return the innermost frame of the user's code below ``root``, or the innermost of all if there is none."""
    frame: FrameType | None = innermost
    while frame is not None and frame.f_code is not root and not _is_users(frame):
        frame = frame.f_back
    chosen = innermost if frame is None or frame.f_code is root else frame
    call = None if chosen is innermost else _qualified(innermost.f_code)
    return Wait(is_reading, chosen.f_code.co_filename, chosen.f_lineno, _qualified(chosen.f_code), call)


_users: dict[CodeType, bool] = {}


def _is_users(frame: FrameType) -> bool:
    known = _users.get(frame.f_code)
    if known is None:
        known = _users[frame.f_code] = is_users_code(frame.f_code.co_filename, str(frame.f_globals.get("__name__")))
    return known


def _qualified(code: Any) -> str:
    return str(code.co_qualname).rpartition(".<locals>.")[2]


# RunQueue: how long a thread has waited for a CPU, as the kernel counts it.

_SCHEDSTAT = Path("/proc/thread-self/schedstat")  # not on every kernel


class RunQueue:
    """The waits of the thread that creates it, whichever thread asks. Holds a descriptor while it lives."""

    def __init__(self) -> None:
        self._file = os.open(_SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC) if _SCHEDSTAT.exists() else None
        if self._file is not None:
            finalize(self, os.close, self._file)

    @property
    def waited_s(self) -> float:
        """Seconds waited since the thread began; 0.0 if the kernel does not count them."""
        if self._file is None:
            return 0.0
        return int(os.pread(self._file, 64, 0).split()[1]) / 1e9  # "ran waited slices", in ns
