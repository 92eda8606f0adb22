"""MixUp and CutMix: pictures mixed with those of other samples, and which samples these are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SchemaError
from fastio.lazy import torch
from fastio.transforms.batch.batch_transform import BatchTransform, Parameters, Pictures
from fastio.transforms.batch.values import floats, is_floating, like, rows_of
from fastio.types.options import explains_fields

__all__ = [
    "MIXES",
    "CutMix",
    "Mix",
    "MixUp",
    "partners",
]

_BLENDED = 1 << 17  # values that MixUp blends at once on a CPU


class Mix(BatchTransform, Protocol):
    """A transform that mixes each sample with its partner, another one of the batch: see ``partners``."""

    @property
    def num_classes(self) -> int | None:
        """How many classes labels of whole numbers have; None: labels are shares of classes."""
        ...

    def mixed(self, numbers: NDArray[np.float64], size: tuple[int, int], samples: NDArray[np.int64]) -> Parameters:
        """As ``parameters``, for rows that show these ``samples``, ``(n,)``: rows of one sample are not mixed."""
        ...

    def parameters(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Parameters:
        """Return the parameters for rows of different samples."""
        return self.mixed(numbers, size, np.arange(len(numbers)))


@explains_fields
@dataclass(frozen=True)
class MixUp(Mix):
    """
    Blend each picture and label with those of a partner: ``share`` of its own, the rest of the partner's.

    ``share`` is drawn once per batch from Beta(alpha, alpha), with the numbers of the batch's first sample; so is a
    random cycle through the batch, in which each row's partner comes next. Rows that show one sample (``repeats=``, or
    an index that comes twice) are not each other's partners, unless they are more than half of the batch. Labels (B,)
    become (B, ``num_classes``) float32; labels that already are (B, classes) are mixed directly.
    Raises SchemaError for batches without labels, and for class numbers without ``num_classes``.
    """

    alpha: float = 1.0
    num_classes: int | None = None

    def __post_init__(self) -> None:
        _check(self.alpha, self.num_classes)

    @property
    def draws(self) -> int:
        """Two numbers: the share, and the cycle."""
        return 2

    def mixed(self, numbers: NDArray[np.float64], size: tuple[int, int], samples: NDArray[np.int64]) -> Parameters:
        return {"share": np.array(_beta(numbers, self.alpha), np.float32), "partner": _partner(samples, numbers)}

    def run(self, pictures: Pictures, parameters: Parameters) -> Pictures:
        images = pictures.images
        share, partner = (like(parameters[name], images) for name in ("share", "partner"))
        return Pictures(_blended(images, share, partner), _mixed_labels(self, pictures, share, partner))


def _blended(images: Any, share: Any, partner: Any) -> Any:
    """Blend each row with its partner; on a CPU a few rows at a time, whose float32 values stay in its caches."""
    is_host = isinstance(images, np.ndarray) or images.device.type == "cpu"
    count = max(1, _BLENDED // max(1, math.prod(images.shape[1:]))) if is_host else max(1, len(images))
    mixed = np.empty_like(images) if isinstance(images, np.ndarray) else torch.empty_like(images)
    for first in range(0, len(images), count):
        part = slice(first, first + count)
        values = floats(images[part]) * share + floats(rows_of(images, partner[part])) * (1 - share)
        mixed[part] = values if is_floating(images) else values.round()
    return mixed


@explains_fields
@dataclass(frozen=True)
class CutMix(Mix):
    """
    Replace a rectangle of each picture by its partner's, and mix the labels by area.

    Position and size are drawn once per batch with the numbers of its first sample: the share that stays, from
    Beta(alpha, alpha), then the centre, then the cycle of partners. Partners and labels as in MixUp.
    """

    alpha: float = 1.0
    num_classes: int | None = None

    def __post_init__(self) -> None:
        _check(self.alpha, self.num_classes)

    @property
    def draws(self) -> int:
        """Four numbers: the share, the centre, and the cycle."""
        return 4

    def mixed(self, numbers: NDArray[np.float64], size: tuple[int, int], samples: NDArray[np.int64]) -> Parameters:
        height, width = size
        side = 0.5 * np.sqrt(1 - _beta(numbers, self.alpha))
        x, y = (int(number * length) for number, length in zip(numbers[:1, 1:3].flat, (width, height), strict=False))
        half_width, half_height = int(side * width), int(side * height)
        left, right = max(x - half_width, 0), min(x + half_width, width)
        top, bottom = max(y - half_height, 0), min(y + half_height, height)
        share = 1 - (right - left) * (bottom - top) / (width * height)
        box = (top, bottom, left, right)
        return {"box": box, "share": np.array(share, np.float32), "partner": _partner(samples, numbers)}

    def run(self, pictures: Pictures, parameters: Parameters) -> Pictures:
        images = pictures.images
        share, partner = (like(parameters[name], images) for name in ("share", "partner"))
        top, bottom, left, right = parameters["box"]
        mixed = images.copy("K") if isinstance(images, np.ndarray) else images.clone()
        mixed[:, :, top:bottom, left:right] = rows_of(images[:, :, top:bottom, left:right], partner)
        return Pictures(mixed, _mixed_labels(self, pictures, share, partner))


MIXES = (MixUp, CutMix)

_ALPHAS = 1e-300, 1e300  # beyond these, NumPy draws NaN or 0 from Beta(alpha, alpha)


def partners(samples: NDArray[np.int64], number: float, *, count: int = 1) -> NDArray[np.int64]:
    """
    Return ``count`` partners of each row of a batch, by position, ``(n, count)``; ``number`` in [0, 1) decides.

    Rows are put into a random cycle in which those of one sample stand together, and the partners of a row follow it at
    equal distances, at least as far as the most frequent sample is frequent. So no row gets one of its own sample as
    long as no sample has more than half of the rows; beyond that, as few as possible do. A column is a permutation:
    each row is partner once. In a batch of one, that is the row itself.

    >>> partners(np.array([7, 7, 8, 9]), 0.0).ravel().tolist()
    [3, 2, 1, 0]
    """
    rows = len(samples)
    if rows == 0:
        return np.zeros((0, count), np.int64)
    # Not NumPy's newer generators: only this one promises never to change its numbers.
    random = np.random.RandomState(int(number * (1 << 32)))
    _, groups, sizes = np.unique(samples, return_inverse=True, return_counts=True)
    cycle = np.lexsort((random.permutation(rows), random.permutation(len(sizes))[groups.reshape(-1)]))
    most = int(sizes.max())
    places = np.empty(rows, np.int64)
    places[cycle] = np.arange(rows)
    steps = most + np.arange(count) * max(rows - 2 * most, 0) // max(count - 1, 1)
    found: NDArray[np.int64] = cycle[(places[:, None] + steps) % rows]
    return found


def _check(alpha: float, num_classes: int | None) -> None:
    if not isinstance(alpha, (int, float)) or not _ALPHAS[0] <= alpha <= _ALPHAS[1]:
        raise ValueError(f"alpha={alpha!r}: expected a finite number above 0")
    if num_classes is not None and (not isinstance(num_classes, Integral) or num_classes < 1):
        raise ValueError(
            f"num_classes={num_classes!r}: expected a whole number of at least 1, or None for labels (B, classes)"
        )


def _beta(numbers: NDArray[np.float64], alpha: float) -> float:
    """Draw from Beta(alpha, alpha); returns 1 for an empty batch, which mixes nothing."""
    if len(numbers) == 0:
        return 1.0
    # Not NumPy's newer generators: only this one promises never to change its numbers.
    return float(np.random.RandomState(int(numbers[0, 0] * (1 << 32))).beta(alpha, alpha))


def _partner(samples: NDArray[np.int64], numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return each row's partner; the last number of the first row decides."""
    return np.ascontiguousarray(partners(samples, float(numbers[0, -1]) if len(numbers) else 0.0)[:, 0])


def _mixed_labels(mix: MixUp | CutMix, pictures: Pictures, share: Any, partner: Any) -> Any:
    labels = pictures.labels
    if labels is None:
        raise SchemaError(f"{mix}: the batch has no labels: expected integers (B,), or floating numbers (B, classes)")
    if labels.ndim == 1:
        if mix.num_classes is None:
            raise SchemaError(f"{mix}: labels are class numbers: pass num_classes")
        is_array = isinstance(labels, np.ndarray)
        classes = np.arange(mix.num_classes) if is_array else torch.arange(mix.num_classes, device=labels.device)
        labels = floats(labels[:, None] == classes)
    return labels * share + rows_of(labels, partner) * (1 - share)
