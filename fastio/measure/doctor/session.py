"""Runs a training until enough of it has been measured: some steps unchanged, then a few under torch.profiler."""

from __future__ import annotations

import faulthandler
import io
import os
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerAction, ProfilerActivity, profile
from torch.utils.data import DataLoader

from fastio.errors import FastioError
from fastio.loader.fast_loader import FastLoader
from fastio.measure.doctor.facts import ModelFacts
from fastio.measure.doctor.surroundings import Surroundings
from fastio.measure.doctor.watch import LoaderWatch, Watcher
from fastio.measure.loop.step_timer import StepSummary, StepTimer, Timeline
from fastio.measure.loop.user_code import TRAINS, error_line, load_function, user_traceback
from fastio.measure.trace.profiler import without_kineto_lines
from fastio.measure.trace.trace import StepBreakdown, read_trace

__all__ = [
    "Failure",
    "Observation",
    "ObservationPlan",
    "function_training",
    "last_words",
    "observe",
]


_FEW_STEPS = 5  # if fewer steps than this could be timed later, those of the start count instead
_STEPS_OF_RANKS = 30  # steps timed in each of several processes, which must all stop at the same step
_MOST_WARMUP = 32
# Shares of the time for watching a loop: the least and most for warm-up, and what profiling leaves.
_WARMUP_PART = (0.2, 0.4)
_TIMED_UNTIL = 0.8
_LITTLE = 0.05  # seconds; steps that take no longer are always profiled
_NO_BATCHES = 20  # an optimizer's steps without a new batch after which the loop has stopped using the loader

_Told = TypeVar("_Told")


@dataclass(frozen=True, slots=True)
class ObservationPlan:
    """
    How much to measure: ``seconds`` from the end of the loop's first step on, and the step that is running then.

    They cover a few steps of warm-up, then timed steps, then ``profiled`` steps, fewer if time is short. Several
    ranks must all stop at the same step, so steps are counted instead.
    """

    seconds: float = 10.0
    profiled: int = 5


@dataclass(slots=True)
class Observation:
    """
    What was measured of a training until it was stopped or ended.

    ``watch`` is the loader that it trained from, None if none was seen. ``summary`` and ``timeline`` are its steps
    without profiler, measured from ``window[0]`` to ``window[1]`` (``perf_counter``); ``is_warm`` means that they do
    not include warm-up steps. ``waited_s`` is all waiting in that time except for a CPU, and ``own_cpu_s`` the part
    of it in which the loop's thread computed. ``is_stopped`` means that the doctor ended it, as ``plan`` says.
    """

    watcher: Watcher
    model: ModelWatch
    folder: Path
    plan: ObservationPlan
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
    is_stopped: bool = False


class _ObservedEnough(BaseException):
    """Stops the training when enough was measured; no ``except Exception`` of the user's catches it."""


def observe(
    training: Callable[[Watcher], object], plan: ObservationPlan, tell: Callable[[Observation], _Told]
) -> _Told:
    """
    Run ``training(watcher)``, stop it when enough was measured, and return what ``tell`` makes of the measurements.

    A training that ends earlier, by itself, by an error or by Ctrl-C, is reported as far as it went. A FastioError
    passes through if there was no loop yet.
    """
    with tempfile.TemporaryDirectory(prefix="fastio-doctor-") as folder:
        session = _Session(plan, Path(folder))
        observation = session.observation
        with ExitStack() as stack:
            stack.enter_context(last_words(Path(folder)))
            stack.callback(session.close)
            stack.enter_context(observation.watcher)
            stack.enter_context(observation.model)
            hook = register_optimizer_step_post_hook(session.optimized)
            stack.callback(hook.remove)
            try:
                training(observation.watcher)
            except _ObservedEnough:
                observation.is_stopped = True
            except BaseException as error:  # the user's error: shown with its traceback and exit code
                if isinstance(error, FastioError) and not observation.watcher.watches:
                    raise
                observation.failure = failure_of(error)
            return tell(session.close())


