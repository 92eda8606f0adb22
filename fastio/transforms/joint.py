"""JointTransform: transforms of whole samples, whose pictures, masks, boxes and points are all moved alike."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fastio.lazy import is_tensor, torch
from fastio.transforms.arguments import Fill
from fastio.transforms.canvas import AxisName, Boxes, Canvas, Ints, PixelFunction, Rule, Steps
from fastio.transforms.frames import Frames, Rows, move_targets
from fastio.transforms.matrices import Warp
from fastio.transforms.plain import PlainMask, PlainPicture
from fastio.types.schema import Field

__all__ = ["JointTransform", "drawn"]


@dataclass(frozen=True)
class JointTransform:
    """
    A transform of whole samples: dicts by field names, or tuples in the order of ``fields``.

    Pictures, masks, boxes and points of a sample get the same random numbers, and go through each step together, as in
    torchvision v2: masks by the nearest pixel, boxes and points by ``move_targets``. Everything else stays as it is.
    Values are PIL images, NumPy arrays or tensors, and stay that; the sample itself is not changed. ``KeepGeometry``
    and ``KeepCrop`` add fields.
    ``Transform.for_fields`` makes one, and FastDataset calls that.
    """

    transform: Steps
    fields: tuple[Field, ...]

    def __call__(self, sample: Any) -> Any:
        """Draw the numbers as ``drawn`` does."""
        return self.apply(sample, drawn(self.transform.draws))

    def apply(self, sample: Any, numbers: NDArray[np.float64]) -> Any:
        """
        Like a call, but with given numbers ``(draws,)``.

        Raises ValueError if the pictures and masks of the sample differ in size, or there are none.
        """
        if isinstance(sample, Mapping):
            return {**sample, **self._moved(sample, numbers)}
        values = dict(zip((field.name for field in self.fields), sample, strict=True))
        return tuple({**values, **self._moved(values, numbers)}.values())

    def _moved(self, values: Mapping[str, Any], numbers: NDArray[np.float64]) -> dict[str, Any]:
        """Return the fields that the transform changes."""
        fields = [field for field in self.fields if field.name in values]
        pictures = {f.name: PlainPicture(values[f.name]) for f in fields if _is_picture(f, values[f.name])}
        masks = {f.name: PlainMask(values[f.name]) for f in fields if f.traits.is_mask}
        size = _common_size({**pictures, **masks})
        frames = Frames(*(np.array([side]) for side in size))
        ragged = {f.name: values[f.name] for f in fields if f.geometry or f.owner}
        rows = {name: _rows(value) for name, value in ragged.items()}
        boxes = next((field for field in fields if field.is_box and field.name in rows), None)
        if boxes is not None:
            frames.know(boxes, rows[boxes.name])
        self.transform.run(
            _Together((frames, *pictures.values(), *masks.values())), numbers.reshape(1, self.transform.draws)
        )
        frames.clip()
        taken = next((name for name in frames.adds if name in values), None)
        if taken is not None:
            raise ValueError(f"the sample has a field {taken!r}, which the transforms would replace: leave one out")
        moved = move_targets(fields, rows, frames)
        return {
            **{name: canvas.picture for name, canvas in pictures.items()},
            **{name: canvas.mask for name, canvas in masks.items()},
            **{name: _like(moved[name].values, value) for name, value in ragged.items()},
            **{name: added[0] for name, added in frames.added(1).items()},
        }


@dataclass(slots=True)
class _Together:
    """A canvas of several canvases of one size, which take each step together."""

    canvases: tuple[Canvas, ...]
    doing: object = None

    @property
    def height(self) -> Ints:
        return self.canvases[0].height

    @property
    def width(self) -> Ints:
        return self.canvases[0].width

    def crop(self, left: Ints, top: Ints, *, width: Ints, height: Ints) -> None:
        self._each(lambda canvas: canvas.crop(left, top, width=width, height=height))

    def resize(self, width: Ints, height: Ints, *, kernel: str) -> None:
        self._each(lambda canvas: canvas.resize(width, height, kernel=kernel))

    def pad(self, left: Ints, top: Ints, right: Ints, bottom: Ints, *, fill: Fill, mask_fill: int = 0) -> None:
        self._each(lambda canvas: canvas.pad(left, top, right, bottom, fill=fill, mask_fill=mask_fill))

    def flip(self, mask: NDArray[np.bool_], *, axis: AxisName = "x") -> None:
        self._each(lambda canvas: canvas.flip(mask, axis=axis))

    def warp(self, warp: Warp) -> None:
        self._each(lambda canvas: canvas.warp(warp))

    def grey(self, channels: int) -> None:
        self._each(lambda canvas: canvas.grey(channels))

    def call(self, function: PixelFunction, numbers: NDArray[np.float64]) -> None:
        self._each(lambda canvas: canvas.call(function, numbers))

    def keep(self, rule: Rule) -> None:
        self._each(lambda canvas: canvas.keep(rule))

    def boxes_now(self) -> Boxes | None:
        return self.canvases[0].boxes_now()

    def drop_outside(self, left: Ints, top: Ints, *, width: Ints, height: Ints, mask: NDArray[np.bool_]) -> None:
        self._each(lambda canvas: canvas.drop_outside(left, top, width=width, height=height, mask=mask))

    def _each(self, step: Callable[[Canvas], None]) -> None:
        for canvas in self.canvases:
            canvas.doing = self.doing
            step(canvas)


def _is_picture(field: Field, value: Any) -> bool:
    """Whether a value is a picture, which raw arrays are on the way to be one."""
    is_encoded = field.traits.is_picture and not field.traits.is_mask
    return is_encoded or (field.is_raw_picture and isinstance(value, Image.Image))


def _common_size(canvases: Mapping[str, Canvas]) -> tuple[int, int]:
    """Return height and width of pictures and masks. Raises ValueError if they are not the same for all."""
    sizes = {name: (int(canvas.height[0]), int(canvas.width[0])) for name, canvas in canvases.items()}
    if not sizes:
        raise ValueError("the sample has no picture and no mask, whose size the transforms need: ask for that field")
    (first, size), *others = sizes.items()
    for name, other in others:
        if other != size:
            raise ValueError(
                f"field {name!r} is {other[0]}x{other[1]}, but {first!r} {size[0]}x{size[1]} (height x width): leave "
                "one out by fields=, or pack them in one size"
            )
    return size


def _rows(value: Any) -> Rows:
    values = np.asarray(value)
    return Rows(values, np.array([len(values)]))


def _like(values: NDArray[Any], value: Any) -> Any:
    """Return an array as what it came as: an array or a tensor."""
    return torch.from_numpy(values) if is_tensor(value) else values


def drawn(count: int) -> NDArray[np.float64]:
    """
    Draw numbers in [0, 1) from torch's global generator, as torchvision does; from NumPy's if torch was not imported.
    """
    if "torch" not in sys.modules:
        return np.random.random_sample(count)  # noqa: NPY002 - the one that np.random.seed seeds
    return torch.rand(count, dtype=torch.float64, device="cpu").numpy()
