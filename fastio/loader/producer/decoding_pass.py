"""The pass of native threads over pictures: decoding, and the transforms that are done with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastio.dataset.fast_dataset import FastDataset
from fastio.errors import SchemaError
from fastio.loader.options import Layout, Quality
from fastio.transforms.fused import Fused

__all__ = ["decodes_pictures", "fuse", "no_place_for_geometry"]


def decodes_pictures(dataset: FastDataset) -> bool:
    """Whether native threads decode the dataset's samples, and these are pictures."""
    return dataset.is_as_stored and dataset.reader.is_picture


def fuse(
    dataset: FastDataset, transforms: Sequence[Any], *, quality: Quality, layout: Layout, seed: int
) -> Fused | None:
    """
    The transforms of the pass that decodes; None if there is nothing to do beyond decoding.

    ``layout="contiguous"`` counts as a transform of pictures, whose planes the pass takes apart. Raises ValueError or
    SchemaError if there is something to do, but samples are not pictures that native threads decode.
    """
    decoded_layout = "channels_last" if decodes_pictures(dataset) else "contiguous"
    if not transforms and quality == "exact" and layout == decoded_layout:
        return None
    what = "transforms=" if transforms else f"quality={quality!r}" if quality != "exact" else f"layout={layout!r}"
    reader = dataset.reader
    if not dataset.is_as_stored:
        raise ValueError(
            f"{what} is for pictures that native threads decode, but this dataset has a transform or methods of "
            "its own: drop it here and use fastio.transforms there; each of them can be called on a picture"
        )
    if not reader.is_picture:
        raise SchemaError(f"{dataset.store.path}: {what} is for pictures, but the samples are {reader.field}")
    is_raw = reader.row_shape is not None
    mode = {1: "L", 3: "RGB", 4: "RGBA"}[reader.row_shape[2]] if reader.row_shape is not None else reader.mode
    fused = Fused(transforms, seed=seed, mode=mode, is_raw=is_raw, is_fast=quality == "fast")
    if fused.keeps_geometry:
        raise no_place_for_geometry(dataset)
    return fused


def no_place_for_geometry(dataset: FastDataset) -> SchemaError:
    """Return the error of KeepGeometry for samples that are no dict and no tuple."""
    names = dataset.form.names[::-1]
    turned = "in this order they are" if dataset.form.kind == "pair" else "which is"
    return SchemaError(
        f"{dataset.store.path}: KeepGeometry adds a value, but samples are a {dataset.form.kind} of "
        f"{', '.join(dataset.form.names)}, which has no place for it: pass FastDataset(path, fields={names}): {turned} "
        "a tuple, whose last value it becomes"
    )
