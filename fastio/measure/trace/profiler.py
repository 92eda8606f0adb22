"""Records a few steps of a training with torch.profiler, in traces of limited size."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import statistics
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from fastio import _native
from fastio.machine import rank_and_world
from fastio.machine.system import unnamed_file
from fastio.measure.trace.trace import STEP_PREFIX
from fastio.measure.trace.training import Schedule

__all__ = [
    "NATIVE",
    "ProfilingCost",
    "Recording",
    "TraceRecorder",
    "add_native_ranges",
    "record_native_ranges",
    "recorded_native_ranges",
    "shorten_trace",
    "without_kineto_lines",
]


# If steps are slow, fewer of them without the profiler are enough to compare with.
_MOST_PLAIN_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What torch.profiler records besides times; each makes traces longer and training slower."""

    record_shapes: bool = False
    profile_memory: bool = True
    with_stack: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilingCost:
    """
    What profiling itself cost: the median step with and without the profiler, and the number of steps behind each.

    Steps without it are those that the schedule skips, except the very first, and as many after the last cycle as a
    cycle records. None if the training ended before there were any. ``trace_bytes`` is the size of all traces.
    """

    step_s: float
    step_without_s: float | None
    steps: int
    steps_without: int
    trace_bytes: int

    @property
    def ratio(self) -> float | None:
        """The ratio of a step with the profiler to one without."""
        return self.step_s / self.step_without_s if self.step_without_s else None


class TraceRecorder:
    """
    Writes a trace for each cycle of the schedule; ``traces`` are their paths, ``cost`` is what recording cost.

    Each of several ranks writes its own, named by its rank. A trace above ``max_bytes`` (before compression) loses
    its last steps; ``steps_cut`` counts the steps lost. Native threads of this process appear in it as ranges of
    their own.
    """

    def __init__(
        self, plan: Schedule, out: Path, recording: Recording | None = None, *, max_bytes: int = 256 << 20
    ) -> None:
        self.plan = plan
        self.traces: list[Path] = []
        self.steps_cut = 0
        self._out = out
        self._max_bytes = max_bytes
        self._quiet = warnings.catch_warnings()
        self._cycle = plan.wait + plan.warmup + plan.active
        self._profiled_s: list[float] = []  # seconds of steps with the profiler
        self._plain_s: list[float] = []  # seconds of steps without it
        self._left = time.perf_counter()  # when the latest step began
        noted = asdict(recording or Recording())
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._profiler = profile(
            activities=activities,
            schedule=schedule(wait=plan.wait, warmup=plan.warmup, active=plan.active, repeat=plan.repeat),
            on_trace_ready=self._write,
            **noted,
        )

    def step(self, done: int) -> bool:
        """
        Call this after each step. Returns True once as many steps as a cycle records have followed without the
        profiler.
        """
        seconds = time.perf_counter() - self._left
        position = (done - 1) % self._cycle
        if done > self.plan.steps or (position < self.plan.wait and done > 1):
            self._plain_s.append(seconds)
        elif position >= self.plan.wait + self.plan.warmup:
            self._profiled_s.append(seconds)
        if done <= self.plan.steps:
            with without_kineto_lines():
                self._profiler.step()
        self._begin_ranges(done)
        self._left = time.perf_counter()
        is_long = sum(self._plain_s[-self.plan.active :]) > _MOST_PLAIN_S
        return done >= self.plan.steps + self.plan.active or (done > self.plan.steps and is_long)

    @property
    def cost(self) -> ProfilingCost | None:
        """The cost of profiling; None before a step was profiled."""
        if not self._profiled_s:
            return None
        return ProfilingCost(
            step_s=statistics.median(self._profiled_s),
            step_without_s=statistics.median(self._plain_s) if self._plain_s else None,
            steps=len(self._profiled_s),
            steps_without=len(self._plain_s),
            trace_bytes=sum(path.stat().st_size for path in self.traces),
        )

    def _begin_ranges(self, done: int) -> None:
        """Let native threads record their work when the steps to record begin."""
        if done < self.plan.steps and done % self._cycle == self.plan.wait + self.plan.warmup:
            record_native_ranges()

    def __enter__(self) -> Self:
        self._begin_ranges(0)
        self._quiet.__enter__()
        # Each cycle is written when it ends, so torch clears nothing that is needed.
        warnings.filterwarnings("ignore", ".*Profiler clears events", UserWarning)
        with without_kineto_lines():
            self._profiler.__enter__()  # type: ignore[no-untyped-call] # torch has no annotation there
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with without_kineto_lines():
            self._profiler.__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        recorded_native_ranges()  # of a training that ended within a cycle
        self._quiet.__exit__(kind, error, trace)

    def _write(self, profiler: Any) -> None:
        path = _numbered(self._out, len(self.traces) + 1 if self.plan.repeat > 1 else None)
        plain = path.with_name(path.name.removesuffix(".gz") + ".part.json")
        try:
            ranges = recorded_native_ranges()
            profiler.export_chrome_trace(str(plain))
            add_native_ranges(plain, ranges)
            self.steps_cut += shorten_trace(plain, max_bytes=self._max_bytes)
            if path.suffix == ".gz":
                with plain.open("rb") as source, gzip.open(path, "wb", compresslevel=6) as target:
                    shutil.copyfileobj(source, target)
            else:
                plain.replace(path)
        finally:
            plain.unlink(missing_ok=True)
        self.traces.append(path)


