"""``cache="ram"``: samples that are read and decoded once, when the loader is built, and kept in memory as a store."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.codec.image import stored_png
from fastio.dataset.fast_dataset import FastDataset
from fastio.loader.options import ProducerOptions
from fastio.loader.output import Output
from fastio.loader.producer.cache_contents import CacheContents
from fastio.loader.producer.native import NativeProducer
from fastio.loader.producer.producer import FinishedBatch, ProducerContext
from fastio.machine import available_memory
from fastio.samplers.batches import Batches
from fastio.store.index.views import MemoryStore
from fastio.types.bfloat16 import is_bfloat16, rounded
from fastio.types.schema import IMAGE, Field

__all__ = [
    "decode_contents",
    "keep_in_memory",
]


def keep_in_memory(kept: CacheContents, *, threads: int, verify: bool) -> FastDataset:
    """
    Decode the samples into memory. Raises MemoryError if they do not fit, SampleError for a bad one.

    Pictures of several sizes, which transforms will still make equal, are kept as uncompressed PNGs.
    """
    dataset = kept.dataset
    if not kept.is_uniform and not kept.rest:
        kept.one_shape()  # raises the error that names two of them
    kept.check_fits(available_memory(), where="in memory")
    store = _rows_in_memory(kept, threads, verify) if kept.is_uniform else _pictures_in_memory(kept, threads, verify)
    return FastDataset(
        store, target_transform=dataset.target_transform, fields=dataset.fields, mode=dataset.reader.mode
    )


def _rows_in_memory(kept: CacheContents, threads: int, verify: bool) -> MemoryStore:
    dataset = kept.dataset
    rows = np.empty((len(kept.indices), *kept.one_shape()), dataset.reader.dtype)
    for places, decoded in decode_contents(kept, threads=threads, verify=verify):
        rows[places] = decoded
    return MemoryStore.of_rows(dataset.store, dataset.reader.field.name, rows, kept.indices)


def _pictures_in_memory(kept: CacheContents, threads: int, verify: bool) -> MemoryStore:
    source = kept.dataset.store
    places = np.full((len(source), 3), -1, np.int64)
    shapes = np.zeros((len(source), 3), np.int32)
    shapes[kept.indices] = kept.shapes
    buffers: list[NDArray[np.uint8]] = []
    for part, decoded in decode_contents(kept, threads=threads, verify=verify):
        files = [stored_png(pixels) for pixels in decoded]
        sizes = np.array([len(file) for file in files], np.int64)
        places[kept.indices[part]] = np.stack(
            [np.full_like(sizes, len(buffers)), sizes.cumsum() - sizes, sizes], axis=1
        )
        buffers.append(np.frombuffer(b"".join(files), np.uint8))
    field = Field(kept.dataset.reader.field.name, IMAGE, "|u1", (None, None, None))
    return MemoryStore(source, field, buffers, places=places, shapes=shapes)


# Decodes all samples that a cache keeps.

_ROWS = 256  # decoded at a time
_AHEAD = 2


def decode_contents(
    kept: CacheContents, *, threads: int, verify: bool
) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
    """
    Yield everything that is kept as rows of memory (n, H, W, C) of one shape, and their positions in
    ``kept.indices``. ``kept.compared`` is filled with their checksums.
    """
    dataset = kept.dataset
    options = ProducerOptions(threads=threads, depth=_AHEAD, on_error="raise", verify=verify, output=Output.ARRAYS)
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
            if is_bfloat16(dataset.reader.dtype):
                images = rounded(images)  # which float32 holds exactly
            yield places[part], images.transpose(0, 2, 3, 1) if dataset.reader.is_picture else images
    finally:
        producer.close()


def _every(loop: _native.BatchLoop) -> Iterator[Any]:
    while not loop.is_done:
        yield from loop.run(_ROWS)


def _refuse(finished: FinishedBatch, number: int) -> None:
    """Raise the first error of a batch: the producer has done so with ``on_error="raise"``."""
    raise finished.errors[0]


def _groups(kept: CacheContents) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
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
