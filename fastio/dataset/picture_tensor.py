"""The pixels of a PIL image as a tensor, in the axes and dtypes that batches have."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image

__all__ = ["picture_tensor"]


def picture_tensor(image: Image.Image, *, is_mask: bool = False) -> torch.Tensor:
    """
    Return a copy of the pixels of a PIL image as a batch has them.

    A picture is uint8 ``(C, H, W)``. A mask is ``(H, W)``, uint8, or int32 if it has 16 bits or more; one in colours
    is ``(C, H, W)``.
    """
    array = np.array(image)
    if is_mask and array.dtype != np.uint8:
        array = array.astype(np.uint8 if array.dtype == np.bool_ else np.int32)
    pixels = torch.from_numpy(array)
    if pixels.ndim == 3:
        return pixels.permute(2, 0, 1)
    return pixels if is_mask else pixels.unsqueeze(0)