def _numbered(path: Path, cycle: int | None) -> Path:
    """Add the rank, if there are several, and the cycle before the suffix."""
    stem = path.name.removesuffix(".gz").removesuffix(".json")
    rank, world_size = rank_and_world()
    rank_part = f"-rank{rank}" if world_size > 1 else ""
    return path.with_name(f"{stem}{rank_part}{'' if cycle is None else f'-{cycle}'}{path.name[len(stem) :]}")


# Limits the size of a trace: one that is too large to open loses its last steps.


def shorten_trace(path: Path, *, max_bytes: int) -> int:
    """
    Cut a ``.json`` trace after the last step with which it stays below ``max_bytes``, but keep the first one.

    Returns the number of steps cut: 0 if the file was small enough, which then stays unchanged.
    """
    size = path.stat().st_size
    if size <= max_bytes:
        return 0
    document = json.loads(path.read_bytes())
    events: list[dict[str, Any]] = document["traceEvents"]
    ends = sorted(
        float(event["ts"]) + float(event["dur"])
        for event in events
        if event.get("ph") == "X" and event.get("cat") == "user_annotation" and event["name"].startswith(STEP_PREFIX)
    )
    times = [float(event["ts"]) if event.get("ph") != "M" else 0.0 for event in events]
    for kept in range(len(ends) - 1, 0, -1):
        chosen = [event for event, time in zip(events, times, strict=True) if time < ends[kept - 1]]
        if kept == 1 or size * len(chosen) / len(events) <= max_bytes:
            document["traceEvents"] = chosen
            path.write_text(json.dumps(document))
            return len(ends) - kept
    return 0  # a single step


# Hides three lines of torch's profiler that tell people nothing; everything else on stderr is passed on.

_STDERR = 2
# Kineto writes the first two at its highest level since torch 2.13. KINETO_LOG_LEVEL hides them only if it hides errors
# too. The third is what a torch for CUDA says on a machine without a driver (35) or without a GPU (100).
_LINES = re.compile(
    rb"^USDT:.*\bprofiler_(?:start|stop)\n|^ERROR:.*\bgpuGetDeviceCount failed with code (?:35|100)\n", re.MULTILINE
)


@contextmanager
def without_kineto_lines() -> Iterator[None]:
    """
    Hold back what this process writes to stderr, and release it at the end without the lines in which Kineto reports
    its work, or that there is no GPU.

    Meant for the moments in which a profiler starts, steps and stops.
    """
    sys.stderr.flush()
    try:
        kept = os.dup(_STDERR)
    except OSError:  # nobody reads stderr
        yield
        return
    held = unnamed_file()
    try:
        os.dup2(held, _STDERR)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, _STDERR)
            _write(_LINES.sub(b"", _read(held)))
    finally:
        os.close(held)
        os.close(kept)


def _read(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, size, 0) if size else b""


def _write(text: bytes) -> None:
    while text:
        text = text[os.write(_STDERR, text) :]


# Adds what native threads did during profiled steps to the profiler's trace.

NATIVE = "fastio_native"  # the category of these events; none of the eight rows counts it
_MOST = 200_000  # 8 MB; one range per thread and batch
_BASE = re.compile(rb'"baseTimeNanoseconds":\s*(\d+)')
_EVENTS = re.compile(rb'"traceEvents":\s*\[')

NativeRange = tuple[int, int, int, str, int]  # thread id, start and stop in ns as in time.time_ns(), what, samples


def record_native_ranges() -> None:
    """Record what the threads of all pools of this process work on, until ``recorded_native_ranges``."""
    _native.record_ranges(_MOST)


def recorded_native_ranges() -> list[NativeRange]:
    """Stop recording, and return the ranges."""
    ranges, _ = _native.recorded_ranges()
    return ranges


def add_native_ranges(path: Path, ranges: Sequence[NativeRange]) -> None:
    """
    Add the ranges to a ``.json`` trace of torch.profiler of this process, each on its thread's line.

    Both count CLOCK_REALTIME: the trace in microseconds from ``baseTimeNanoseconds``; traces of an older torch lack
    that key and count from 1970.
    """
    if not ranges:
        return
    data = path.read_bytes()
    base = _BASE.search(data)
    opened = _EVENTS.search(data)
    if opened is None:
        return
    base_ns = 0 if base is None else int(base[1])
    pid = os.getpid()
    threads = sorted({thread for thread, *_ in ranges})
    events: list[dict[str, object]] = [
        {
            "ph": "M",
            "name": "thread_name",
            "ts": 0,
            "pid": pid,
            "tid": thread,
            "args": {"name": f"fastio native {number}"},
        }
        for number, thread in enumerate(threads)
    ]
    for thread, start_ns, stop_ns, what, samples in ranges:
        times = {"ts": (start_ns - base_ns) / 1e3, "dur": (stop_ns - start_ns) / 1e3}
        number = {"pid": pid, "tid": thread}
        events.append({"ph": "X", "cat": NATIVE, "name": what, **times, **number, "args": {"samples": samples}})
    ours = json.dumps(events)[1:-1].encode()
    is_empty = data[opened.end() :].lstrip().startswith(b"]")
    path.write_bytes(data[: opened.end()] + ours + (b"" if is_empty else b",") + data[opened.end() :])
