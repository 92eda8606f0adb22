"""BatchTransform, the protocol: numbers are drawn on the host, then steps work on pixels wherever these are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fastio.lazy import torch
from fastio.transforms.transform import BaseTransform

__all__ = ["BatchTransform", "Parameters", "Pictures"]

# Tensors, which travel to the device with the batch, and plain numbers; lists and dicts may nest them.
Parameters = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pictures:
    """``images`` (B, C, H, W), uint8 from 0 to 255 or floating from 0 to 1; ``labels`` if there are any."""

    images: torch.Tensor
    labels: torch.Tensor | None = None


@runtime_checkable
class BatchTransform(BaseTransform, Protocol):
    """
    A step from batch to batch, as a value: equal arguments make equal transforms.

    It has two halves. ``parameters`` runs on the host and decides what to do, from ``draws`` uniform numbers in [0,
    1) per sample; ``run`` does it to the pixels. Neither waits for the device or reads from it.

    Arguments that mean nothing raise ValueError when a transform is built; pictures or labels that it cannot take raise
    SchemaError at the first batch.
    """

    def parameters(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Parameters:
        """
        Decide what to do with n samples.

        ``numbers`` is ``(n, draws)``, ``size`` the (height, width) of their pictures.
        """
        ...

    def run(self, pictures: Pictures, parameters: Parameters) -> Pictures:
        """Apply the parameters to the pictures; returns new Pictures and leaves the old ones unchanged."""
        ...
