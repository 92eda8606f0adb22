"""Compose, and entries of its list that say what moves with pictures: KeepBoxes, KeepGeometry, ..."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SchemaError
from fastio.lazy import torch, torch_if_there
from fastio.transforms.batch.batch_transform import BatchTransform
from fastio.transforms.batch.choice import OneOf, RandomApply, mixes_of
from fastio.transforms.batch.functions import PerBatch, PerSample
from fastio.transforms.batch.program import PixelTransform
from fastio.transforms.canvas import BoxRule, Canvas, CropRule, GeometryRule, PointRule, Rule
from fastio.transforms.iou_crop import check_boxes
from fastio.transforms.joint import JointTransform, leaders_of_lists
from fastio.transforms.matrices import Warp
from fastio.transforms.program import check_channels, paint
from fastio.transforms.transform import LoaderTransform, Transform
from fastio.transforms.warp import Warping
from fastio.types.options import explains_fields, explains_names
from fastio.types.schema import Field

__all__ = [
    "Compose",
    "KeepBoxes",
    "KeepCrop",
    "KeepGeometry",
    "KeepPoints",
]


@dataclass(frozen=True)
class Compose(Transform):
    """
    Several transforms of fastio as one, for ``FastDataset(path, transform=Compose([...]))``.

    Transforms of colours and ``PerSample`` functions change the picture where they stand, in the bytes that FastLoader
    gives; an exception in a function is a SampleError. Raises TypeError for other transforms of batches and other
    functions, and SchemaError where samples have masks, boxes or points that could not follow.
    """

    transforms: tuple[Transform | PixelTransform | PerSample, ...]

    @explains_names()
    def __init__(self, transforms: Iterable[Transform | PixelTransform | RandomApply | OneOf | PerSample]) -> None:
        if not isinstance(transforms, Iterable):
            raise TypeError(f"{transforms!r}: expected a list of transforms")
        object.__setattr__(self, "transforms", tuple(transforms))
        for transform in self.transforms:
            if isinstance(transform, PerSample) or (isinstance(transform, PixelTransform) and not mixes_of(transform)):
                continue
            if isinstance(transform, LoaderTransform):
                raise transform.refusal()
            if isinstance(transform, (BatchTransform, PerBatch)):
                raise TypeError(
                    f"{transform!r} works on batches: "
                    "pass it to FastLoader(..., transforms=[...]) or to a DevicePrefetcher"
                )
            if not isinstance(transform, Transform):
                called = getattr(transform, "__name__", "function")
                raise TypeError(
                    f"{transform!r}: Compose takes transforms of fastio: write PerSample({called}) for a "
                    "function of one picture, a uint8 tensor (C, H, W)"
                )

    @property
    def draws(self) -> int:
        """The sum over all transforms."""
        return sum(transform.draws for transform in self.transforms)

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """
        Run the transforms one after the other, each with its own columns of numbers; neighbouring warps of one look
        are one.
        """
        first, warps = 0, _Warps(canvas)
        for transform in self.transforms:
            own = numbers[:, first : first + transform.draws]
            first += transform.draws
            if isinstance(transform, Warping):
                warps.add(transform, own)
                continue
            if not isinstance(transform, Rule):  # which has no place in the list
                warps.finish()
            canvas.doing = transform
            if isinstance(transform, PixelTransform):
                canvas.call(partial(_paint, transform), own)
            elif isinstance(transform, PerSample):
                canvas.call(partial(_change, transform), own)
            else:
                transform.run(canvas, own)
        warps.finish()

    def for_blanks(self) -> Compose:
        """Return this without its functions, which are not called for the blanks of bad samples; FastDataset asks."""
        steps = (step.for_blanks() if isinstance(step, Compose) else step for step in self.transforms)
        return Compose(step for step in steps if not isinstance(step, PerSample))

    def for_fields(self, fields: Iterable[Field]) -> JointTransform:
        """As Transform.for_fields."""
        fields = tuple(fields)
        is_moving = any(isinstance(step, Transform) for step in self.transforms)
        return self.for_key(fields, leaders_of_lists(fields, where="a sample") if is_moving else {})

    def for_key(self, fields: Iterable[Field], leaders: Mapping[str, str]) -> JointTransform:
        """As ``for_fields``, of which lists follow ``leaders``; ByField asks for those of a key."""
        fields = tuple(fields)
        check_boxes(self, fields)
        moving = next((step for step in self.transforms if isinstance(step, PixelTransform) and step.moves), None)
        targets = [field.name for field in fields if field.element.traits.is_mask or field.geometry or field.owner]
        if moving is not None and targets:
            raise SchemaError(
                f"{moving} would change pictures without {', '.join(targets)}, which cannot follow: drop it"
            )
        return JointTransform(self, fields, leaders)


class _Warps:
    """Warps that have not been done to a canvas yet, as one."""

    def __init__(self, canvas: Canvas) -> None:
        self._canvas = canvas
        self._warp: Warp | None = None
        self._last: object = None

    def add(self, transform: Warping, numbers: NDArray[np.float64]) -> None:
        """Add one that comes next."""
        height, width = self._canvas.height, self._canvas.width
        warp = transform.warp(numbers, height, width)
        if self._warp is not None and self._warp.look == warp.look:
            warp = self._warp.then(warp, height, width)
        else:
            self.finish()
        self._warp, self._last = warp, transform

    def finish(self) -> None:
        """Do what was added."""
        if self._warp is not None:
            self._canvas.doing = self._last
            self._canvas.warp(self._warp)
            self._warp = None


def _change(transform: PerSample, pixels: NDArray[np.uint8], numbers: NDArray[np.float64]) -> None:
    """Put what a function makes of one picture (H, W, C) in its place: of a tensor, or where torch is not, an array."""
    picture = pixels.transpose(2, 0, 1)
    if torch_if_there() is None:
        pixels[:] = transform.call(picture, numbers).transpose(1, 2, 0)
    else:
        pixels[:] = transform.call(torch.from_numpy(picture), numbers).permute(1, 2, 0).numpy()


def _paint(transform: PixelTransform, pixels: NDArray[np.uint8], numbers: NDArray[np.float64]) -> None:
    """Change one picture (H, W, C) in place."""
    check_channels(pixels.shape[2], transform)
    paint(pixels[None], transform.program(numbers[None], (pixels.shape[0], pixels.shape[1])))


# KeepBoxes, KeepPoints, KeepGeometry, KeepCrop: rules for what moves with pictures, as entries of a list of transforms.


@explains_fields
@dataclass(frozen=True)
class KeepBoxes(BoxRule, Transform):
    """
    What happens to boxes: an entry of ``transforms``, wherever it stands. Without one, ``KeepBoxes()`` holds.

    Boxes are clipped to the picture, and dropped if less is left of them than ``min_size`` pixels on a side,
    ``min_area`` square pixels, or the fraction ``min_visible`` of their own area. Rows of fields "per" them are dropped
    with them. By default, this equals torchvision's ``ClampBoundingBoxes()`` and ``SanitizeBoundingBoxes()`` at the end
    of a recipe.

    ``clip=False`` leaves boxes as large as they are; what is dropped still depends on the part inside the picture.
    ``drop=False`` keeps all rows, also boxes of size 0.
    """

    @property
    def draws(self) -> int:
        return 0

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """Tell the canvas; pixels do not change."""
        canvas.keep(self)


@explains_fields
@dataclass(frozen=True)
class KeepPoints(PointRule, Transform):
    """
    What happens to points outside the picture: an entry of ``transforms``, wherever it stands.

    "keep" (without this entry, too) leaves them where they are, as torchvision does; "clip" moves them to the nearest
    pixel, as its ``ClampKeyPoints``; "drop" drops rows with a point outside, with the rows of fields "per" them, as its
    ``SanitizeKeyPoints``. Points "per" boxes are dropped with their boxes, and only with them.
    """

    @property
    def draws(self) -> int:
        return 0

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """Tell the canvas; pixels do not change."""
        canvas.keep(self)


@explains_fields
@dataclass(frozen=True)
class KeepGeometry(GeometryRule, Transform):
    """
    Give samples the field "geometry", last: an entry of ``transforms``, wherever it stands.

    It is float32 ``(2, 3)``, in batches ``(B, 2, 3)``: the matrix that takes a position ``(x, y, 1)`` in the stored
    picture to one in the transformed picture, as for corners of boxes. ``invert_geometry`` is the way back.
    """

    @property
    def draws(self) -> int:
        return 0

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """Tell the canvas; pixels do not change."""
        canvas.keep(self)


@explains_fields
@dataclass(frozen=True)
class KeepCrop(CropRule, Transform):
    """
    Give samples the fields "original_size" and "crop", last: an entry of ``transforms``, wherever it stands.

    Both are int64 ``(2,)``, in batches ``(B, 2)``. "original_size" is height and width as stored. "crop" is top and
    left: how much of the resized picture was cut off above and on the left, in pixels of the result, as one sees it
    (of a picture that was flipped, on the left of the flipped one); negative where edges were added. Rotations and the
    like count for nothing. With the batch's own height and width, these are what SDXL is conditioned on. A picture with
    a bad header has zeros.
    """

    @property
    def draws(self) -> int:
        return 0

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """Tell the canvas; pixels do not change."""
        canvas.keep(self)
