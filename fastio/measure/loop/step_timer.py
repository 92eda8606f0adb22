"""StepTimer: how long a training loop waits for each batch and how long it trains on it."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, Protocol

import numpy as np

from fastio.measure.loop.batch import sample_count
from fastio.measure.trackers.figures import Tracker
from fastio.measure.trackers.training import StepReport
from fastio.types.metrics import LoaderStats
from fastio.types.options import explains_names
from fastio.types.units import counted, per_second, quantity

__all__ = [
    "StepSummary",
    "StepTimer",
    "Timeline",
]


@dataclass(frozen=True, slots=True)
class Timeline:
    """
    The latest steps in order; each list has one entry per step, and ``first_step`` is the number of its first, from
    0.

    ``is_first`` means that the step began an epoch, so its loading is the wait for a first batch. Each step begins
    where the one before it ended; time between epochs belongs to no step.
    """

    first_step: int
    is_first: list[bool]
    loading_s: list[float]
    training_s: list[float]


class StepTimer:
    """
    Splits each step into waiting for the batch and training on it: ``for batch in timer(loader)``.

    Any iterable works, for any number of epochs. A loop of another shape calls ``begin()`` where it starts to wait,
    ``loaded(samples)`` when it has its batch, and ``trained()`` at the end of the step; time between ``trained()``
    and another ``begin()`` belongs to no step. A step that is left early (``break``, an exception) does not count.

    If the program has initialised CUDA by the first step, both parts are read from CUDA events on the current stream,
    which never block. Loading is then the time that the *device* was idle for lack of a batch. With
    ``synchronize=True``, each step ends with a synchronisation of the device: slower, but easy to interpret. Without
    CUDA, the host's clock is used.

    Memory is bounded: five numbers for each of the last ``history`` steps.

    With ``trackers`` (see ``fastio.measure.trackers``), every ``every`` steps go to TensorBoard, Weights & Biases,
    MLflow, a CSV or an address for Prometheus as one point: median, 95th percentile and share of loading, training,
    samples per second, and what the loader counts. Nothing waits for the device, and trackers write in threads of
    their own; one that fails says so once in the log. ``steps_before`` is the number of steps that a resumed training
    had made before. The steps left at the end are written by ``close()``, or when the process ends.

    >>> timer = StepTimer()
    >>> for batch in timer([[1, 2], [3, 4], [5]]):
    ...     pass
    >>> timer.summary().steps, timer.summary().samples
    (3, 5)
    """

    @explains_names()
    def __init__(
        self,
        *,
        window: int = 100,
        history: int = 10_000,
        synchronize: bool = False,
        trackers: Sequence[Tracker] = (),
        every: int = 50,
        steps_before: int = 0,
    ) -> None:
        if not 1 <= window <= history:
            raise ValueError(f"window={window}, history={history}: expected 1 <= window <= history")
        if every < 1 or steps_before < 0:
            raise ValueError(f"every={every}, steps_before={steps_before}: expected at least 1 and at least 0")
        self.window = window
        self._wants_synchronize = synchronize
        self._clock: _Clock | None = None  # chosen when the first step begins
        self._stats = LoaderStats()
        self._loading, self._training = _Part(history), _Part(history)
        self._latest: deque[_Measured] = deque(maxlen=history)
        self._measured = 0
        self._epochs = 0
        self._first_batches_s = 0.0
        self._state: Literal["idle", "waiting", "training"] = "idle"
        self._is_first = True
        self._step = (0, 0.0)  # samples of the current step, and how long the host waited for them
        self._report = StepReport(trackers, every=every, steps_before=steps_before) if trackers else None

    def __call__(self, loader: Iterable[Any]) -> _Timed:
        """
        Return the loader's batches as an iterable that times them; iterate it again for each epoch. It has the
        loader's length.
        """
        return _Timed(self, loader)

    def begin(self) -> None:
        """Mark the start of an epoch: the loop begins to wait for its first batch."""
        if self._clock is None:
            self._clock = _choose_clock(synchronize=self._wants_synchronize)
        self._clock.begin()
        self._state, self._is_first = "waiting", True
        self._epochs += 1

    def loaded(self, samples: int = 0) -> None:
        """Mark the arrival of a batch with this many samples: loading ends, training begins."""
        if self._state != "waiting" or self._clock is None:
            raise RuntimeError("StepTimer.loaded(): no wait has begun; call begin() or trained() before")
        self._step = (samples, self._clock.loaded())
        self._state = "training"

    def trained(self) -> None:
        """Mark the end of a step: training ends, and the wait for the next batch begins."""
        if self._state != "training" or self._clock is None:
            raise RuntimeError("StepTimer.trained(): no step has begun; call loaded() before")
        self._clock.trained(is_first=self._is_first)
        samples, waited_s = self._step
        self._stats.count(samples, 0, waited_s=waited_s, first=self._is_first)
        self._state, self._is_first = "waiting", False
        if self._report is not None:
            self._report.trained(samples)
        self._take(self._clock.finished(wait=False))

    @property
    def steps(self) -> int:
        """The number of steps counted so far."""
        return self._stats.batches

    def _take(self, steps: Iterable[_Measured]) -> None:
        for step in steps:
            self._latest.append(step)
            self._measured += 1
            is_first, loading_s, training_s = step
            if is_first:
                self._first_batches_s += loading_s
            else:
                self._loading.add(loading_s)
            self._training.add(training_s)
            if self._report is not None:
                self._report.add(step)

    def summary(self) -> StepSummary:
        """Return all steps counted so far; waits for the device if some of them still run there."""
        if self._clock is not None:
            self._take(self._clock.finished(wait=True))
        return StepSummary(
            clock="host" if self._clock is None else self._clock.name,
            epochs=self._epochs,
            steps=self.steps,
            samples=self._stats.samples,
            loading=self._loading.times(self.window),
            training=self._training.times(self.window),
            first_batches_s=self._first_batches_s,
            stalls=self._stats.stalls,
        )

    def timeline(self) -> Timeline:
        """
        Return loading and training of each of the last ``history`` steps; waits for the device as ``summary`` does.
        """
        if self._clock is not None:
            self._take(self._clock.finished(wait=True))
        is_first, loading_s, training_s = zip(*self._latest, strict=True) if self._latest else ((), (), ())
        return Timeline(self._measured - len(self._latest), list(is_first), list(loading_s), list(training_s))

    def write_json(self, path: str | Path) -> None:
        """Write the summary and the latest steps, in the form that ``fastio/guide/json.md`` describes."""
        report = {
            "format": "fastio.steps/1",
            "summary": self.summary().as_dict(),
            "timeline": dataclasses.asdict(self.timeline()),
        }
        Path(path).write_text(json.dumps(report, indent=2) + "\n")

    def close(self) -> None:
        """
        Write the steps that no tracker has yet, and close the trackers; waits for the device, and at most ten seconds
        for each tracker. Figures of later steps are not written. Calling it twice is harmless.
        """
        if self._clock is not None:
            self._take(self._clock.finished(wait=True))
        if self._report is not None:
            self._report.close()
            self._report = None


class _Timed:
    """A loader with a timer."""

    def __init__(self, timer: StepTimer, loader: Iterable[Any]) -> None:
        self._timer = timer
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type] # where the loader has none, its TypeError is the answer

    def __iter__(self) -> Iterator[Any]:
        timer = self._timer
        timer.begin()
        turn = timer._epochs
        if timer._report is not None:
            timer._report.watch(self._loader)
        # Nothing here may keep the batch while the loop uses it: its memory belongs to the loader's ring.
        for held in map(_in_a_list, self._loader):
            timer.loaded(sample_count(held[0]))
            yield held.pop()
            if timer._epochs != turn:
                raise RuntimeError(
                    "StepTimer: another loop started this timer inside this one: give each loop its own timer"
                )
            timer.trained()


def _in_a_list(batch: Any) -> list[Any]:
    return [batch]


class _Part:
    """The times of one part of the steps: totals of all, and the latest."""

    def __init__(self, history: int) -> None:
        self.latest: deque[float] = deque(maxlen=history)
        self._count = 0
        self._total_s = self._max_s = 0.0

    def add(self, seconds: float) -> None:
        self.latest.append(seconds)
        self._count += 1
        self._total_s += seconds
        self._max_s = max(self._max_s, seconds)

    def times(self, window: int) -> Times:
        if not self._count:
            return Times(*[0.0] * 7)
        latest = np.array(self.latest)
        p50, p90, p99 = np.percentile(latest, (50, 90, 99)).tolist()
        return Times(
            total_s=self._total_s,
            mean_s=self._total_s / self._count,
            moving_s=float(latest[-window:].mean()),
            p50_s=p50,
            p90_s=p90,
            p99_s=p99,
            max_s=self._max_s,
        )


# One step: whether it is the first of its epoch, its seconds of loading, its seconds of training.
_Measured = tuple[bool, float, float]


class _Clock(Protocol):
    """Reads the time at the end of each part of a step; steps are returned once their times are known."""

    name: Clock

    def begin(self) -> None: ...

    def loaded(self) -> float:
        """Return the seconds that the host waited for the batch."""

    def trained(self, *, is_first: bool) -> None: ...

    def finished(self, *, wait: bool) -> list[_Measured]:
        """Return the steps that ended since the last call, in order; with ``wait``, all of them."""


class _HostClock:
    """``perf_counter``, after ``synchronize`` if it is given."""

    def __init__(self, synchronize: Callable[[], None] | None = None) -> None:
        self.name: Clock = "host" if synchronize is None else "synchronized"
        self._synchronize = synchronize
        self._mark = self._waited_s = 0.0
        self._done: list[_Measured] = []

    def begin(self) -> None:
        self._mark = perf_counter()

    def loaded(self) -> float:
        now = perf_counter()
        self._waited_s, self._mark = now - self._mark, now
        return self._waited_s

    def trained(self, *, is_first: bool) -> None:
        if self._synchronize is not None:
            self._synchronize()
        now = perf_counter()
        self._done.append((is_first, self._waited_s, now - self._mark))
        self._mark = now

    def finished(self, *, wait: bool) -> list[_Measured]:
        done, self._done = self._done, []
        return done


class _EventClock:
    """CUDA events: recorded at the end of a part, read when the device has passed them."""

    name: Clock = "events"

    def __init__(self, event: Callable[[], Any]) -> None:
        self._event = event
        self._mark = 0.0
        self._last: Any = None
        self._loaded: Any = None
        self._under_way: deque[tuple[bool, Any, Any, Any]] = deque()

    def begin(self) -> None:
        self._last = self._recorded()
        self._mark = perf_counter()

    def loaded(self) -> float:
        waited_s = perf_counter() - self._mark
        self._loaded = self._recorded()
        return waited_s

    def trained(self, *, is_first: bool) -> None:
        trained = self._recorded()
        self._under_way.append((is_first, self._last, self._loaded, trained))
        self._last = trained
        self._mark = perf_counter()

    def _recorded(self) -> Any:
        event = self._event()
        event.record()
        return event

    def finished(self, *, wait: bool) -> list[_Measured]:
        if wait and self._under_way:
            self._under_way[-1][3].synchronize()
        done = []
        while self._under_way and self._under_way[0][3].query():
            is_first, last, loaded, trained = self._under_way.popleft()
            done.append((is_first, last.elapsed_time(loaded) / 1e3, loaded.elapsed_time(trained) / 1e3))
        return done


def _choose_clock(*, synchronize: bool) -> _Clock:
    """Return CUDA events if the program uses CUDA, otherwise the host's clock."""
    torch = sys.modules.get("torch")  # a program that trains on a device has imported torch
    if torch is None or not torch.cuda.is_initialized():
        return _HostClock()
    if synchronize:
        return _HostClock(torch.cuda.synchronize)
    return _EventClock(lambda: torch.cuda.Event(enable_timing=True))


