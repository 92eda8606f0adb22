"""Shears, shifts and rotations: each picture is read through its own matrix, nearest pixel."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["matrices", "warp"]


def matrices(kind: str, amount: NDArray[np.float64], size: tuple[int, int]) -> NDArray[np.float64]:
    """
    Return matrices (n, 2, 3) that map (x, y, 1) of the result to where it is read.

    The centre of pixel (i, j) is (j + 0.5, i + 0.5). ``amount`` (n,) is the tangent for "shear_x" and "shear_y",
    pixels for "translate_x" and "translate_y", and degrees counter-clockwise about the centre for "rotate". Shears
    keep the top row or the left column in place.
    """
    height, width = size
    out = np.tile(np.array([[1.0, 0, 0], [0, 1, 0]]), (len(amount), 1, 1))
    if kind == "shear_x":
        out[:, 0, 1] = amount
    elif kind == "shear_y":
        out[:, 1, 0] = amount
    elif kind == "translate_x":
        out[:, 0, 2] = -np.trunc(amount)
    elif kind == "translate_y":
        out[:, 1, 2] = -np.trunc(amount)
    else:
        cosine, sine = np.cos(np.radians(amount)), np.sin(np.radians(amount))
        out[:, 0, 0], out[:, 0, 1], out[:, 1, 0], out[:, 1, 1] = cosine, -sine, sine, cosine
        out[:, 0, 2] = width / 2 * (1 - cosine) + height / 2 * sine
        out[:, 1, 2] = height / 2 * (1 - cosine) - width / 2 * sine
    return out


def warp(images: torch.Tensor, amount: torch.Tensor) -> torch.Tensor:
    """Read pictures (n, C, H, W) through matrices (n, 2, 3); 0 outside the picture."""
    count, _, height, width = images.shape
    y, x = (torch.arange(side, device=images.device, dtype=torch.float32) + 0.5 for side in (height, width))
    rows, columns = y[None, :, None], x[None, None, :]
    a, b, c, d, e, f = amount.reshape(count, 6, 1, 1).unbind(1)
    source_x = (a * columns + b * rows + c).floor().to(torch.int64)
    source_y = (d * columns + e * rows + f).floor().to(torch.int64)
    inside = (source_x >= 0) & (source_x < width) & (source_y >= 0) & (source_y < height)
    sample = torch.arange(count, device=images.device)[:, None, None]
    read = images.permute(0, 2, 3, 1)[sample, source_y.clamp(0, height - 1), source_x.clamp(0, width - 1)]
    return read.masked_fill_(~inside[..., None], 0).permute(0, 3, 1, 2)
