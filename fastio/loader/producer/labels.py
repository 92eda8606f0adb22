"""The labels of a batch, as torch's default collate makes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import default_collate

from fastio.dataset.fast_dataset import FastDataset
from fastio.dataset.row_reader import one_by_one

__all__ = ["collate_labels", "tensor_labels"]

_KINDS = "iuf"  # of numbers that are tensors


def tensor_labels(dataset: FastDataset, labels: NDArray[Any]) -> NDArray[Any] | None:
    """Return labels that a batch has as they are, in one tensor; None if ``collate_labels`` has to make them."""
    if dataset.target_transform is None and labels.dtype.kind in _KINDS and labels.dtype.isnative:
        return np.ascontiguousarray(labels)
    return None


def collate_labels(dataset: FastDataset, labels: NDArray[Any]) -> Any:
    """
    A tensor over ``labels``, without a copy; or what the dataset's ``target_transform`` makes of each, collated.

    Collated labels are whatever ``default_collate`` returns: a tensor, a list of strings, a dict of tensors.
    """
    if dataset.target_transform is None:
        return torch.from_numpy(labels)
    return default_collate([dataset.target_transform(label) for label in one_by_one(labels)])
