"""ByField: transforms by field, and which fields move together; ByFraction, for pictures of several sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastio.errors import SchemaError
from fastio.transforms.compose import Compose
from fastio.transforms.joint import is_picture_field
from fastio.transforms.transform import BaseTransform, LoaderTransform
from fastio.types.options import explains_fields, explains_names
from fastio.types.schema import Field

__all__ = ["ByField", "ByFraction", "leader_of"]

AnyTransform = BaseTransform | Callable[[Any], Any]
Names = str | tuple[str, ...]


@dataclass(frozen=True)
class ByField:
    """
    Transforms by field: a list for each, and for fields that move together, a list under all of their names::

        transforms = {
            ("image", "control", "mask"): [RandomResizedCrop(512), RandomHorizontalFlip()],
            "image": [ColorJitter(0.2, 0.2), Normalize(mean, std)],
            "reference": [Resize(224), CenterCrop(224)],
        }
        loader = FastLoader("pairs.lmdb", 16, transforms=transforms)

    Fields under one key get one crop and one flip: pictures, masks, boxes and points, and with boxes what is "per"
    them. Fields under different keys draw apart. A field in a key of several may have a key of its own, too, for what
    comes behind and moves nothing: colours, Normalize, functions, which draw apart again. A picture without a key stays
    as it is stored. Functions get the pictures of their field.

    FastLoader makes one of such a dict. ``FastDataset(path, transform=ByField(transforms))`` does the same sample by
    sample, for what a Compose takes.

    Raises TypeError for what is no such dict, ValueError for a field under two keys of several, or two of its own.
    """

    lists: Mapping[tuple[str, ...], tuple[AnyTransform, ...]]

    @explains_names()
    def __init__(self, lists: Mapping[Names, Sequence[AnyTransform] | AnyTransform]) -> None:
        if not isinstance(lists, Mapping):
            raise TypeError(f"ByField({lists!r}): expected a dict of fields and lists, such as {{'image': [...]}}")
        made: dict[tuple[str, ...], tuple[AnyTransform, ...]] = {}
        for key, steps in lists.items():
            names = (key,) if isinstance(key, str) else key
            if not (isinstance(names, tuple) and names and all(isinstance(name, str) for name in names)):
                raise TypeError(f"transforms: expected the name of a field, or a tuple of names, got {key!r}")
            others = {name for known in made if (len(known) == 1) == (len(names) == 1) for name in known}
            taken = next((name for name in names if name in others or names.count(name) > 1), None)
            if taken is not None:
                raise ValueError(
                    f"transforms: {taken!r} is named twice: expected one key for a field and those that move with it, "
                    "and one for what it gets alone"
                )
            made[names] = tuple(steps) if isinstance(steps, Sequence) else (steps,)
        object.__setattr__(self, "lists", made)

    @property
    def every(self) -> list[AnyTransform]:
        """The transforms of all lists."""
        return [step for steps in self.lists.values() for step in steps]

    def group(self, name: str) -> tuple[str, ...]:
        """Return the fields that move with this one, itself among them; () for a field without a key."""
        keys = sorted((key for key in self.lists if name in key), key=len, reverse=True)
        return keys[0] if keys else ()

    def parts(self, name: str) -> tuple[tuple[AnyTransform, ...], tuple[AnyTransform, ...]]:
        """Return what a field gets with its group, and what it gets alone behind that."""
        group = self.group(name)
        return self.lists.get(group, ()), self.lists.get((name,), ()) if len(group) > 1 else ()

    def without(self, kind: type) -> ByField:
        """Return this without transforms of a kind; a key that has had no others is left out."""
        kept = {key: [step for step in steps if not isinstance(step, kind)] for key, steps in self.lists.items()}
        return ByField({key: steps for key, steps in kept.items() if steps or not self.lists[key]})

    def check(self, fields: Mapping[str, Field], *, where: str) -> None:
        """Raise SchemaError for keys that name no pictures, and for what would stay where its picture moves."""
        known = {name: field.element for name, field in fields.items()}
        pictures = [name for name, field in known.items() if field.traits.is_picture or field.is_raw_picture]
        masks = [name for name in pictures if known[name].traits.is_mask]
        movable = [*pictures, *(name for name, field in known.items() if field.geometry)]
        for name in (name for key in self.lists for name in key):
            if name not in movable:
                got = "no such field" if name not in fields else str(fields[name])
                raise SchemaError(
                    f"{where}: transforms by field: {name!r}: {got}: expected pictures, masks, boxes or points among "
                    f"{', '.join(movable) or 'these, of which samples have none'}"
                )
        for key in self.lists:
            if not any(name in pictures for name in key):
                raise SchemaError(f"{where}: {', '.join(key)} move with a picture: name it in their key")
            is_apart = self.group(key[0]) == key and all(name in masks or name not in pictures for name in key)
            images = [
                name
                for name in pictures
                if name not in masks and (not fields[name].is_list or any(fields[each].is_list for each in key))
            ]
            if is_apart and images and any(getattr(step, "draws", 0) for step in self.lists[key]):
                raise SchemaError(
                    f"{where}: {', '.join(key)} would move apart from {', '.join(images)}: expected a mask in the key "
                    f"of its picture, as in ({images[0]!r}, {key[0]!r}): [...]"
                )
            leader = leader_of([fields[name] for name in key])
            alone = next((name for name in key if not fields[name].is_list), None)
            if leader is not None and fields[leader].is_list and alone is not None:
                raise SchemaError(
                    f"{where}: {alone!r} is one value a sample, but would move with {fields[leader]}: expected a "
                    f"picture of the sample in its key, too, or lists alone: give {alone!r} a key of its own"
                )
        left = [
            name for name in movable if not self.group(name) and (known[name].traits.is_mask or name not in pictures)
        ]
        if left:
            raise SchemaError(
                f"{where}: {', '.join(left)} would stay where pictures move: name {'them' if len(left) > 1 else 'it'} "
                f"with a picture, as in ({pictures[0]!r}, {left[0]!r}): [...], or leave it out by fields="
            )

    def for_fields(self, fields: Iterable[Field]) -> Callable[[Any], Any]:
        """
        Return this for samples of these fields, dicts or tuples; FastDataset calls this. Raises SchemaError for keys
        that do not fit them.
        """
        known = {field.name: field for field in fields}
        self.check(known, where="a sample")
        steps = []
        for key in sorted(self.lists, key=len, reverse=True):
            owned = [field for field in known.values() if field.name in key or field.owner in key]
            leader = leader_of(owned) or ""
            led = {field.name: leader for field in owned if field.is_list and field.name != leader}
            steps.append(Compose(self.lists[key]).for_key(owned, led))  # type: ignore[arg-type] # which checks them
        return _SampleSteps(tuple(known), steps)

    def __call__(self, sample: object) -> None:
        """Raise TypeError: of a value alone, it is not known which field it is."""
        raise TypeError(
            "transforms by field are for samples that are a tuple or a dict: leave out fields=, or pass names"
        )


def leader_of(fields: Sequence[Field]) -> str | None:
    """
    Return the field that those of a key move with: the first picture, or else the first list of pictures, mask or list
    of masks; None if there is none of these.
    """
    kinds = [
        [field.name for field in fields if field.is_list == is_list and test(field.element)]
        for test in (is_picture_field, lambda element: element.traits.is_mask)
        for is_list in (False, True)
    ]
    return next((names[0] for names in kinds if names), None)


@dataclass(frozen=True, slots=True)
class _SampleSteps:
    """Transforms of samples, dicts or tuples of these ``names``, one after the other."""

    names: tuple[str, ...]
    steps: Sequence[Callable[[Any], Any]]

    def __call__(self, sample: Any) -> Any:
        values = dict(sample) if isinstance(sample, Mapping) else dict(zip(self.names, sample, strict=True))
        for step in self.steps:
            values = step(values)
        return values if isinstance(sample, Mapping) else tuple(values.values())


@explains_fields
@dataclass(frozen=True)
class ByFraction(LoaderTransform):
    """
    Let pictures of one sample differ in size: an entry of ``transforms``, wherever it stands. Without one, a sample
    whose pictures or masks differ in size is bad.

    The crop is drawn for the first picture, and the others get the part of themselves that lies at the same fractions
    of height and width, rounded to whole pixels, resized to the same size. So photos and their maps of depth in half
    the size are cropped jointly. It is for pictures that native threads decode: of others, a sample whose sizes differ
    is bad.
    """

    @property
    def draws(self) -> int:
        """Always 0."""
        return 0

    def refusal(self) -> TypeError:
        """Return the error of those who ask for it where pictures are transformed one by one."""
        return TypeError(f"{self!r} is for what FastLoader decodes: pass it to FastLoader(..., transforms=[...])")
