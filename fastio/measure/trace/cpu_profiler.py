"""Profiles the Python code of a running training: with cProfile inside it, or with py-spy from outside."""

from __future__ import annotations

import cProfile
import ctypes
import json
import os
import pstats
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, NamedTuple, Self

from fastio.errors import FastioError
from fastio.measure.trace.training import Schedule

__all__ = [
    "CprofileRecorder",
    "CpuProfile",
    "Frame",
    "FunctionTime",
    "GilShares",
    "PySpyRecorder",
    "ThreadProfile",
    "Tool",
    "function_times",
    "loader_share",
    "read_speedscope",
]


_RATE = 100  # samples of py-spy per second
_END_S = 30  # seconds that py-spy has to write its file
_PR_SET_PTRACER = 0x59616D61
_ANY, _NOBODY = ctypes.c_ulong(-1), ctypes.c_ulong(0)


class CprofileRecorder:
    """
    cProfile over the active steps and until ``seconds`` have passed; written to ``out`` for pstats and its viewers.

    It sees every call of the training's own thread, and slows down code with many calls.
    """

    def __init__(self, plan: Schedule, out: Path, *, seconds: float) -> None:
        self.plan = plan
        self._out = out
        self._seconds = seconds
        self._profiler = cProfile.Profile()
        self._watch = _RecordedSteps(plan)

    def step(self, done: int) -> bool:
        """Call this after each step of the training."""
        self._profiler.disable()
        self._watch.step(done)
        if self._watch.is_on and self._watch.has_seen(done, self._seconds):
            return True
        if self._watch.is_on:
            self._profiler.enable()
        return False

    def result(self) -> CpuProfile:
        """Return what was measured, after the training has ended."""
        stats = pstats.Stats(self._profiler).stats  # type: ignore[attr-defined] # its one useful part has no annotation
        functions = [
            FunctionTime(name, file, line, calls, self_s, total_s)
            for (file, line, name), (_, calls, self_s, total_s, _) in stats.items()
        ]
        functions.sort(key=lambda function: -function.self_s)
        return CpuProfile("cprofile", str(self._out), self._watch.steps, self._watch.seconds, tuple(functions), None)

    def __enter__(self) -> Self:
        self._watch.step(0)
        if self._watch.is_on:
            self._profiler.enable()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._profiler.disable()
        self._watch.end()
        self._profiler.dump_stats(self._out)


