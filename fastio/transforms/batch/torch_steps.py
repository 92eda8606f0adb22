"""The steps of colour programs in torch, for pictures on a device and for floating ones.

``images`` are (n, C, H, W) with one channel or three, ``amounts`` (n, 13) float32. Each step gives what torchvision's
gives: uint8 stays uint8, and every step truncates, as there. Native threads run the same steps
(``native/src/transform/colours.h``); the two may differ by a level.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fastio import _native
from fastio.lazy import torch
from fastio.transforms.batch.geometry import to_device

__all__ = ["CHANGES", "MIXES", "Mix"]

Change = Callable[..., "torch.Tensor"]  # of images and amounts; of the reach of kernels, too, for a blur

_LUMA = (0.2989, 0.587, 0.114)


def _brightness(images: torch.Tensor, amounts: torch.Tensor) -> torch.Tensor:
    return _as(images.to(torch.float32) * _each(amounts), images)


def _contrast(images: torch.Tensor, amounts: torch.Tensor) -> torch.Tensor:
    return _blend(images, _luma(images).mean((1, 2, 3), keepdim=True), amounts)


def _saturation(images: torch.Tensor, amounts: torch.Tensor) -> torch.Tensor:
    return images if images.shape[1] == 1 else _blend(images, _luma(images), amounts)


def _hue(images: torch.Tensor, amounts: torch.Tensor) -> torch.Tensor:
    """Turn the colour circle by the amount, in turns."""
    if images.shape[1] == 1:
        return images
    red, green, blue = _unit(images).unbind(1)
    value = torch.maximum(torch.maximum(red, green), blue)
    chroma = value - torch.minimum(torch.minimum(red, green), blue)
    divisor = torch.where(chroma == 0, 1.0, chroma)
    turn = torch.where(
        value == red,
        (green - blue) / divisor,
        torch.where(value == green, 2 + (blue - red) / divisor, 4 + (red - green) / divisor),
    )
    turn = (turn / 6 + amounts[:, 0].reshape(-1, 1, 1)).remainder(1.0) * 6
    # A channel stays at its maximum for a third of the circle, falls, stays at its minimum for a third, and rises.
    channels = []
    for start in (5.0, 3.0, 1.0):
        phase = (turn + start).remainder(6.0)
        channels.append(value - chroma * torch.minimum(phase, 4 - phase).clamp(0, 1))
    return _from_unit(torch.stack(channels, 1), images)


def _sharpness(images: torch.Tensor, amounts: torch.Tensor) -> torch.Tensor:
    """Move each pixel towards or away from the mean of nine pixels, the middle one counted five times; edges stay."""
    height, width = images.shape[2:]
    if height <= 2 or width <= 2:
        return images
    values = images.to(torch.float32)
    inner = values[:, :, 1:-1, 1:-1]
    blurred = inner * 4
    for y in range(3):
        for x in range(3):
            blurred = blurred + values[:, :, y : height - 2 + y, x : width - 2 + x]
    blurred = blurred / 13
    if not images.is_floating_point():
        blurred = blurred.round()
    sharp = values.clone()
    sharp[:, :, 1:-1, 1:-1] = inner + (blurred - inner) * (1 - _each(amounts))
    return _as(sharp, images)


def _posterize(images: torch.Tensor, amounts: torch.Tensor) -> torch.Tensor:
    """Keep only so many of the highest bits."""
    if images.is_floating_point():
        levels = torch.exp2(_each(amounts.to(images.dtype)))
        kept = torch.minimum((images * levels).floor(), levels - 1) / levels
        return torch.where(_each(amounts) < 8, kept, images)
    step = torch.exp2(8 - _each(amounts)).to(torch.int32)
    return (images.to(torch.int32) // step * step).to(torch.uint8)


def _solarize(images: torch.Tensor, amounts: torch.Tensor) -> torch.Tensor:
    """Invert values of at least the amount, on a scale to 255."""
    values, white = images.to(torch.float32), _white(images)
    return torch.where(values >= _each(amounts) / 255 * white, white - values, values).to(images.dtype)


def _autocontrast(images: torch.Tensor, amounts: torch.Tensor) -> torch.Tensor:
    """Stretch each channel from black to white; a channel of a single value stays."""
    values, white = images.to(torch.float32), _white(images)
    low, high = values.amin((2, 3), keepdim=True), values.amax((2, 3), keepdim=True)
    scale = torch.where(high == low, 1.0, (high - low) * (1 / white))
    return _as((values - torch.where(high == low, 0.0, low)) / scale, images)


def _equalize(images: torch.Tensor, amounts: torch.Tensor) -> torch.Tensor:
    """Flatten each channel's histogram, with Pillow's integer arithmetic."""
    levels = _from_unit(_unit(images), torch.empty(0, dtype=torch.uint8)).flatten(2).flatten(0, 1).to(torch.int64)
    count = torch.zeros((len(levels), 256), dtype=torch.int64, device=images.device)
    count.scatter_add_(1, levels, torch.ones_like(levels))
    brightest = count.gather(1, levels.amax(1, keepdim=True))
    step = (levels.shape[1] - brightest) // 255
    below = count.cumsum(1) - count
    table = ((below + step // 2) // step.clamp(min=1)).clamp(max=255)
    flat = torch.where(step == 0, levels, table.gather(1, levels)).to(torch.uint8).reshape(images.shape)
    return flat.to(images.dtype) / 255 if images.is_floating_point() else flat


def _grey(images: torch.Tensor, amounts: torch.Tensor) -> torch.Tensor:
    return images if images.shape[1] == 1 else _luma(images).to(images.dtype).expand_as(images)


def _invert(images: torch.Tensor, amounts: torch.Tensor) -> torch.Tensor:
    return 1 - images if images.is_floating_point() else 255 - images


def _permute(images: torch.Tensor, amounts: torch.Tensor) -> torch.Tensor:
    """Exchange the channels of pictures with three."""
    if images.shape[1] != 3:
        return images
    return images.gather(1, amounts[:, :3].to(torch.int64)[:, :, None, None].expand_as(images))


def _noise(images: torch.Tensor, amounts: torch.Tensor) -> torch.Tensor:
    """Add normal noise: of bytes, that of native threads, value by value."""
    _, channels, height, width = images.shape
    value = torch.arange(height * width * channels, device=images.device)
    value = value.reshape(1, height, width, channels).permute(0, 3, 1, 2)
    parts = amounts[:, 2:6].to(torch.int64)[:, :, None, None, None]
    first, second = parts[:, 0] << 16 | parts[:, 1], parts[:, 2] << 16 | parts[:, 3]
    bits = ((value >> 1) * 0x9E3779B9 + first) & _LOW  # of two neighbours
    bits = ((bits ^ bits >> 16) * 0x21F0AAAD) & _LOW
    bits = ((bits ^ bits >> 15 ^ second) * 0x735A2D97) & _LOW
    bits = ((bits ^ bits >> 15) * 0x21F0AAAD) & _LOW
    bits ^= bits >> 16
    bits = torch.where(value % 2 == 0, bits & 0xFFFF, bits >> 16)
    table = _quantiles(images.device)
    size = table[bits % len(table)]
    mean, deviation = (amounts[:, place].reshape(-1, 1, 1, 1) for place in range(2))
    noise = (mean + torch.where(bits < len(table), size, -size) * deviation).clamp(-255, 255)
    if images.is_floating_point():
        return _as(images.to(torch.float32) + noise / 255, images)
    return _as(images.to(torch.float32) + noise.trunc(), images)


_LOW = 0xFFFFFFFF


@lru_cache(maxsize=8)
def _quantiles(device: torch.device) -> torch.Tensor:
    """Return the magnitudes of noise there."""
    quantiles = np.empty(1 << 15, np.float32)
    _native.normal_quantiles(quantiles)
    return to_device(quantiles, device)


def _blur(images: torch.Tensor, amounts: torch.Tensor, *reaches: int) -> torch.Tensor:
    """
    Blur by Gaussians whose kernels reach at most so far across and down; beyond edges, pictures go on mirrored.
    """
    count, channels, height, width = images.shape
    values = images.to(torch.float32).reshape(1, count * channels, height, width)
    for along, reach in enumerate(reaches):
        weights = _gaussian(amounts[:, along], amounts[:, 2 + along], reach).repeat_interleave(channels, 0)
        edges = (reach, reach, 0, 0) if along == 0 else (0, 0, reach, reach)
        shape = (-1, 1, 1, 2 * reach + 1) if along == 0 else (-1, 1, 2 * reach + 1, 1)
        padded = torch.nn.functional.pad(values, edges, mode="reflect")
        values = torch.nn.functional.conv2d(padded, weights.reshape(shape), groups=count * channels)
    values = values.reshape(images.shape)
    return values.to(images.dtype) if images.is_floating_point() else _as(values.round(), images)


def _gaussian(size: torch.Tensor, sigma: torch.Tensor, reach: int) -> torch.Tensor:
    """Return the weights (n, 2 * reach + 1) of Gaussians of these sizes, 0 beyond their own."""
    distance = torch.arange(-reach, reach + 1, device=size.device, dtype=torch.float32)
    weights = torch.exp(-0.5 * (distance / sigma[:, None]) ** 2)
    weights = torch.where(distance.abs() * 2 < size[:, None], weights, 0.0)
    return weights / weights.sum(1, keepdim=True)


def _erase(images: torch.Tensor, amounts: torch.Tensor) -> torch.Tensor:
    top, left, bottom, right = (amounts[:, place : place + 1] for place in range(4))
    y, x = (torch.arange(side, device=images.device) for side in images.shape[2:])
    inside = ((y >= top) & (y < bottom))[:, None, :, None] & ((x >= left) & (x < right))[:, None, None, :]
    values = amounts[:, 4 : 4 + images.shape[1]].to(images.dtype)
    return torch.where(inside, values[:, :, None, None], images)


def _flip_x(images: torch.Tensor, amounts: torch.Tensor) -> torch.Tensor:
    return images.flip(-1)


def _flip_y(images: torch.Tensor, amounts: torch.Tensor) -> torch.Tensor:
    return images.flip(-2)


def _affine(images: torch.Tensor, amounts: torch.Tensor) -> torch.Tensor:
    return _warped(images, amounts, is_affine=True)


def _perspective(images: torch.Tensor, amounts: torch.Tensor) -> torch.Tensor:
    return _warped(images, amounts, is_affine=False)


def _warped(images: torch.Tensor, amounts: torch.Tensor, *, is_affine: bool) -> torch.Tensor:
    """Read each picture through its own matrix: the nearest pixel, or four with their shares."""
    height, width = images.shape[2:]
    y, x = (torch.arange(side, device=images.device, dtype=torch.float32) + 0.5 for side in (height, width))
    if is_affine:
        y, x = y - height / 2, x - width / 2
    rows, columns = y[None, :, None], x[None, None, :]
    a, b, c, d, e, f, g, h = amounts[:, :8].reshape(-1, 8, 1, 1).unbind(1)
    source_x, source_y = a * columns + b * rows + c, d * columns + e * rows + f
    if is_affine:
        source_x, source_y = source_x + width / 2, source_y + height / 2
    else:
        divisor = g * columns + h * rows + 1
        source_x, source_y = source_x / divisor, source_y / divisor
    source_x, source_y = source_x - 0.5, source_y - 0.5
    is_bilinear, is_filled = amounts[:, 8].reshape(-1, 1, 1, 1), amounts[:, 9].reshape(-1, 1, 1, 1) > 0
    fill = amounts[:, 10 : 10 + images.shape[1]][:, :, None, None] / 255 * _white(images)
    nearest, mask = _read(images, source_x.round(), source_y.round())
    nearest = torch.where((mask < 0.5) & is_filled, fill, nearest)
    left, top = source_x.floor(), source_y.floor()
    right, down = source_x - left, source_y - top
    total, faded = torch.zeros_like(nearest), torch.zeros_like(mask)
    for corner in range(4):
        across, along = corner % 2, corner // 2
        share = ((down if along else 1 - down) * (right if across else 1 - right))[:, None]
        values, mask = _read(images, left + across, top + along)
        total, faded = total + values * share, faded + mask * share
    total = torch.where(is_filled, (total - fill) * faded + fill, total)  # edges fade twice, as in torchvision
    done = torch.where(is_bilinear > 0, total, nearest)
    return done.to(images.dtype) if images.is_floating_point() else _as(done.round(), images)


def _read(images: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return pixels at whole positions (n, H, W), 0 outside, in float32, and 1 where they are inside."""
    height, width = images.shape[2:]
    inside = ((x >= 0) & (x < width) & (y >= 0) & (y < height))[:, None]
    sample = torch.arange(len(images), device=images.device)[:, None, None]
    column, row = x.clamp(0, width - 1).to(torch.int64), y.clamp(0, height - 1).to(torch.int64)
    values = images.permute(0, 2, 3, 1)[sample, row, column].permute(0, 3, 1, 2).to(torch.float32)
    return values * inside, inside.to(torch.float32)


