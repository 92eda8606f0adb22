"""RandomErasing: paints over a rectangle of each picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fastio.errors import SchemaError
from fastio.transforms.batch.batch_transform import BatchTransform, Parameters, Pictures
from fastio.types.option_names import explains_fields

__all__ = ["RandomErasing"]

_TRIES = 10


@explains_fields
@dataclass(frozen=True)
class RandomErasing(BatchTransform):
    """
    Paint a rectangle of random area, proportions and position with ``value``, with probability ``p``.

    ``scale`` is the range of the area as a fraction of the picture's, ``ratio`` the range of height by width, drawn
    uniformly in its logarithm. A rectangle that does not fit is drawn again, ten times in all; then nothing is
    erased. ``value`` is one number or one per channel, on the scale that pixels have at this step of the recipe.
    Draws: whether to erase, top, left, then area and proportions of each try.
    """

    p: float = 0.5
    scale: Sequence[float] = (0.02, 0.33)
    ratio: Sequence[float] = (0.3, 3.3)
    value: float | Sequence[float] = 0

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise ValueError(f"p={self.p!r}: expected a probability from 0 to 1")
        for name, limits, most in (("scale", self.scale, 1.0), ("ratio", self.ratio, math.inf)):
            least = 0.0 if name == "scale" else 1e-6
            if len(limits) != 2 or not least <= limits[0] <= limits[1] <= most:
                raise ValueError(
                    f"{name}={limits!r}: expected two numbers between {least} and {most}, the smaller one first"
                )
            object.__setattr__(self, name, (float(limits[0]), float(limits[1])))
        if isinstance(self.value, str):
            raise ValueError(f"value={self.value!r}: expected a number, or one per channel; noise is not supported")
        values = (self.value,) if isinstance(self.value, (int, float)) else tuple(self.value)
        object.__setattr__(self, "value", values)

    @property
    def draws(self) -> int:
        """Whether to erase, two for the position, and two for each try."""
        return 3 + 2 * _TRIES

    def parameters(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Parameters:
        """Return top, left, bottom and right, (4, n); all 0 if nothing is erased."""
        tall, wide = size
        height, width = np.zeros(len(numbers), np.int64), np.zeros(len(numbers), np.int64)
        still = np.flatnonzero(numbers[:, 0] < self.p)
        low, high = self.scale
        log_low, log_high = math.log(self.ratio[0]), math.log(self.ratio[1])
        for attempt in range(_TRIES):
            area = tall * wide * (low + (high - low) * numbers[still, 3 + 2 * attempt])
            ratio = np.exp(log_low + (log_high - log_low) * numbers[still, 4 + 2 * attempt])
            rows, columns = np.rint(np.sqrt(area * ratio)), np.rint(np.sqrt(area / ratio))
            fits = (rows < tall) & (columns < wide)
            height[still[fits]], width[still[fits]] = rows[fits], columns[fits]
            still = still[~fits]
        top = (numbers[:, 1] * (tall - height + 1)).astype(np.int64)
        left = (numbers[:, 2] * (wide - width + 1)).astype(np.int64)
        return {"box": torch.from_numpy(np.stack([top, left, top + height, left + width]))}

    def run(self, pictures: Pictures, parameters: Parameters) -> Pictures:
        images = pictures.images
        assert isinstance(self.value, tuple)
        if len(self.value) not in (1, images.shape[1]):
            raise SchemaError(f"{self}: needs one value, or {images.shape[1]} (one per channel)")
        top, left, bottom, right = (side[:, None] for side in parameters["box"])
        y, x = (torch.arange(side, device=images.device) for side in images.shape[2:])
        inside = ((y >= top) & (y < bottom))[:, :, None] & ((x >= left) & (x < right))[:, None, :]
        erased = images.clone()
        for channel in range(images.shape[1]):
            erased[:, channel].masked_fill_(inside, self.value[channel % len(self.value)])
        return Pictures(erased, pictures.labels)