class PySpyRecorder:
    """
    py-spy from outside, which hardly slows the training: half of the time for all threads, half for who holds the
    GIL.

    It watches from the first active step for at least ``seconds`` and the active steps; ``out`` is a file for
    https://www.speedscope.app. It sees only threads of this process: DataLoader workers are other processes. Raises
    FastioError if py-spy is not installed, or if the system forbids it to look.
    """

    def __init__(self, plan: Schedule, out: Path, *, seconds: float) -> None:
        self.plan = plan
        self._program = _py_spy()
        self._out = out
        self._gil_out = out.with_name(out.name + ".gil.part")
        self._seconds = seconds
        self._watch = _RecordedSteps(plan)
        self._running: _PySpy | None = None
        self._seen_s: list[float] = []
        self._steps_seen = 0

    def step(self, done: int) -> bool:
        """Call this after each step of the training."""
        was_on = self._watch.is_on
        self._watch.step(done)
        if not self._watch.is_on:
            return False
        if not was_on:
            self._begin(self._out, "--threads")
        elif self._running is not None and not self._seen_s and self._watch.watched_s >= self._seconds / 2:
            self._end()
            self._steps_seen = self._watch.steps
            self._begin(self._gil_out, "--gil")
        return len(self._seen_s) == 1 and self._watch.has_seen(done, self._seconds)

    def result(self) -> CpuProfile:
        """Return what was measured, after the training has ended."""
        profiles = read_speedscope(self._out)
        gil = None
        if len(self._seen_s) == 2:
            gil = _gil_shares(self._gil_out, self._seen_s[1])
        self._gil_out.unlink(missing_ok=True)
        functions = function_times(profiles)
        steps = self._steps_seen or self._watch.steps
        return CpuProfile("py-spy", str(self._out), steps, self._seen_s[0], functions, gil)

    def __enter__(self) -> Self:
        self.step(0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watch.end()
        if self._running is not None:
            self._end()

    def _begin(self, out: Path, way: Literal["--threads", "--gil"]) -> None:
        self._running = _PySpy(self._program, out, way)

    def _end(self) -> None:
        assert self._running is not None
        running, self._running = self._running, None
        self._seen_s.append(running.end())


class _RecordedSteps:
    """Which step the recording starts from, and how long it took."""

    def __init__(self, plan: Schedule) -> None:
        self._plan = plan
        self._skipped = plan.wait + plan.warmup
        self._begun: float | None = None
        self.seconds = 0.0
        self.steps = 0

    @property
    def is_on(self) -> bool:
        return self._begun is not None

    @property
    def watched_s(self) -> float:
        return 0.0 if self._begun is None else time.perf_counter() - self._begun

    def step(self, done: int) -> None:
        if self._begun is None and done >= self._skipped:
            self._begun = time.perf_counter()
        self.steps = max(0, done - self._skipped)

    def has_seen(self, done: int, seconds: float) -> bool:
        return done >= self._plan.steps and self.watched_s >= seconds

    def end(self) -> None:
        self.seconds = self.watched_s


class _PySpy:
    """py-spy while it samples this process."""

    def __init__(self, program: str, out: Path, way: Literal["--threads", "--gil"]) -> None:
        _allow(_ANY)  # if only a parent may trace its child (Yama), this process allows others too
        how = ("--full-filenames", "--function", "--rate", str(_RATE), "--format", "speedscope")
        command = [program, "record", way, *how, "--output", str(out), "--pid", str(os.getpid())]
        self._process = subprocess.Popen(  # noqa: S603 - the program was looked up
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self._process.stdout is not None
        output = _until(self._process.stdout, "Sampling process")
        self._begun = time.perf_counter()
        if self._process.poll() is not None or "Sampling process" not in output:
            self._process.communicate()
            _allow(_NOBODY)
            raise FastioError(f"py-spy: {_reason(output)}")

    def end(self) -> float:
        """Let it write its file, and return for how many seconds it sampled."""
        seconds = time.perf_counter() - self._begun
        self._process.send_signal(signal.SIGINT)
        try:
            output, _ = self._process.communicate(timeout=_END_S)
        except subprocess.TimeoutExpired as exc:
            self._process.kill()
            self._process.communicate()
            raise FastioError(f"py-spy: did not end within {_END_S} s after it was asked to") from exc
        finally:
            _allow(_NOBODY)
        if self._process.returncode != 0:
            raise FastioError(f"py-spy: {_reason(output)}")
        return seconds


def _until(lines: IO[str], words: str) -> str:
    """Return the output up to the line with these words, or to the end."""
    output = ""
    for line in lines:
        output += line
        if words in line:
            break
    return output


def _reason(output: str) -> str:
    if "ermission" in output:
        return (
            "this system does not let it trace the process (ptrace): run as root, in a container with "
            "--cap-add SYS_PTRACE, or use --cpu cprofile"
        )
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else "ended at once without a message"


def _py_spy() -> str:
    beside = Path(sys.executable).with_name("py-spy")
    program = str(beside) if beside.is_file() else shutil.which("py-spy")
    if program is None:
        raise FastioError("py-spy is not installed: pip install 'fastio[profile]', or use --cpu cprofile")
    return program


def _allow(who: ctypes.c_ulong) -> None:
    """Allow any process of this user to trace this one, or withdraw that; without effect if the kernel has no Yama."""
    with suppress(AttributeError):  # a C library without prctl
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, who, 0, 0, 0)


def _gil_shares(path: Path, seconds: float) -> GilShares:
    profiles = read_speedscope(path)
    held = min(1.0, sum(sum(profile.weights) for profile in profiles) / seconds)
    loader = held * loader_share(profiles)
    return GilShares(loader=loader, training=held - loader, free=1 - held)


# What Python code did on the CPUs during a training: functions, threads, and who held the GIL.

Tool = Literal["cprofile", "py-spy"]


@dataclass(frozen=True, slots=True)
class FunctionTime:
    """
    One Python function: ``self_s`` is its time without callees, ``line`` its first line.

    ``calls`` is None if nobody counted (py-spy samples, it does not count calls).
    """

    name: str
    file: str
    line: int
    calls: int | None
    self_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class GilShares:
    """
    Who held the interpreter's lock, as shares of the time from 0 to 1 that add up to 1.

    ``loader``: code of a loader, fastio's or torch's, and what it called; ``training``: everything else; ``free``:
    nobody. A loader that holds the GIL keeps the loop from launching work.
    """

    loader: float
    training: float
    free: float


@dataclass(frozen=True, slots=True)
class CpuProfile:
    """
    What ``tool`` measured in ``seconds`` and ``steps`` steps; ``path`` is the file it wrote.

    Who held the GIL was sampled afterwards, for as long. ``functions`` are sorted by their own time, longest first.
    cProfile sees only the training's own thread; py-spy sees all running threads, whose times may add up to more than
    ``seconds``.
    """

    tool: Tool
    path: str
    steps: int
    seconds: float
    functions: tuple[FunctionTime, ...]
    gil: GilShares | None


# Reads profiles in speedscope's format, as py-spy writes them: sampled stacks and the time of each.

_FASTIO = Path(__file__).parents[2]
# Code that makes batches: fastio's except what measures and prints, torch's, and the measured loop's call of any
# other.
_TORCH = "/torch/utils/data/"
_NO_LOADERS = (f"{_FASTIO / 'measure'}/", f"{_FASTIO / 'cli'}/")
_NEXT_BATCH = ("next_batch", str(_FASTIO / "measure" / "loop" / "batch.py"))


class Frame(NamedTuple):
    """One function on a stack."""

    name: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class ThreadProfile:
    """The sampled stacks of one thread, outermost function first, and the seconds that each sample stands for."""

    name: str
    stacks: tuple[tuple[Frame, ...], ...]
    weights: tuple[float, ...]


def read_speedscope(path: Path) -> list[ThreadProfile]:
    """Read all threads of a file. Raises FastioError if it is not a speedscope file with times."""
    try:
        document = json.loads(path.read_bytes())
        frames = [
            Frame(frame["name"], frame.get("file") or "", frame.get("line") or 0)
            for frame in document["shared"]["frames"]
        ]
        return [
            ThreadProfile(
                name=profile["name"],
                stacks=tuple(tuple(frames[index] for index in stack) for stack in profile["samples"]),
                weights=tuple(map(float, profile["weights"])),
            )
            for profile in document["profiles"]
        ]
    except (ValueError, KeyError, TypeError, IndexError) as exc:
        raise FastioError(f"{path}: no profile in speedscope's format ({exc!r})") from exc


def function_times(profiles: Sequence[ThreadProfile]) -> tuple[FunctionTime, ...]:
    """Return own and total time of every function over all threads, longest own time first."""
    own: dict[Frame, float] = defaultdict(float)
    total: dict[Frame, float] = defaultdict(float)
    for profile in profiles:
        for stack, seconds in zip(profile.stacks, profile.weights, strict=True):
            for frame in set(stack):
                total[frame] += seconds
            if stack:
                own[stack[-1]] += seconds
    times = (FunctionTime(*frame, calls=None, self_s=own[frame], total_s=total[frame]) for frame in total)
    return tuple(sorted(times, key=lambda function: (-function.self_s, -function.total_s, function.name)))


def loader_share(profiles: Sequence[ThreadProfile]) -> float:
    """Return the share of time, 0 to 1, whose stacks pass through a loader; 0 without samples."""
    samples = [
        (seconds, any(_is_loader(frame) for frame in stack))
        for profile in profiles
        for stack, seconds in zip(profile.stacks, profile.weights, strict=True)
    ]
    total = sum(seconds for seconds, _ in samples)
    return sum(seconds for seconds, is_loader in samples if is_loader) / total if total else 0.0


def _is_loader(frame: Frame) -> bool:
    if (frame.name, frame.file) == _NEXT_BATCH:
        return True
    if frame.file.startswith(f"{_FASTIO}/"):
        return not frame.file.startswith(_NO_LOADERS)
    return _TORCH in frame.file
