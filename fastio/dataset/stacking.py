"""What torch's ``default_collate`` makes of samples, with arrays of NumPy in the place of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastio.dataset.bfloat16 import array_of
from fastio.types.bfloat16 import widened

__all__ = ["stacked_arrays"]


def stacked_arrays(samples: Sequence[Any]) -> Any:
    """
    Return numbers and arrays stacked, text and bytes as a list, and lists, tuples and dicts of these by their parts.
    bfloat16 becomes float32, which holds the same values.

    Raises TypeError for anything else.
    """
    first = samples[0]
    if isinstance(first, (str, bytes)):
        return list(samples)
    if isinstance(first, Mapping):
        return {name: stacked_arrays([sample[name] for sample in samples]) for name in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*map(stacked_arrays, zip(*samples, strict=True)))
    if isinstance(first, (list, tuple)):
        return list(map(stacked_arrays, zip(*samples, strict=True)))
    values = np.ascontiguousarray(np.stack([widened(array_of(sample)) for sample in samples]))
    if values.dtype.kind not in "biufc":
        raise TypeError(f"expected arrays, numbers, text, lists or dicts of these in a batch, got {type(first)}")
    return values
