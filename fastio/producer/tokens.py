"""Batches of token ids by native jobs, several batches a job: one batch is too little work for a call of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, repeat
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import default_collate

from fastio import _native
from fastio.batches import Batches
from fastio.collate import one_by_one
from fastio.dataset import FastDataset
from fastio.errors import SampleError
from fastio.producer.base import Made, OnError
from fastio.spans import Spans
from fastio.store.base import SampleStore
from fastio.text_collate import Batch, Flat, Layout, TokenCollate

__all__ = ["TokenProducer"]

# What the batches of one job take in memory, about: they share a buffer, which lives as long as one of them.
CHUNK_BYTES = 4 << 20
# What the kernel is asked for by one call when it reads a whole store ahead.
_READ_AHEAD_BYTES = 64 << 20


class TokenProducer:
    """
    Lays out a few batches at a time, lets native threads fill their buffer, and hands out views of it.

    The buffer comes from a ring, or, with ``pin_memory``, from torch's allocator of pinned memory, for the reason
    that ``NativeProducer`` names. Samples lie anywhere in the file, for batches are of similar lengths: where
    memory allows, the kernel is asked at the beginning to read the whole store.
    """

    def __init__(
        self,
        dataset: FastDataset,
        collate: TokenCollate,
        *,
        threads: int,
        verify: bool,
        on_error: OnError,
        pin_memory: bool,
    ) -> None:
        assert dataset.token_reader is not None
        self._dataset = dataset
        self._tokens = dataset.token_reader
        self._collate = collate
        self.threads = threads
        self.verify = verify
        self._on_error = on_error
        self._pin_memory = pin_memory
        self._pinned_bytes = 0
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._pool = _native.ThreadPool(self.threads)
        self._ring = _native.BufferRing(4)  # two chunks under way, one with the loop, one between
        self._ahead = _ReadAhead(self._dataset.store, self._tokens.field.name)

    @property
    def buffer_bytes(self) -> int:
        """The ring's memory; of pinned buffers, whose allocator is torch's, what four chunks need."""
        return 4 * self._pinned_bytes if self._pin_memory else self._ring.allocated_bytes

    def close(self) -> None:
        """Join the threads; a job under way is finished first."""
        if self._pid == os.getpid():
            self._ahead.close()
            self._pool.close()

    def submit(self, batches: Batches, *, epoch: int) -> Iterator[_TokenBatch]:
        """Start a chunk of batches whenever the first of the chunk before is asked for."""
        if len(batches) == 0:
            return
        step = self._chunk_batches(batches)
        ahead = _Chunk(self, batches.part(0, step))
        for first in range(step, len(batches) + step, step):
            chunk = ahead
            if first < len(batches):
                ahead = _Chunk(self, batches.part(first, first + step))
            yield from map(_TokenBatch, repeat(chunk), range(len(chunk.batches)))

    def _chunk_batches(self, batches: Batches) -> int:
        """Batches in a chunk, by the mean length of the store's samples."""
        tokens = float(self._dataset.lengths.mean()) * len(batches.indices) / len(batches)
        return int(max(1, CHUNK_BYTES // (9 * tokens + 1)))

    def look_up(self, batches: Batches) -> Spans:
        """Where these samples lie; a forked child gets threads and memory of its own first."""
        if self._pid != os.getpid():
            self._start()
        spans = self._dataset.store.spans(self._tokens.field.name, batches.indices)
        self._ahead.of(spans)
        return spans

    def fill(self, spans: Spans, cuts: NDArray[np.int64], *, verify: bool) -> _Filling:
        """Start to fill the buffer of some batches; ValueError where one does not fit its collate."""
        collate, tokens = self._collate, self._tokens
        lengths = tokens.lengths(spans)
        layout = collate.layout(lengths, cuts)
        flat = self._flat(int(layout.cuts[-1]))
        status = np.empty(len(lengths), np.int32)
        job = _native.fill_tokens(
            spans.buffers,
            spans.shard,
            spans.starts,
            spans.sizes,
            spans.checksums if verify else None,
            layout.slots,
            flat.ids.numpy(),
            status,
            self._pool,
            mask=None if flat.mask is None else flat.mask.view(torch.uint8).numpy(),
            positions=None if flat.positions is None else flat.positions.numpy(),
            item_bytes=tokens.item_bytes,
            pad_id=collate.pad_id,
            vocabulary=tokens.vocabulary,
            at_end=collate.pads_before,
        )
        return _Filling(job, status, flat, layout, lengths, cuts)

    def _flat(self, total: int) -> Flat:
        """Uninitialised memory for so many tokens."""
        collate = self._collate
        words = 2 * total if collate.has_positions else total
        nbytes = 8 * words + (total if collate.has_mask else 0)
        if self._pin_memory:
            memory = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
            self._pinned_bytes = max(self._pinned_bytes, nbytes)
        else:
            memory = torch.from_numpy(self._ring.acquire(nbytes))[:nbytes]
        numbers = memory[: 8 * words].view(torch.int64)
        return Flat(
            numbers[:total],
            memory[8 * words :].view(torch.bool) if collate.has_mask else None,
            numbers[total:] if collate.has_positions else None,
        )

    def batches(self, filled: _Filling, indices: NDArray[np.int64]) -> list[Batch]:
        """What the training loop gets, from a filled buffer."""
        made = self._collate.batches(filled.flat, filled.layout, filled.lengths, filled.cuts)
        labels = self._dataset.labels if self._collate.has_labels else None
        if labels is not None:
            for batch, part in zip(made, self._labels(labels[indices], filled.cuts), strict=True):
                batch["labels"] = part
        if self._pin_memory:
            made = [{name: value.pin_memory() for name, value in batch.items()} for batch in made]
        return made

    def _labels(self, labels: NDArray[Any], cuts: NDArray[np.int64]) -> Sequence[Any]:
        counts = (cuts[1:] - cuts[:-1]).tolist()
        transform = self._dataset.target_transform
        if transform is None:
            return torch.split_with_sizes(torch.from_numpy(labels), counts)
        places = zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)
        return [default_collate([transform(each) for each in one_by_one(labels[a:b])]) for a, b in places]

    def repaired(self, batches: Batches, spans: Spans, status: NDArray[np.int32]) -> Made:
        """One batch after the policy for bad samples was applied: left out, or without tokens."""
        errors = self._tokens.errors(batches.indices, spans, status)
        if self._on_error == "raise":
            raise next(iter(errors.values()))
        indices = batches.indices
        if self._on_error == "skip":
            kept = np.flatnonzero(status == _native.OK)
            if len(kept) == 0:
                return Made(None, 0, 0, list(errors.values()))
            spans, indices = spans.at(kept), indices[kept]
        else:
            spans = replace(spans, sizes=np.where(status == _native.OK, spans.sizes, 0))
        filled = self.fill(spans, np.array([0, len(indices)]), verify=False)  # those that are left were compared
        filled.job.wait()
        return filled.made(0, self.batches(filled, indices)[0], list(errors.values()))


@dataclass(frozen=True, slots=True)
class _Filling:
    """Some batches whose buffer is being filled."""

    job: _native.Job
    status: NDArray[np.int32]
    flat: Flat
    layout: Layout
    lengths: NDArray[np.int64]
    cuts: NDArray[np.int64]

    def made(self, number: int, batch: Batch, errors: Sequence[SampleError] = ()) -> Made:
        """One of the batches with what is counted of it."""
        first, last = int(self.cuts[number]), int(self.cuts[number + 1])
        slots = int(self.layout.cuts[number + 1] - self.layout.cuts[number])
        return Made(batch, last - first, 9 * slots, errors, int(self.lengths[first:last].sum()), slots)


class _Chunk:
    """Batches that one job fills."""

    def __init__(self, producer: TokenProducer, batches: Batches) -> None:
        self.batches = batches
        self._producer = producer
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._spans = self._producer.look_up(self.batches)
        self._filling: _Filling | None = None
        self._made: list[Made | None] = []
        try:
            self._filling = self._producer.fill(self._spans, self.batches.cuts, verify=self._producer.verify)
        except ValueError:
            if len(self.batches) == 1:
                raise

    def cancel(self) -> None:
        """Samples not yet begun are skipped."""
        if self._filling is not None and self._pid == os.getpid():
            self._filling.job.cancel()

    def result(self, number: int) -> Made:
        """One batch, once; a forked child fills anew what its parent's threads had under way."""
        ready = self._made or self._wait()
        if not ready:  # one of the batches does not fit: each on its own
            return _Chunk(self._producer, self.batches.part(number, number + 1)).result(0)
        made, ready[number] = ready[number], None  # nothing here may hold what the loop works with
        return made or self._repaired(number)

    def _wait(self) -> list[Made | None]:
        if self._pid != os.getpid():
            self._begin()
        if self._filling is not None:
            self._finish(self._filling)
        return self._made

    def _repaired(self, number: int) -> Made:
        assert self._filling is not None
        place = slice(int(self.batches.cuts[number]), int(self.batches.cuts[number + 1]))
        spans, status = self._spans.at(place), self._filling.status[place]
        return self._producer.repaired(self.batches.part(number, number + 1), spans, status)

    def _finish(self, filling: _Filling) -> None:
        filling.job.wait()
        cuts, lengths, slots = filling.cuts, filling.lengths, filling.layout.cuts
        tokens = np.add.reduceat(lengths, cuts[:-1]).tolist()
        numbers = zip((cuts[1:] - cuts[:-1]).tolist(), (slots[1:] - slots[:-1]).tolist(), tokens, strict=True)
        batches = self._producer.batches(filling, self.batches.indices)
        self._made = [
            Made(batch, samples, 9 * size, (), filled, size)
            for batch, (samples, size, filled) in zip(batches, numbers, strict=True)
        ]
        for position in np.flatnonzero(filling.status).tolist():
            self._made[int(np.searchsorted(cuts, position, side="right")) - 1] = None


class _TokenBatch:
    """One batch of a chunk."""

    __slots__ = ("_chunk", "_number")

    def __init__(self, chunk: _Chunk, number: int) -> None:
        self._chunk = chunk
        self._number = number

    def cancel(self) -> None:
        """Nobody will ask for the result; nor for the rest of its chunk, then."""
        self._chunk.cancel()

    def result(self) -> Made:
        """The batch, when its chunk is filled."""
        return self._chunk.result(self._number)


class _ReadAhead:
    """
    Asks the kernel, in a thread of its own, to read the whole store, or, where that is more than half of the free
    memory, the samples of each chunk: they lie anywhere, and reading them one by one would wait for each.
    """

    def __init__(self, store: SampleStore, field: str) -> None:
        self._pool = _native.ThreadPool(1)
        self._jobs: list[_native.Job] = []
        spans = store.spans(field, np.arange(len(store)))
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self._is_whole = int(spans.sizes.sum()) <= free // 2
        if self._is_whole:
            pieces = np.cumsum(spans.sizes) // _READ_AHEAD_BYTES
            cuts = [0, *(np.flatnonzero(np.diff(pieces)) + 1).tolist(), len(spans)]
            self._jobs = [self._ask(spans.part(start, stop)) for start, stop in pairwise(cuts)]

    def of(self, spans: Spans) -> None:
        """These samples come next."""
        if not self._is_whole:
            self._jobs = [self._ask(spans)]  # what the chunk before still waits for is dropped

    def _ask(self, spans: Spans) -> _native.Job:
        return _native.read_ahead(spans.buffers, spans.shard, spans.starts, spans.sizes, pool=self._pool)

    def close(self) -> None:
        """End the thread; what the kernel was not yet asked for is dropped."""
        for job in self._jobs:
            job.cancel()
        self._pool.close()
