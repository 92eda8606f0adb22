"""StepTimer: how long a training loop waits for each batch and how long it trains on it."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, Protocol

import numpy as np

from fastio.measure.loop.batch import sample_count
from fastio.types.metrics import LoaderStats

__all__ = ["StepSummary", "StepTimer", "Timeline", "Times"]

Clock = Literal["host", "events", "synchronized"]


@dataclass(frozen=True, slots=True)
class Times:
    """
    One part of a step, in seconds.

    ``total_s``, ``mean_s`` and ``max_s`` are of all steps, ``moving_s`` is the mean of the last ``window`` steps, the
    percentiles are those of the last ``history`` steps. All are 0.0 before the first step.
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
    What a StepTimer has seen.

    ``loading`` leaves out the wait for the first batch of each epoch, when nothing could have been prepared yet:
    ``first_batches_s`` is the sum of those. ``samples_per_s`` counts them, as an epoch's length does.
    ``stalls`` maps an upper bound in seconds to the number of waits below it (host clock, see LoaderStats).
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
        """Loading and training of all counted steps."""
        return self.first_batches_s + self.loading.total_s + self.training.total_s

    @property
    def samples_per_s(self) -> float:
        """Samples trained on per second of loading and training."""
        return self.samples / self.seconds if self.seconds > 0 else 0.0

    @property
    def steady_samples_per_s(self) -> float:
        """The same without the waits for first batches: what a long epoch comes to."""
        steady = self.loading.total_s + self.training.total_s
        return self.samples / steady if steady > 0 else 0.0

    @property
    def loading_share(self) -> float:
        """Part of the time, 0 to 1, that the loop waited for data, the first batch of each epoch left out."""
        steady = self.loading.total_s + self.training.total_s
        return self.loading.total_s / steady if steady > 0 else 0.0

    @property
    def loading_per_training(self) -> float | None:
        """The courses' ratio loading_time / training_time, which should be far below 1; None without training."""
        return self.loading.total_s / self.training.total_s if self.training.total_s > 0 else None

    def as_dict(self) -> dict[str, Any]:
        """Everything above, for JSON."""
        derived = ("seconds", "samples_per_s", "steady_samples_per_s", "loading_share", "loading_per_training")
        return dataclasses.asdict(self) | {name: getattr(self, name) for name in derived}


@dataclass(frozen=True, slots=True)
class Timeline:
    """
    The latest steps in order, one entry each in every list; ``first_step`` is the number of the first of them, from 0.

    ``is_first``: the step began an epoch, so its loading is the wait for a first batch. Steps follow one another: each
    begins where the one before it ended, and what passes between epochs belongs to none.
    """

    first_step: int
    is_first: list[bool]
    loading_s: list[float]
    training_s: list[float]


