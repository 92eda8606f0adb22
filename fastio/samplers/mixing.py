"""Measures how well an order mixes a store's classes, compared with a full shuffle: in batches and over the epoch."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, lgamma, sqrt
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["WELL_MIXED", "Classes", "batch_mixing", "judged_steps"]

WELL_MIXED = 0.9  # fraction of the distinct classes in a batch of a full shuffle
_MOST_DRIFT = 0.02  # of a class's share, in addition to what chance alone causes
_CHANCE = 4  # standard deviations
_STRETCHES = 16  # of an epoch
_STEPS_JUDGED = 64
_QUANTILES = 64  # classes that continuous numbers are cut into


@dataclass(frozen=True, slots=True)
class Classes:
    """The class of each sample as a number ``(n,)`` int64, and how many samples each class has."""

    numbers: NDArray[np.int64]
    members: NDArray[np.int64]

    @classmethod
    def of(cls, labels: NDArray[Any]) -> Self:
        """
        Make classes from labels of any kind, ``(n,)`` or ``(n, ...)``.

        Equal labels, or equal rows, form one class. Floating numbers are cut into 64 classes of equal size, so that
        neighbours in a sorted store belong together.
        """
        if labels.size == 0:
            return cls(np.zeros(len(labels), np.int64), np.array([len(labels)]))
        if labels.ndim > 1:
            rows = np.ascontiguousarray(labels).reshape(len(labels), -1)
            labels = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))[:, 0]
        elif labels.dtype.kind == "f":
            labels = np.nan_to_num(labels)
            bounds = np.quantile(labels, np.arange(1, _QUANTILES) / _QUANTILES)
            labels = np.searchsorted(np.unique(bounds), labels, side="right")
        return cls(*_classes(labels))

    def mixing(self, batches: NDArray[np.int64]) -> float:
        """Return ``batch_mixing`` of batches of these samples."""
        chosen = np.sort(self.numbers[batches], axis=1)
        distinct = 1 + (np.diff(chosen, axis=1) != 0).sum(axis=1).mean()
        return float(distinct / _expected(self.members, len(self.numbers), batches.shape[1]))

    def worst_mixing(self, steps: NDArray[np.int64]) -> float:
        """Return the worse mixing of whole steps and of single ranks' batches, ``(steps, ranks, batch)``."""
        return min(self.mixing(steps.reshape(len(steps), -1)), self.mixing(steps.reshape(-1, steps.shape[2])))

    def drift(self, order: NDArray[np.int64]) -> float:
        """
        Return how far a class's share deviates from its overall share, at most, in 16 stretches of an epoch: 0 to 1.

        ``order`` ``(n,)`` contains every sample once.
        """
        whole = self.members / max(1, len(order))
        cuts = np.arange(1, _STRETCHES) * len(order) // _STRETCHES
        shares = [
            np.bincount(self.numbers[stretch], minlength=len(whole)) / len(stretch)
            for stretch in np.split(order, cuts)
            if len(stretch)
        ]
        return float(max((np.abs(share - whole).max() for share in shares), default=0.0))

    @property
    def allowed_drift(self) -> float:
        """The drift that chance causes in a full shuffle, and a little more."""
        count = max(1, len(self.numbers))
        share = min(0.5, float(self.members.max(initial=0)) / count)
        return _MOST_DRIFT + _CHANCE * sqrt(share * (1 - share) * _STRETCHES / count)


def judged_steps(steps: int) -> NDArray[np.int64]:
    """Return the steps, spread over an epoch of so many, whose mixing stands for all."""
    count = min(steps, _STEPS_JUDGED)
    return np.arange(count) * steps // max(1, count)


def batch_mixing(labels: NDArray[Any], batches: NDArray[np.int64]) -> float:
    """
    Return the distinct classes in these batches, relative to the average of a full shuffle.

    ``labels`` ``(n,)`` are those of all samples, ``batches`` ``(k, size)`` the indices in each batch. About 1 means
    that classes are mixed as in a full shuffle; a sorted store read in order is far below.

    >>> round(batch_mixing(np.array([7, 7, 8, 8]), np.array([[0, 1], [2, 3]])), 3)
    0.6
    """
    return Classes.of(labels).mixing(batches)


def _classes(labels: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the class of each sample as a number, and the size of each class; some may be empty."""
    if labels.dtype.kind in "iu":
        low, high = int(labels.min()), int(labels.max())
        if high - low <= len(labels):
            wide = np.uint64 if labels.dtype.kind == "u" else np.int64  # a difference in int8 would overflow
            numbers = np.subtract(labels, labels.min(), dtype=wide).astype(np.int64)
            return numbers, np.bincount(numbers)
    _, classes, members = np.unique(labels, return_inverse=True, return_counts=True)
    return classes, members


def _expected(members: NDArray[np.int64], count: int, size: int) -> float:
    """
    Return the expected distinct classes among ``size`` of ``count`` samples drawn without replacement.

    ``members`` holds the size of each class.
    """
    values, times = np.unique(members, return_counts=True)
    present = np.array([1 - _absent(value, count, size) for value in values.tolist()])
    return float((times * present).sum())


def _absent(members: int, count: int, size: int) -> float:
    """Return the probability that none of ``members`` samples is drawn (hypergeometric distribution)."""
    others = count - members
    if others < size:
        return 0.0
    return exp(lgamma(others + 1) - lgamma(others - size + 1) - lgamma(count + 1) + lgamma(count - size + 1))
