"""MockLoader and MockTrainer: each removes one half of a training, so that the other half alone sets the pace."""

from __future__ import annotations

import itertools
import math
import resource
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fastio.measure.loop.batch import keep, sample_count
from fastio.types.options import explains_names

__all__ = ["MockLoader", "MockResult", "MockTrainer"]


@dataclass(frozen=True, slots=True)
class MockResult:
    """
    What one run of MockTrainer measured.

    ``seconds`` is wall time from before the first ``iter()`` to after the last batch; ``cpu_seconds`` is what all
    threads of this process, and all worker processes that have ended, used meanwhile. ``first_batch_s`` is the wait
    for the first batch of the first epoch (0.0 if there was none), which had ``first_batch_samples``.
    """

    samples: int
    batches: int
    seconds: float
    cpu_seconds: float
    first_batch_s: float
    first_batch_samples: int

    @property
    def samples_per_s(self) -> float:
        """Samples per second of wall time."""
        return self.samples / self.seconds if self.seconds > 0 else 0.0

    @property
    def steady_samples_per_s(self) -> float:
        """Samples per second after the first batch arrived; of the whole run if that was the only one."""
        seconds = self.seconds - self.first_batch_s
        if self.batches < 2 or seconds <= 0:
            return self.samples_per_s
        return (self.samples - self.first_batch_samples) / seconds


class MockLoader:
    """
    Yields one real batch for ever: training on it shows the most that training alone can do.

    ``source`` is a batch (a tensor, or a tuple, list or mapping of tensors), or a loader, whose first batch is taken;
    it is kept on a device. Every iteration yields the same objects ``batches`` times, or for ever: a loop that
    changes them in place changes them for good. Raises ValueError if the loader is empty.

    >>> import torch
    >>> [len(images) for images, labels in MockLoader((torch.zeros(8, 3), torch.zeros(8)), batches=2)]
    [8, 8]
    """

    @explains_names()
    def __init__(self, source: Any, device: Any = "cpu", *, batches: int | None = None) -> None:
        if batches is not None and batches < 1:
            raise ValueError(f"batches={batches}: expected None (for ever), or at least 1")
        self.batch = keep(_first_batch(source), device)
        self.batches = batches

    def __len__(self) -> int:
        if self.batches is None:
            raise TypeError("this MockLoader is endless and has no length: pass batches=")
        return self.batches

    def __iter__(self) -> Iterator[Any]:
        return itertools.repeat(self.batch) if self.batches is None else itertools.repeat(self.batch, self.batches)


def _first_batch(source: Any) -> Any:
    """Return the batch itself, or the first one of a loader: of any iterable that is not a batch."""
    if hasattr(source, "shape") or isinstance(source, (tuple, list, Mapping)) or not hasattr(source, "__iter__"):
        return source
    for batch in source:
        return batch
    raise ValueError(f"MockLoader: the {type(source).__name__} is empty: there is no batch to repeat")


class MockTrainer:
    """
    Runs over any loader like a training loop whose step does nothing, or waits ``step_ms``.

    It waits by sleeping: as with training on a GPU, the CPU is free for the loader meanwhile.
    """

    @explains_names()
    def __init__(self, step_ms: float | None = None) -> None:
        if step_ms is not None and step_ms < 0:
            raise ValueError(f"step_ms={step_ms}: expected None, or at least 0")
        self.step_ms = step_ms

    def run(self, loader: Iterable[Any], epochs: int | None = 1, *, seconds: float | None = None) -> MockResult:
        """
        Take all batches of ``loader``, ``epochs`` times or until ``seconds`` have passed, and return a MockResult.

        ``epochs=None`` needs ``seconds``. An epoch without a batch ends the run, since the next would have none
        either.
        """
        if epochs is None and seconds is None:
            raise ValueError("MockTrainer.run(epochs=None) would never end: pass seconds=")
        samples = batches = first_batch_samples = 0
        first_batch_s = 0.0
        cpu, begun = _cpu_seconds(), time.perf_counter()
        for batch in _batches(loader, epochs, math.inf if seconds is None else begun + seconds):
            count = sample_count(batch)
            if batches == 0:
                first_batch_s, first_batch_samples = time.perf_counter() - begun, count
            batches += 1
            samples += count
            if self.step_ms is not None:
                time.sleep(self.step_ms / 1e3)
        passed = time.perf_counter() - begun
        return MockResult(samples, batches, passed, _cpu_seconds() - cpu, first_batch_s, first_batch_samples)


def _batches(loader: Iterable[Any], epochs: int | None, ends: float) -> Iterator[Any]:
    """Yield all batches of this many epochs, none after ``ends``."""
    for _ in itertools.count() if epochs is None else range(epochs):
        is_empty = True
        for batch in loader:
            is_empty = False
            yield batch
            if time.perf_counter() >= ends:
                return
        if is_empty:
            return


def _cpu_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
