"""Executes plans in torch: the crops, resamplings, edges and flips of a whole batch, of one size or of many."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastio.lazy import torch
from fastio.transforms.arguments import Fill
from fastio.transforms.canvas import AxisName
from fastio.transforms.plain import colour_of
from fastio.transforms.plan import COLUMNS, FLIPS

__all__ = [
    "RenderTarget",
    "gather",
    "grey",
    "resample",
    "run_plans",
    "to_device",
]


@dataclass(frozen=True, slots=True)
class RenderTarget:
    """Height and width of a plan's result, the colour of its edges, and its filter (None: nothing is resampled)."""

    height: int
    width: int
    fill: Fill = (0,)
    kernel: str | None = None


class _Axis(NamedTuple):
    """One axis of a plan, (B, 1) each, int64."""

    box: torch.Tensor
    box_size: torch.Tensor
    virtual: torch.Tensor
    window: torch.Tensor
    window_size: torch.Tensor
    place: torch.Tensor


def gather(images: torch.Tensor, rows: torch.Tensor, target: RenderTarget) -> torch.Tensor:
    """
    Execute plans that do not resample on pixels (B, C, H, W).

    ``rows`` is (B, 13) of integers. Returns (B, C, height, width), channels_last in memory.
    """
    x, inside_x = _positions(_axis(rows, "x"), target.width, _flips(rows, "x"))
    y, inside_y = _positions(_axis(rows, "y"), target.height, _flips(rows, "y"))
    box_x, box_y = (_axis(rows, axis).box for axis in "xy")
    sample = torch.arange(len(images), device=images.device)[:, None, None]
    x, y = (x + box_x).clamp(0, images.shape[3] - 1), (y + box_y).clamp(0, images.shape[2] - 1)
    pixels = images.permute(0, 2, 3, 1)[sample, y[:, :, None], x[:, None, :]].permute(0, 3, 1, 2)
    return _on_fill(pixels, inside_y[:, :, None] & inside_x[:, None, :], target)


def resample(images: torch.Tensor, rows: torch.Tensor, target: RenderTarget) -> torch.Tensor:
    """
    Like ``gather``, for plans that resample.

    Both passes are products with matrices of weights, (B, height, H) and (B, W, width), in float32; uint8 is rounded
    once, at the end. Pillow also rounds between the passes, which makes a difference of a level or two, and of more
    where bicubic and Lanczos overshoot. "nearest" takes the pixel at the exact position; Pillow adds up rounded
    steps.
    """
    assert target.kernel is not None
    axis_x, axis_y = _axis(rows, "x"), _axis(rows, "y")
    x, inside_x = _positions(axis_x, target.width, _flips(rows, "x"))
    y, inside_y = _positions(axis_y, target.height, _flips(rows, "y"))
    across = _weights(axis_x, x, images.shape[3], target.kernel)
    down = _weights(axis_y, y, images.shape[2], target.kernel)
    pixels = down[:, None] @ images.to(torch.float32) @ across[:, None].mT
    if not images.is_floating_point():
        pixels = pixels.round_().clamp_(0, 255)
    pixels = pixels.to(images.dtype, memory_format=torch.channels_last)
    return _on_fill(pixels, inside_y[:, :, None] & inside_x[:, None, :], target)


