"""RandomIoUCrop: parts of pictures that show enough of a box, as SSD is trained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.errors import SchemaError
from fastio.transforms.canvas import Canvas
from fastio.transforms.joint import JointTransform
from fastio.transforms.transform import Transform
from fastio.types.options import explains_fields
from fastio.types.schema import Field

__all__ = ["RandomIoUCrop", "check_boxes", "looking_at_boxes"]

_OPTIONS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
_MOST_ROUNDS = 50  # of drawing an option; torchvision draws for ever where none can be met


@explains_fields
@dataclass(frozen=True)
class RandomIoUCrop(Transform):
    """
    Crop a part that shows enough of a box, or leave the picture as it is: SSD's crop (Liu et al. 2015,
    arXiv:1512.02325), with torchvision's distribution.

    One of ``sampler_options`` is drawn, (0, 0.1, 0.3, 0.5, 0.7, 0.9, 1) without any; from 1 on it means the whole
    picture. Otherwise parts are drawn, ``trials`` at most, of a width and height between ``min_scale`` and
    ``max_scale`` of the picture's and of proportions between ``min_aspect_ratio`` and ``max_aspect_ratio``, until one
    has the centre of a box and an intersection over union of at least the option with such a box. If none has, another
    option is drawn. Boxes whose centre is outside are dropped, with the rows "per" them.

    It looks at the samples' first field of boxes; SchemaError without one. Parts differ in size: let Resize follow.
    Draws six numbers: a seed of two, and four in whose place it notes the part for pictures and masks.
    """

    min_scale: float = 0.3
    max_scale: float = 1.0
    min_aspect_ratio: float = 0.5
    max_aspect_ratio: float = 2.0
    sampler_options: Sequence[float] | None = None
    trials: int = 40

    needs_boxes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for low, high, most in (("min_scale", "max_scale", 1.0), ("min_aspect_ratio", "max_aspect_ratio", np.inf)):
            limits = getattr(self, low), getattr(self, high)
            if not all(isinstance(value, (int, float)) for value in limits) or not 0 < limits[0] <= limits[1] <= most:
                raise ValueError(
                    f"{low}={limits[0]!r}, {high}={limits[1]!r}: expected two numbers above 0"
                    + (" up to 1" if most == 1 else "")
                    + ", the smaller one first"
                )
        options = _OPTIONS if self.sampler_options is None else tuple(self.sampler_options)
        if not options or not all(isinstance(each, (int, float)) and each >= 0 for each in options):
            raise ValueError(f"sampler_options={self.sampler_options!r}: expected numbers of at least 0")
        if not isinstance(self.trials, int) or self.trials < 1:
            raise ValueError(f"trials={self.trials!r}: expected a whole number of at least 1")
        object.__setattr__(self, "sampler_options", tuple(map(float, options)))

    @property
    def draws(self) -> int:
        """Two for the seed, four for the part."""
        return 6

    def for_fields(self, fields: Iterable[Field]) -> JointTransform:
        """As Transform.for_fields."""
        fields = tuple(fields)
        check_boxes(self, fields)
        return super().for_fields(fields)

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """
        Crop the part that ``numbers`` note behind the seed, each number raised by 1; drawn ones are below. On the
        canvas that knows the boxes, they are written.
        """
        parts = numbers[:, 2:]
        if not (parts >= 1).all():
            boxes = canvas.boxes_now()
            if boxes is not None:
                self._decide(*boxes, canvas.height, canvas.width, numbers)
        left, top, width, height = np.where(parts >= 1, parts - 1, 0).astype(np.int64).T
        is_cropped = width > 0
        width, height = np.where(is_cropped, width, canvas.width), np.where(is_cropped, height, canvas.height)
        canvas.drop_outside(left, top, width=width, height=height, mask=is_cropped)
        canvas.crop(left, top, width=width, height=height)

    def _decide(
        self,
        boxes: NDArray[np.float64],
        samples: NDArray[np.int64],
        height: NDArray[np.int64],
        width: NDArray[np.int64],
        numbers: NDArray[np.float64],
    ) -> None:
        is_seen = (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])
        seeds = (numbers[:, :2] * (1 << 32)).astype(np.uint64)
        for place, (first, second) in enumerate(seeds.tolist()):
            own = boxes[is_seen & (samples == place)]
            sides = [int(np.broadcast_to(side, len(numbers))[place]) for side in (width, height)]
            numbers[place, 2:] = 1 + np.array(self._part(own, sides[0], sides[1], seed=first << 32 | second))

    def _part(self, boxes: NDArray[np.float64], width: int, height: int, *, seed: int) -> tuple[int, int, int, int]:
        """Return left, top, width and height of the part of a picture with these boxes; zeros for all of it."""
        assert isinstance(self.sampler_options, tuple)
        out = np.empty((1, 1 + 4 * self.trials))
        for number in range(_MOST_ROUNDS if len(boxes) else 0):
            _native.philox(seed, 0, np.array([number]), out)
            least = self.sampler_options[int(out[0, 0] * len(self.sampler_options))]
            if least >= 1:
                break
            tries = self._tries(out[0, 1:].reshape(-1, 4), width, height)
            fits = np.flatnonzero(_shows(boxes, tries, least) & self._is_proportioned(tries))
            if len(fits):
                left, top, right, bottom = tries[fits[0]].tolist()
                return left, top, right - left, bottom - top
        return 0, 0, 0, 0

    def _tries(self, numbers: NDArray[np.float64], width: int, height: int) -> NDArray[np.int64]:
        """Return left, top, right and bottom of parts, ``(trials, 4)``."""
        sides = np.array([width, height])
        scales = self.min_scale + (self.max_scale - self.min_scale) * numbers[:, :2]
        sizes = (sides * scales).astype(np.int64)
        corners = ((sides - sizes) * numbers[:, 2:]).astype(np.int64)
        return np.concatenate((corners, corners + sizes), axis=1)

    def _is_proportioned(self, tries: NDArray[np.int64]) -> NDArray[np.bool_]:
        wide, tall = (tries[:, 2:] - tries[:, :2]).T
        ratio = wide / np.maximum(tall, 1)
        is_fine: NDArray[np.bool_] = (tall > 0) & (wide > 0)
        is_fine &= (ratio >= self.min_aspect_ratio) & (ratio <= self.max_aspect_ratio)
        return is_fine


def check_boxes(transform: Any, fields: Iterable[Field]) -> None:
    """Raise SchemaError for a transform, or one within it, that looks at boxes, if no field has any."""
    looking = next(looking_at_boxes(transform), None)
    if looking is not None and not any(field.is_box for field in fields):
        raise SchemaError(f"{looking} looks at boxes, but samples have none: drop it, or add a field of boxes")


def looking_at_boxes(transform: Any) -> Iterator[Any]:
    """Yield what looks at boxes: the transform, or those within it."""
    if getattr(transform, "needs_boxes", False):
        yield transform
    for step in getattr(transform, "transforms", ()):
        yield from looking_at_boxes(step)


def _shows(boxes: NDArray[np.float64], tries: NDArray[np.int64], least: float) -> NDArray[np.bool_]:
    """Return which parts have the centre of a box, and enough in common with such a box."""
    low, high = boxes[None, :, :2], boxes[None, :, 2:]  # (1, boxes, 2)
    first, last = tries[:, None, :2], tries[:, None, 2:]  # (tries, 1, 2)
    centres = (low + high) / 2
    is_inside: NDArray[np.bool_] = np.all((first < centres) & (centres < last), axis=2)
    common = np.clip(np.minimum(high, last) - np.maximum(low, first), 0, None).prod(axis=2)
    union = (high - low).prod(axis=2) + (last - first).prod(axis=2) - common
    shares = np.where(is_inside, common / np.maximum(union, 1e-12), -1.0)
    is_shown: NDArray[np.bool_] = np.any(is_inside, axis=1) & (shares.max(axis=1) >= least)
    return is_shown
