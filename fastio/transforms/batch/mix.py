"""MixUp, CutMix and RandomErasing: pictures mixed with those of other samples, or painted over."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fastio.errors import SchemaError
from fastio.transforms.batch.batch_transform import BatchTransform, Parameters, Pictures
from fastio.types.options import explains_fields

__all__ = [
    "CutMix",
    "MixUp",
    "RandomErasing",
]


@explains_fields
@dataclass(frozen=True)
class MixUp(BatchTransform):
    """
    Blend each picture and label with the next sample's: ``share`` of its own, the rest of the neighbour's.

    ``share`` is drawn once per batch from Beta(alpha, alpha), with the numbers of the batch's first sample. Labels
    (B,) become (B, ``num_classes``) float32; labels that already are (B, classes) are mixed directly.
    Raises SchemaError for batches without labels, and for class numbers without ``num_classes``.
    """

    alpha: float = 1.0
    num_classes: int | None = None

    def __post_init__(self) -> None:
        _check(self.alpha, self.num_classes)

    @property
    def draws(self) -> int:
        """One number: the share."""
        return 1

    def parameters(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Parameters:
        return {"share": torch.tensor(_beta(numbers, self.alpha), dtype=torch.float32, device="cpu")}

    def run(self, pictures: Pictures, parameters: Parameters) -> Pictures:
        images, share = pictures.images, parameters["share"]
        values = images.to(torch.float32)
        mixed = values * share + values.roll(1, 0) * (1 - share)
        if not images.is_floating_point():
            mixed = mixed.round()
        return Pictures(mixed.to(images.dtype), _mixed_labels(self, pictures, share))


@explains_fields
@dataclass(frozen=True)
class CutMix(BatchTransform):
    """
    Replace a rectangle of each picture by the next sample's, and mix the labels by area.

    Position and size are drawn once per batch with the numbers of its first sample: the share that stays, from
    Beta(alpha, alpha), then the centre. Labels as in MixUp.
    """

    alpha: float = 1.0
    num_classes: int | None = None

    def __post_init__(self) -> None:
        _check(self.alpha, self.num_classes)

    @property
    def draws(self) -> int:
        """Three numbers: the share, and the centre."""
        return 3

    def parameters(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Parameters:
        height, width = size
        side = 0.5 * np.sqrt(1 - _beta(numbers, self.alpha))
        x, y = (int(number * length) for number, length in zip(numbers[:1, 1:].flat, (width, height), strict=False))
        half_width, half_height = int(side * width), int(side * height)
        left, right = max(x - half_width, 0), min(x + half_width, width)
        top, bottom = max(y - half_height, 0), min(y + half_height, height)
        share = 1 - (right - left) * (bottom - top) / (width * height)
        return {"box": (top, bottom, left, right), "share": torch.tensor(share, dtype=torch.float32, device="cpu")}

    def run(self, pictures: Pictures, parameters: Parameters) -> Pictures:
        images = pictures.images
        top, bottom, left, right = parameters["box"]
        mixed = images.clone()
        mixed[:, :, top:bottom, left:right] = images[:, :, top:bottom, left:right].roll(1, 0)
        return Pictures(mixed, _mixed_labels(self, pictures, parameters["share"]))


def _check(alpha: float, num_classes: int | None) -> None:
    if not isinstance(alpha, (int, float)) or not alpha > 0:
        raise ValueError(f"alpha={alpha!r}: expected a number above 0")
    if num_classes is not None and num_classes < 1:
        raise ValueError(
            f"num_classes={num_classes!r}: expected a number of at least 1, or None for labels (B, classes)"
        )


def _beta(numbers: NDArray[np.float64], alpha: float) -> float:
    """Draw from Beta(alpha, alpha); returns 1 for an empty batch, which mixes nothing."""
    if len(numbers) == 0:
        return 1.0
    # Not NumPy's newer generators: only this one promises never to change its numbers.
    return float(np.random.RandomState(int(numbers[0, 0] * (1 << 32))).beta(alpha, alpha))


def _mixed_labels(mix: MixUp | CutMix, pictures: Pictures, share: torch.Tensor) -> torch.Tensor:
    labels = pictures.labels
    if labels is None:
        raise SchemaError(f"{mix}: the batch has no labels: expected integers (B,), or floating numbers (B, classes)")
    if labels.ndim == 1:
        if mix.num_classes is None:
            raise SchemaError(f"{mix}: labels are class numbers: pass num_classes")
        classes = torch.arange(mix.num_classes, device=labels.device)
        labels = (labels[:, None] == classes).to(torch.float32)
    return labels * share + labels.roll(1, 0) * (1 - share)


# RandomErasing: paints over a rectangle of each picture.

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
