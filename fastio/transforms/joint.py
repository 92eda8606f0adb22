"""JointTransform: transforms of whole samples, whose pictures, masks, boxes and points are all moved alike."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fastio.errors import SampleError, SchemaError
from fastio.lazy import is_tensor, torch
from fastio.transforms.arguments import Fill
from fastio.transforms.canvas import AxisName, Boxes, Canvas, Ints, PixelFunction, Rule, Steps
from fastio.transforms.frames import Frames, Rows, move_targets
from fastio.transforms.matrices import Warp
from fastio.transforms.plain import PlainMask, PlainPicture
from fastio.types.schema import Field

__all__ = ["JointTransform", "drawn", "is_picture_field", "leaders_of_lists"]


@dataclass(frozen=True)
class JointTransform:
    """
    A transform of whole samples: dicts by field names, or tuples in the order of ``fields``.

    Pictures, masks, boxes and points of a sample get the same random numbers, and go through each step together, as in
    torchvision v2: masks by the nearest pixel, boxes and points by ``move_targets``. Everything else stays as it is.
    Values are PIL images, NumPy arrays or tensors, and stay that; the sample itself is not changed. ``KeepGeometry``
    and ``KeepCrop`` add fields.

    Pictures of lists get numbers by their place, each for itself; ``leaders`` says which fields of lists move with
    others: each element with that at its place in another list, or all with the picture of the sample.
    ``Transform.for_fields`` makes one, and FastDataset calls that.
    """

    transform: Steps
    fields: tuple[Field, ...]
    leaders: Mapping[str, str] = dataclass_field(default_factory=dict)

    def __call__(self, sample: Any) -> Any:
        """Draw the numbers as ``drawn`` does, for each place of the longest list in turn."""
        values = sample if isinstance(sample, Mapping) else dict(zip(map(_name_of, self.fields), sample, strict=True))
        places = max((len(_elements(values[f.name])) for f in self._lists(values)), default=0)
        draws = self.transform.draws
        return self.apply(sample, drawn(draws * max(1, places)).reshape(max(1, places), draws))

    def apply(self, sample: Any, numbers: NDArray[np.float64]) -> Any:
        """
        Like a call, but with given numbers ``(draws,)``, or of lists ``(places, draws)``: those of the first place are
        those of fields without lists, too.

        Raises ValueError if pictures and masks that move together differ in size, or there are none, and SampleError
        for a list that has another number of elements than the list that it moves with.
        """
        numbers = np.atleast_2d(numbers)
        if isinstance(sample, Mapping):
            return {**sample, **self._moved(sample, numbers)}
        values = dict(zip(map(_name_of, self.fields), sample, strict=True))
        return tuple({**values, **self._moved(values, numbers)}.values())

    def _lists(self, values: Mapping[str, Any]) -> list[Field]:
        """Return the fields of lists of pictures and masks that a sample has."""
        lists = [field for field in self.fields if field.is_list and field.name in values]
        return [field for field in lists if is_picture_field(field.element) or field.element.traits.is_mask]

    def _moved(self, values: Mapping[str, Any], numbers: NDArray[np.float64]) -> dict[str, Any]:
        """Return the fields that the transform changes."""
        lists = {field.name: field for field in self._lists(values)}
        made = {name: [*_elements(values[name])] for name in lists}
        led = {name: self.leaders.get(name, name) for name in lists}
        alone = [field for field in self.fields if field.name in values and not field.is_list]
        is_alone = any(_is_picture(f, values[f.name]) or f.traits.is_mask for f in alone)
        moved: dict[Any, Any] = {}
        if is_alone or not lists:
            beside = {(name, i): e for name in lists if led[name] not in lists for i, e in enumerate(made[name])}
            moved = self._moved_together(alone, values, lists, beside, numbers[:1])
        for leader in (name for name in lists if led[name] == name):
            names = [name for name in lists if led[name] == leader]
            for name in names:
                if len(made[name]) != len(made[leader]):
                    raise SampleError(
                        f"field {name!r}: has {len(made[name])}, but {leader!r} {len(made[leader])}: expected equally "
                        "many, which move together"
                    )
            for place in range(len(made[leader])):
                beside = {(name, place): made[name][place] for name in names}
                moved |= self._moved_together([], values, lists, beside, numbers[[place]])
        for name, place in [key for key in moved if isinstance(key, tuple)]:
            made[name][place] = moved.pop((name, place))
        return moved | {name: (made[name] or [None])[0] if f.is_optional else made[name] for name, f in lists.items()}

    def _moved_together(
        self,
        fields: Sequence[Field],
        values: Mapping[str, Any],
        lists: Mapping[str, Field],
        elements: Mapping[tuple[str, int], Any],
        numbers: NDArray[np.float64],
    ) -> dict[Any, Any]:
        """
        Return what the transform makes of these fields of a sample, by name, and of ``elements`` of its ``lists``, by
        name and place, all with one row of numbers.
        """
        pictures: dict[Any, PlainPicture] = {
            f.name: PlainPicture(values[f.name]) for f in fields if _is_picture(f, values[f.name])
        }
        masks: dict[Any, PlainMask] = {f.name: PlainMask(values[f.name]) for f in fields if f.traits.is_mask}
        for key, element in elements.items():
            if lists[key[0]].element.traits.is_mask:
                masks[key] = PlainMask(element)
            else:
                pictures[key] = PlainPicture(element)
        size = _common_size({**pictures, **masks})
        frames = Frames(*(np.array([side]) for side in size))
        ragged = {f.name: values[f.name] for f in fields if f.geometry or f.owner}
        rows = {name: _rows(value) for name, value in ragged.items()}
        boxes = next((field for field in fields if field.is_box and field.name in rows), None)
        if boxes is not None:
            frames.know(boxes, rows[boxes.name])
        self.transform.run(_Together((frames, *pictures.values(), *masks.values())), numbers)
        frames.clip()
        if frames.adds and not fields:
            raise ValueError(f"the transforms add {' and '.join(frames.adds)}, but a list has one for each picture")
        taken = next((name for name in frames.adds if name in values), None)
        if taken is not None:
            raise ValueError(f"the sample has a field {taken!r}, which the transforms would replace: leave one out")
        moved = move_targets(fields, rows, frames)
        return {
            **{key: canvas.picture for key, canvas in pictures.items()},
            **{key: canvas.mask for key, canvas in masks.items()},
            **{name: _like(moved[name].values, value) for name, value in ragged.items()},
            **{name: added[0] for name, added in frames.added(1).items()},
        }


def leaders_of_lists(fields: Iterable[Field], *, where: str) -> dict[str, str]:
    """
    Return which field each list of masks moves with, by name: with the picture of its sample, or of samples that have
    a list of pictures instead, each mask with the picture at its place. Pictures of lists move each by itself.

    Raises SchemaError for masks that could move with several fields, or with none, and for masks, boxes and points of
    the sample that would stay where pictures of lists move; ``where`` begins the message.
    """
    known = list(fields)
    masks = [field.name for field in known if field.is_list and field.element.traits.is_mask]
    pictures = [field for field in known if is_picture_field(field.element)]
    lists = [field.name for field in pictures if field.is_list]
    single = next((field.name for field in pictures if not field.is_list), None)
    left = [field.name for field in known if field.geometry or (field.traits.is_mask and not field.is_list)]
    if lists and single is None and left:
        raise SchemaError(
            f"{where}: pictures of {lists[0]!r} are moved each by itself, and {', '.join(left)} could not follow: "
            f"leave {'them' if len(left) > 1 else 'it'} out by fields="
        )
    if not masks:
        return {}
    if (single is None) == (len(lists) != 1):
        among = ", ".join(field.name for field in pictures) or "none"
        raise SchemaError(
            f"{where}: it is not known with which picture each mask of {masks[0]!r} moves: expected one field of "
            f"pictures beside it, got {among}: write transforms by field, as in {{('images', {masks[0]!r}): [...]}}, "
            "or leave one out by fields="
        )
    return dict.fromkeys(masks, single or lists[0])


def is_picture_field(field: Field) -> bool:
    """Whether values are pictures or raw arrays that are, and no masks."""
    return (field.traits.is_picture and not field.traits.is_mask) or field.is_raw_picture


def _name_of(field: Field) -> str:
    return field.name


def _elements(value: Any) -> Sequence[Any]:
    """Return the elements of a list; of a value that may be missing one or none."""
    if value is None:
        return ()
    return value if isinstance(value, (list, tuple)) else (value,)


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


def _common_size(canvases: Mapping[Any, Canvas]) -> tuple[int, int]:
    """Return height and width of pictures and masks. Raises ValueError if they are not the same for all."""
    sizes = {_called(key): (int(canvas.height[0]), int(canvas.width[0])) for key, canvas in canvases.items()}
    if not sizes:
        raise ValueError("the sample has no picture and no mask, whose size the transforms need: ask for that field")
    (first, size), *others = sizes.items()
    for name, other in others:
        if other != size:
            raise ValueError(
                f"field {name} is {other[0]}x{other[1]}, but {first} {size[0]}x{size[1]} (height x width): leave "
                "one out by fields=, or pack them in one size"
            )
    return size


def _called(key: str | tuple[str, int]) -> str:
    """Return what a field or an element of its list is called."""
    return repr(key) if isinstance(key, str) else f"{key[0]!r}[{key[1]}]"


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
