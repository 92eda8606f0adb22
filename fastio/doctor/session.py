"""Runs a training until enough of it was seen: some steps as they are, then a few under torch.profiler."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile, schedule

from fastio.doctor.model import ModelWatch
from fastio.doctor.surroundings import Surroundings
from fastio.doctor.training import Failure, failure_of
from fastio.doctor.watch import LoaderWatch, Watcher
from fastio.errors import FastioError
from fastio.measure.kineto_lines import without_kineto_lines
from fastio.measure.step_timer import StepSummary, StepTimer, Timeline
from fastio.measure.trace import StepBreakdown, read_trace

__all__ = ["Plan", "Seen", "observe"]

_LEAST_STEPS = 5  # timed, however long they take
_STEPS_OF_RANKS = 30  # timed in each of several processes, which must all end at the same step
_MOST_WARMUP = 32
_WARMUP_PART = 0.2  # of the seconds that are timed, at least
_SLOW_STEP_S = 2.0  # of steps above this, two are profiled
_PATIENCE = 6  # times the seconds that are timed, without an optimizer of torch: then any loop will do
_NO_BATCHES = 20  # an optimizer's steps without a new batch: the loop has stopped asking the loader

_Told = TypeVar("_Told")


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is looked at: steps for ``seconds``, after a few to warm up, then ``profiled`` steps."""

    seconds: float = 10.0
    profiled: int = 5


@dataclass(slots=True)
class Seen:
    """
    What a training showed until it was ended, or ended by itself.

    ``watch`` is the loader that it trained from, None where none can be seen. ``summary`` and ``timeline`` are its
    steps without profiler, seen from ``window[0]`` to ``window[1]`` (``perf_counter``); ``is_warm``: warm-up steps are
    not among them. ``waited_s`` is all waiting in that time, but not for a CPU, and ``own_cpu_s``
    the part of it in which the loop's thread worked.
    """

    watcher: Watcher
    model: ModelWatch
    folder: Path
    watch: LoaderWatch | None = None
    summary: StepSummary | None = None
    timeline: Timeline | None = None
    window: tuple[float, float] | None = None
    is_warm: bool = False
    waited_s: float = 0.0
    own_cpu_s: float = 0.0
    optimizer_steps: int = 0
    surroundings: Surroundings | None = None
    trace: StepBreakdown | None = None
    failure: Failure | None = None


class _Enough(BaseException):
    """Ends the training when enough was seen; no ``except Exception`` of the user's stops it."""


def observe(training: Callable[[Watcher], object], plan: Plan, tell: Callable[[Seen], _Told]) -> _Told:
    """
    Run ``training(watcher)``, end it when enough was seen, and hand what was seen to ``tell``, whose answer is given.

    A training that ends earlier, by itself, by an error or by Ctrl-C, is told of as far as it went. FastioError goes on
    where there was no loop yet.
    """
    with tempfile.TemporaryDirectory(prefix="fastio-doctor-") as folder:
        session = _Session(plan, Path(folder))
        seen = session.seen
        with ExitStack() as stack:
            stack.callback(session.close)
            stack.enter_context(seen.watcher)
            stack.enter_context(seen.model)
            hook = register_optimizer_step_post_hook(session.optimized)
            stack.callback(hook.remove)
            try:
                training(seen.watcher)
            except _Enough:
                pass
            except BaseException as error:  # the user's: shown with its traceback and exit code
                if isinstance(error, FastioError) and not seen.watcher.watches:
                    raise
                seen.failure = failure_of(error)
            return tell(session.close())


