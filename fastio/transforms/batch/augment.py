"""RandAugment and TrivialAugmentWide: random changes of shape and colour, by the tables of their papers.

RandAugment: Cubuk et al. 2019, arXiv:1909.13719; TrivialAugment: Müller and Hutter 2021, arXiv:2103.10158. Ranges,
steps and names are those that torchvision documents. Each sample draws its own changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fastio.transforms.batch.batch_transform import BatchTransform, Parameters, Pictures
from fastio.transforms.batch.colour import COLOURS, Change, change_groups, check_colours
from fastio.transforms.batch.warp import matrices, warp
from fastio.types.option_names import explains_fields

__all__ = ["RandAugment", "TrivialAugmentWide"]

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
