"""Changes of colour with one amount per picture, by torchvision's rules, in float32.

``images`` are (n, C, H, W) with one channel or three, ``amount`` is (n,). uint8 stays uint8: every step truncates, as
torchvision's steps do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from fastio.errors import SchemaError

__all__ = ["COLOURS", "Change", "change_groups", "check_colours"]

Change = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

_LUMA = (0.2989, 0.587, 0.114)


def check_colours(images: torch.Tensor, what: object) -> None:
    """Raise SchemaError for pictures without one or three channels."""
    if images.shape[1] not in (1, 3):
        raise SchemaError(f"{what}: expected pictures of 1 or 3 channels, got {images.shape[1]}")


def change_groups(images: torch.Tensor, groups: Mapping[str, Any], changes: Mapping[str, Change]) -> torch.Tensor:
    """Apply each change to its own samples: ``groups`` holds ``which`` (n,) int64 and the ``amount`` (n, ...)."""
    if not groups:
        return images
    changed = images.clone()
    for name, group in groups.items():
        which = group["which"]
        changed.index_copy_(0, which, changes[name](images.index_select(0, which), group["amount"]))
    return changed


def _brightness(images: torch.Tensor, amount: torch.Tensor) -> torch.Tensor:
    return _as(images.to(torch.float32) * _each(amount), images)


def _contrast(images: torch.Tensor, amount: torch.Tensor) -> torch.Tensor:
    return _blend(images, _luma(images).mean((1, 2, 3), keepdim=True), amount)


def _saturation(images: torch.Tensor, amount: torch.Tensor) -> torch.Tensor:
    return images if images.shape[1] == 1 else _blend(images, _luma(images), amount)


def _hue(images: torch.Tensor, amount: torch.Tensor) -> torch.Tensor:
    """Turn the colour circle by ``amount``, in turns."""
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
    turn = (turn / 6 + amount.reshape(-1, 1, 1)).remainder(1.0) * 6
    # A channel stays at its maximum for a third of the circle, falls, stays at its minimum for a third, and rises.
    channels = []
    for start in (5.0, 3.0, 1.0):
        phase = (turn + start).remainder(6.0)
        channels.append(value - chroma * torch.minimum(phase, 4 - phase).clamp(0, 1))
    return _from_unit(torch.stack(channels, 1), images)


def _sharpness(images: torch.Tensor, amount: torch.Tensor) -> torch.Tensor:
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
    sharp[:, :, 1:-1, 1:-1] = inner + (blurred - inner) * (1 - _each(amount))
    return _as(sharp, images)


def _posterize(images: torch.Tensor, amount: torch.Tensor) -> torch.Tensor:
    """Keep only the highest ``amount`` bits."""
    if images.is_floating_point():
        levels = torch.exp2(_each(amount.to(images.dtype)))
        kept = torch.minimum((images * levels).floor(), levels - 1) / levels
        return torch.where(_each(amount) < 8, kept, images)
    step = torch.exp2(8 - _each(amount.to(torch.float32))).to(torch.int32)
    return (images.to(torch.int32) // step * step).to(torch.uint8)


def _solarize(images: torch.Tensor, amount: torch.Tensor) -> torch.Tensor:
    """Invert values of at least ``amount``, a fraction of white."""
    white = _white(images)
    return torch.where(images.to(torch.float32) >= _each(amount) * white, white - images.to(torch.float32), images).to(
        images.dtype
    )


def _autocontrast(images: torch.Tensor, amount: torch.Tensor) -> torch.Tensor:
    """Stretch each channel from black to white; a channel of a single value stays."""
    values, white = images.to(torch.float32), _white(images)
    low, high = values.amin((2, 3), keepdim=True), values.amax((2, 3), keepdim=True)
    span = torch.where(high == low, white, high - low)
    return _as((values - torch.where(high == low, 0.0, low)) * white / span, images)


def _equalize(images: torch.Tensor, amount: torch.Tensor) -> torch.Tensor:
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


COLOURS: dict[str, Change] = {
    "brightness": _brightness,
    "contrast": _contrast,
    "saturation": _saturation,
    "hue": _hue,
    "sharpness": _sharpness,
    "posterize": _posterize,
    "solarize": _solarize,
    "autocontrast": _autocontrast,
    "equalize": _equalize,
}


def _each(amount: torch.Tensor) -> torch.Tensor:
    return amount.reshape(-1, 1, 1, 1)


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


def _blend(images: torch.Tensor, other: torch.Tensor, amount: torch.Tensor) -> torch.Tensor:
    """Blend: ``amount`` of the pictures, the rest of ``other``."""
    return _as(images.to(torch.float32) * _each(amount) + other * (1 - _each(amount)), images)
