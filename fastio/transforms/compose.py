"""Compose: several transforms, one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastio.transforms.batch.batch_transform import BatchTransform
from fastio.transforms.canvas import Canvas
from fastio.transforms.transform import Transform
from fastio.types.option_names import explains_names

__all__ = ["Compose"]


@dataclass(frozen=True)
class Compose(Transform):
    """
    Several transforms of fastio as one, for ``FastDataset(path, transform=Compose([...]))``.

    Raises TypeError for transforms of batches and other functions.
    """

    transforms: tuple[Transform, ...]

    @explains_names()
    def __init__(self, transforms: Iterable[Transform]) -> None:
        if not isinstance(transforms, Iterable):
            raise TypeError(f"{transforms!r}: expected a list of transforms")
        object.__setattr__(self, "transforms", tuple(transforms))
        for transform in self.transforms:
            if isinstance(transform, BatchTransform):
                raise TypeError(
                    f"{transform!r} works on batches: "
                    "pass it to FastLoader(..., transforms=[...]) or to a DevicePrefetcher"
                )
            if not isinstance(transform, Transform):
                raise TypeError(
                    f"{transform!r}: Compose takes only transforms of fastio: to chain them with others, pass a "
                    "function of your own, FastDataset(path, transform=lambda picture: function(crop(picture))), or "
                    "torchvision's Compose"
                )

    @property
    def draws(self) -> int:
        """The sum over all transforms."""
        return sum(transform.draws for transform in self.transforms)

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """Run the transforms one after the other, each with its own columns of numbers."""
        first = 0
        for transform in self.transforms:
            canvas.doing = transform
            transform.run(canvas, numbers[:, first : first + transform.draws])
            first += transform.draws
