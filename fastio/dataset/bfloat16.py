"""Arrays and tensors of the same values, bfloat16 among them, of which NumPy has the bytes alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.lazy import is_tensor, torch, torch_if_there
from fastio.types.bfloat16 import BFLOAT16, is_bfloat16, widened

__all__ = ["array_of", "sample_value", "tensor_of"]


def tensor_of(array: NDArray[Any]) -> torch.Tensor:
    """Return a tensor over the memory of an array."""
    if is_bfloat16(array.dtype):
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def array_of(value: Any) -> NDArray[Any]:
    """Return an array over the memory of a tensor on the host, or of anything that NumPy makes an array of."""
    if is_tensor(value) and value.dtype == torch.bfloat16:
        return value.view(torch.int16).numpy().view(BFLOAT16)
    return np.asarray(value)


def sample_value(array: NDArray[Any]) -> Any:
    """
    Return an array as samples have it: itself; of bfloat16 a tensor, or float32 where torch cannot be imported.
    """
    if not is_bfloat16(array.dtype):
        return array
    return widened(array) if torch_if_there() is None else tensor_of(array)
