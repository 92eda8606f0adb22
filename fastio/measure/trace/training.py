"""Runs any training, a script or a function, under a recorder, and stops it when the recorder has enough."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import record_function

from fastio.errors import FastioError
from fastio.measure.loop.batch import next_batch
from fastio.measure.loop.user_code import TRAINS, is_function_name, load_function, run_script, without_python
from fastio.measure.trace.trace import LOADER_PREFIX

__all__ = ["Recorder", "Schedule", "run_training"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """How many steps each of ``repeat`` cycles skips (wait), records but discards (warmup), and keeps (active)."""

    wait: int
    warmup: int
    active: int
    repeat: int = 1

    def __post_init__(self) -> None:
        if min(self.wait, self.warmup) < 0 or min(self.active, self.repeat) < 1:
            raise ValueError(f"{self}: expected wait and warmup of at least 0, active and repeat of at least 1")

    @property
    def steps(self) -> int:
        """The number of steps that the training must have."""
        return (self.wait + self.warmup + self.active) * self.repeat


class Recorder(Protocol):
    """Records a training: entered before it starts, left when it has ended in any way."""

    @property
    def plan(self) -> Schedule:
        """What to record."""

    def step(self, done: int) -> bool:
        """Called after the ``done``-th step, counted from 1; returns True when there is nothing more to record."""

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def run_training(command: Sequence[str], recorder: Recorder) -> None:
    """
    Run a training until ``recorder`` has enough, or to its end.

    ``command`` is a script or ``-m module`` with its arguments, run as Python would, or ``module:function``, which
    trains, or returns a loader and ``step(batch)`` as a pair, to train epoch after epoch. A step ends with ``step()``
    of the first optimizer that is used, or with that function. Raises FastioError if there is no such training, or if
    it ends before the recorder's schedule does.
    """
    first, *arguments = without_python(command)
    if is_function_name(first) and not Path(first).exists():
        if arguments:
            raise FastioError(f"{first}: only a script.py or -m MODULE takes arguments ({' '.join(arguments)})")
        _CountedTraining(recorder).function(first)
    else:
        _CountedTraining(recorder).script(first, arguments)


class _RecordedEnough(BaseException):
    """Stops the training when everything is recorded; no ``except Exception`` of the user's catches it."""


class _CountedTraining:
    """One training, with its steps counted."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._steps = 0
        self._is_optimizer_counted = True

    def script(self, script: str, arguments: Sequence[str]) -> None:
        self._watched(lambda: run_script(script, arguments), script)

    def function(self, name: str) -> None:
        function = load_function(name, what=TRAINS)

        def training() -> None:
            made = function()
            if isinstance(made, tuple) and len(made) == 2 and hasattr(made[0], "__iter__") and callable(made[1]):
                self._is_optimizer_counted = False
                self._train(*made)

        self._watched(training, name)

    def _train(self, loader: Iterable[Any], step: Callable[[Any], object]) -> None:
        """Run the loop that the user would write, until the recorder has enough or an epoch is empty."""
        steps_before = -1
        while self._steps > steps_before:
            steps_before = self._steps
            batches = iter(loader)
            while True:
                with record_function(f"{LOADER_PREFIX}{type(loader).__name__}"):
                    held = next_batch(batches)
                if not held:
                    break
                step(held.pop())
                self._count()

    def _watched(self, training: Callable[[], object], name: str) -> None:
        """Run the training under the recorder, counting the steps of its first optimizer."""
        first: list[Any] = []

        def count(optimizer: Any, *_: Any) -> None:
            if not first:
                first.append(optimizer)
            if optimizer is first[0] and self._is_optimizer_counted:
                self._count()

        hook = register_optimizer_step_post_hook(count)
        try:
            with self._recorder:
                training()
        except (_RecordedEnough, SystemExit):  # a script may exit by itself
            pass
        finally:
            hook.remove()
        needed = self._recorder.plan.steps
        if self._steps < needed:
            raise FastioError(
                f"{name}: ended after {self._steps} steps, but the schedule needs {needed}; a step ends with "
                "optimizer.step(). Choose a shorter --schedule, or train longer"
            )

    def _count(self) -> None:
        self._steps += 1
        if self._recorder.step(self._steps):
            raise _RecordedEnough
