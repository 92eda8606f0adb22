"""ColorJitter, RandAugment and TrivialAugmentWide, and the changes of colour and shape they are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fastio.errors import SchemaError
from fastio.transforms.batch.batch_transform import BatchTransform, Parameters, Pictures
from fastio.types.options import explains_fields

__all__ = [
    "COLOURS",
    "ColorJitter",
    "RandAugment",
    "TrivialAugmentWide",
    "matrices",
    "warp",
]


_NAMES = ("brightness", "contrast", "saturation", "hue")


@explains_fields
@dataclass(frozen=True)
class ColorJitter(BatchTransform):
    """
    Change brightness, contrast, saturation and hue of each picture by random amounts, in random order.

    A number v means a factor from ``max(0, 1 - v)`` to ``1 + v``; for hue it means a turn from ``-v`` to ``v`` (at
    most 0.5). A pair is the range itself; 0 leaves that change out. Each sample draws its own numbers (torchvision
    draws once per batch): the order of the four changes, then their amounts.
    """

    brightness: float | Sequence[float] = 0
    contrast: float | Sequence[float] = 0
    saturation: float | Sequence[float] = 0
    hue: float | Sequence[float] = 0

    def __post_init__(self) -> None:
        for name in _NAMES:
            least, most = (-0.5, 0.5) if name == "hue" else (0.0, float("inf"))
            value = getattr(self, name)
            middle = 0.0 if name == "hue" else 1.0
            limits = (max(middle - value, least), middle + value) if isinstance(value, (int, float)) else tuple(value)
            is_negative = isinstance(value, (int, float)) and value < 0
            if is_negative or len(limits) != 2 or not least <= limits[0] <= limits[1] <= most:
                raise ValueError(
                    f"{name}={value!r}: expected a number of at least 0, or two between {least} and {most}"
                )
            object.__setattr__(self, name, (float(limits[0]), float(limits[1])))

    @property
    def draws(self) -> int:
        """One for the order, one for each amount."""
        return 2 * len(_NAMES)

    def parameters(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Parameters:
        """Return for each step in turn which samples to change, how, and by how much."""
        order = np.argsort(numbers[:, : len(_NAMES)], axis=1, kind="stable")
        steps: list[dict[str, Any]] = []
        for step in range(len(_NAMES)):
            groups = {}
            for place, name in enumerate(_NAMES):
                low, high = getattr(self, name)
                which = np.flatnonzero(order[:, step] == place)
                if len(which) and (low, high) != ((0.0, 0.0) if name == "hue" else (1.0, 1.0)):
                    amount = low + (high - low) * numbers[which, len(_NAMES) + place]
                    groups[name] = {"which": torch.from_numpy(which), "amount": torch.from_numpy(amount).float()}
            steps.append(groups)
        return {"steps": steps}

    def run(self, pictures: Pictures, parameters: Parameters) -> Pictures:
        images = pictures.images
        check_colours(images, self)
        for groups in parameters["steps"]:
            images = change_groups(images, groups, COLOURS)
        return Pictures(images, pictures.labels)


# Changes of colour with one amount per picture, by torchvision's rules, in float32.
#
# ``images`` are (n, C, H, W) with one channel or three, ``amount`` is (n,). uint8 stays uint8: every step truncates,
# as torchvision's steps do.

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


# Shears, shifts and rotations: each picture is read through its own matrix, nearest pixel.


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


# RandAugment and TrivialAugmentWide: random changes of shape and colour, by the tables of their papers.
#
# RandAugment: Cubuk et al. 2019, arXiv:1909.13719; TrivialAugment: Müller and Hutter 2021, arXiv:2103.10158. Ranges,
# steps and names are those that torchvision documents. Each sample draws its own changes.

_CHANGES: Mapping[str, Change] = {**COLOURS, "warp": warp}


class _Operation(NamedTuple):
    """An operation: what it does, its greatest strength, and whether its sign is random."""

    kind: str
    most: float
    is_signed: bool = True


def _space(*, shear: float, shift_x: float, shift_y: float, angle: float, colour: float) -> tuple[_Operation, ...]:
    """Return the fourteen operations that both papers use."""
    return (
        _Operation("identity", 0, False),
        _Operation("shear_x", shear),
        _Operation("shear_y", shear),
        _Operation("translate_x", shift_x),
        _Operation("translate_y", shift_y),
        _Operation("rotate", angle),
        _Operation("brightness", colour),
        _Operation("saturation", colour),
        _Operation("contrast", colour),
        _Operation("sharpness", colour),
        _Operation("posterize", 0, False),
        _Operation("solarize", 0, False),
        _Operation("autocontrast", 0, False),
        _Operation("equalize", 0, False),
    )


@explains_fields
@dataclass(frozen=True)
class RandAugment(BatchTransform):
    """
    Apply ``num_ops`` of fourteen operations in turn, each with strength ``magnitude`` of ``num_magnitude_bins``.

    Shears, shifts and rotations fill with black what lies outside the picture. Draws two numbers per operation: which
    one, and its sign.
    """

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31

    def __post_init__(self) -> None:
        _check_bins(self.num_magnitude_bins)
        if self.num_ops < 1 or not 0 <= self.magnitude < self.num_magnitude_bins:
            raise ValueError(
                f"{self}: expected num_ops of at least 1 and a magnitude from 0 to {self.num_magnitude_bins - 1}"
            )

    @property
    def draws(self) -> int:
        """Two numbers per operation: which one, and its sign."""
        return 2 * self.num_ops

    def parameters(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Parameters:
        height, width = size
        space = _space(shear=0.3, shift_x=150 / 331 * width, shift_y=150 / 331 * height, angle=30.0, colour=0.9)
        strength = np.full(len(numbers), self.magnitude / (self.num_magnitude_bins - 1))
        pairs = (numbers[:, 2 * change : 2 * change + 2] for change in range(self.num_ops))
        return {"steps": [_groups(space, pair, strength, fewest_bits=4, size=size) for pair in pairs]}

    def run(self, pictures: Pictures, parameters: Parameters) -> Pictures:
        return _changed(self, pictures, parameters)


@explains_fields
@dataclass(frozen=True)
class TrivialAugmentWide(BatchTransform):
    """
    Apply one of fourteen operations, with a strength drawn from ``num_magnitude_bins`` levels.

    Edges as in RandAugment. Draws three numbers: which operation, its sign, its strength.
    """

    num_magnitude_bins: int = 31

    def __post_init__(self) -> None:
        _check_bins(self.num_magnitude_bins)

    @property
    def draws(self) -> int:
        """Three numbers: which operation, its sign, its strength."""
        return 3

    def parameters(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Parameters:
        space = _space(shear=0.99, shift_x=32.0, shift_y=32.0, angle=135.0, colour=0.99)
        strength = np.floor(numbers[:, 2] * self.num_magnitude_bins) / (self.num_magnitude_bins - 1)
        return {"steps": [_groups(space, numbers[:, :2], strength, fewest_bits=2, size=size)]}

    def run(self, pictures: Pictures, parameters: Parameters) -> Pictures:
        return _changed(self, pictures, parameters)


def _groups(
    space: tuple[_Operation, ...],
    numbers: NDArray[np.float64],
    strength: NDArray[np.float64],
    *,
    fewest_bits: int,
    size: tuple[int, int],
) -> dict[str, Any]:
    """
    Group samples by operation: ``numbers`` (n, 2) choose operation and sign, ``strength`` (n,) is from 0 to 1.

    Operations that only move pixels share one group, with a matrix per sample.
    """
    chosen = np.floor(numbers[:, 0] * len(space)).astype(np.int64)
    sign = np.where(numbers[:, 1] < 0.5, 1.0, -1.0)
    groups: dict[str, Any] = {}
    moved, moves = [], []
    for place, (kind, most, is_signed) in enumerate(space):
        which = np.flatnonzero(chosen == place)
        if len(which) == 0 or kind == "identity":
            continue
        amount = most * strength[which] * (sign[which] if is_signed else 1.0)
        if kind in ("shear_x", "shear_y", "translate_x", "translate_y", "rotate"):
            moved.append(which)
            moves.append(matrices(kind, amount, size))
            continue
        if kind == "posterize":
            amount = 8 - np.rint(strength[which] * (8 - fewest_bits))
        elif kind == "solarize":
            amount = 1 - strength[which]
        elif is_signed:
            amount = 1 + amount
        groups[kind] = {"which": torch.from_numpy(which), "amount": torch.from_numpy(amount).float()}
    if moved:
        every = torch.from_numpy(np.concatenate(moved))
        groups["warp"] = {"which": every, "amount": torch.from_numpy(np.concatenate(moves)).float()}
    return groups


def _changed(transform: object, pictures: Pictures, parameters: Parameters) -> Pictures:
    images = pictures.images
    check_colours(images, transform)
    for groups in parameters["steps"]:
        images = change_groups(images, groups, _CHANGES)
    return Pictures(images, pictures.labels)


def _check_bins(bins: int) -> None:
    if bins < 2:
        raise ValueError(f"num_magnitude_bins={bins!r}: expected a number of at least 2")
