"""How well the loader's block shuffle mixes the classes of a store, beside a full shuffle."""

from __future__ import annotations

from math import exp, lgamma

import numpy as np
from numpy.typing import NDArray

from fastio.sampler import epoch_order

__all__ = ["WELL_MIXED", "class_mixing"]

WELL_MIXED = 0.9  # below it, a store should be shuffled when it is packed


def class_mixing(labels: NDArray[np.generic], sizes: NDArray[np.int64], *, batch_size: int, seed: int = 0) -> float:
    """
    Distinct classes in a batch of the block shuffle, relative to what a full shuffle has on average.

    ``labels`` ``(n,)`` and ``sizes`` (bytes) are those of all samples in stored order. About 1 means that
    ``shuffle=True`` is as good as ``shuffle="full"``, whichever the classes' sizes; a class-sorted store of many
    classes is far below. Measured on the whole batches of epoch 0; chance may lead a little above 1.

    >>> sizes = np.full(4096, 1 << 16)
    >>> in_classes = np.arange(4096) // 64
    >>> round(class_mixing(in_classes, sizes, batch_size=256), 1), class_mixing(in_classes % 1, sizes, batch_size=256)
    (0.1, 1.0)
    """
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size}: expected 1 or more")
    if labels.shape != sizes.shape or labels.ndim != 1:
        raise ValueError(f"expected a label and a size a sample, got labels {labels.shape} and sizes {sizes.shape}")
    count = len(labels)
    size = min(batch_size, count)
    if size == 0:
        return 1.0
    _, classes, members = np.unique(labels, return_inverse=True, return_counts=True)
    order = epoch_order(sizes, shuffle=True, seed=seed, epoch=0)
    batches = np.sort(classes[order[: count // size * size]].reshape(-1, size), axis=1)
    found = 1 + (np.diff(batches, axis=1) != 0).sum(axis=1).mean()
    return float(found / _expected(members, count, size))


def _expected(members: NDArray[np.int64], count: int, size: int) -> float:
    """Distinct classes in ``size`` of ``count`` samples drawn without repeating; each class has so many ``members``."""
    values, times = np.unique(members, return_counts=True)
    present = np.array([1 - _absent(value, count, size) for value in values.tolist()])
    return float((times * present).sum())


def _absent(members: int, count: int, size: int) -> float:
    """The chance that none of ``members`` samples is drawn: of the hypergeometric distribution."""
    others = count - members
    if others < size:
        return 0.0
    return exp(lgamma(others + 1) - lgamma(others - size + 1) - lgamma(count + 1) + lgamma(count - size + 1))
