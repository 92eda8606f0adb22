"""ColorJitter: random brightness, contrast, saturation and hue, in random order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastio.transforms.batch.batch_transform import BatchTransform, Parameters, Pictures
from fastio.transforms.batch.colour import COLOURS, change_groups, check_colours
from fastio.types.option_names import explains_fields

__all__ = ["ColorJitter"]

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