# StepSummary: what a StepTimer has measured, and how ``print`` shows it.

Clock = Literal["host", "events", "synchronized"]

_TITLES = ("", "share", "mean", "median", "99% below", "longest")


@dataclass(frozen=True, slots=True)
class Times:
    """
    Times of one part of a step, in seconds.

    ``total_s``, ``mean_s`` and ``max_s`` cover all steps, ``moving_s`` is the mean of the last ``window`` steps, and
    the percentiles cover the last ``history`` steps. All are 0.0 before the first step.
    """

    total_s: float
    mean_s: float
    moving_s: float
    p50_s: float
    p90_s: float
    p99_s: float
    max_s: float


@dataclass(frozen=True, slots=True)
class StepSummary:
    """
    What a StepTimer has measured.

    ``loading`` leaves out the wait for the first batch of each epoch, when nothing could have been prepared yet;
    ``first_batches_s`` is the sum of those waits. ``samples_per_s`` includes them, as the length of an epoch does.
    ``stalls`` maps an upper bound in seconds to the number of waits below it (host clock, see LoaderStats). ``print``
    shows the figures that matter most as a small table.
    """

    clock: Clock
    epochs: int
    steps: int
    samples: int
    loading: Times
    training: Times
    first_batches_s: float
    stalls: dict[float, int]

    @property
    def seconds(self) -> float:
        """Seconds of loading and training in all counted steps."""
        return self.first_batches_s + self.loading.total_s + self.training.total_s

    @property
    def samples_per_s(self) -> float:
        """Samples trained on per second of loading and training."""
        return self.samples / self.seconds if self.seconds > 0 else 0.0

    @property
    def steady_samples_per_s(self) -> float:
        """The same without the waits for first batches: the rate of a long epoch."""
        steady = self.loading.total_s + self.training.total_s
        return self.samples / steady if steady > 0 else 0.0

    @property
    def loading_share(self) -> float:
        """Share of the time, 0 to 1, that the loop waited for data, without the first batch of each epoch."""
        steady = self.loading.total_s + self.training.total_s
        return self.loading.total_s / steady if steady > 0 else 0.0

    @property
    def loading_per_training(self) -> float | None:
        """The ratio loading_time / training_time, which should be far below 1; None without training."""
        return self.loading.total_s / self.training.total_s if self.training.total_s > 0 else None

    def __str__(self) -> str:
        return _text(self)

    def as_dict(self) -> dict[str, Any]:
        """Return everything above, for JSON."""
        derived = ("seconds", "samples_per_s", "steady_samples_per_s", "loading_share", "loading_per_training")
        return dataclasses.asdict(self) | {name: getattr(self, name) for name in derived}


def _text(summary: StepSummary) -> str:
    """Return counts and the rate, one row each for waiting and training, and the waits that these leave out."""
    if not summary.steps:
        return "no steps yet"
    counts = f"{counted(summary.steps, 'step')} in {counted(summary.epochs, 'epoch')}"
    if summary.samples:
        rate = per_second(summary.samples_per_s)
        counts += f", {counted(summary.samples, 'sample')}: {rate} samples/s"
    rows = [
        _TITLES,
        _row("waiting for data", summary.loading_share, summary.loading),
        _row("training", 1 - summary.loading_share, summary.training),
    ]
    table = [f"{name:<16}" + "".join(f"{cell:>11}" for cell in cells) for name, *cells in rows]
    first = quantity(summary.first_batches_s, "s")
    return "\n".join([counts, *table, f"first batches of epochs: {first} in all, not in these shares"])


def _row(name: str, share: float, times: Times) -> tuple[str, ...]:
    seconds = (times.mean_s, times.p50_s, times.p99_s, times.max_s)
    return (name, f"{share:.1%}", *(quantity(value, "s") for value in seconds))