CHANGES: dict[str, Change] = {
    "brightness": _brightness,
    "contrast": _contrast,
    "saturation": _saturation,
    "hue": _hue,
    "grey": _grey,
    "invert": _invert,
    "solarize": _solarize,
    "posterize": _posterize,
    "autocontrast": _autocontrast,
    "equalize": _equalize,
    "sharpness": _sharpness,
    "blur": _blur,
    "erase": _erase,
    "flip_x": _flip_x,
    "flip_y": _flip_y,
    "affine": _affine,
    "perspective": _perspective,
    "permute": _permute,
    "noise": _noise,
}


# A mix of several versions of a picture: the one kept, and the weighted sum so far.


@dataclass
class Mix:
    """What mixes of a batch keep: the pictures as they were, and sums in float32, (B, C, H, W) each."""

    kept: torch.Tensor
    sums: torch.Tensor


def _begin_mix(images: torch.Tensor, mix: Mix, which: torch.Tensor, amounts: torch.Tensor) -> torch.Tensor:
    mix.kept = mix.kept.index_copy(0, which, images)
    mix.sums = mix.sums.index_copy(0, which, images.to(torch.float32) * _each(amounts))
    return images


def _begin_chain(images: torch.Tensor, mix: Mix, which: torch.Tensor, amounts: torch.Tensor) -> torch.Tensor:
    return mix.kept.index_select(0, which)


