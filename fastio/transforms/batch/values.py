"""What transforms of batches ask of values, tensors of torch or arrays of NumPy, so that each is written once."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastio.lazy import is_tensor, torch

__all__ = ["dtype_like", "floats", "is_floating", "like", "rows_of", "shown"]


def is_floating(values: Any) -> bool:
    """Whether values are floating numbers."""
    return bool(values.dtype.kind == "f") if isinstance(values, np.ndarray) else bool(values.is_floating_point())


def floats(values: Any) -> Any:
    """Return values as float32, in their memory format."""
    if isinstance(values, np.ndarray):
        return values.astype(np.float32, order="K", copy=False)
    return values.to(torch.float32)


def rows_of(values: Any, places: Any) -> Any:
    """Return the rows at these places, a copy; ``places`` are integers of the same kind of value."""
    return values[places] if isinstance(values, np.ndarray) else values.index_select(0, places)


def like(values: Any, other: Any) -> Any:
    """Return values that were drawn as NumPy's, as what ``other`` is, on its device."""
    if isinstance(other, np.ndarray) or is_tensor(values):
        return values
    return torch.as_tensor(values, device=other.device)


def dtype_like(name: str, other: Any) -> Any:
    """Return the dtype of this name, of the library that the dtype ``other`` is of."""
    return np.dtype(name) if isinstance(other, np.dtype) else getattr(torch, name)


def shown(values: Any) -> str:
    """Return dtype and shape, for messages."""
    return f"{values.dtype} {tuple(values.shape)}"
