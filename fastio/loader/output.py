"""What holds the values of a batch: arrays of NumPy, or tensors of torch, pinned or not; and what joins samples so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.dataset.bfloat16 import tensor_of
from fastio.dataset.stacking import stacked_arrays
from fastio.lazy import is_tensor, torch
from fastio.types.bfloat16 import widened

__all__ = ["Output", "OutputName", "nbytes_of"]

OutputName = Literal["torch", "numpy"]

_PLAIN = frozenset({str, bytes, int, float, bool, type(None)})


class Output(Enum):
    """
    What holds the values of a batch.

    With ``ARRAYS``, nothing here imports torch.
    """

    ARRAYS = "arrays"
    TENSORS = "tensors"
    PINNED = "pinned tensors"

    @property
    def is_pinned(self) -> bool:
        """Whether values lie in memory of torch's pinned allocator, and in no ring of ours."""
        return self is Output.PINNED

    @property
    def from_dlpack(self) -> Callable[[Any], Any]:
        """What native code makes its batches with: torch's function, or ours for arrays."""
        if self is Output.ARRAYS:
            return _native.array_from_dlpack
        return torch._C._from_dlpack  # torch.utils.dlpack's takes twice the time

    def of(self, values: NDArray[Any]) -> Any:
        """
        Return values for a batch: over the same memory, or a copy in pinned memory. Arrays of bfloat16 become float32.
        """
        if self is Output.ARRAYS:
            return widened(values)
        tensor = tensor_of(values)  # not by torch: see PlainProducer on forked children
        return tensor.pin_memory() if self is Output.PINNED else tensor

    def over(self, rows: NDArray[Any]) -> Any:
        """Return what ``of`` takes when these rows are filled, over their memory."""
        return rows if self is Output.ARRAYS else tensor_of(rows)

    def channels_first(self, rows: Any) -> Any:
        """Return (B, H, W, C) in memory as (B, C, H, W), a view."""
        return rows.transpose(0, 3, 1, 2) if self is Output.ARRAYS else rows.permute(0, 3, 1, 2)

    def joined(self, samples: Sequence[Any]) -> Any:
        """Return what torch's ``default_collate`` makes of samples; with arrays where it has tensors."""
        if self is Output.ARRAYS:
            return stacked_arrays(samples)
        return torch.utils.data.default_collate(list(samples))

    def pinned(self, batch: Any) -> Any:
        """Return a collated batch with its tensors in pinned memory, if that is what this is."""
        if not self.is_pinned:
            return batch
        if is_tensor(batch):
            return batch.pin_memory()
        if isinstance(batch, dict):
            return {name: self.pinned(part) for name, part in batch.items()}
        return type(batch)(map(self.pinned, batch)) if type(batch) in (list, tuple) else batch


def nbytes_of(batch: Any) -> int:
    """Return the bytes of a batch's tensors and arrays, in nested lists, tuples and dicts."""
    if type(batch) in _PLAIN:
        return 0
    if is_tensor(batch) or isinstance(batch, np.ndarray):
        return batch.nbytes
    if isinstance(batch, Mapping):
        return sum(map(nbytes_of, batch.values()))
    return sum(map(nbytes_of, batch)) if isinstance(batch, (list, tuple)) else 0
