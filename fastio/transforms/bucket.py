"""Pictures of several shapes: ResizeToBucket brings each to its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fastio.samplers.shape_bucket import ShapeBucketSampler, Shapes
from fastio.transforms.arguments import Interpolation, as_kernel, check_antialias
from fastio.transforms.canvas import Canvas, Ints
from fastio.transforms.transform import Transform
from fastio.types.options import explains_fields

__all__ = ["ResizeToBucket"]

Crop = Literal["center", "random"]


@explains_fields
@dataclass(frozen=True)
class ResizeToBucket(Transform):
    """
    Resize a picture so that it just covers its bucket's shape, and crop what hangs over: from the centre, or at random.

    ``shapes`` is a ShapeBucketSampler, or pairs of height and width. Which of them a picture gets depends on its size
    alone, as ``ShapeBucketSampler`` says; its batches have pictures of one shape, those of other samplers have not.
    The picture is resampled once, antialiased; ``interpolation`` as in Resize. With ``crop="random"``, draws two
    numbers: top, left.
    """

    shapes: Sequence[tuple[int, int]] | ShapeBucketSampler
    interpolation: Interpolation = "bilinear"
    crop: Crop = "center"
    antialias: bool = True
    buckets: Shapes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "buckets", Shapes.of(self.shapes))
        object.__setattr__(self, "shapes", self.buckets.pairs)
        object.__setattr__(self, "interpolation", as_kernel(self.interpolation))
        check_antialias(self.antialias)
        if self.crop not in get_args(Crop):
            raise ValueError(f"crop={self.crop!r}: expected one of {', '.join(get_args(Crop))}")

    @property
    def draws(self) -> int:
        """Two numbers, top and left, if the crop is random."""
        return 2 if self.crop == "random" else 0

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """Resample once, then crop."""
        sides = np.array(self.buckets.pairs, np.int64)[self.buckets.nearest(canvas.height, canvas.width)]
        height, width = sides[:, 0], sides[:, 1]
        scale = np.maximum(height / canvas.height, width / canvas.width)
        tall, wide = (
            np.maximum(np.rint(old * scale).astype(np.int64), side)
            for old, side in ((canvas.height, height), (canvas.width, width))
        )
        canvas.resize(wide, tall, kernel=self.interpolation)
        spare_x, spare_y = wide - width, tall - height
        canvas.crop(self._start(spare_x, numbers, 1), self._start(spare_y, numbers, 0), width=width, height=height)

    def _start(self, spare: Ints, numbers: NDArray[np.float64], column: int) -> Ints:
        """Return how much to cut off before the crop, of all that there is to cut off."""
        if self.crop == "center":
            return spare // 2
        return (numbers[:, column] * (spare + 1)).astype(np.int64)
