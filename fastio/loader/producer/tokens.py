"""Makes batches of token ids by native jobs, several batches per job: one batch is too little work for a call."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.loader.forks import PerProcess
from fastio.loader.producer.producer import FinishedBatch, ProducerContext
from fastio.loader.producer.token_filling import TokenFiller
from fastio.loader.producer.token_source import Located, PendingRead, TokenSource
from fastio.samplers.batches import Batches

__all__ = ["TokenProducer"]

LOOKED_UP_BYTES = 4 << 20  # of stored ids, about: their samples are looked up together
_KEPT = 4  # free buffers: as many as the end of an epoch returns, because new memory costs more than filling it
_IDLE = 2  # about this many, while batches are made
_LOOKED_AT = 64  # batches whose size stands for the others


@dataclass(frozen=True, slots=True)
class _Fillers:
    """Threads and memory of one process."""

    filler: TokenFiller
    source: TokenSource

    def close(self) -> None:
        """Join the threads."""
        self.source.close()
        self.filler.pool.close()


class TokenProducer:
    """
    Looks up a few batches at a time; native code lays them out, lets threads fill their buffers, and returns views.

    The buffer comes from a ring, or with ``pin_memory`` from torch's allocator of pinned memory, for the reason given
    in ``NativeProducer``.
    """

    reads_samples = False
    pool = None
    chunks_ahead = 1  # a chunk is looked up when the first batch of the one before it begins

    def __init__(self, context: ProducerContext) -> None:
        assert context.collate is not None
        self._context = context
        self._machinery = PerProcess(partial(_start, context))

    @staticmethod
    def accepts(context: ProducerContext) -> bool:
        """Token ids as they are stored, in batches of ours."""
        return context.collate is not None and context.dataset.is_as_stored

    @property
    def threads(self) -> int:
        """As many as there are."""
        return self._context.options.threads

    @property
    def buffer_bytes(self) -> int:
        """Memory of batches, and of copies of the ids in them; 0 in a forked child that has made none."""
        machinery = self._machinery.own
        return 0 if machinery is None else machinery.filler.allocated_bytes + machinery.source.buffer_bytes

    def estimated_bytes(self, batch_bytes: int, *, depth: int) -> int:
        """
        Return the bytes of whole jobs: those requested ahead, the next, the loop's, one in between and idle ones; with
        stored ids.

        ``batch_bytes`` does not matter: all batches of a job share its buffer.
        """
        machinery = self._machinery.own
        if machinery is None:
            return 0
        jobs = math.ceil(depth / machinery.filler.job_batches) + 3 + _IDLE
        return jobs * machinery.filler.largest_bytes + machinery.source.buffer_bytes

    def close(self) -> None:
        """Join the threads; a job in progress is finished first."""
        machinery = self._machinery.own
        if machinery is not None:
            machinery.close()

    def submit(self, batches: Batches, *, epoch: int) -> Iterator[_native.TokenBatches]:
        """Begin a few batches when those before have begun, while the next ones are read."""
        if len(batches) == 0:
            return
        step = self.chunk_batches(batches)
        is_read = batches.windows is not None  # the loader has read whole windows at once
        batches = replace(batches, windows=None)
        coming = self._coming(batches.part(0, step), is_read=is_read)
        for first in range(step, len(batches) + step, step):
            located = coming.here().wait()
            coming = self._coming(batches.part(first, first + step), is_read=is_read)
            group = self._machinery.here().filler.batches(
                located, verify=self._context.options.verify, repair=partial(self._repaired, located)
            )
            yield from repeat(group, len(group))

    def _repaired(self, located: Located, number: int, status: NDArray[np.int32] | None) -> FinishedBatch:
        """Return a batch with bad samples, or one that another process had begun."""
        return self._machinery.here().filler.repaired(located, number, status)

    def _coming(self, batches: Batches, *, is_read: bool) -> PerProcess[PendingRead]:
        return PerProcess(partial(self._look_up, batches, is_read=is_read))

    def _look_up(self, batches: Batches, *, is_read: bool) -> PendingRead:
        """Begin to read these samples."""
        return self._machinery.here().source.look_up(batches, is_read=is_read)

    def chunk_batches(self, batches: Batches) -> int:
        """Return how many batches are looked up together, by the tokens of some that are spread over the epoch."""
        dataset, some = self._context.dataset, _spread(batches)
        assert dataset.token_reader is not None
        stored_bytes = int(dataset.lengths[some.indices].sum()) * dataset.token_reader.item_bytes
        return int(max(1, LOOKED_UP_BYTES * len(some) // (stored_bytes + 1)))


def _start(context: ProducerContext) -> _Fillers:
    """Threads and memory for the calling process."""
    options, tokens = context.options, context.dataset.token_reader
    assert tokens is not None
    assert context.collate is not None
    filler = TokenFiller(context, tokens, context.collate, _native.ThreadPool(options.threads), kept=_KEPT)
    return _Fillers(filler, TokenSource(context.dataset, checksums=options.verify or context.dataset.store.files.holds))


def _spread(batches: Batches) -> Batches:
    """Return a few of the batches, spread over the whole epoch."""
    numbers = np.unique(np.linspace(0, len(batches) - 1, _LOOKED_AT).astype(np.int64))
    starts, stops = batches.cuts[numbers], batches.cuts[numbers + 1]
    chosen = [batches.indices[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
    return Batches(np.concatenate(chosen), np.concatenate(([0], np.cumsum(stops - starts))))
