"""``cache="ram"``: samples that are read and decoded once, when the loader is built, and kept in memory as a store."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastio.codec.stored_png import stored_png
from fastio.dataset.fast_dataset import FastDataset
from fastio.loader.producer.decode_kept import decode_kept
from fastio.loader.producer.kept import Kept
from fastio.machine import available_memory
from fastio.store.memory import MemoryStore
from fastio.types.schema import IMAGE, Field

__all__ = ["keep_in_memory"]


def keep_in_memory(kept: Kept, *, threads: int, verify: bool) -> FastDataset:
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


def _rows_in_memory(kept: Kept, threads: int, verify: bool) -> MemoryStore:
    dataset = kept.dataset
    rows = np.empty((len(kept.indices), *kept.one_shape()), dataset.reader.dtype)
    for places, decoded in decode_kept(kept, threads=threads, verify=verify):
        rows[places] = decoded.numpy()
    return MemoryStore.of_rows(dataset.store, dataset.reader.field.name, rows, kept.indices)


def _pictures_in_memory(kept: Kept, threads: int, verify: bool) -> MemoryStore:
    source = kept.dataset.store
    places = np.full((len(source), 3), -1, np.int64)
    shapes = np.zeros((len(source), 3), np.int32)
    shapes[kept.indices] = kept.shapes
    buffers: list[NDArray[np.uint8]] = []
    for part, decoded in decode_kept(kept, threads=threads, verify=verify):
        files = [stored_png(pixels) for pixels in decoded.numpy()]
        sizes = np.array([len(file) for file in files], np.int64)
        places[kept.indices[part]] = np.stack(
            [np.full_like(sizes, len(buffers)), sizes.cumsum() - sizes, sizes], axis=1
        )
        buffers.append(np.frombuffer(b"".join(files), np.uint8))
    field = Field(kept.dataset.reader.field.name, IMAGE, "|u1", (None, None, None))
    return MemoryStore(source, field, buffers, places=places, shapes=shapes)
