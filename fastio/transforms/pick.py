"""Pick: one element of each list, drawn anew in every epoch, or none."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.dataset.bfloat16 import sample_value
from fastio.errors import SampleError, SchemaError
from fastio.lazy import torch, torch_if_there
from fastio.transforms.arguments import check_probability
from fastio.transforms.fused import uniform
from fastio.transforms.joint import drawn
from fastio.transforms.transform import LoaderTransform
from fastio.types.options import explains_names
from fastio.types.schema import Field, Schema

__all__ = ["Pick", "picked_schema"]

_SEED = 0xA24BAED4963EE407  # added to the seed: no other transform has these numbers
_NONE = -1


@dataclass(frozen=True)
class Pick(LoaderTransform):
    """
    Draw one element of each sample's list: a caption of several, or a page, and perhaps none::

        FastLoader("pairs.lmdb", 256, shuffle=True, transforms=[RandomResizedCrop(224), Pick("captions", drop=0.1)])

    Which one depends on seed, epoch and sample alone, evenly among as many as the sample has. The batch then has one
    value for each sample, as of a field without lists: texts are a list of strings, token ids are padded with a mask
    or as ``collate=`` says. With the probability ``drop`` it is none, as classifier-free guidance is trained, and also
    for an empty list: an empty text, no token ids, no rows, or what ``empty`` says, such as ``empty=[49406, 49407]``,
    the ids of an empty text. Lists of pictures and of arrays of one shape (``float32[768][*]``) become a value that may
    be missing, as of ``image?``. Only what is drawn is read and decoded.

    Several ``fields`` are drawn and dropped together: each sample has equally many elements in all of them. Two
    Picks in one list draw apart. A field that is no list has one element, which may be dropped: texts, bytes, token ids
    and arrays of different lengths can.

    It stands anywhere in ``transforms``. ``FastDataset(path, transform=Pick("captions"))`` picks, too, by torch's
    generator, or NumPy's in a program that has not imported torch.

    Raises ValueError for no fields, or a ``drop`` that is no probability.
    """

    fields: tuple[str, ...]
    drop: float = 0.0
    empty: Any = None

    @explains_names()
    def __init__(self, *fields: str, drop: float = 0.0, empty: Any = None) -> None:
        wrong = next((name for name in fields if not isinstance(name, str)), None)
        if not fields or wrong is not None or len({*fields}) < len(fields):
            raise ValueError(f"Pick{fields!r}: expected names of fields, each once, such as Pick('captions', drop=0.1)")
        check_probability(drop)
        object.__setattr__(self, "fields", tuple(fields))
        object.__setattr__(self, "drop", float(drop))
        object.__setattr__(self, "empty", tuple(empty) if isinstance(empty, list) else empty)

    def __repr__(self) -> str:
        names = ", ".join(map(repr, self.fields))
        return f"Pick({names}, drop={self.drop!r}{'' if self.empty is None else f', empty={self.empty!r}'})"

    @property
    def draws(self) -> int:
        """Two numbers: which element, and whether none."""
        return 2

    def refusal(self) -> TypeError:
        """Return the error of those who ask for it where pictures are transformed one by one."""
        return TypeError(
            f"{self!r} is for samples with lists: pass it to FastLoader(..., transforms=[...]), or as it is to "
            "FastDataset(path, transform=...)"
        )

    def places(self, ids: NDArray[np.int64], counts: NDArray[np.int64], *, seed: int, epoch: int) -> NDArray[np.int64]:
        """Return which of its ``counts`` elements each sample gets, int64 ``(n,)``; -1 for none."""
        own = (seed + _SEED + zlib.crc32(self.fields[0].encode())) % (1 << 64)
        return self._places(uniform(ids, self.draws, seed=own, epoch=epoch), counts)

    def drawn(self, count: int) -> int | None:
        """Return which of so many elements comes, by the generator of torch or NumPy; None for none."""
        place = int(self._places(drawn(self.draws)[None], np.array([count]))[0])
        return None if place == _NONE else place

    def _places(self, numbers: NDArray[np.float64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
        places = (numbers[:, 0] * counts).astype(np.int64)
        return np.where((counts == 0) | (numbers[:, 1] < self.drop), _NONE, places)

    def check(self, fields: Mapping[str, Field], *, where: str) -> None:
        """Raise SchemaError for fields of samples that it cannot pick from; ``where`` begins the message."""
        for name in self.fields:
            field = fields.get(name)
            if field is None or not _can_pick(field):
                got = "no such field" if field is None else str(field)
                raise SchemaError(
                    f"{where}: {self!r}: expected lists, texts, bytes, token ids or arrays of different lengths, got "
                    f"{got} for {name!r} among {', '.join(fields)}"
                )
            if self.empty is not None and not isinstance(self.empty, _kinds(field)):
                raise SchemaError(
                    f"{where}: {self!r}: empty={self.empty!r} does not fit {field.element}: pass a text for texts, a "
                    "list of ids for token ids, bytes for bytes, and nothing for others"
                )

    def missing(self, field: Field) -> Any:
        """Return what a batch or sample has of a field where nothing was drawn; token ids and rows as an array."""
        traits = field.element.traits
        if traits.has_rows:
            return None
        if traits.is_tokens:
            return np.array(() if self.empty is None else self.empty, np.int64)
        if traits.is_ragged or traits.is_npy:
            return np.empty(tuple(size or 0 for size in field.shape), field.dtype)
        return ("" if traits.is_text else b"") if self.empty is None else self.empty

    def for_fields(self, fields: Iterable[Field]) -> Callable[[Any], Any]:
        """
        Return this for samples of these fields, dicts or tuples; FastDataset calls this. Raises SchemaError for fields
        that it cannot pick from.
        """
        known = {field.name: field for field in fields}
        self.check(known, where="a sample")
        return _PickSample(self, known)

    def __call__(self, value: object) -> None:
        """Raise TypeError: of a value alone, it is not known what it is."""
        raise TypeError(
            f"{self!r} picks from samples that are a tuple or a dict: pass FastDataset(path, fields={self.fields!r})"
        )


@dataclass(frozen=True, slots=True)
class _PickSample:
    """A Pick of samples of these fields."""

    pick: Pick
    fields: Mapping[str, Field]

    def __call__(self, sample: Any) -> Any:
        values = sample if isinstance(sample, Mapping) else dict(zip(self.fields, sample, strict=True))
        lists = {name: self._elements(self.fields[name], values[name]) for name in self.pick.fields}
        counts = {name: len(each) for name, each in lists.items()}
        if len({*counts.values()}) > 1:
            raise SampleError(f"{self.pick!r}: lists of different lengths: {counts}")
        place = self.pick.drawn(counts[self.pick.fields[0]])
        made = {
            name: self._missing(self.fields[name]) if place is None else each[place] for name, each in lists.items()
        }
        return {**values, **made} if isinstance(sample, Mapping) else tuple({**values, **made}.values())

    def _elements(self, field: Field, value: Any) -> Sequence[Any]:
        if field.is_list and not field.is_optional:
            elements: Sequence[Any] = value
            return elements
        return [] if value is None else [value]

    def _missing(self, field: Field) -> Any:
        missing = self.pick.missing(field)
        if field.element.traits.is_tokens and torch_if_there() is not None:
            return torch.from_numpy(missing)
        return sample_value(missing) if isinstance(missing, np.ndarray) else missing


def picked_schema(schema: Schema, picks: Sequence[Pick]) -> Schema:
    """
    Return the schema of samples of which ``picks`` have drawn: a value in the place of a list, or, of pictures and
    arrays of one shape, one that may be missing.
    """
    names = {name for pick in picks for name in pick.fields}
    if not names:
        return schema
    return replace(schema, fields=tuple(_picked(f) if f.name in names else f for f in schema.fields))


def _picked(field: Field) -> Field:
    element = field.element
    return element.listed(is_optional=True) if element.traits.has_rows else element


def _can_pick(field: Field) -> bool:
    traits = field.traits
    return field.is_list or not (field.is_column or field.role or traits.has_rows or traits.is_json)


def _kinds(field: Field) -> tuple[type, ...]:
    """Return the types that ``empty`` may have for a field; none if it takes no ``empty``."""
    traits = field.element.traits
    if traits.is_tokens:
        return (tuple,)
    if traits.is_text:
        return (str,)
    return (bytes,) if not (traits.has_rows or traits.is_ragged or traits.is_npy) else ()
