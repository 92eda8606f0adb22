"""What a transform of batches is: numbers drawn on the host, then steps on pixels wherever these are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["BatchTransform", "Parameters", "Pictures"]

# Tensors, which travel to the device with the batch, and plain numbers; nested in lists and dicts.
Parameters = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pictures:
    """``images`` (B, C, H, W), uint8 from 0 to 255 or floating from 0 to 1; ``labels`` where there are any."""

    images: torch.Tensor
    labels: torch.Tensor | None = None


@runtime_checkable
class BatchTransform(Protocol):
    """
    A step from batch to batch, as a value: equal arguments make equal transforms.

    It has two halves: ``parameters`` says on the host, by ``draws`` uniform numbers in [0, 1) for each sample, what is
    to be done; ``run`` does it on the pixels, and neither asks the device for anything nor waits for it.
    """

    @property
    def draws(self) -> int:
        """Random numbers that one sample takes."""
        ...

    def parameters(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Parameters:
        """What to do with samples whose numbers are ``(n, draws)``, of pictures of ``size`` (height, width)."""
        ...

    def run(self, pictures: Pictures, parameters: Parameters) -> Pictures:
        """Do it. What it was given stays as it was."""
        ...
