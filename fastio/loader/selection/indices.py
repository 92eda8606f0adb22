"""Parses indices as users write them: numbers, masks, ranges, tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["as_indices"]


def as_indices(indices: Any, count: int, *, name: str) -> NDArray[np.int64]:
    """
    Return positions below ``count``, int64, from a 1-D array, tensor or sequence of integers, or a mask of booleans.

    An index may repeat, and may be negative as in a list. Raises TypeError or ValueError for anything else,
    IndexError for a number outside.
    """
    if isinstance(indices, torch.Tensor):
        indices = indices.cpu().numpy()
    if not isinstance(indices, (np.ndarray, list, tuple, range)) and not hasattr(indices, "__array__"):
        raise TypeError(f"{name}: expected an array, list or range of integers, got {type(indices).__name__}")
    array = np.asarray(indices)
    if array.ndim != 1:
        raise ValueError(f"{name}: expected one dimension, got an array of shape {array.shape}")
    if array.dtype == np.bool_:
        if len(array) != count:
            raise ValueError(f"{name}: a mask of {len(array)} entries for {count} samples: give one per sample")
        return np.flatnonzero(array)
    if len(array) == 0:
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected integers or booleans, got {array.dtype}")
    outside = (array < -count) | (array >= count)
    if outside.any():
        place = int(outside.argmax())
        raise IndexError(f"{name}[{place}] is {array[place]}: expected indices of {count} samples")
    found = array.astype(np.int64)
    found[found < 0] += count
    return found
