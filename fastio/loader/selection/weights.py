"""Parses weights as users write them, one per sample or one per class, into an array with one entry per sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastio.dataset.fast_dataset import FastDataset

__all__ = ["as_weights"]


def as_weights(weights: Any, dataset: FastDataset, labels: NDArray[Any] | None, count: int) -> NDArray[np.float64]:
    """
    Return the weight of each of ``count`` samples with these ``labels``; ``dataset`` names them and its classes.

    A mapping holds the weight of each sample of a class, by label or class name. Raises ValueError for a wrong count
    of weights, an unknown class, or a class without a weight.
    """
    if isinstance(weights, Mapping):
        return _by_class(weights, dataset, labels)
    if isinstance(weights, torch.Tensor):
        weights = weights.cpu().numpy()
    array = np.asarray(weights)
    if array.dtype.kind not in "biuf" or array.ndim != 1:
        raise TypeError(
            f"weights: expected one number per sample, or {{class: weight}}, got an array of {array.dtype} "
            f"{array.shape}"
        )
    if len(array) != count:
        hint = "; for one weight per class, pass {class: weight}" if len(array) == len(dataset.classes) else ""
        raise ValueError(f"{dataset.store.path}: {len(array)} weights for {count} samples{hint}")
    return np.ascontiguousarray(array, np.float64)


def _by_class(weights: Mapping[Any, Any], dataset: FastDataset, labels: NDArray[Any] | None) -> NDArray[np.float64]:
    path = dataset.store.path
    if labels is None or labels.ndim != 1 or labels.dtype != np.int64:
        kind = "none" if labels is None else f"{labels.dtype} {labels.shape}"
        raise ValueError(f"{path}: weights by class need a class for each sample, but labels are {kind}")
    table: dict[int, float] = {}
    for name, weight in weights.items():
        label = dataset.class_to_idx.get(name) if isinstance(name, str) else name
        if isinstance(label, bool) or not isinstance(label, (int, np.integer)):
            raise ValueError(f"{path}: weights: no class {name!r} among {_some(dataset.classes)}")
        if int(label) in table:
            raise ValueError(f"{path}: weights: class {label} comes twice, as {name!r} too")
        table[int(label)] = float(weight)
    present, places = np.unique(labels, return_inverse=True)
    missing = [label for label in present.tolist() if label not in table]
    if missing:
        names = {label: name for name, label in dataset.class_to_idx.items()}
        listed = _some([repr(names.get(label, label)) for label in missing])
        some = f"{len(missing)} of {len(present)} classes" if len(missing) > 1 else "one class"
        raise ValueError(f"{path}: no weight for {listed} ({some}): give each class one, or 0 to leave it out")
    return np.array([table[label] for label in present.tolist()], np.float64)[places]


def _some(names: list[str]) -> str:
    """Return the first names."""
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
