"""Batches of token ids by native jobs: what is asked of them, and what becomes of those with bad samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch._C import _from_dlpack as from_dlpack  # torch.utils.dlpack's wrapper takes twice the time

from fastio import _native
from fastio.dataset.token_collate import TokenCollate
from fastio.dataset.token_reader import TokenReader
from fastio.errors import SampleError
from fastio.loader.producer.checked import CheckedSamples
from fastio.loader.producer.labels import collate_labels, tensor_labels
from fastio.loader.producer.producer import FinishedBatch, ProducerContext
from fastio.loader.producer.token_source import Located
from fastio.samplers.batches import Batches
from fastio.types.spans import Spans

__all__ = ["JOB_BYTES", "TokenFiller"]

JOB_BYTES = 1 << 20  # of batches that one job fills: they share a buffer, which lives as long as any of them
Repair = Callable[[int, NDArray[np.int32] | None], FinishedBatch]


class TokenFiller:
    """Makes batches of ids on the threads of ``pool``; ``kept`` free buffers are held. It belongs to one process."""

    def __init__(
        self,
        context: ProducerContext,
        tokens: TokenReader,
        collate: TokenCollate,
        pool: _native.ThreadPool,
        *,
        kept: int,
    ) -> None:
        self._context = context
        self._labels = context.dataset.labels if collate.has_labels else None
        self._kept = kept
        self._ring = None if context.options.pin_memory else _native.BufferRing(kept)
        self.tokens = tokens
        self.collate = collate
        self.pool = pool
        self._native = _native.TokenFiller(
            collate.layout,
            collate.width,
            pad_id=collate.pad_id,
            at_end=collate.pads_before,
            item_bytes=tokens.item_bytes,
            vocabulary=tokens.vocabulary,
            pool=pool,
            ring=self._ring,
            from_dlpack=from_dlpack,
            pinned=_PinnedMemory() if self._ring is None else None,
        )

    def batches(self, located: Located, *, verify: bool, repair: Repair | None = None) -> _native.TokenBatches:
        """Return these batches, of which none has begun yet; ``repair`` makes those with bad samples."""
        batches, spans = located.batches, located.spans
        return self._native.batches(
            spans,
            np.ascontiguousarray(batches.cuts),
            verify=verify,
            **self._labels_of(batches),
            unread=located.unread,
            job_bytes=JOB_BYTES,
            proof=(self.checked(batches.indices, spans), batches.cuts),
            repair=repair,
        )

    def _labels_of(self, batches: Batches) -> dict[str, Any]:
        """Return the labels of samples, or what makes those of a batch."""
        if self._labels is None:
            return {}
        labels = self._labels[batches.indices]
        known = tensor_labels(self._context.dataset, labels)
        return {"label_of": partial(_some_labels, self._context, labels)} if known is None else {"labels": known}

    def repaired(self, located: Located, number: int, status: NDArray[np.int32] | None) -> FinishedBatch:
        """
        Return batch ``number`` after applying the policy for bad samples: left out, or without tokens. Without
        ``status``, another process had begun it.
        """
        one = located.part(number)
        if status is None:
            again = self.batches(one, verify=self._context.options.verify)
            status = again.status(0)
            if not status.any():
                return _finished(again, [])
        batches, spans = one.batches, one.spans
        errors = list(self.tokens.errors(batches.indices, spans, status).values())
        if self._context.options.on_error == "raise":
            raise errors[0]
        if self._context.options.on_error == "skip":
            kept = np.flatnonzero(status == _native.OK)
            if len(kept) == 0:
                return FinishedBatch(None, 0, 0, errors)
            good = Located(Batches(batches.indices[kept], np.array([0, len(kept)])), spans.at(kept))
        else:
            good = Located(batches, replace(spans, sizes=np.where(status == _native.OK, spans.sizes, 0)))
        filled = self.batches(good, verify=False)  # the remaining ones were compared
        filled.status(0)
        return _finished(filled, errors)

    def checked(self, indices: NDArray[np.int64], spans: Spans) -> CheckedSamples:
        """Return samples with the checksums that they are compared with."""
        name, verify = self.tokens.field.name, self._context.options.verify
        return CheckedSamples.of(indices, {name: spans}, verify=verify)

    @property
    def largest_bytes(self) -> int:
        """The largest buffer so far."""
        return self._native.largest_bytes

    @property
    def job_batches(self) -> float:
        """The mean number of batches that one job has filled so far."""
        return self._native.job_batches

    @property
    def allocated_bytes(self) -> int:
        """Bytes lent and free. Pinned memory is torch's to count: here it is as many of the largest as are kept."""
        return self._kept * self.largest_bytes if self._ring is None else self._ring.allocated_bytes


class _PinnedMemory:
    """Memory of torch's own allocator, which has to recognise its tensors again after a copy: see BatchBuffers."""

    def take(self, size_bytes: int) -> torch.Tensor:
        """Return uninitialised memory."""
        return torch.empty(size_bytes, dtype=torch.uint8, device="cpu", pin_memory=True)

    def view(self, memory: torch.Tensor, start: int, dtype: str, shape: Sequence[int]) -> torch.Tensor:
        """Return a part of it, from byte ``start`` on."""
        kind = torch.from_numpy(np.empty(0, dtype)).dtype
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return memory[start : start + size].view(kind).view(tuple(shape))


def _finished(one: _native.TokenBatches, errors: Sequence[SampleError]) -> FinishedBatch:
    batch, samples, nbytes, tokens, slots = one.take(0)
    return FinishedBatch(batch, samples, nbytes, errors, tokens, slots)


def _some_labels(context: ProducerContext, labels: NDArray[Any], start: int, stop: int) -> Any:
    """Return the labels of one batch."""
    collated = collate_labels(context.dataset, labels[start:stop])
    is_ours = context.options.pin_memory and isinstance(collated, torch.Tensor)
    return collated.pin_memory() if is_ours else collated
