"""Clips in batches: frames of one video as an axis of their own, and what a bad frame does to the others."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.dataset.fast_dataset import FastDataset
from fastio.dataset.field_values import column_values
from fastio.errors import SchemaError
from fastio.loader.options import LoaderOptions
from fastio.samplers.clips import ClipSampler
from fastio.transforms.batch.choice import mixes_of
from fastio.transforms.batch.mosaic import Mosaic
from fastio.types.spans import distinct

__all__ = ["Clips", "clips_of"]


@dataclass(frozen=True, slots=True)
class Clips:
    """Each ``frames`` samples in a row are a clip. Columns named ``once`` have one value in each video."""

    frames: int
    once: frozenset[str] = frozenset()

    def with_all_frames(self, positions: Collection[int]) -> NDArray[np.int64]:
        """Return the positions of all frames of the clips that these frames belong to, ascending."""
        clips = distinct(np.fromiter(positions, np.int64, len(positions)) // self.frames)
        return (clips[:, None] * self.frames + np.arange(self.frames)).reshape(-1)

    def joined(self, value: Any, bad: NDArray[np.int64] | None = None, *, is_list_of_views: bool = False) -> Any:
        """
        Return the values of a field with clips as their first axis: tensors ``(B, T, ...)``, lists of lists.

        Values of the frames at the positions ``bad`` become zero if they are tensors.
        """
        if isinstance(value, tuple) or is_list_of_views:
            return type(value)(self.joined(part, bad) for part in value)
        if isinstance(value, list):
            return [value[first : first + self.frames] for first in range(0, len(value), self.frames)]
        if bad is not None:
            value[bad] = 0
        return value.reshape(-1, self.frames, *value.shape[1:])


def clips_of(dataset: FastDataset, indices: NDArray[np.int64] | None, options: LoaderOptions) -> Clips | None:
    """
    Return how batches of a ClipSampler are put together; None for other samplers. ``indices`` are the samples that it
    plans (None: all).

    Raises ValueError or SchemaError for options and samples that clips do not go with.
    """
    sampler, pixels = options.samples.batch_sampler, options.pixels
    if not isinstance(sampler, ClipSampler):
        return None
    path = dataset.store.path
    if dataset.makes_samples or dataset.transform is not None:
        raise ValueError(
            f"{path}: the frames of a clip share their random numbers in native threads, but this dataset has a "
            "transform or methods of its own: pass FastLoader(..., transforms=[...])"
        )
    others = {"cache='device'": pixels.cache == "device", "decode='device'": pixels.decode == "device"}
    others |= {"repeats=": pixels.repeats > 1, "collate='nested'": pixels.collate == "nested"}
    wrong = [name for name, is_asked in others.items() if is_asked]
    if wrong:
        raise ValueError(f"{path}: {wrong[0]} with a ClipSampler: its clips are made by the CPU's decoders: drop it")
    mixes = [step for step in pixels.every_transform if mixes_of(step) or isinstance(step, Mosaic)]
    if mixes:
        raise ValueError(
            f"{path}: {mixes[0]!r} with a ClipSampler: it would mix frames, not clips: mix them in your loop"
        )
    tokens = [name for name, reader in dataset.readers.items() if reader.field.traits.is_tokens]
    if tokens or not dataset.readers:
        raise SchemaError(
            f"{path}: a ClipSampler is for pictures and what lies beside them, but the samples have "
            f"{', '.join(tokens) or 'columns alone'}: leave it out by the dataset's fields="
        )
    lists = next((name for name, reader in dataset.readers.items() if name in dataset.lists and reader.has_rows), None)
    if lists is not None:
        raise SchemaError(
            f"{path}: a ClipSampler is for one picture a sample, a frame, but the samples have "
            f"{dataset.store.schema[lists]}: leave them out by the dataset's fields="
        )
    columns = {name: column_values(dataset.store, name) for name in dataset.form.names if name not in dataset.readers}
    once = {
        name
        for name, values in columns.items()
        if _is_constant(values if indices is None else values[indices], sampler)
    }
    return Clips(sampler.frames, frozenset(once))


def _is_constant(values: NDArray[Any], sampler: ClipSampler) -> bool:
    """Whether a column has one value in each video."""
    by_video = np.argsort(sampler.videos, kind="stable")
    videos, values = sampler.videos[by_video], values[by_video]
    differs = values[1:] != values[:-1]
    if differs.ndim > 1:
        differs = differs.reshape(len(differs), -1).any(axis=1)
    return not (differs & (videos[1:] == videos[:-1])).any()
