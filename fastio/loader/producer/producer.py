"""What a loader asks of whoever makes its batches ahead of the training loop.

A producer's ``submit`` is a generator that starts one batch each time it is asked for the next, and
hands out the batch under way; ``result()`` waits for it. How many are under way is the caller's bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from fastio.errors import SampleError
from fastio.samplers.batches import Batches

__all__ = ["FinishedBatch", "OnError", "PendingBatch", "Producer", "ProducerOptions"]

OnError = Literal["raise", "skip", "zero"]


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """What a producer works with, and how carefully; see FastLoader."""

    threads: int
    depth: int
    on_error: OnError
    verify: bool
    pin_memory: bool


@dataclass(slots=True)
class FinishedBatch:
    """
    A finished batch: what the training loop gets, its samples and bytes, the bad ones by name, and of token ids how
    many there are, and slots for them. A GPU decoded ``on_device`` of its samples. (Not frozen: that would take a third
    of the time of a batch of tokens.)
    """

    batch: Any
    samples: int
    nbytes: int
    errors: Sequence[SampleError] = ()
    tokens: int = 0
    slots: int = 0
    on_device: int = 0


class PendingBatch(Protocol):
    """A batch under way."""

    def result(self) -> FinishedBatch:
        """Wait for it. Raises what went wrong, at the batch where it went wrong."""
        ...

    def cancel(self) -> None:
        """Nobody will ask for the result."""
        ...


class Producer(Protocol):
    """Makes batches of one dataset."""

    def submit(self, batches: Batches, *, epoch: int) -> Iterator[PendingBatch]:
        """
        Start one batch at each step; never raises for a sample, that is left to ``result()``.

        ``epoch`` names the random numbers of transforms, where there are any.
        """
        ...

    @property
    def threads(self) -> int:
        """How many threads make batches now."""
        ...

    @property
    def buffer_bytes(self) -> int:
        """Memory of batches: under way, with the training loop, and free."""
        ...

    def estimated_bytes(self, batch_bytes: int, *, depth: int) -> int:
        """Memory of batches where the loop keeps one, the largest has ``batch_bytes`` and ``depth`` are asked ahead."""
        ...

    def close(self) -> None:
        """Stop the threads; twice does no harm."""
        ...
