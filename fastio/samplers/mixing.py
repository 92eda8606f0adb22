"""How well the loader's block shuffle mixes the classes of a store, beside a full shuffle."""

from __future__ import annotations

import logging
from math import exp, lgamma

import numpy as np
from numpy.typing import NDArray

from fastio.samplers.batches import Batches
from fastio.samplers.order import epoch_order

__all__ = ["WELL_MIXED", "batch_mixing", "class_mixing", "warn_if_sorted"]

log = logging.getLogger(__name__)

WELL_MIXED = 0.9  # below it, a store should be shuffled when it is packed
_BATCHES_LOOKED_AT = 64  # a few milliseconds for a million samples


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
    order = epoch_order(sizes, shuffle=True, seed=seed, epoch=0)
    return batch_mixing(labels, order[: count // size * size].reshape(-1, size))


def batch_mixing(labels: NDArray[np.generic], batches: NDArray[np.int64]) -> float:
    """
    Distinct classes in these batches, relative to what batches of a full shuffle have on average.

    ``labels`` ``(n,)`` are those of all samples, ``batches`` ``(k, size)`` the indices in each batch. Passes over the
    labels once, without sorting them where they are small whole numbers: 64 batches stand for an epoch in no time.

    >>> round(batch_mixing(np.array([7, 7, 8, 8]), np.array([[0, 1], [2, 3]])), 3)
    0.6
    """
    classes, members = _classes(labels)
    found = 1 + (np.diff(np.sort(classes[batches], axis=1), axis=1) != 0).sum(axis=1).mean()
    return float(found / _expected(members, len(labels), batches.shape[1]))


def warn_if_sorted(path: str, labels: NDArray[np.generic], batches: Batches, *, batch_size: int) -> None:
    """Log that a store mixes its classes badly where up to 64 whole batches of a block shuffle show that."""
    whole = batches.cuts[:-1][np.diff(batches.cuts) == batch_size]
    if labels.ndim != 1 or len(whole) == 0:
        return
    chosen = whole[:: -(-len(whole) // _BATCHES_LOOKED_AT)]
    score = batch_mixing(labels, batches.indices[chosen[:, None] + np.arange(batch_size)])
    if score < WELL_MIXED:
        log.warning(
            "%s: with shuffle=True a batch of %d has %.2f of the distinct classes that a full shuffle gives (%.1f or "
            "more is well mixed), for the store is sorted by class: pack it anew with `fastio pack --shuffle SEED`, or "
            "use shuffle='full', whose reads are random",
            path,
            batch_size,
            score,
            WELL_MIXED,
        )


def _classes(labels: NDArray[np.generic]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The class of each sample as a number, and how many samples each class has; some may have none."""
    if labels.dtype.kind in "iu":
        low, high = int(labels.min()), int(labels.max())
        if high - low <= len(labels):
            wide = np.uint64 if labels.dtype.kind == "u" else np.int64  # int8's own difference would overflow
            numbers = np.subtract(labels, labels.min(), dtype=wide).astype(np.int64)
            return numbers, np.bincount(numbers)
    _, classes, members = np.unique(labels, return_inverse=True, return_counts=True)
    return classes, members


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
