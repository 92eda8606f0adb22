"""Batches of the dataset's own samples, made in a few Python threads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import default_collate

from fastio.dataset.fast_dataset import FastDataset
from fastio.dataset.token_collate import TokenCollate, count_tokens
from fastio.errors import SampleError
from fastio.loader.producer.producer import FinishedBatch, OnError
from fastio.samplers.batches import Batches

__all__ = ["PlainProducer"]


class PlainProducer:
    """
    Makes each batch of the dataset's own samples, with its transforms, in a few Python threads.

    Correct for any transform, and as fast as Python and the GIL allow: what PIL, numpy and torch do
    outside the GIL runs in parallel. Transforms must be safe to be called from several threads.
    """

    def __init__(
        self,
        dataset: FastDataset,
        collate: TokenCollate | None = None,
        *,
        threads: int,
        on_error: OnError,
        pin_memory: bool,
    ) -> None:
        self._dataset = dataset
        self._collate = collate
        self._threads = threads
        self._on_error = on_error
        self._pin_memory = pin_memory
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix="fastio")

    @property
    def threads(self) -> int:
        """As many as there are."""
        return self._threads

    @property
    def buffer_bytes(self) -> int:
        """Batches are made by torch's collate: there are no buffers of ours."""
        return 0

    def estimated_bytes(self, batch_bytes: int, *, depth: int) -> int:
        """Those under way, the loop's, and one between."""
        return (depth + 2) * batch_bytes

    def close(self) -> None:
        """Join the threads; batches not yet begun are dropped."""
        if self._pid == os.getpid():
            self._executor.shutdown(cancel_futures=True)

    def submit(self, batches: Batches, *, epoch: int) -> Iterator[_PlainBatch]:
        """Start one batch at each step."""
        for part in batches.slices():
            yield _PlainBatch(self, batches.indices[part].tolist())

    def start(self, indices: list[int]) -> Future[FinishedBatch]:
        """
        Start one batch.

        In a forked child too a thread makes it, a new one: in the main thread torch's parallel operations
        would wait for ever for the parent's OpenMP threads, which a fork leaves behind.
        """
        if self._pid != os.getpid():
            self._start()
        return self._executor.submit(self._make, indices)

    def _make(self, indices: list[int]) -> FinishedBatch:
        """One batch, in the calling thread."""
        errors: list[SampleError] = []
        try:
            samples = self._dataset.__getitems__(indices)
        except SampleError:
            if self._on_error == "raise":
                raise
            samples = self._good(indices, errors)
        if not samples:
            return FinishedBatch(None, 0, 0, errors)
        batch = default_collate(list(map(_as_tensors, samples))) if self._collate is None else self._collate(samples)
        tokens, slots = (0, 0) if self._collate is None else count_tokens(batch)
        if self._pin_memory:
            batch = _pinned(batch)
        return FinishedBatch(batch, len(samples), _nbytes(batch), errors, tokens, slots)

    def _good(self, indices: list[int], errors: list[SampleError]) -> list[Any]:
        """The samples of a batch with a bad one in it, read one by one."""
        samples = []
        for index in indices:
            try:
                samples += self._dataset.__getitems__([index])
            except SampleError as exc:
                errors.append(exc)
                if self._on_error == "zero":
                    samples.append(self._dataset.blank(index))
        return samples


class _PlainBatch:
    """One batch that a Python thread makes."""

    __slots__ = ("_future", "_indices", "_pid", "_producer")

    def __init__(self, producer: PlainProducer, indices: list[int]) -> None:
        self._producer = producer
        self._indices = indices
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._future = self._producer.start(self._indices)

    def cancel(self) -> None:
        """Does not begin, where it has not yet."""
        if self._pid == os.getpid():
            self._future.cancel()

    def result(self) -> FinishedBatch:
        """The batch; a forked child makes anew what its parent's threads had under way."""
        if self._pid != os.getpid():
            self._begin()
        return self._future.result()


def _as_tensors(sample: Any) -> Any:
    """A sample whose transform has left a PIL image: that as uint8 (C, H, W), which is what native batches have."""
    if isinstance(sample, Image.Image):
        pixels = torch.from_numpy(np.array(sample))
        return pixels.unsqueeze(0) if pixels.ndim == 2 else pixels.permute(2, 0, 1)
    return (_as_tensors(sample[0]), *sample[1:]) if type(sample) is tuple and len(sample) == 2 else sample


def _pinned(batch: Any) -> Any:
    """A collated batch with its tensors in pinned memory."""
    if isinstance(batch, torch.Tensor):
        return batch.pin_memory()
    if isinstance(batch, dict):
        return {name: _pinned(part) for name, part in batch.items()}
    return [_pinned(part) for part in batch] if isinstance(batch, list) else batch


def _nbytes(batch: Any) -> int:
    """Bytes of a collated batch's tensors."""
    if isinstance(batch, torch.Tensor):
        return batch.nbytes
    if isinstance(batch, dict):
        return sum(map(_nbytes, batch.values()))
    return sum(map(_nbytes, batch)) if isinstance(batch, list) else 0
