"""Batches of token ids by native jobs, several batches a job: one batch is too little work for a call of its own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, repeat
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import default_collate

from fastio import _native
from fastio.dataset.fast_dataset import FastDataset
from fastio.dataset.row_reader import one_by_one
from fastio.dataset.token_collate import Batch, Flat, TokenCollate, TokenSlots
from fastio.errors import SampleError
from fastio.loader.producer.producer import FinishedBatch, OnError
from fastio.loader.producer.token_source import Located, PendingRead, TokenSource
from fastio.samplers.batches import Batches
from fastio.types.spans import Spans

__all__ = ["TokenProducer"]

# What the batches of one job take in memory, about: they share a buffer, which lives as long as one of them.
CHUNK_BYTES = 4 << 20
_KEPT = 4  # free buffers: as many as an epoch's end gives back, for new memory costs more than filling it
_IDLE = 2  # of these about, while batches are made
_LOOKED_AT = 64  # batches whose size tells that of the others
# By pread more: of samples that lie anywhere, a call fetches the more the nearer they are to each other.
_PREAD_CHUNK_BYTES = 16 << 20


class TokenProducer:
    """
    Lays out a few batches at a time, lets native threads fill their buffer, and hands out views of it.

    The buffer comes from a ring, or, with ``pin_memory``, from torch's allocator of pinned memory, for the reason
    that ``NativeProducer`` names.
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
        self._chunk_bytes = 0  # of the largest buffer so far
        self._chunk_size = 1  # batches in a chunk
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._pool = _native.ThreadPool(self.threads)
        self._ring = _native.BufferRing(_KEPT)
        self._source = TokenSource(self._dataset, checksums=self.verify)

    @property
    def buffer_bytes(self) -> int:
        """The rings' memory; of pinned buffers, whose allocator is torch's, what four chunks need."""
        batches = 4 * self._chunk_bytes if self._pin_memory else self._ring.allocated_bytes
        return batches + self._source.buffer_bytes

    def estimated_bytes(self, batch_bytes: int, *, depth: int) -> int:
        """
        Whole chunks: those asked ahead, the one after them, the loop's, one between, idle ones; their ids as stored.

        ``batch_bytes`` does not matter: all batches of a chunk share its buffer.
        """
        return (-(-depth // self._chunk_size) + 3 + _IDLE) * self._chunk_bytes + self._source.buffer_bytes

    def close(self) -> None:
        """Join the threads; a job under way is finished first."""
        if self._pid == os.getpid():
            self._source.close()
            self._pool.close()

    def submit(self, batches: Batches, *, epoch: int) -> Iterator[_TokenChunk]:
        """
        Start a chunk of batches whenever the first of the chunk before is asked for; the one after it is being read.
        """
        if len(batches) == 0:
            return
        step = self._chunk_size = self._chunk_batches(batches)
        is_read = batches.windows is not None  # by the loader, whole windows at once
        batches = replace(batches, windows=None)
        chunk, coming = None, self.look_up(batches.part(0, step), is_read=is_read)
        for first in range(step, len(batches) + step, step):
            ahead, coming = coming, self.look_up(batches.part(first, first + step), is_read=is_read)
            before, chunk = chunk, _TokenChunk(self, ahead)
            if before is not None:
                yield from before.batches()
        if chunk is not None:
            yield from chunk.batches()

    def _chunk_batches(self, batches: Batches) -> int:
        """Batches in a chunk, by the slots of some that are spread over the epoch, padding included."""
        size = CHUNK_BYTES if self._dataset.files is None else _PREAD_CHUNK_BYTES
        some = _spread(batches)
        lengths = self._dataset.lengths[some.indices]
        try:
            slots = int(self._collate.slots(lengths, some.cuts).cuts[-1])
        except ValueError:  # one does not fit its collate: raised where that batch is asked for
            slots = int(lengths.sum())
        return int(max(1, size * len(some) // (_slot_bytes(self._collate) * slots + 1)))

    def look_up(self, batches: Batches, *, is_read: bool = False) -> PendingRead:
        """Begin to read these samples; a forked child gets threads and memory of its own first."""
        if self._pid != os.getpid():
            self._start()
        return self._source.look_up(batches, is_read=is_read)

    def fill(self, spans: Spans, cuts: NDArray[np.int64], *, verify: bool) -> _Filling:
        """Start to fill the buffer of some batches; ValueError where one does not fit its collate."""
        collate, tokens = self._collate, self._tokens
        lengths = tokens.lengths(spans)
        slots = collate.slots(lengths, cuts)
        flat = self._flat(int(slots.cuts[-1]))
        status = np.empty(len(lengths), np.int32)
        job = _native.fill_tokens(
            spans,
            slots.starts,
            flat.ids.numpy(),
            status,
            self._pool,
            verify=verify,
            mask=None if flat.mask is None else flat.mask.view(torch.uint8).numpy(),
            positions=None if flat.positions is None else flat.positions.numpy(),
            item_bytes=tokens.item_bytes,
            pad_id=collate.pad_id,
            vocabulary=tokens.vocabulary,
            at_end=collate.pads_before,
        )
        return _Filling(job, status, flat, slots, lengths, cuts, _slot_bytes(collate))

    def _flat(self, total: int) -> Flat:
        """Uninitialised memory for so many tokens."""
        collate = self._collate
        words = 2 * total if collate.has_positions else total
        nbytes = _slot_bytes(collate) * total
        self._chunk_bytes = max(self._chunk_bytes, nbytes)
        if self._pin_memory:
            memory = torch.empty(nbytes, dtype=torch.uint8, device="cpu", pin_memory=True)
        else:  # as much as the largest took: what one chunk gives back fits the next
            memory = torch.from_numpy(self._ring.acquire(self._chunk_bytes))[:nbytes]
        numbers = memory[: 8 * words].view(torch.int64)
        return Flat(
            numbers[:total],
            memory[8 * words :].view(torch.bool) if collate.has_mask else None,
            numbers[total:] if collate.has_positions else None,
            is_pinned=self._pin_memory,
        )

    def batches(self, filled: _Filling, indices: NDArray[np.int64]) -> Iterator[Batch]:
        """What the training loop gets, from a filled buffer, made one by one."""
        made = self._collate.batches(filled.flat, filled.slots, filled.lengths, filled.cuts)
        labels = self._dataset.labels if self._collate.has_labels else None
        if labels is not None:
            made = self._labelled(made, labels[indices], filled.cuts)
        return map(_pinned, made) if self._pin_memory else made

    def _labelled(self, made: Iterator[Batch], labels: NDArray[Any], cuts: NDArray[np.int64]) -> Iterator[Batch]:
        for batch, part in zip(made, self._parts(labels, cuts), strict=True):
            batch["labels"] = part
            yield batch

    def _parts(self, labels: NDArray[Any], cuts: NDArray[np.int64]) -> Iterable[Any]:
        """The labels of each batch."""
        transform = self._dataset.target_transform
        if transform is None:
            return torch.split_with_sizes(torch.from_numpy(labels), (cuts[1:] - cuts[:-1]).tolist())
        return (
            default_collate([transform(label) for label in one_by_one(labels[start:stop])])
            for start, stop in pairwise(cuts.tolist())
        )

    def repaired(self, batches: Batches, spans: Spans, status: NDArray[np.int32]) -> FinishedBatch:
        """One batch after the policy for bad samples was applied: left out, or without tokens."""
        errors = self._tokens.errors(batches.indices, spans, status)
        if self._on_error == "raise":
            raise next(iter(errors.values()))
        indices = batches.indices
        if self._on_error == "skip":
            kept = np.flatnonzero(status == _native.OK)
            if len(kept) == 0:
                return FinishedBatch(None, 0, 0, list(errors.values()))
            spans, indices = spans.at(kept), indices[kept]
        else:
            spans = replace(spans, sizes=np.where(status == _native.OK, spans.sizes, 0))
        filled = self.fill(spans, np.array([0, len(indices)]), verify=False)  # those that are left were compared
        filled.job.wait()
        return next(filled.made(self.batches(filled, indices), list(errors.values())))


@dataclass(frozen=True, slots=True)
class _Filling:
    """Some batches whose buffer is being filled."""

    job: _native.Job
    status: NDArray[np.int32]
    flat: Flat
    slots: TokenSlots
    lengths: NDArray[np.int64]
    cuts: NDArray[np.int64]
    slot_bytes: int

    def made(self, batches: Iterator[Batch], errors: Sequence[SampleError] = ()) -> Iterator[FinishedBatch]:
        """The batches one by one, each with what is counted of it."""
        cuts, slots = self.cuts, self.slots.cuts
        tokens = np.add.reduceat(self.lengths, cuts[:-1]).tolist()
        numbers = zip((cuts[1:] - cuts[:-1]).tolist(), (slots[1:] - slots[:-1]).tolist(), tokens, strict=True)
        for samples, size, filled in numbers:
            # Not kept in a variable: nothing here may hold what the loop works with.
            yield FinishedBatch(next(batches), samples, self.slot_bytes * size, errors, filled, size)


class _TokenChunk:
    """Batches that one job fills, under way."""

    def __init__(self, producer: TokenProducer, coming: PendingRead) -> None:
        self._producer = producer
        self._coming = coming
        self._begin()

    def _begin(self) -> None:
        if self._coming.pid != os.getpid():
            self._coming = self._producer.look_up(self._coming.batches)
        self._pid = os.getpid()
        self._here = self._coming.wait()
        self._made: Iterator[FinishedBatch] | None = None
        self._filling: _Filling | None = None
        with suppress(ValueError):  # one of the batches does not fit: raised where that one is asked for
            self._filling = self._producer.fill(self._here.spans, self._here.batches.cuts, verify=self._producer.verify)

    def batches(self) -> Iterator[_TokenChunk]:
        """Itself, once for each of its batches: they come in order, so that the next one is always meant."""
        return repeat(self, len(self._here.batches))

    def cancel(self) -> None:
        """Nobody will ask for a batch; nor for the others, then: samples not yet begun are skipped."""
        if self._filling is not None and self._pid == os.getpid():
            self._filling.job.cancel()

    def result(self) -> FinishedBatch:
        """The next batch; a forked child fills anew what its parent's threads had under way."""
        if self._made is None:
            if self._pid != os.getpid():
                self._begin()
            made = _one_by_one if self._filling is None else partial(_finished, filling=self._filling)
            self._made = made(self._producer, self._here)
        return next(self._made)


# Functions and not methods: a generator that holds its chunk, which holds it, would wait for the garbage collector.


def _one_by_one(producer: TokenProducer, here: Located) -> Iterator[FinishedBatch]:
    """Batches of which one does not fit, ValueError for that one."""
    for number in range(len(here.batches)):
        one = producer.look_up(here.batches.part(number, number + 1)).wait()
        yield from _finished(producer, one, producer.fill(one.spans, one.batches.cuts, verify=producer.verify))


def _finished(producer: TokenProducer, here: Located, filling: _Filling) -> Iterator[FinishedBatch]:
    """The batches of a buffer, when it is filled."""
    filling.job.wait()
    if here.unread is not None:
        np.copyto(filling.status, here.unread, where=here.unread != _native.OK)
    made = filling.made(producer.batches(filling, here.batches.indices))
    return _repaired(producer, here, made, filling.status) if filling.status.any() else made


def _repaired(
    producer: TokenProducer, here: Located, made: Iterator[FinishedBatch], status: NDArray[np.int32]
) -> Iterator[FinishedBatch]:
    """The batches, those with bad samples after the policy for them was applied."""
    for number, place in enumerate(here.batches.slices()):
        if status[place].any():
            next(made)
            yield producer.repaired(here.batches.part(number, number + 1), here.spans.at(place), status[place])
        else:
            yield next(made)


def _spread(batches: Batches) -> Batches:
    """A few of the batches, from the whole epoch."""
    numbers = np.unique(np.linspace(0, len(batches) - 1, _LOOKED_AT).astype(np.int64))
    starts, stops = batches.cuts[numbers], batches.cuts[numbers + 1]
    chosen = [batches.indices[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
    return Batches(np.concatenate(chosen), np.concatenate(([0], np.cumsum(stops - starts))))


def _slot_bytes(collate: TokenCollate) -> int:
    """Memory for one token: its id, its place, whether it is one."""
    return 8 + 8 * collate.has_positions + collate.has_mask


def _pinned(batch: Batch) -> Batch:
    return {name: value.pin_memory() for name, value in batch.items()}
