"""Data sets that are kept decoded, in memory or on the device: read and decoded once, when the loader is built."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import default_collate

from fastio.codec.stored_png import stored_png
from fastio.dataset.fast_dataset import FastDataset
from fastio.dataset.row_reader import Shape, is_uniform, one_by_one
from fastio.errors import SchemaError
from fastio.loader.producer.choose import Quality, fused_of
from fastio.loader.producer.native import NativeProducer
from fastio.loader.producer.producer import FinishedBatch, OnError
from fastio.machine import available_memory
from fastio.samplers.batches import Batches
from fastio.store.memory import MemoryStore
from fastio.transforms.compiled import Compiled
from fastio.transforms.fused import Fused
from fastio.transforms.transform import Transform
from fastio.types.schema import IMAGE, Field

__all__ = ["Cache", "Kept", "ResidentProducer", "check_cache", "in_ram", "what_to_keep"]

Cache = Literal["ram", "device"]

_ROWS = 256  # decoded at a time
_AHEAD = 2


def check_cache(dataset: FastDataset, cache: Cache | None, *, device: object, on_error: OnError) -> None:
    """ValueError for a cache that cannot be."""
    if cache is None:
        return
    if cache not in get_args(Cache):
        raise ValueError(f"cache={cache!r}: expected one of {', '.join(map(repr, get_args(Cache)))} or None")
    if cache == "device" and device is None:
        raise ValueError("cache='device': pass device= too, to say which")
    if on_error != "raise" or not dataset.is_as_stored:
        raise ValueError(
            f"{dataset.store.path}: cache={cache!r} is for samples that are all good and that native threads decode: "
            f"on_error='raise', no transform of the dataset's, no methods of its own"
        )


@dataclass(frozen=True, slots=True)
class Kept:
    """
    What a cache holds: the samples of ``dataset`` at ``indices`` (ascending, each once), decoded.

    ``first`` is what is done with them before they are kept, ``rest`` the transforms that are left for each epoch.
    ``shapes`` (len(indices), ...) are those of the values kept; zeros where a header is bad.
    """

    dataset: FastDataset
    indices: NDArray[np.int64]
    shapes: NDArray[np.int64]
    first: Fused | None
    rest: Sequence[Any]

    @property
    def is_uniform(self) -> bool:
        """Whether all values have one shape."""
        return is_uniform(self._known)

    def one_shape(self) -> Shape:
        """The one shape of all values; SchemaError that names two samples where there are several."""
        known = self._known
        if len(known) and not self.is_uniform:
            reader = self.dataset.reader
            return reader.common_shape(self.indices, self.shapes)
        return tuple((known if len(known) else self.shapes)[0].tolist())

    @property
    def _known(self) -> NDArray[np.int64]:
        if not self.dataset.reader.is_picture:
            return self.shapes
        return self.shapes[self.shapes[:, :2].all(axis=1)]

    def check_fits(self, free: int, *, where: str) -> None:
        """MemoryError before anything is read."""
        needed = int(self.shapes.prod(axis=1).sum()) * self.dataset.reader.dtype.itemsize
        if needed > free:
            what = "x".join(map(str, self.one_shape())) if self.is_uniform else "different sizes"
            raise MemoryError(
                f"{self.dataset.store.path}: {len(self.indices)} samples of {what} take {needed / 1e9:.2f} GB decoded, "
                f"but only {free / 1e9:.2f} GB are free {where}; leave cache= out"
            )


def what_to_keep(
    dataset: FastDataset, indices: NDArray[np.int64] | None, transforms: Sequence[Any], *, quality: Quality, seed: int
) -> Kept:
    """
    Samples as they are stored where all have one size; otherwise as those first transforms that draw no random numbers
    leave them. SchemaError where there is nothing to keep.
    """
    reader = dataset.reader
    every = np.arange(len(dataset), dtype=np.int64) if indices is None else np.unique(indices)
    if len(every) == 0:
        raise SchemaError(f"{dataset.store.path}: there is nothing to cache: no samples")
    if not reader.has_rows:
        raise SchemaError(f"{dataset.store.path}: cache= is for pictures and arrays of one size, not {reader.field}")
    shapes = reader.shapes(every, reader.store.spans(reader.field.name, every))
    kept = Kept(dataset, every, shapes, None, transforms)
    count = next((place for place, each in enumerate(transforms) if _is_random(each)), len(transforms))
    if kept.is_uniform or count == 0:
        return kept
    first = fused_of(dataset, transforms[:count], quality=quality, layout="channels_last", seed=seed)
    assert first is not None
    return Kept(dataset, every, first.plan(every, shapes, epoch=0).shapes, first, transforms[count:])


def _is_random(transform: Any) -> bool:
    return not isinstance(transform, Transform) or isinstance(transform, Compiled) or transform.draws > 0


def in_ram(kept: Kept, *, threads: int, verify: bool) -> FastDataset:
    """
    The samples, decoded, in memory; MemoryError where they do not fit, SampleError for a bad one.

    Pictures of several sizes, which transforms are still to make equal, are kept as PNGs that are not compressed.
    """
    dataset = kept.dataset
    if not kept.is_uniform and not kept.rest:
        kept.one_shape()  # the error that names two of them
    kept.check_fits(available_memory(), where="in memory")
    store = _rows_in_ram(kept, threads, verify) if kept.is_uniform else _pictures_in_ram(kept, threads, verify)
    return FastDataset(store, target_transform=dataset.target_transform, mode=dataset.reader.mode, read="map")


def _rows_in_ram(kept: Kept, threads: int, verify: bool) -> MemoryStore:
    dataset = kept.dataset
    rows = np.empty((len(kept.indices), *kept.one_shape()), dataset.reader.dtype)
    for places, decoded in _decoded(kept, threads=threads, verify=verify):
        rows[places] = decoded.numpy()
    return MemoryStore.of_rows(dataset.store, dataset.reader.field.name, rows, kept.indices)


def _pictures_in_ram(kept: Kept, threads: int, verify: bool) -> MemoryStore:
    source = kept.dataset.store
    places = np.full((len(source), 3), -1, np.int64)
    shapes = np.zeros((len(source), 3), np.int32)
    shapes[kept.indices] = kept.shapes
    buffers: list[NDArray[np.uint8]] = []
    for part, decoded in _decoded(kept, threads=threads, verify=verify):
        files = [stored_png(pixels) for pixels in decoded.numpy()]
        sizes = np.array([len(file) for file in files], np.int64)
        places[kept.indices[part]] = np.stack(
            [np.full_like(sizes, len(buffers)), sizes.cumsum() - sizes, sizes], axis=1
        )
        buffers.append(np.frombuffer(b"".join(files), np.uint8))
    field = Field(kept.dataset.reader.field.name, IMAGE, "|u1", (None, None, None))
    return MemoryStore(source, field, buffers, places=places, shapes=shapes)


class ResidentProducer:
    """
    Batches chosen on the device from all samples, which lie there.

    The work is done by the stream that is current when a batch is asked for. MemoryError where they do not fit.
    """

    def __init__(self, kept: Kept, device: torch.device, *, threads: int, verify: bool, is_planar: bool) -> None:
        self._dataset = dataset = kept.dataset
        self._device = device
        self._is_channels_last = dataset.reader.is_picture and not is_planar
        shape = _one_shape(kept)
        kept.check_fits(_free_on(device), where=f"on {device}")
        dtype = torch.from_numpy(np.empty(0, dataset.reader.dtype)).dtype
        if dataset.reader.is_picture and is_planar:
            shape = (shape[2], *shape[:2])
        self._rows = torch.empty((len(kept.indices), *shape), dtype=dtype, device=device)
        for places, decoded in _decoded(kept, threads=threads, verify=verify):
            rows = decoded.permute(0, 3, 1, 2) if dataset.reader.is_picture and is_planar else decoded
            self._rows[torch.from_numpy(places).to(device)] = rows.to(device)
        self._row_of = np.full(len(dataset), -1, np.int64)
        self._row_of[kept.indices] = np.arange(len(kept.indices))
        has_tensor = dataset.labels is not None and dataset.target_transform is None
        self._labels = torch.from_numpy(np.array(dataset.labels)).to(device) if has_tensor else None
        if device.type == "cuda":  # batches are made on another stream than these copies
            torch.cuda.current_stream(device).synchronize()

    @property
    def threads(self) -> int:
        """Always 0: batches are assembled on the device."""
        return 0

    @property
    def buffer_bytes(self) -> int:
        """All samples."""
        return self._rows.nbytes

    def estimated_bytes(self, batch_bytes: int, *, depth: int) -> int:
        """All samples, and the loop's batch and the one after it."""
        return self._rows.nbytes + 2 * batch_bytes

    def close(self) -> None:
        """There are no threads; batches stay valid."""

    def submit(self, batches: Batches, *, epoch: int) -> Iterator[_Chosen]:
        """As Producer.submit; nothing is random here."""
        for part in batches.slices():
            yield _Chosen(self, batches.indices[part])

    def make(self, indices: NDArray[np.int64]) -> FinishedBatch:
        """The batch of these samples."""
        rows = self._picked(self._rows, self._row_of[indices])
        images = rows.permute(0, 3, 1, 2) if self._is_channels_last else rows
        if self._dataset.labels is None:
            return FinishedBatch(images, len(indices), rows.nbytes)
        transform = self._dataset.target_transform
        if transform is not None:
            own: Any = default_collate([transform(label) for label in one_by_one(self._dataset.labels[indices])])
            return FinishedBatch([images, own], len(indices), rows.nbytes)
        assert self._labels is not None
        return FinishedBatch([images, self._picked(self._labels, indices)], len(indices), rows.nbytes)

    def _picked(self, kept: torch.Tensor, places: NDArray[np.int64]) -> torch.Tensor:
        """Rows of what lies on the device, by the current stream."""
        chosen = torch.from_numpy(np.ascontiguousarray(places))
        if self._device.type == "cuda":
            chosen = chosen.pin_memory().to(self._device, non_blocking=True)
            kept.record_stream(torch.cuda.current_stream(self._device))  # it may still read when the loader is dropped
        return kept.index_select(0, chosen)


