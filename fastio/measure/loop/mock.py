"""MockLoader and MockTrainer: each takes one half of a training away, so that the other one alone sets the pace."""

from __future__ import annotations

import itertools
import math
import resource
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fastio.measure.loop.batch import keep, sample_count

__all__ = ["MockLoader", "MockResult", "MockTrainer"]


@dataclass(frozen=True, slots=True)
class MockResult:
    """
    What one run of MockTrainer saw.

    ``seconds`` is wall time from before the first ``iter()`` to after the last batch; ``cpu_seconds`` what all
    threads of this process and all worker processes that have ended took meanwhile; ``first_batch_s`` the wait for
    the first batch of the first epoch (0.0 where none came), which had ``first_batch_samples``.
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
        """Samples per second after the first batch had come; of the whole run where that was the only one."""
        seconds = self.seconds - self.first_batch_s
        if self.batches < 2 or seconds <= 0:
            return self.samples_per_s
        return (self.samples - self.first_batch_samples) / seconds


class MockLoader:
    """
    One real batch, kept on a device, served for ever: what training on it takes is the limit of training.

    ``source`` is a batch (a tensor, a tuple, list or mapping of them) or a loader, whose first batch is taken. Every
    iteration serves the same objects ``batches`` times, or for ever: a loop that works on them in place changes them.
    ValueError where the loader is empty.

    >>> import torch
    >>> [len(images) for images, labels in MockLoader((torch.zeros(8, 3), torch.zeros(8)), batches=2)]
    [8, 8]
    """

    def __init__(self, source: Any, device: Any = "cpu", *, batches: int | None = None) -> None:
        if batches is not None and batches < 1:
            raise ValueError(f"batches={batches}: expected None (for ever) or 1 and more")
        self.batch = keep(_first_batch(source), device)
        self.batches = batches

    def __len__(self) -> int:
        if self.batches is None:
            raise TypeError("this MockLoader serves for ever and has no length; give it batches=")
        return self.batches

    def __iter__(self) -> Iterator[Any]:
        return itertools.repeat(self.batch) if self.batches is None else itertools.repeat(self.batch, self.batches)


def _first_batch(source: Any) -> Any:
    """The batch itself, or the first one of a loader: of anything that can be iterated and is no batch."""
    if hasattr(source, "shape") or isinstance(source, (tuple, list, Mapping)) or not hasattr(source, "__iter__"):
        return source
    for batch in source:
        return batch
    raise ValueError(f"MockLoader: the {type(source).__name__} is empty, there is no batch to serve")


class MockTrainer:
    """
    Runs over any loader as a training loop would, with a step that does nothing, or waits ``step_ms``.

    The waiting is sleep: as in training on a GPU, the CPU is free for the loader meanwhile.
    """

    def __init__(self, step_ms: float | None = None) -> None:
        if step_ms is not None and step_ms < 0:
            raise ValueError(f"step_ms={step_ms}: expected None or 0 and more")
        self.step_ms = step_ms

    def run(self, loader: Iterable[Any], epochs: int | None = 1, *, seconds: float | None = None) -> MockResult:
        """
        Take all batches of ``loader``, ``epochs`` times, or until ``seconds`` have passed.

        ``epochs=None`` goes on until then; an epoch without a batch ends the run, as the next one would have none.
        """
        if epochs is None and seconds is None:
            raise ValueError("MockTrainer.run(epochs=None) would never end: give it seconds=")
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
    """All batches of so many epochs, none after ``ends``."""
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
