"""A buffer of several batches of token ids: filled by one native job, handed out as views."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastio import _native
from fastio.dataset.token_collate import Batch, Flat, TokenCollate, TokenSlots
from fastio.dataset.token_reader import TokenReader
from fastio.errors import SampleError
from fastio.loader.producer.buffers import BatchBuffers
from fastio.loader.producer.checked import CheckedSamples
from fastio.loader.producer.labels import collate_labels
from fastio.loader.producer.producer import FinishedBatch, ProducerContext
from fastio.samplers.batches import Batches
from fastio.types.spans import Spans

__all__ = ["Filling", "TokenFiller", "slot_bytes"]


@dataclass(frozen=True, slots=True)
class TokenFiller:
    """
    Lets the threads of ``pool`` fill buffers with batches of ids, and hands out views. It belongs to one process.
    """

    context: ProducerContext
    tokens: TokenReader
    collate: TokenCollate
    pool: _native.ThreadPool
    buffers: BatchBuffers

    def fill(self, spans: Spans, cuts: NDArray[np.int64], *, verify: bool) -> Filling:
        """Start to fill the buffer of some batches; ValueError where one does not fit its collate."""
        collate, tokens = self.collate, self.tokens
        lengths = tokens.lengths(spans)
        slots = collate.slots(lengths, cuts)
        flat = self._flat(int(slots.cuts[-1]))
        status = np.empty(len(lengths), np.int32)
        job = _native.fill_tokens(
            spans,
            slots.starts,
            flat.ids.numpy(),
            status,
            self.pool,
            verify=verify,
            mask=None if flat.mask is None else flat.mask.view(torch.uint8).numpy(),
            positions=None if flat.positions is None else flat.positions.numpy(),
            item_bytes=tokens.item_bytes,
            pad_id=collate.pad_id,
            vocabulary=tokens.vocabulary,
            at_end=collate.pads_before,
        )
        return Filling(job, status, flat, slots, lengths, cuts, slot_bytes(collate))

    def _flat(self, total: int) -> Flat:
        """Return uninitialised memory for ``total`` tokens."""
        collate = self.collate
        words = 2 * total if collate.has_positions else total
        memory = self.buffers.take_bytes(slot_bytes(collate) * total)
        numbers = memory[: 8 * words].view(torch.int64)
        return Flat(
            numbers[:total],
            memory[8 * words :].view(torch.bool) if collate.has_mask else None,
            numbers[total:] if collate.has_positions else None,
            is_pinned=self.context.options.pin_memory,
        )

    def batches(self, filled: Filling, indices: NDArray[np.int64]) -> Iterator[Batch]:
        """Yield what the training loop gets from a filled buffer, one by one."""
        batches = self.collate.batches(filled.flat, filled.slots, filled.lengths, filled.cuts)
        labels = self.context.dataset.labels if self.collate.has_labels else None
        if labels is not None:
            batches = self._labelled(batches, labels[indices], filled.cuts)
        return map(_pinned, batches) if self.context.options.pin_memory else batches

    def _labelled(self, batches: Iterator[Batch], labels: NDArray[Any], cuts: NDArray[np.int64]) -> Iterator[Batch]:
        for batch, part in zip(batches, self._parts(labels, cuts), strict=True):
            batch["labels"] = part
            yield batch

    def _parts(self, labels: NDArray[Any], cuts: NDArray[np.int64]) -> Iterable[Any]:
        """Return the labels of each batch."""
        dataset = self.context.dataset
        if dataset.target_transform is None:
            return torch.split_with_sizes(torch.from_numpy(labels), (cuts[1:] - cuts[:-1]).tolist())
        return (collate_labels(dataset, labels[start:stop]) for start, stop in pairwise(cuts.tolist()))

    def repaired(self, batches: Batches, spans: Spans, status: NDArray[np.int32]) -> FinishedBatch:
        """Return one batch after applying the policy for bad samples: left out, or without tokens."""
        errors = self.tokens.errors(batches.indices, spans, status)
        checked = self.checked(batches.indices, spans)
        if self.context.options.on_error == "raise":
            raise next(iter(errors.values()))
        indices = batches.indices
        if self.context.options.on_error == "skip":
            kept = np.flatnonzero(status == _native.OK)
            if len(kept) == 0:
                return FinishedBatch(None, 0, 0, list(errors.values()), proof=(checked, slice(0, len(status))))
            spans, indices = spans.at(kept), indices[kept]
        else:
            spans = replace(spans, sizes=np.where(status == _native.OK, spans.sizes, 0))
        filled = self.fill(spans, np.array([0, len(indices)]), verify=False)  # the remaining ones were compared
        filled.job.wait()
        finished = next(filled.finished(self.batches(filled, indices), checked, list(errors.values())))
        finished.proof = checked, slice(0, len(status))
        return finished

    def checked(self, indices: NDArray[np.int64], spans: Spans) -> CheckedSamples:
        """Return samples with the checksums that they are compared with."""
        name, verify = self.tokens.field.name, self.context.options.verify
        return CheckedSamples.of(indices, {name: spans}, verify=verify)


@dataclass(frozen=True, slots=True)
class Filling:
    """Some batches whose buffer is being filled."""

    job: _native.Job
    status: NDArray[np.int32]
    flat: Flat
    slots: TokenSlots
    lengths: NDArray[np.int64]
    cuts: NDArray[np.int64]
    slot_bytes: int

    def finished(
        self, batches: Iterator[Batch], checked: CheckedSamples, errors: Sequence[SampleError] = ()
    ) -> Iterator[FinishedBatch]:
        """Yield the batches one by one, each with its counts and its part of ``checked``."""
        cuts, slots = self.cuts, self.slots.cuts
        tokens = np.add.reduceat(self.lengths, cuts[:-1]).tolist()
        bounds = cuts.tolist()
        parts = map(slice, bounds[:-1], bounds[1:])
        numbers = zip((cuts[1:] - cuts[:-1]).tolist(), (slots[1:] - slots[:-1]).tolist(), tokens, parts, strict=True)
        for samples, size, filled, part in numbers:
            # Not kept in a variable: nothing here may keep what the loop uses.
            nbytes = self.slot_bytes * size
            yield FinishedBatch(next(batches), samples, nbytes, errors, filled, size, proof=(checked, part))


def slot_bytes(collate: TokenCollate) -> int:
    """Return the bytes for one token: its id, its position, whether it is one."""
    return 8 + 8 * collate.has_positions + collate.has_mask


def _pinned(batch: Batch) -> Batch:
    return {name: value.pin_memory() for name, value in batch.items()}
