"""MockTrainer: takes batches and throws them away, so that loading alone sets the pace (the limit of I/O)."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["MockResult", "MockTrainer"]


@dataclass(frozen=True, slots=True)
class MockResult:
    """
    What one run saw.

    ``seconds`` is wall time from before the first ``iter()`` to after the last batch; ``cpu_seconds`` what all
    threads of this process and all worker processes that have ended took meanwhile; ``first_batch_s`` the wait for
    the first batch of the first epoch (0.0 where none came).
    """

    samples: int
    batches: int
    seconds: float
    cpu_seconds: float
    first_batch_s: float

    @property
    def samples_per_s(self) -> float:
        """Samples per second of wall time."""
        return self.samples / self.seconds if self.seconds > 0 else 0.0


class MockTrainer:
    """
    Runs over any loader as a training loop would, with a step that does nothing, or waits ``step_ms``.

    The waiting is sleep: as in training on a GPU, the CPU is free for the loader meanwhile.
    """

    def __init__(self, step_ms: float | None = None) -> None:
        if step_ms is not None and step_ms < 0:
            raise ValueError(f"step_ms={step_ms}: expected None or 0 and more")
        self.step_ms = step_ms

    def run(self, loader: Iterable[Any], epochs: int = 1) -> MockResult:
        """Take ``epochs`` times all batches of ``loader``."""
        samples = batches = 0
        first_batch_s = 0.0
        cpu, begun = _cpu_seconds(), time.perf_counter()
        for _ in range(epochs):
            for batch in loader:
                if batches == 0:
                    first_batch_s = time.perf_counter() - begun
                batches += 1
                samples += _samples(batch)
                if self.step_ms is not None:
                    time.sleep(self.step_ms / 1e3)
        seconds = time.perf_counter() - begun
        return MockResult(samples, batches, seconds, _cpu_seconds() - cpu, first_batch_s)


def _samples(batch: Any) -> int:
    """Samples in a batch: the length of its first part, as in ``(images, labels)``, or of the images alone."""
    if isinstance(batch, Mapping):
        return len(next(iter(batch.values())))
    return len(batch[0]) if isinstance(batch, (tuple, list)) else len(batch)


def _cpu_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