def grey(images: torch.Tensor, channels: int) -> torch.Tensor:
    """Return luma as in Pillow's "L", in 1 channel or in 3 equal ones."""
    if images.shape[1] == 1:
        luma = images
    elif images.is_floating_point():
        luma = (images[:, :3] * _luma_weights(images)).sum(1, keepdim=True)
    else:
        red, green, blue = (images[:, channel : channel + 1].to(torch.int32) for channel in range(3))
        luma = ((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16).to(torch.uint8)
    return luma.expand(-1, channels, -1, -1)


def _luma_weights(images: torch.Tensor) -> torch.Tensor:
    weights = torch.empty(3, dtype=images.dtype, device=images.device)
    for channel, weight in enumerate((19595, 38470, 7471)):
        weights[channel].fill_(weight / 65536)
    return weights.reshape(1, 3, 1, 1)


def _axis(rows: torch.Tensor, axis: str) -> _Axis:
    side = {"x": "w", "y": "h"}[axis]
    names = (f"box_{axis}", f"box_{side}", f"virtual_{side}", f"window_{axis}", f"window_{side}", f"place_{axis}")
    return _Axis(*(rows[:, COLUMNS.index(name), None].to(torch.int64) for name in names))


def _flips(rows: torch.Tensor, axis: AxisName) -> torch.Tensor:
    return rows[:, COLUMNS.index("flip"), None] & FLIPS[axis] != 0


def _positions(axis: _Axis, size: int, flip: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Return where each of ``size`` pixels of the result lies in the virtual picture, (B, size), and whether it is
    inside.
    """
    position = torch.arange(size, device=axis.place.device)
    position = torch.where(flip, size - 1 - position, position)
    in_window = position - axis.place
    return axis.window + in_window, (in_window >= 0) & (in_window < axis.window_size)


def _on_fill(pixels: torch.Tensor, inside: torch.Tensor, target: RenderTarget) -> torch.Tensor:
    """Return ``pixels`` where ``inside`` (B, height, width) is set, and the colour of edges elsewhere."""
    for channel, value in enumerate(colour_of(target.fill, pixels.shape[1])):
        pixels[:, channel].masked_fill_(~inside, value)
    return pixels


def _weights(axis: _Axis, positions: torch.Tensor, size: int, kernel: str) -> torch.Tensor:
    """
    Return the weight of each of ``size`` pixels for each position, (B, positions, size) float32: Pillow's antialiased
    filters.

    A filter is as wide as one pixel of the result is in the picture, is cut at the box, and its weights add up to 1.
    """
    scale = axis.box_size.to(torch.float64) / axis.virtual.clamp(min=1)
    shape, support = _FILTERS[kernel]
    stretch = scale.clamp(min=1.0)
    centre = (positions + 0.5) * scale
    if kernel == "nearest":
        first = centre.floor()
        last = first + 1
    else:
        first = (centre - support * stretch + 0.5).floor().clamp(min=0)
        last = torch.minimum((centre + support * stretch + 0.5).floor(), axis.box_size)
    pixel = (torch.arange(size, device=positions.device) - axis.box)[:, None, :]  # relative to the box
    whole = centre.floor()
    # Arrays as large as the matrix are float32: so whole numbers and fractions are kept apart.
    offset = (0.5 - (centre - whole)).to(torch.float32)[:, :, None]
    distance = ((pixel - whole.to(torch.int64)[:, :, None]).to(torch.float32) + offset) / stretch[:, :, None].float()
    inside = (pixel >= first.to(torch.int64)[:, :, None]) & (pixel < last.to(torch.int64)[:, :, None])
    weights = torch.where(inside, shape(distance), 0.0)
    total = weights.sum(2, keepdim=True)
    return weights / torch.where(total == 0, 1.0, total)


def _bilinear(x: torch.Tensor) -> torch.Tensor:
    return (1 - x.abs()).clamp(min=0)


def _bicubic(x: torch.Tensor) -> torch.Tensor:
    x = x.abs()
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, 0.0))


def _box(x: torch.Tensor) -> torch.Tensor:
    return ((x > -0.5) & (x <= 0.5)).to(x.dtype)


def _hamming(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x.abs() < 1, torch.sinc(x) * (0.54 + 0.46 * torch.cos(math.pi * x)), 0.0)


def _lanczos(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x.abs() < 3, torch.sinc(x) * torch.sinc(x / 3), 0.0)


def _nearest(x: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(x)


# Each filter's kernel and half its width, in pixels of the result when it shrinks.
_FILTERS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float]] = {
    "bilinear": (_bilinear, 1.0),
    "bicubic": (_bicubic, 2.0),
    "box": (_box, 0.5),
    "hamming": (_hamming, 1.0),
    "lanczos": (_lanczos, 3.0),
    "nearest": (_nearest, 0.5),
}


# Runs plans for pictures of different sizes on one device: copies them onto canvases and executes batch by batch.

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
