"""ToTensor and Normalize with ImageNet's means: the arithmetic that scripts share, and its numbers."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.peers.work import MEAN, STD

__all__ = ["to_floats"]

_MEAN = torch.tensor(MEAN).reshape(3, 1, 1)
_STD = torch.tensor(STD).reshape(3, 1, 1)


def to_floats(picture: NDArray[np.uint8]) -> torch.Tensor:
    """Turn a picture of (H, W, 3) into float32 of (3, H, W), step by step as torchvision's two transforms do."""
    tensor = torch.from_numpy(picture).permute(2, 0, 1).contiguous()
    return tensor.to(torch.float32).div(255).sub_(_MEAN).div_(_STD)
