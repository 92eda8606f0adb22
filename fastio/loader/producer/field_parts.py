"""Which transforms each field gets, with which random numbers, and which fields follow the plan of which."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastio.dataset.fast_dataset import FastDataset
from fastio.transforms.batch.choice import mixes_of
from fastio.transforms.batch.program import PixelTransform
from fastio.transforms.batch.recipe import is_geometry, split
from fastio.transforms.by_field import ByField, ByFraction, leader_of
from fastio.transforms.transform import LoaderTransform

__all__ = ["FieldPart", "by_field_parts", "first_picture", "leaders_of"]

_GROUPS, _FIELDS = 0x8EBC6AF09C88C6E3, 0x589965CC75374CC3  # added to seeds: of fields that move together, of one alone


@dataclass(frozen=True, slots=True)
class FieldPart:
    """
    What is done to one field: ``native`` by the pass that decodes, with numbers of ``seed``, then ``later``, with those
    of ``later_seed``. Its plan is that of ``leader``, which may be the field itself; ``by_fraction``, also of another
    size.
    """

    native: Sequence[Any]
    later: Sequence[Any]
    leader: str
    seed: int
    later_seed: int
    by_fraction: bool = False


def first_picture(dataset: FastDataset, names: Sequence[str]) -> str | None:
    """Return the first picture among these fields, or the first mask if there is none; lists are left out."""
    readers = [
        reader
        for reader in (dataset.reader, *dataset.readers.values())
        if reader.field.name in names
        and reader.field.name in dataset.readers
        and reader.field.name not in dataset.lists
    ]
    for reader in readers:
        if reader.is_picture:
            return reader.field.name
    return next((reader.field.name for reader in readers if reader.is_mask), None)


def by_field_parts(dataset: FastDataset, by_field: ByField, *, seed: int) -> dict[str, FieldPart]:
    """
    Return what is done to each field that is a picture or moves with one; rows "per" boxes go with these.

    Fields that move with the main picture draw with ``seed``, as in a list for all, and so does what that picture gets
    alone. Raises ValueError or SchemaError, in one line, for lists that cannot be done so.
    """
    path, schema = dataset.store.path, dataset.store.schema
    _check_steps(by_field, path)
    by_field.check({name: schema[name] for name in dataset.form.names}, where=path)
    lists = (name for name in dataset.lists if dataset.readers[name].is_picture)
    main = first_picture(dataset, dataset.form.names) or next(lists, None)
    parts: dict[str, FieldPart] = {}
    for name, reader in dataset.readers.items():
        owner = reader.field.owner
        if not (reader.is_picture or reader.is_mask or reader.field.geometry or owner):
            continue
        group = by_field.group(owner or name)
        shared, own = by_field.parts(owner or name)
        leader = leader_of([schema[each] for each in dataset.readers if each in group]) or name
        native, later = split([step for step in shared if not isinstance(step, ByFraction)], resident=False)
        if len(group) > 1 and later and any(by_field.parts(each)[1] for each in group):
            raise ValueError(
                f"{path}: {later[0]!r} for {', '.join(group)} together, some of which have a list of their own: write "
                "it there, behind crops, resizes and flips that all of them share"
            )
        moving = next((step for step in own if is_geometry(step) or _moves(step)), None)
        if moving is not None:
            others = ", ".join(each for each in group if each != name)
            raise ValueError(
                f"{path}: {moving!r} for {name!r} alone would move it away from {others}: write it into the list that "
                "they share, or give each a key of its own"
            )
        alone = (*(later if group == (name,) else ()), *own)
        if alone and not reader.is_picture:
            raise ValueError(f"{path}: {name!r} is no picture: expected crops, resizes and flips, got {alone[0]!r}")
        group_seed = seed if main in group else _mixed(seed, _GROUPS, leader)
        parts[name] = FieldPart(
            native,
            [*later, *own] if reader.is_picture else [],
            leader,
            group_seed,
            (seed if name == main else _mixed(seed, _FIELDS, name)) if own else group_seed,
            any(isinstance(step, ByFraction) for step in shared),
        )
    return parts


def _check_steps(by_field: ByField, path: str) -> None:
    """Raise ValueError for transforms that need whole samples or batches."""
    for step in by_field.every:
        if (isinstance(step, LoaderTransform) and not isinstance(step, ByFraction)) or mixes_of(step):
            raise ValueError(f"{path}: {step!r} in transforms by field: it needs whole samples: pass one list for all")


def _moves(step: object) -> bool:
    return isinstance(step, PixelTransform) and step.moves


def _mixed(seed: int, salt: int, name: str) -> int:
    return (seed + salt + zlib.crc32(name.encode())) % (1 << 64)


def leaders_of(parts: Mapping[str, FieldPart]) -> dict[str, str]:
    """Return which field's plan each field follows, of those that transforms move."""
    return {name: part.leader for name, part in parts.items() if part.native}
