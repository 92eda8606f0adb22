"""Tells repetitions of a sample within an epoch apart, so that each gets its own random numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["random_ids", "repetitions", "split_ids"]

_INDEX_BITS = 40  # a store holds fewer samples than this; the bits above count the repetitions


def repetitions(indices: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """
    Return how often each index has come before, ``(n,)``, or None if no index comes twice.

    >>> repetitions(np.array([7, 3, 7, 7])).tolist()
    [0, 0, 1, 2]
    """
    if len(indices) == 0 or int(np.bincount(indices).max()) < 2:
        return None
    by_index = np.argsort(indices, kind="stable")
    grouped = indices[by_index]
    firsts = np.flatnonzero(np.concatenate(([True], grouped[1:] != grouped[:-1])))
    lengths = np.diff(np.concatenate((firsts, [len(indices)])))
    counts = np.empty(len(indices), np.int64)
    counts[by_index] = np.arange(len(indices)) - np.repeat(firsts, lengths)
    return counts


def random_ids(indices: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return one number for an index and its repetition; the index itself if that is 0."""
    return indices | (counts << _INDEX_BITS)


def split_ids(ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices and repetitions that ``random_ids`` joined."""
    return ids & ((1 << _INDEX_BITS) - 1), ids >> _INDEX_BITS