class _Session:
    """The phases of a run: wait for a training loop, warm up, time steps, profile steps."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan = plan
        self.seen = Seen(Watcher(self, folder), ModelWatch(), folder)
        self._phase: Literal["warming", "timing", "profiling", "over"] = "warming"
        self._steps = 0  # of this phase
        self._warm_from = 0.0
        self._first_step_s = 0.0  # when any loader's first step ended
        self._first: Any = None  # optimizer
        self._without_batch = 0
        self._marks = (0.0, 0.0)
        self._warm: tuple[StepSummary, Timeline] | None = None  # the steps before timing began
        self._profiler: Any = None

    def optimized(self, optimizer: Any, *_: Any) -> None:
        """An optimizer has worked: the loop that it works in is the training."""
        if self._first is None:
            self._first = optimizer
        if optimizer is not self._first:
            return
        seen, current = self.seen, self.seen.watcher.current
        seen.optimizer_steps += 1
        seen.model.look_at(optimizer)
        self._without_batch += 1
        if current is not None and self._without_batch <= _NO_BATCHES:
            current.is_training = True
        elif seen.watch is None:
            self._step_ended()

    def step_ended(self, watch: LoaderWatch) -> None:
        """A step of some loader's loop; the first one with training in it is the one to look at."""
        self._without_batch = 0
        if self.seen.watch is None and self._phase == "warming" and (watch.is_training or self._is_patience_over()):
            self.seen.watch, self._steps = watch, 0
        if watch is self.seen.watch:
            self._step_ended()

    def _is_patience_over(self) -> bool:
        """An optimizer that is not torch's tells nobody of its steps. Ranks must all end at one step: not by time."""
        now = time.perf_counter()
        self._first_step_s = self._first_step_s or now
        waited_s = now - self._first_step_s
        return not (self.seen.optimizer_steps or self._are_ranks()) and waited_s > _PATIENCE * self._plan.seconds

    def _step_ended(self) -> None:
        self._steps += 1
        if self._phase == "warming":
            if self._steps == 1:
                self._warm_from = time.perf_counter()
            if self._steps >= self._warmup() and self._is_warm():
                self._begin_timing()
        elif self._phase == "timing" and self._is_timed():
            self._end_timing()
            self._begin_profiling()
        elif self._phase == "profiling":
            with without_kineto_lines():
                self._profiler.step()
            if self._steps >= self._profiled() + 1:
                raise _Enough

    def _warmup(self) -> int:
        """Steps until what was made ahead of the first ones is used up."""
        if self.seen.watch is None:
            return 2
        loader = (self.seen.watch.inner or self.seen.watch).loader
        ahead = getattr(loader, "num_workers", 0) * (getattr(loader, "prefetch_factor", None) or 0)
        return min(2 + ahead, _MOST_WARMUP)

    def _is_warm(self) -> bool:
        """What compiles kernels, or tries them, is slow for longer than the first step."""
        return self._are_ranks() or time.perf_counter() - self._warm_from >= _WARMUP_PART * self._plan.seconds

    def _are_ranks(self) -> bool:
        """Several processes train together, and must all end at the same step."""
        distributed = torch.distributed
        return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1

    def _is_timed(self) -> bool:
        assert self.seen.window is not None
        if self._are_ranks():
            return self._steps >= _STEPS_OF_RANKS
        return self._steps >= _LEAST_STEPS and time.perf_counter() - self.seen.window[0] >= self._plan.seconds

    def _profiled(self) -> int:
        """Steps to profile, after one that is thrown away."""
        assert self.seen.window is not None
        begun, ended = self.seen.window
        steps = _LEAST_STEPS if self.seen.summary is None else max(1, self.seen.summary.steps)
        is_slow = not self._are_ranks() and (ended - begun) / steps > _SLOW_STEP_S
        return min(self._plan.profiled, 2) if is_slow else self._plan.profiled

    def _begin_timing(self) -> None:
        self._phase, self._steps = "timing", 0
        seen, watch = self.seen, self.seen.watch
        seen.surroundings = Surroundings()
        seen.surroundings.__enter__()
        if watch is not None:
            self._marks = watch.waited_s - watch.queued_s, watch.own_cpu_s
            self._warm = watch.timer.summary(), watch.timer.timeline()
            watch.timer = StepTimer()
            watch.timer.begin()
        now = time.perf_counter()
        seen.window = now, now

    def _end_timing(self) -> None:
        self._phase = "over"
        seen, watch = self.seen, self.seen.watch
        if seen.window is not None:
            seen.window, seen.is_warm = (seen.window[0], time.perf_counter()), True
        if watch is not None:
            seen.summary, seen.timeline = watch.timer.summary(), watch.timer.timeline()
            if (
                self._warm is not None
                and seen.summary.steps < self._warm[0].steps
                and seen.summary.steps < _LEAST_STEPS
            ):
                (seen.summary, seen.timeline), seen.is_warm = self._warm, False
            seen.waited_s = watch.waited_s - watch.queued_s - self._marks[0]
            seen.own_cpu_s = watch.own_cpu_s - self._marks[1]
        if seen.surroundings is not None:
            seen.surroundings.__exit__(None, None, None)

    def _begin_profiling(self) -> None:
        if self._plan.profiled == 0:
            raise _Enough
        self._phase, self._steps = "profiling", 0
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._profiler = profile(
            activities=activities,
            schedule=schedule(wait=0, warmup=1, active=self._profiled(), repeat=1),
            on_trace_ready=self._write,
        )
        with without_kineto_lines():
            self._profiler.start()

    def _write(self, profiler: Any) -> None:
        if self._phase != "profiling":  # ended early: half a trace
            return
        path = self.seen.folder / "trace.json"
        profiler.export_chrome_trace(str(path))
        self.seen.trace = read_trace(path)

    def close(self) -> Seen:
        """End what runs, and take what is there; twice does no harm."""
        seen = self.seen
        if seen.watch is None and not seen.optimizer_steps and seen.watcher.watches:
            seen.watch = max(seen.watcher.watches, key=lambda watch: watch.timer.steps)
        if self._phase in ("warming", "timing"):
            self._end_timing()
        self._phase = "over"
        if self._profiler is not None:
            with without_kineto_lines(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a profiler that is stopped before its first step says so
                self._profiler.stop()
            self._profiler = None
        return seen