def _add_to_mix(images: torch.Tensor, mix: Mix, which: torch.Tensor, amounts: torch.Tensor) -> torch.Tensor:
    mix.sums = mix.sums.index_add(0, which, images.to(torch.float32) * _each(amounts))
    return images


def _end_mix(images: torch.Tensor, mix: Mix, which: torch.Tensor, amounts: torch.Tensor) -> torch.Tensor:
    return _as(mix.sums.index_select(0, which), images)


MIXES: dict[str, Callable[[torch.Tensor, Mix, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "begin_mix": _begin_mix,
    "begin_chain": _begin_chain,
    "add_to_mix": _add_to_mix,
    "end_mix": _end_mix,
}


def _each(amounts: torch.Tensor) -> torch.Tensor:
    """Return the first amount of each picture."""
    return amounts[:, 0].reshape(-1, 1, 1, 1)


def _white(images: torch.Tensor) -> float:
    return 1.0 if images.is_floating_point() else 255.0


def _as(values: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    """Return the values in the dtype of ``images``, clamped between black and white."""
    return values.clamp(0, _white(images)).to(images.dtype)


def _unit(images: torch.Tensor) -> torch.Tensor:
    """Scale to the range 0 to 1."""
    values = images.to(torch.float32)
    return values if images.is_floating_point() else values / 255


def _from_unit(values: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    """Scale back from 0 to 1; for uint8, each level gets an equal share."""
    return values.to(images.dtype) if images.is_floating_point() else (values * (256 - 1e-3)).to(images.dtype)


def _luma(images: torch.Tensor) -> torch.Tensor:
    """Return luma in one float32 channel; whole numbers for uint8."""
    values = images.to(torch.float32)
    if images.shape[1] == 3:
        red, green, blue = (values[:, channel : channel + 1] * weight for channel, weight in enumerate(_LUMA))
        values = red + green + blue
    return values if images.is_floating_point() else values.floor()


def _blend(images: torch.Tensor, other: torch.Tensor, amounts: torch.Tensor) -> torch.Tensor:
    """Blend: the amount of the pictures, the rest of ``other``."""
    return _as(images.to(torch.float32) * _each(amounts) + other * (1 - _each(amounts)), images)