def _one_shape(kept: Kept) -> Shape:
    """The shape of all rows on a device; SchemaError, which says what to do, where they differ."""
    if not kept.is_uniform and kept.rest:
        first = "" if kept.first is None else f" behind {kept.first.transforms}"
        raise SchemaError(
            f"{kept.dataset.store.path}: pictures have different sizes{first}, and {kept.rest[0]!r} is random: "
            f"cache='device' keeps pictures of one size; begin with Resize((height, width)), or use cache='ram'"
        )
    return kept.one_shape()


class _Chosen:
    """One batch to be chosen."""

    __slots__ = ("_indices", "_producer")

    def __init__(self, producer: ResidentProducer, indices: NDArray[np.int64]) -> None:
        self._producer = producer
        self._indices = indices

    def result(self) -> FinishedBatch:
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


def _decoded(kept: Kept, *, threads: int, verify: bool) -> Iterator[tuple[NDArray[np.int64], torch.Tensor]]:
    """All that is kept, as rows of memory (n, H, W, C) of one shape, and their places among ``kept.indices``."""
    dataset = kept.dataset
    producer = NativeProducer(
        dataset,
        threads=threads,
        verify=verify,
        depth=_AHEAD,
        on_error="raise",
        pin_memory=False,
        fused=kept.first,
        is_planar=False,
    )
    places, cuts = _groups(kept)
    batches = Batches(kept.indices[places], cuts)
    try:
        submitted = producer.submit(batches, epoch=0)
        under_way = deque(islice(submitted, _AHEAD))
        for part in batches.slices():
            made = under_way.popleft().result()
            under_way.extend(islice(submitted, 1))
            images = made.batch if dataset.labels is None else made.batch[0]
            yield places[part], images.permute(0, 2, 3, 1) if dataset.reader.is_picture else images
    finally:
        producer.close()


def _groups(kept: Kept) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places of values of equal shape behind each other, and cuts where a batch of them begins."""
    count = len(kept.indices)
    if kept.is_uniform:
        cuts = np.minimum(np.arange(-(-count // _ROWS) + 1, dtype=np.int64) * _ROWS, count)
        return np.arange(count, dtype=np.int64), cuts
    places = np.lexsort(kept.shapes.T)
    is_new = (np.diff(kept.shapes[places], axis=0) != 0).any(axis=1)
    firsts = [0, *(np.flatnonzero(is_new) + 1).tolist(), count]
    parts = [np.arange(first, last, _ROWS) for first, last in pairwise(firsts)]
    return places.astype(np.int64), np.concatenate((*parts, [count])).astype(np.int64)