class StepTimer:
    """
    ``for batch in timer(loader)`` splits each step into waiting for the batch and what the loop does with it.

    Any iterable will do, as often as there are epochs. A loop of another shape calls ``begin()`` where it starts to
    wait, ``loaded(samples)`` when it has its batch and ``trained()`` at the end of the step; what passes between
    ``trained()`` and another ``begin()`` belongs to no step. A step that is left early (``break``, an exception)
    is not counted.

    Where the program has initialised CUDA by the first step, both parts are read from CUDA events on the current
    stream, which wait for nothing: loading is then the time that the *device* stood still for the batch. With
    ``synchronize=True`` each step ends with a synchronisation of the device, which costs speed and needs no
    explanation. Otherwise, and on machines without CUDA, the clock is the host's.

    Memory is bounded: five numbers for each of the last ``history`` steps.

    >>> timer = StepTimer()
    >>> for batch in timer([[1, 2], [3, 4], [5]]):
    ...     pass
    >>> timer.summary().steps, timer.summary().samples
    (3, 5)
    """

    def __init__(self, *, window: int = 100, history: int = 10_000, synchronize: bool = False) -> None:
        if not 1 <= window <= history:
            raise ValueError(f"window={window}, history={history}: expected 1 <= window <= history")
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
        self._step = (0, 0.0)  # samples of the step under way, what the host waited for them

    def __call__(self, loader: Iterable[Any]) -> _Timed:
        """The loader's batches, timed; may be iterated again for the next epoch, and has the loader's length."""
        return _Timed(self, loader)

    def begin(self) -> None:
        """The loop starts to wait for the first batch of an epoch."""
        if self._clock is None:
            self._clock = _choose_clock(synchronize=self._wants_synchronize)
        self._clock.begin()
        self._state, self._is_first = "waiting", True
        self._epochs += 1

    def loaded(self, samples: int = 0) -> None:
        """The loop has its batch of so many samples: loading ends, training begins."""
        if self._state != "waiting" or self._clock is None:
            raise RuntimeError("StepTimer.loaded(): nothing is waited for; call begin() or trained() before")
        self._step = (samples, self._clock.loaded())
        self._state = "training"

    def trained(self) -> None:
        """The step is done: training ends, and the wait for the next batch begins."""
        if self._state != "training" or self._clock is None:
            raise RuntimeError("StepTimer.trained(): no step is under way; call loaded() before")
        self._clock.trained(is_first=self._is_first)
        samples, waited_s = self._step
        self._stats.count(samples, 0, waited_s=waited_s, first=self._is_first)
        self._state, self._is_first = "waiting", False
        self._take(self._clock.finished(wait=False))

    @property
    def steps(self) -> int:
        """Steps counted so far."""
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

    def summary(self) -> StepSummary:
        """All counted steps so far; waits for the device where some of them still run there."""
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
        """Loading and training of each of the last ``history`` steps; waits for the device as ``summary`` does."""
        if self._clock is not None:
            self._take(self._clock.finished(wait=True))
        is_first, loading_s, training_s = zip(*self._latest, strict=True) if self._latest else ((), (), ())
        return Timeline(self._measured - len(self._latest), list(is_first), list(loading_s), list(training_s))

    def write_json(self, path: str | Path) -> None:
        """Write the summary and the latest steps, in the form that ``fastio/guide/json.md`` describes."""
        said = {
            "format": "fastio.steps/1",
            "summary": self.summary().as_dict(),
            "timeline": dataclasses.asdict(self.timeline()),
        }
        Path(path).write_text(json.dumps(said, indent=2) + "\n")


class _Timed:
    """A loader under a timer."""

    def __init__(self, timer: StepTimer, loader: Iterable[Any]) -> None:
        self._timer = timer
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type] # where the loader has none, its TypeError is the answer

    def __iter__(self) -> Iterator[Any]:
        timer = self._timer
        timer.begin()
        turn = timer._epochs
        # Nothing here may hold the batch while the loop works with it: its memory belongs to the loader's ring.
        for held in map(_in_a_list, self._loader):
            timer.loaded(sample_count(held[0]))
            yield held.pop()
            if timer._epochs != turn:
                raise RuntimeError("StepTimer: another loop began with this timer inside this one; give each its own")
            timer.trained()


def _in_a_list(batch: Any) -> list[Any]:
    return [batch]


class _Part:
    """The times of one part of the steps: sums of all of them, and the latest."""

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


# Of one step: whether it is the first of its epoch, the seconds of loading, the seconds of training.
_Measured = tuple[bool, float, float]


class _Clock(Protocol):
    """Reads the time where a part of a step ends; steps come out when their times are known."""

    name: Clock

    def begin(self) -> None: ...

    def loaded(self) -> float:
        """Seconds that the host waited for the batch."""

    def trained(self, *, is_first: bool) -> None: ...

    def finished(self, *, wait: bool) -> list[_Measured]:
        """The steps that ended since the last call, in order; with ``wait`` all of them."""


class _HostClock:
    """``perf_counter``, after ``synchronize`` where there is one."""

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
    """CUDA events: recorded where a part ends, read when the device has passed them."""

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
    """Events where the program uses CUDA, the host's clock elsewhere."""
    torch = sys.modules.get("torch")  # a program that trains on a device has imported it
    if torch is None or not torch.cuda.is_initialized():
        return _HostClock()
    if synchronize:
        return _HostClock(torch.cuda.synchronize)
    return _EventClock(lambda: torch.cuda.Event(enable_timing=True))
