"""MixUp and CutMix: pictures mixed with those of other samples."""

from __future__ import annotations

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