class _Session:
    """The phases of a run: wait for a training loop, warm up, time steps, profile steps."""

    def __init__(self, plan: ObservationPlan, folder: Path) -> None:
        self._plan = plan
        self.observation = Observation(Watcher(self, folder), ModelWatch(), folder, plan)
        self._phase: Literal["warming", "timing", "profiling", "over"] = "warming"
        self._steps = 0  # steps of this phase
        self._timed = 0  # steps
        self._loop_from: dict[int, float] = {}  # by the loader's number: when its first step ended
        self._begun = 0.0  # when the first step of the watched loop ended
        self._guess: tuple[LoaderWatch, int] | None = None  # that loop and its epoch, before an optimizer has run
        self._first: Any = None  # optimizer
        self._without_batch = 0
        self._marks = (0.0, 0.0)
        self._warm: tuple[StepSummary, Timeline] | None = None  # summary and timeline of the steps before timing
        self._profiler: Any = None

    def optimized(self, optimizer: Any, *_: Any) -> None:
        """Called after an optimizer's step: the loop it runs in is the training."""
        if self._first is None:
            self._first = optimizer
        if optimizer is not self._first:
            return
        observation, current = self.observation, self.observation.watcher.current
        observation.optimizer_steps += 1
        observation.model.look_at(optimizer)
        self._without_batch += 1
        if current is not None and self._without_batch <= _NO_BATCHES:
            current.is_training = True
            if self._guess not in (None, (current, current.epochs)):
                self._begin_anew()
            self._guess = None
        elif observation.watch is None:
            self._step_ended()

    def step_ended(self, watch: LoaderWatch) -> None:
        """Called after a step of a loader's loop; the first loop with training in it is the one to watch."""
        self._without_batch = 0
        begun = self._loop_from.setdefault(watch.number, time.perf_counter())
        is_first = self.observation.watch is None and self._phase == "warming"
        if is_first and (watch.is_training or self._is_guessed(begun)):
            self.observation.watch, self._steps, self._begun = watch, 0, begun
            self._guess = None if watch.is_training else (watch, watch.epochs)
        if watch is self.observation.watch:
            self._step_ended()

    def _is_guessed(self, begun: float) -> bool:
        """
        Return whether a loop without an optimizer's step is watched: only torch's optimizers report their steps.

        Ranks must all stop at one step, so that is not decided by time.
        """
        is_time = time.perf_counter() - begun >= _WARMUP_PART[0] * self._plan.seconds
        return is_time and not (self.observation.optimizer_steps or self._are_ranks())

    def _begin_anew(self) -> None:
        """Start over: the loop was a pass over data before the training, which begins now."""
        self._end_timing()
        self._stop_profiler()
        observation, self._phase, self._warm = self.observation, "warming", None
        observation.watch = observation.summary = observation.timeline = observation.window = (
            observation.surroundings
        ) = observation.trace = None
        observation.is_warm = False
        self._loop_from.clear()

    def _step_ended(self) -> None:
        self._steps += 1
        self._begun = self._begun or time.perf_counter()
        if self._phase == "warming":
            if self._is_warm():
                self._begin_timing()
                if not self._are_ranks() and self._spent >= 1:
                    self._end_timing()
                    raise _ObservedEnough
        elif self._phase == "timing" and self._is_timed():
            self._end_timing()
            self._begin_profiling()
        elif self._phase == "profiling":
            with without_kineto_lines(), warnings.catch_warnings():
                # One cycle is recorded, so torch clears nothing that is needed.
                warnings.filterwarnings("ignore", ".*Profiler clears events", UserWarning)
                self._profiler.step()
            if self.observation.trace is not None:
                raise _ObservedEnough

    @property
    def _spent(self) -> float:
        """The share of the time that has passed."""
        return (time.perf_counter() - self._begun) / self._plan.seconds

    def _warmup(self) -> int:
        """Return the number of steps until the batches made ahead at the start are used up."""
        if self.observation.watch is None:
            return 2
        loader = (self.observation.watch.inner or self.observation.watch).loader
        ahead = getattr(loader, "num_workers", 0) * (getattr(loader, "prefetch_factor", None) or 0)
        return min(2 + ahead, _MOST_WARMUP)

    def _is_warm(self) -> bool:
        """Return whether steps are warm: compiling or trying kernels slows down more than the first step."""
        is_used_up = self._steps >= self._warmup()
        if self._are_ranks():
            return is_used_up
        least, most = _WARMUP_PART
        return self._spent >= (least if is_used_up else most)

    def _are_ranks(self) -> bool:
        """Return whether several processes train together, and so must stop at the same step."""
        distributed = torch.distributed
        return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1

    def _is_timed(self) -> bool:
        if self._are_ranks():
            return self._steps >= _STEPS_OF_RANKS
        return self._spent >= (_TIMED_UNTIL if self._plan.profiled else 1.0)

    def _step_s(self) -> float:
        """Return how long a timed step took."""
        assert self.observation.window is not None
        begun, ended = self.observation.window
        return (ended - begun) / max(1, self._timed)

    def _is_time_for(self, steps: int) -> bool:
        """Return whether this many more steps would end in time."""
        left_s = max(1 - self._spent, _LITTLE) * self._plan.seconds
        return self._are_ranks() or steps * self._step_s() <= left_s

    def _scheduled(self, step: int) -> ProfilerAction:
        """Return what the profiler does with this step: the first one is discarded, the last one ends the recording."""
        if step == 0:
            return ProfilerAction.WARMUP
        is_last = step >= self._plan.profiled or not self._is_time_for(2)
        return ProfilerAction.RECORD_AND_SAVE if is_last else ProfilerAction.RECORD

    def _begin_timing(self) -> None:
        self._phase, self._steps = "timing", 0
        observation, watch = self.observation, self.observation.watch
        observation.surroundings = Surroundings()
        observation.surroundings.__enter__()
        if watch is not None:
            self._marks = watch.waited_s - watch.queued_s, watch.own_cpu_s
            self._warm = watch.timer.summary(), watch.timer.timeline()
            watch.timer = StepTimer()
            watch.timer.begin()
        now = time.perf_counter()
        observation.window = now, now

    def _end_timing(self) -> None:
        self._phase, self._timed = "over", self._steps
        observation, watch = self.observation, self.observation.watch
        if observation.window is not None:
            observation.window, observation.is_warm = (observation.window[0], time.perf_counter()), True
        if watch is not None:
            observation.summary, observation.timeline = watch.timer.summary(), watch.timer.timeline()
            if (
                self._warm is not None
                and observation.summary.steps < self._warm[0].steps
                and observation.summary.steps < _FEW_STEPS
            ):
                (observation.summary, observation.timeline), observation.is_warm = self._warm, False
            observation.waited_s = watch.waited_s - watch.queued_s - self._marks[0]
            observation.own_cpu_s = watch.own_cpu_s - self._marks[1]
        if observation.surroundings is not None:
            observation.surroundings.__exit__(None, None, None)

    def _begin_profiling(self) -> None:
        if self._plan.profiled == 0 or not self._is_time_for(2):
            raise _ObservedEnough
        self._phase, self._steps = "profiling", 0
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._profiler = profile(
            activities=activities,
            schedule=self._scheduled,
            on_trace_ready=self._write,
        )
        with without_kineto_lines():
            self._profiler.start()

    def _write(self, profiler: Any) -> None:
        if self._phase != "profiling":  # stopped early: the trace is incomplete
            return
        path = self.observation.folder / "trace.json"
        profiler.export_chrome_trace(str(path))
        self.observation.trace = read_trace(path)

    def close(self) -> Observation:
        """Stop what is running and keep what was measured; calling it twice is harmless."""
        observation = self.observation
        if observation.watch is None:
            observation.watch = self._likeliest()
        if self._phase in ("warming", "timing"):
            self._end_timing()
        self._phase = "over"
        self._stop_profiler()
        return observation

    def _likeliest(self) -> LoaderWatch | None:
        """Return the loader of a training that ended too early to be sure: one whose batch was trained on, if any."""
        watches = self.observation.watcher.watches
        if self.observation.optimizer_steps:
            watches = [watch for watch in watches if watch.is_training and self._without_batch <= _NO_BATCHES]
        return max(watches, key=lambda watch: watch.timer.steps, default=None)

    def _stop_profiler(self) -> None:
        if self._profiler is None:
            return
        with without_kineto_lines(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a profiler that is stopped before its first step warns
            self._profiler.stop()
        self._profiler = None


# The user's training: a function that trains, and how it failed.

_INTERRUPTED, _TERMINATED = 130, 143  # the exit codes that a shell reports for SIGINT and SIGTERM


@dataclass(frozen=True, slots=True)
class Failure:
    """How a training failed: its last line, its traceback without fastio's frames, its exit code."""

    message: str
    text: str
    code: int


def function_training(
    name: str, watched: Callable[[Iterable[Any]], Iterable[Any]], has_begun: Callable[[], bool]
) -> Callable[[], None]:
    """
    Return the training ``module:function``, which trains, or returns a loader and ``step(batch)`` to be run for ever.

    ``watched`` returns what to iterate over in place of the loader. Raises FastioError if there is no such function;
    the training raises it if the function returns a loader alone, unless ``has_begun`` says that it iterated over one.
    """
    function = load_function(name, what=TRAINS)

    def train() -> None:
        made = function()
        if isinstance(made, tuple) and len(made) == 2 and hasattr(made[0], "__iter__") and callable(made[1]):
            _epochs(watched(made[0]), made[1])
        elif isinstance(made, (DataLoader, FastLoader)) and not has_begun():
            raise FastioError(f"{name} returned only a {type(made).__name__}; expected a function that {TRAINS}")

    return train


def _epochs(loader: Iterable[Any], step: Callable[[Any], object]) -> None:
    """Run the loop that the user would write; it ends with an empty epoch."""
    is_empty = False
    while not is_empty:
        is_empty = True
        for batch in loader:
            step(batch)
            is_empty = False


def failure_of(error: BaseException) -> Failure | None:
    """Return the failure of a training that raised this error; None if it ended on purpose by ``sys.exit(0)``."""
    if isinstance(error, SystemExit):
        if error.code in (None, 0):
            return None
        code = error.code if isinstance(error.code, int) else 1
        if code == _TERMINATED:
            return Failure("terminated (SIGTERM)", "", code)
        call = f"sys.exit({error.code!r})"
        return Failure(call, "" if isinstance(error.code, int) else str(error.code), code)
    if isinstance(error, KeyboardInterrupt):
        return Failure("interrupted", "", _INTERRUPTED)
    text = user_traceback(error) or "".join(traceback.format_exception(error))
    return Failure(error_line(error), text, 1)


# Finds out what a training trains, from its optimizer and torch, without changing it.


class ModelWatch:
    """As a context, records whether autocast is used; ``look_at`` an optimizer records its parameters."""

    def __init__(self) -> None:
        self._parameters: list[torch.Tensor] | None = None
        self._is_autocast = False
        self._patches = ExitStack()

    def __enter__(self) -> ModelWatch:
        # Called at the end of every autocast region. The class itself stays unpatched: torch.compile looks at it.
        original: Any = torch.clear_autocast_cache
        self._patches.callback(setattr, torch, "clear_autocast_cache", original)

        def clear() -> None:
            # The state is still that of the region: enabled=False is a region too.
            self._is_autocast |= torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu")
            original()

        torch.clear_autocast_cache = clear
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.close()
        self._parameters = None

    def look_at(self, optimizer: Any) -> None:
        """Record the optimizer's parameters, the first time."""
        if self._parameters is None:
            self._parameters = [part for group in optimizer.param_groups for part in group["params"]]

    @property
    def facts(self) -> ModelFacts | None:
        """The facts, or None if no optimizer has run. The dtype is that of most parameters."""
        if not self._parameters:
            return None
        kernels = [part for part in self._parameters if part.dim() == 4 and max(part.shape[2:]) > 1]
        sizes: dict[str, int] = {}
        for part in self._parameters:
            name = str(part.dtype).removeprefix("torch.")
            sizes[name] = sizes.get(name, 0) + part.numel()
        return ModelFacts(
            device=str(self._parameters[0].device),
            dtype=max(sizes, key=lambda name: sizes[name]),
            has_convolutions=bool(kernels),
            is_channels_last=bool(kernels)
            and all(part.is_contiguous(memory_format=torch.channels_last) for part in kernels),
            is_autocast=self._is_autocast,
            is_compiled=_is_compiled(),
        )


def _is_compiled() -> bool:
    """Return whether torch.compile has compiled anything in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and dynamo.counters["stats"]["unique_graphs"] > 0


# Says how a training ended whose process could not say it: killed, crashed, or left by ``os._exit``.

_WORDS: Final = (
    "the training's process is gone, and with it what was measured: without a fatal error of Python's above, it was "
    "killed (SIGKILL, most often for lack of memory: dmesg or the job's limit tells) or ended by os._exit"
)
# Runs beside the training, as nobody's child: a script may wait for all of its own. Where there is no pidfd, the end of
# the pipe tells, which workers of the training hold open as well.
_WATCH: Final = """
import os, select, shutil, sys
pid, folder, words = int(sys.argv[1]), sys.argv[2], sys.argv[3]
try:
    ends = [os.pidfd_open(pid), 0]
except (OSError, AttributeError):  # the kernel's; a Python that was built with old headers
    ends = [0]
if os.fork():
    os._exit(0)
if 0 not in select.select(ends, [], [])[0] or not os.read(0, 1):
    shutil.rmtree(folder, ignore_errors=True)
    print(words, file=sys.stderr)
"""


@contextmanager
def last_words(folder: Path) -> Iterator[None]:
    """
    If this process ends within the ``with`` block, one line says so on stderr, and ``folder`` is removed.

    A crash in native code also shows where in Python it happened.
    """
    own, is_enabled = os.getpid(), faulthandler.is_enabled()
    with suppress(OSError, ValueError, io.UnsupportedOperation):  # stderr may be no file
        faulthandler.enable()
    watch = subprocess.Popen(  # noqa: S603 - this interpreter
        [sys.executable, "-I", "-S", "-c", _WATCH, str(own), str(folder), _WORDS],
        stdin=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is not for it
    )
    assert watch.stdin is not None
    watch.wait()
    try:
        yield
    finally:
        if os.getpid() == own:  # not in a fork of the training
            with suppress(BrokenPipeError):
                watch.stdin.write(b".")
                watch.stdin.close()
            if not is_enabled:
                faulthandler.disable()
