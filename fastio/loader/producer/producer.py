"""What a loader asks of whoever makes its batches ahead of the training loop.

A producer's ``submit`` is a generator that starts one batch each time it is asked for the next, and
hands out the batch under way; ``result()`` waits for it. How many are under way is the caller's bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from fastio.dataset.fast_dataset import FastDataset
from fastio.dataset.token_collate import TokenCollate
from fastio.errors import SampleError
from fastio.loader.forks import PerProcess
from fastio.loader.options import ProducerOptions
from fastio.loader.producer.kept import Kept
from fastio.loader.thread_tuner import Pool
from fastio.samplers.batches import Batches
from fastio.transforms.fused import Fused

__all__ = ["FinishedBatch", "PendingBatch", "Producer", "ProducerContext", "ProducerKind", "RestartedBatch"]


@dataclass(frozen=True, slots=True)
class ProducerContext:
    """
    What a producer works with. The loader's wiring makes it once; whoever makes batches shares it.

    ``fused`` are the transforms of the pass that decodes (None: nothing beyond decoding); with ``is_planar`` that pass
    writes pictures as (B, C, H, W). ``collate`` is for token ids. ``device`` is where the producer itself makes the
    batches, None for the CPU; ``kept`` are the samples that it keeps there.
    """

    dataset: FastDataset
    options: ProducerOptions
    fused: Fused | None = None
    is_planar: bool = False
    collate: TokenCollate | None = None
    device: torch.device | None = None
    kept: Kept | None = None


@dataclass(slots=True)
class FinishedBatch:
    """
    A finished batch: what the training loop gets, its samples and bytes, and the errors of its bad samples.

    Of token ids, ``tokens`` counts the ids and ``slots`` the places for them. A GPU decoded ``on_device`` of the
    samples. (Not frozen: that would take a third of the time of a batch of tokens.)
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

    def cancel(self) -> object:
        """Nobody will ask for the result."""
        ...


class RestartedBatch:
    """A batch under way, which a forked child begins anew: it has none of the threads that make it in its parent."""

    __slots__ = ("_batch",)

    def __init__(self, begin: Callable[[], PendingBatch]) -> None:
        self._batch = PerProcess(begin)

    def result(self) -> FinishedBatch:
        """As PendingBatch.result."""
        return self._batch.here().result()

    def cancel(self) -> None:
        """As PendingBatch.cancel."""
        batch = self._batch.own
        if batch is not None:
            batch.cancel()


class Producer(Protocol):
    """Makes batches of one dataset."""

    reads_samples: bool  # dataset[i] itself, so that a transform assigned after the loader was built counts

    def submit(self, batches: Batches, *, epoch: int) -> Iterator[PendingBatch]:
        """
        Start one batch at each step; never raises for a sample, that is left to ``result()``.

        ``epoch`` names the random numbers of transforms, where there are any.
        """
        ...

    @property
    def pool(self) -> Pool | None:
        """The native threads whose number may be tuned, or None."""
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


class ProducerKind(Protocol):
    """A class of producers: which datasets and options it is for, and how one is made."""

    def accepts(self, context: ProducerContext) -> bool:
        """Whether it can make these batches."""
        ...

    def __call__(self, context: ProducerContext) -> Producer:
        """A producer; ValueError or SchemaError, with what to do, for options that it cannot do after all."""
        ...
