"""Runs a training under torch.profiler for a few steps, whatever it is: a script, or a loader with its step."""

from __future__ import annotations

import runpy
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from fastio.errors import FastioError
from fastio.measure.trace import LOADER_PREFIX
from fastio.measure.user_code import load_function

__all__ = ["Schedule", "profile_function", "profile_script"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Of so many ``repeat`` cycles, steps that are passed over, recorded but thrown away, and kept in a trace."""

    wait: int
    warmup: int
    active: int
    repeat: int = 1

    def __post_init__(self) -> None:
        if min(self.wait, self.warmup) < 0 or min(self.active, self.repeat) < 1:
            raise ValueError(f"{self}: expected wait and warmup of 0 or more, active and repeat of 1 or more")

    @property
    def steps(self) -> int:
        """Steps that the training must have."""
        return (self.wait + self.warmup + self.active) * self.repeat


_END = object()  # of an epoch


class _Enough(BaseException):
    """Ends the training when everything is recorded; no ``except Exception`` of the user's stops it."""


class _Recorder:
    """A profiler that writes a trace for each cycle and ends the training after the last one."""

    def __init__(self, plan: Schedule, out: Path) -> None:
        self.traces: list[Path] = []
        self.steps = 0
        self.is_optimizer_counted = True
        self._plan = plan
        self._out = out
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self.profiler = profile(
            activities=activities,
            schedule=schedule(wait=plan.wait, warmup=plan.warmup, active=plan.active, repeat=plan.repeat),
            on_trace_ready=self._write,
        )

    def _write(self, profiler: Any) -> None:
        number = len(self.traces) + 1
        path = self._out
        if self._plan.repeat > 1:
            stem = path.name.removesuffix(".gz").removesuffix(".json")
            path = path.with_name(f"{stem}-{number}{path.name[len(stem) :]}")
        profiler.export_chrome_trace(str(path))
        self.traces.append(path)

    def step(self) -> None:
        """A step of the training is done."""
        self.steps += 1
        self.profiler.step()
        if self.steps >= self._plan.steps:
            raise _Enough

    def run(self, training: Callable[[], object], name: str) -> list[Path]:
        """The traces of a training. FastioError where it ends before the schedule does."""
        try:
            with warnings.catch_warnings(), self.profiler:
                # Each cycle is written when it ends, so nothing that torch clears is missed.
                warnings.filterwarnings("ignore", ".*Profiler clears events", UserWarning)
                training()
        except (_Enough, SystemExit):  # a script may end itself
            pass
        if self.steps >= self._plan.steps:
            return self.traces
        raise FastioError(
            f"{name}: ended after {self.steps} steps, the schedule needs {self._plan.steps}; a step is what ends with "
            f"optimizer.step(). Choose a shorter --schedule, or train for longer"
        )


def profile_script(script: str, arguments: Sequence[str], *, plan: Schedule, out: Path) -> list[Path]:
    """
    Run ``script`` as ``python script arguments`` would, record its steps, and end it when they are recorded.

    A step ends with ``step()`` of the first optimizer that is used. Gives the traces, one for each cycle.
    """
    if not Path(script).is_file() or not script.endswith(".py"):
        raise FastioError(f"{script}: no such script; expected SCRIPT.py and its arguments, or MODULE:FUNCTION")
    recorder = _Recorder(plan, out)
    argv, path = sys.argv, sys.path[:]
    sys.argv, sys.path[0] = [script, *arguments], str(Path(script).resolve().parent)
    try:
        return _hooked(recorder, lambda: runpy.run_path(script, run_name="__main__"), script)
    finally:
        sys.argv, sys.path[:] = argv, path


def profile_function(name: str, *, plan: Schedule, out: Path) -> list[Path]:
    """
    Call ``module:function`` and record the training that it does, or that its loader and step are.

    A function that trains is recorded as a script is. One that returns a pair of loader and ``step(batch)`` is trained
    with, epoch after epoch; a step is then one call of it.
    """
    recorder = _Recorder(plan, out)
    function = load_function(name)

    def training() -> None:
        made = function()
        if isinstance(made, tuple) and len(made) == 2 and hasattr(made[0], "__iter__") and callable(made[1]):
            recorder.is_optimizer_counted = False
            _train(*made, recorder)

    return _hooked(recorder, training, name)


def _train(loader: Iterable[Any], step: Callable[[Any], object], recorder: _Recorder) -> None:
    """The loop that the user would write, until the recorder has enough or an epoch is empty."""
    while True:
        before = recorder.steps
        batches = iter(loader)
        while True:
            with record_function(f"{LOADER_PREFIX}{type(loader).__name__}"):
                batch = next(batches, _END)
            if batch is _END:
                break
            step(batch)
            recorder.step()
        if recorder.steps == before:
            return


def _hooked(recorder: _Recorder, training: Callable[[], object], name: str) -> list[Path]:
    """Run the training, counting the steps of its first optimizer."""
    first: list[Any] = []

    def count(optimizer: Any, *_: Any) -> None:
        if not first:
            first.append(optimizer)
        if optimizer is first[0] and recorder.is_optimizer_counted:
            recorder.step()

    hook = register_optimizer_step_post_hook(count)
    try:
        return recorder.run(training, name)
    finally:
        hook.remove()
