"""What transforms of batches may do to samples of many fields: change pictures, but not where their pixels are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastio.dataset.fast_dataset import FastDataset
from fastio.dataset.field_transform import FieldTransform
from fastio.dataset.form import LABEL
from fastio.errors import SchemaError
from fastio.loader.device.roles import BatchRoles
from fastio.transforms.batch.augment import RandAugment, TrivialAugmentWide
from fastio.transforms.batch.batch_transform import BatchTransform
from fastio.transforms.batch.mix import CutMix, MixUp
from fastio.transforms.transform import Transform

__all__ = ["batch_roles", "check_later"]

# Besides crops and flips, those that move pixels, or mix those of two pictures.
_MOVING = (RandAugment, TrivialAugmentWide, MixUp, CutMix)


def batch_roles(dataset: FastDataset) -> BatchRoles | None:
    """Return where batches of dicts or tuples have pictures and label; None for other batches."""
    form = dataset.form
    if not (form.is_joint and _keeps_fields(dataset)):
        return None
    keys = {name: name if form.kind == "dict" else position for position, name in enumerate(form.names)}
    pictures = tuple(keys[name] for name, reader in dataset.readers.items() if reader.is_picture)
    is_column = LABEL in keys and LABEL not in dataset.readers
    return BatchRoles(pictures, keys[LABEL] if is_column else None)


def check_later(dataset: FastDataset, later: Sequence[Any]) -> None:
    """Raise SchemaError for transforms behind the decoders that have no picture, or that other fields do not follow."""
    ours = [transform for transform in later if isinstance(transform, (Transform, BatchTransform))]
    if not (ours and _keeps_fields(dataset)):
        return
    path, names = dataset.store.path, dataset.form.names
    if not any(reader.is_picture for reader in dataset.readers.values()):
        raise SchemaError(f"{path}: {ours[0]} is for pictures, but the samples have only {', '.join(names)}: drop it")
    targets = [n for n, reader in dataset.readers.items() if reader.is_mask or reader.field.role]
    moving = next((transform for transform in ours if isinstance(transform, (Transform, *_MOVING))), None)
    if moving is None or not targets:
        return
    if isinstance(moving, Transform):
        first = next(transform for transform in later if isinstance(transform, BatchTransform))
        remedy = f"put it before {type(first).__name__}, where they move together"
    else:
        remedy = f"drop it, or leave {' and '.join(targets)} out by fields="
    raise SchemaError(f"{path}: {moving} would change pictures on the device without {', '.join(targets)}: {remedy}")


def _keeps_fields(dataset: FastDataset) -> bool:
    """Whether samples have the fields of the dataset, and no function of the user made something else of them."""
    transform = dataset.transform
    return not dataset.makes_samples and (transform is None or isinstance(transform, FieldTransform))
