"""Runs plans for pictures of different sizes on one device: copies them onto canvases and executes batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from fastio.transforms.batch.geometry import RenderTarget, gather, resample
from fastio.transforms.plan import COLUMNS

__all__ = ["run_plans", "to_device"]

_MOST_PIXELS = 8 << 20  # pixels of one canvas: 100 MB in float32 with three channels, whatever the batch

_COLUMN = {name: place for place, name in enumerate(COLUMNS)}


def run_plans(pictures: Sequence[torch.Tensor], rows: NDArray[np.int32], target: RenderTarget) -> torch.Tensor:
    """
    Execute a plan for each picture (H, W, C) uint8: ``rows`` (n, 13), as in ``gather`` and ``resample``.

    Returns (n, C, height, width) in channels_last. The part of each picture that its plan reads is copied to the
    corner of a canvas; parts of similar size share a canvas.
    """
    left, top, width, height = _read(rows, is_resampled=target.kernel is not None)
    moved = rows.copy()
    names = ("box_x", "box_y") if target.kernel is not None else ("box_x", "box_y", "window_x", "window_y")
    moved[:, [_COLUMN[name] for name in names]] = 0
    device, channels = pictures[0].device, pictures[0].shape[2]
    order = np.lexsort((width, height))
    plans = to_device(moved[order], device)
    done = []
    for start, stop in _groups(height[order], width[order]):
        group = order[start:stop]
        sides = max(1, int(height[group].max())), max(1, int(width[group].max()))
        # Not zeroed: pixels that a plan does not read have weight 0.
        canvas = torch.empty((len(group), *sides, channels), dtype=torch.uint8, device=device)
        for place, sample in enumerate(group.tolist()):
            x, y, w, h = int(left[sample]), int(top[sample]), int(width[sample]), int(height[sample])
            canvas[place, :h, :w] = pictures[sample][y : y + h, x : x + w]
        execute = gather if target.kernel is None else resample
        done.append(execute(canvas.permute(0, 3, 1, 2), plans[start:stop], target))
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    together = torch.cat([part.permute(0, 2, 3, 1) for part in done])
    return together.index_select(0, to_device(back, device)).permute(0, 3, 1, 2)


def to_device(values: NDArray[np.generic], device: torch.device) -> torch.Tensor:
    """Copy a few numbers to the device without waiting."""
    host = torch.from_numpy(np.ascontiguousarray(values))
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host


def _read(rows: NDArray[np.int32], *, is_resampled: bool) -> tuple[NDArray[np.int64], ...]:
    """Return left, top, width and height of the part that each plan reads of its picture."""

    def of(name: str) -> NDArray[np.int64]:
        return rows[:, _COLUMN[name]].astype(np.int64)

    if is_resampled:
        return of("box_x"), of("box_y"), of("box_w"), of("box_h")
    return of("box_x") + of("window_x"), of("box_y") + of("window_y"), of("window_w"), of("window_h")


def _groups(height: NDArray[np.int64], width: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield neighbours that share a canvas: as many as its limit allows, at least one."""
    start, tall, wide = 0, 0, 0
    for stop in range(len(height)):
        tall, wide = max(tall, int(height[stop])), max(wide, int(width[stop]))
        if stop > start and (stop + 1 - start) * tall * wide > _MOST_PIXELS:
            yield start, stop
            start, tall, wide = stop, int(height[stop]), int(width[stop])
    yield start, len(height)
