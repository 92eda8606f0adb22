"""What a cache keeps: which samples, in which shapes, after which transforms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.dataset.fast_dataset import FastDataset
from fastio.dataset.row_reader import Shape, is_uniform
from fastio.errors import SchemaError
from fastio.loader.options import Cache, OnError, Quality
from fastio.loader.producer.chunks import Proof
from fastio.loader.producer.field_options import fuse
from fastio.transforms.batch.recipe import is_geometry
from fastio.transforms.fused import PicturePass
from fastio.types.spans import distinct

__all__ = [
    "CacheContents",
    "cache_contents",
    "check_cache",
]


def check_cache(dataset: FastDataset, cache: Cache | None, *, on_error: OnError) -> None:
    """ValueError for a cache of samples that cannot be kept."""
    if cache is not None and (on_error != "raise" or not dataset.is_as_stored):
        raise ValueError(
            f"{dataset.store.path}: cache={cache!r} needs samples that native threads decode without errors: "
            "on_error='raise', no transform of the dataset, no methods of its own"
        )


@dataclass(frozen=True, slots=True)
class CacheContents:
    """
    What a cache holds: the samples of ``dataset`` at ``indices`` (ascending, each once), decoded.

    ``first`` are the transforms applied before they are kept, ``rest`` those left for each epoch. ``shapes``
    (len(indices), ...) are those of the kept values; zeros if a header is bad. ``compared`` has by field the CRC-32s
    ``(len(dataset),)``, uint32, that the bytes were compared with when the cache was filled; empty if they were not.
    """

    dataset: FastDataset
    indices: NDArray[np.int64]
    shapes: NDArray[np.int64]
    first: PicturePass | None
    rest: Sequence[Any]
    compared: dict[str, NDArray[np.uint32]] = field(default_factory=dict)

    def note(self, proof: Proof) -> None:
        """Add samples that have been read to ``compared``."""
        checked, cuts = proof
        part = slice(cuts[0], cuts[-1])
        for name, values in (checked.checksums or {}).items():
            sums = self.compared.setdefault(name, np.zeros(len(self.dataset.store), np.uint32))
            sums[checked.indices[part]] = values[part]

    @property
    def is_uniform(self) -> bool:
        """Whether all values have one shape."""
        return is_uniform(self._known)

    def one_shape(self) -> Shape:
        """Return the common shape of all values. Raises SchemaError that names two samples if shapes differ."""
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
        """Raise MemoryError, before anything is read, if the samples do not fit."""
        needed = int(self.shapes.prod(axis=1).sum()) * self.dataset.reader.dtype.itemsize
        if needed > free:
            what = "x".join(map(str, self.one_shape())) if self.is_uniform else "different sizes"
            raise MemoryError(
                f"{self.dataset.store.path}: {len(self.indices)} samples of {what} take {needed / 1e9:.2f} GB "
                f"decoded, but only {free / 1e9:.2f} GB are free {where}: drop cache="
            )


def cache_contents(
    dataset: FastDataset, indices: NDArray[np.int64] | None, transforms: Sequence[Any], *, quality: Quality, seed: int
) -> CacheContents:
    """
    Decide what to keep: samples as stored if all have one size, otherwise what the leading deterministic transforms
    return.

    Raises SchemaError if there is nothing to keep.
    """
    reader = dataset.reader
    every = np.arange(len(dataset), dtype=np.int64) if indices is None else distinct(indices)
    if len(every) == 0:
        raise SchemaError(f"{dataset.store.path}: no samples, so nothing to cache")
    if not reader.has_rows:
        raise SchemaError(f"{dataset.store.path}: cache= is for pictures and arrays of one size, not {reader.field}")
    shapes = reader.all_shapes(every)
    kept = CacheContents(dataset, every, shapes, None, transforms)
    count = next((place for place, each in enumerate(transforms) if _is_random(each)), len(transforms))
    if kept.is_uniform or count == 0:
        return kept
    first = fuse(dataset, transforms[:count], quality=quality, layout="channels_last", seed=seed)
    assert first is not None
    return CacheContents(dataset, every, first.plan(every, shapes, epoch=0).shapes, first, transforms[count:])


def _is_random(transform: Any) -> bool:
    return not is_geometry(transform) or transform.draws > 0
