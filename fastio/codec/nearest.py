"""The plain path of masks: a plan applied with torch's rule of the nearest pixel, in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["nearest_positions", "nearest_row"]


def nearest_positions(size: int, virtual_size: int) -> NDArray[np.int64]:
    """
    Return which of ``size`` pixels becomes each of ``virtual_size``: ``torch.nn.functional.interpolate``'s "nearest".

    That is ``floor(i * (size / virtual_size))`` in float32. Pillow's NEAREST takes the pixel in the middle instead.

    >>> nearest_positions(5, 3).tolist(), nearest_positions(2, 4).tolist()
    ([0, 1, 3], [0, 0, 1, 1])
    """
    scale = np.float32(size) / np.float32(virtual_size)
    positions: NDArray[np.int64] = np.floor(np.arange(virtual_size, dtype=np.float32) * scale).astype(np.int64)
    np.minimum(positions, size - 1, out=positions)
    return positions


def nearest_row(
    numbers: NDArray[Any], plan: Sequence[int], size: tuple[int, int], *, fill: int = 0
) -> NDArray[Any] | None:
    """
    Apply one row of a plan (see ``fastio.transforms.plan``) to a mask ``(H, W)`` or ``(H, W, C)``.

    Returns ``size`` (height, width) pixels of the same dtype, with ``fill`` where the plan leaves edges; None if the
    plan's box leaves the mask.
    """
    x, y, w, h, virtual_w, virtual_h, window_x, window_y, window_w, window_h, place_x, place_y, flip = plan
    row = np.full((*size, *numbers.shape[2:]), fill, numbers.dtype)
    if window_w == 0 or window_h == 0:
        return row
    if x + w > numbers.shape[1] or y + h > numbers.shape[0]:
        return None
    columns = x + nearest_positions(w, virtual_w)[window_x : window_x + window_w]
    lines = y + nearest_positions(h, virtual_h)[window_y : window_y + window_h]
    row[place_y : place_y + window_h, place_x : place_x + window_w] = numbers[lines[:, None], columns]
    return row[:, ::-1] if flip else row
