"""Decodes all samples that a cache keeps."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastio import _native
from fastio.loader.options import ProducerOptions
from fastio.loader.producer.kept import Kept
from fastio.loader.producer.native import NativeProducer
from fastio.loader.producer.producer import FinishedBatch, ProducerContext
from fastio.samplers.batches import Batches

__all__ = ["decode_kept"]

_ROWS = 256  # decoded at a time
_AHEAD = 2


def decode_kept(kept: Kept, *, threads: int, verify: bool) -> Iterator[tuple[NDArray[np.int64], torch.Tensor]]:
    """
    Yield everything that is kept as rows of memory (n, H, W, C) of one shape, and their positions in
    ``kept.indices``. ``kept.compared`` is filled with their checksums.
    """
    dataset = kept.dataset
    options = ProducerOptions(threads=threads, depth=_AHEAD, on_error="raise", verify=verify, pin_memory=False)
    producer = NativeProducer(ProducerContext(dataset, options, fused=kept.first))
    places, cuts = _groups(kept)
    batches = Batches(kept.indices[places], cuts)
    try:
        loop = _native.BatchLoop(
            producer.submit(batches, epoch=0),
            _AHEAD,
            counts=_native.BatchCounts(),
            cursor=SimpleNamespace(batch=0),
            note=kept.note,
            settle=_refuse,
        )
        for part, batch in zip(batches.slices(), _every(loop), strict=True):
            images = batch if dataset.labels is None else batch[0]
            yield places[part], images.permute(0, 2, 3, 1) if dataset.reader.is_picture else images
    finally:
        producer.close()


def _every(loop: _native.BatchLoop) -> Iterator[Any]:
    while not loop.is_done:
        yield from loop.run(_ROWS)


def _refuse(finished: FinishedBatch, number: int) -> None:
    """Raise the first error of a batch: the producer has done so with ``on_error="raise"``."""
    raise finished.errors[0]


def _groups(kept: Kept) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return positions grouped by equal shape, and cuts where a batch of them begins."""
    count = len(kept.indices)
    if kept.is_uniform:
        cuts = np.minimum(np.arange(-(-count // _ROWS) + 1, dtype=np.int64) * _ROWS, count)
        return np.arange(count, dtype=np.int64), cuts
    places = np.lexsort(kept.shapes.T)
    is_new = (np.diff(kept.shapes[places], axis=0) != 0).any(axis=1)
    firsts = [0, *(np.flatnonzero(is_new) + 1).tolist(), count]
    parts = [np.arange(first, last, _ROWS) for first, last in pairwise(firsts)]
    return places.astype(np.int64), np.concatenate((*parts, [count])).astype(np.int64)
