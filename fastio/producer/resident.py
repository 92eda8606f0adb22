"""Data sets that are kept decoded, in memory or on the device: read and decoded once, when the loader is built."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import default_collate

from fastio.collate import Shape, one_by_one
from fastio.dataset import FastDataset
from fastio.errors import SchemaError
from fastio.machine import available_memory
from fastio.producer.base import Made, OnError
from fastio.producer.native import NativeProducer
from fastio.samplers.batches import Batches
from fastio.store.memory import MemoryStore

__all__ = ["Cache", "ResidentProducer", "check_cache", "in_ram"]

Cache = Literal["ram", "device"]

_ROWS = 256  # decoded at a time
_AHEAD = 2


def check_cache(
    dataset: FastDataset, cache: Cache | None, *, device: object, on_error: OnError, is_native: bool
) -> None:
    """ValueError for a cache that cannot be."""
    if cache is None:
        return
    if cache not in get_args(Cache):
        raise ValueError(f"cache={cache!r}: expected one of {', '.join(map(repr, get_args(Cache)))} or None")
    if cache == "device" and device is None:
        raise ValueError("cache='device': pass device= too, to say which")
    if on_error != "raise" or dataset.transform is not None or not is_native:
        raise ValueError(
            f"{dataset.store.path}: cache={cache!r} is for samples that are all good and that native threads decode: "
            f"on_error='raise', no transform of the dataset's, no methods of its own"
        )


def in_ram(dataset: FastDataset, *, threads: int, verify: bool) -> FastDataset:
    """The same samples, decoded, in memory; MemoryError where they do not fit, SampleError for a bad one."""
    shape = _row_shape(dataset)
    _check_fits(dataset, shape, available_memory(), where="in memory")
    rows = np.empty((len(dataset), *shape), dataset.reader.dtype)
    for part, decoded in _decoded(dataset, threads=threads, verify=verify):
        rows[part] = decoded.numpy()
    store = MemoryStore(dataset.store, dataset.reader.field.name, rows)
    return FastDataset(store, target_transform=dataset.target_transform, mode=dataset.reader.mode, read="map")


class ResidentProducer:
    """
    Batches chosen on the device from all samples, which lie there.

    The work is done by the stream that is current when a batch is asked for. MemoryError where they do not fit.
    """

    def __init__(
        self, dataset: FastDataset, device: torch.device, *, threads: int, verify: bool, is_planar: bool
    ) -> None:
        self._dataset = dataset
        self._device = device
        self._is_planar = is_planar
        shape = _row_shape(dataset)
        _check_fits(dataset, shape, _free_on(device), where=f"on {device}")
        dtype = torch.from_numpy(np.empty(0, dataset.reader.dtype)).dtype
        self._rows = torch.empty((len(dataset), *shape), dtype=dtype, device=device)
        for part, decoded in _decoded(dataset, threads=threads, verify=verify):
            self._rows[part] = decoded.to(device)
        has_tensor = dataset.labels is not None and dataset.target_transform is None
        self._labels = torch.from_numpy(np.array(dataset.labels)).to(device) if has_tensor else None
        if device.type == "cuda":  # batches are made on another stream than these copies
            torch.cuda.current_stream(device).synchronize()

    @property
    def threads(self) -> int:
        """None: the device does it."""
        return 0

    @property
    def buffer_bytes(self) -> int:
        """All samples."""
        return self._rows.nbytes

    def close(self) -> None:
        """There are no threads; batches stay valid."""

    def submit(self, batches: Batches, *, epoch: int) -> Iterator[_Chosen]:
        """As Producer.submit; nothing is random here."""
        for part in batches.slices():
            yield _Chosen(self, batches.indices[part])

    def make(self, indices: NDArray[np.int64]) -> Made:
        """The batch of these samples."""
        chosen = torch.from_numpy(np.ascontiguousarray(indices))
        if self._device.type == "cuda":
            chosen = chosen.pin_memory().to(self._device, non_blocking=True)
            for kept in (self._rows, self._labels):
                if kept is not None:  # this stream may still read it when the loader is dropped
                    kept.record_stream(torch.cuda.current_stream(self._device))
        rows = self._rows.index_select(0, chosen)
        images = rows.permute(0, 3, 1, 2) if self._dataset.reader.is_picture else rows
        images = images.contiguous() if self._is_planar else images
        if self._dataset.labels is None:
            return Made(images, len(indices), rows.nbytes)
        transform = self._dataset.target_transform
        if transform is not None:
            own: Any = default_collate([transform(label) for label in one_by_one(self._dataset.labels[indices])])
            return Made([images, own], len(indices), rows.nbytes)
        assert self._labels is not None
        return Made([images, self._labels.index_select(0, chosen)], len(indices), rows.nbytes)


class _Chosen:
    """One batch to be chosen."""

    __slots__ = ("_indices", "_producer")

    def __init__(self, producer: ResidentProducer, indices: NDArray[np.int64]) -> None:
        self._producer = producer
        self._indices = indices

    def result(self) -> Made:
        """The batch."""
        return self._producer.make(self._indices)

    def cancel(self) -> None:
        """Nothing is under way."""


def _free_on(device: torch.device) -> int:
    """Bytes that torch can still give away there: those of the driver, and those it keeps of tensors that died."""
    if device.type != "cuda":
        return available_memory()
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept


def _row_shape(dataset: FastDataset) -> Shape:
    """The one shape of all samples; SchemaError that names two where there are several."""
    reader = dataset.reader
    every = np.arange(len(dataset), dtype=np.int64)
    if len(every) == 0:
        raise SchemaError(f"{dataset.store.path}: there is nothing to cache, the store is empty")
    if not reader.has_rows:
        raise SchemaError(f"{dataset.store.path}: cache= is for pictures and arrays of one size, not {reader.field}")
    return reader.common_shape(every, reader.shapes(every, reader.store.spans(reader.field.name, every)))


def _check_fits(dataset: FastDataset, shape: Shape, free: int, *, where: str) -> None:
    """MemoryError before anything is read."""
    needed = len(dataset) * int(np.prod(shape)) * dataset.reader.dtype.itemsize
    if needed > free:
        raise MemoryError(
            f"{dataset.store.path}: {len(dataset)} samples of {'x'.join(map(str, shape))} take {needed / 1e9:.2f} GB "
            f"decoded, but only {free / 1e9:.2f} GB are free {where}; leave cache= out"
        )


def _decoded(dataset: FastDataset, *, threads: int, verify: bool) -> Iterator[tuple[slice, torch.Tensor]]:
    """All samples in order, as rows of memory (n, H, W, C), and their places."""
    producer = NativeProducer(
        dataset,
        threads=threads,
        verify=verify,
        depth=_AHEAD,
        on_error="raise",
        pin_memory=False,
        fused=None,
        is_planar=False,
    )
    count = len(dataset)
    cuts = np.minimum(np.arange(-(-count // _ROWS) + 1, dtype=np.int64) * _ROWS, count)
    batches = Batches(np.arange(count, dtype=np.int64), cuts)
    try:
        submitted = producer.submit(batches, epoch=0)
        under_way = deque(islice(submitted, _AHEAD))
        for part in batches.slices():
            made = under_way.popleft().result()
            under_way.extend(islice(submitted, 1))
            images = made.batch if dataset.labels is None else made.batch[0]
            yield part, images.permute(0, 2, 3, 1) if dataset.reader.is_picture else images
    finally:
        producer.close()
