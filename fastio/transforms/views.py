"""Views: several ways of seeing each picture, which is decoded once, for DINO, SimCLR and repeated augmentation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image

from fastio.errors import SchemaError
from fastio.transforms.compose import Compose
from fastio.transforms.joint import is_picture_field
from fastio.transforms.transform import BaseTransform
from fastio.types.options import explains_names
from fastio.types.schema import Field

__all__ = ["Views", "view_seed"]

AnyTransform = BaseTransform | Callable[[Any], Any]


def view_seed(seed: int, view: int) -> int:
    """
    Return the seed of a view: that of the first is ``seed``, so that it draws what a picture alone draws.

    >>> view_seed(7, 0), view_seed(7, 1) != view_seed(7, 2)
    (7, True)
    """
    return (seed + view * 0xD1B54A32D192ED03) % (1 << 64)


@dataclass(frozen=True)
class Views:
    """
    Views of each picture: pairs of a count and the transforms that make so many of them::

        views = Views([(2, [RandomResizedCrop(224), RandomHorizontalFlip()]), (8, [RandomResizedCrop(96)])])
        for (big, other, *small), labels in FastLoader("train.lmdb", 64, views=views):

    A batch's pictures become a list of tensors, here ten, in the order of the pairs. Labels and other fields come once.
    Called on a picture, it returns the list of its views, so ``FastDataset(path, transform=views)`` gives them sample
    by sample.

    Raises ValueError for no views, or a count below 1, and TypeError for what is not a pair.
    """

    groups: tuple[tuple[int, tuple[AnyTransform, ...]], ...]
    is_list: bool = True

    @explains_names()
    def __init__(self, groups: Iterable[tuple[int, Sequence[AnyTransform]]]) -> None:
        if isinstance(groups, (str, Mapping)) or not isinstance(groups, Iterable):
            raise TypeError(f"views={groups!r}: expected a number, or pairs (count, [transforms])")
        object.__setattr__(self, "groups", tuple(map(_group, groups)))
        if not self.groups:
            raise ValueError("views=[]: expected at least one pair (count, [transforms])")
        object.__setattr__(self, "is_list", True)

    @classmethod
    def joined(cls, count: int, transforms: Sequence[AnyTransform]) -> Views:
        """Return views that become one tensor, those of one number behind those of the number before."""
        views = cls([(count, transforms)])
        object.__setattr__(views, "is_list", False)
        return views

    @property
    def count(self) -> int:
        """The number of views of each picture."""
        return sum(count for count, _ in self.groups)

    @property
    def each(self) -> list[tuple[AnyTransform, ...]]:
        """The transforms of each view."""
        return [transforms for count, transforms in self.groups for _ in range(count)]

    def __call__(self, picture: Image.Image) -> list[Any]:
        """Return the views of one picture; they draw from torch's generator, as torchvision does."""
        return [_steps(transforms)(picture) for transforms in self.each]

    def for_blanks(self) -> Views:
        """As Compose.for_blanks."""
        return Views([(count, _steps(transforms).for_blanks().transforms) for count, transforms in self.groups])

    def for_fields(self, fields: Iterable[Field]) -> Callable[[Any], Any]:
        """
        Return this for whole samples of these fields, dicts or tuples; FastDataset calls this. SchemaError for fields
        that move with a picture.
        """
        fields = tuple(fields)
        check_fields(fields, where="views")
        return _SampleViews(self, fields)


def check_fields(fields: Iterable[Field], *, where: str) -> None:
    """Raise SchemaError for masks, boxes and points: of which view would they be?"""
    moved = [field.name for field in fields if field.element.traits.is_mask or field.role]
    if moved:
        raise SchemaError(
            f"{where}: {', '.join(moved)} would have to move with each view: leave "
            f"{'them' if len(moved) > 1 else 'it'} out by the dataset's fields="
        )


@dataclass(frozen=True)
class _SampleViews:
    """Views of the pictures of a sample, of lists a list for each view; those of several pictures are drawn alike."""

    views: Views
    fields: tuple[Field, ...]

    def __call__(self, sample: Any) -> Any:
        names = [field.name for field in self.fields]
        values = sample if isinstance(sample, Mapping) else dict(zip(names, sample, strict=True))
        seen = [_steps(transforms).for_fields(self.fields)(values) for transforms in self.views.each]
        pictures = [field.name for field in self.fields if is_picture_field(field.element)]
        made = {**values, **{name: [each[name] for each in seen] for name in pictures}}
        return made if isinstance(sample, Mapping) else tuple(made.values())


def _steps(transforms: Sequence[Any]) -> Compose:
    return Compose(transforms)


def _group(group: Any) -> tuple[int, tuple[AnyTransform, ...]]:
    if not (isinstance(group, (tuple, list)) and len(group) == 2 and type(group[0]) is int):
        raise TypeError(f"views: expected pairs (count, [transforms]), got {group!r}")
    count, transforms = group
    if count < 1:
        raise ValueError(f"views: expected a count of at least 1, got {count}")
    steps = list(transforms) if isinstance(transforms, Sequence) else [transforms]
    for step in steps:
        if isinstance(step, type) or not (isinstance(step, BaseTransform) or callable(step)):
            raise TypeError(f"views: expected transforms of fastio or functions in a list, got {step!r} in it")
    return count, tuple(steps)
