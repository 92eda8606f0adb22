"""The fields of a store that ``--field`` asks for: under other names, of other types, or from inside its JSON."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.codec.json_text import parse_json
from fastio.converters.fields_asked import FieldChoice
from fastio.converters.json_path import missing_part, value_at
from fastio.converters.listed import Indices, Read, Values
from fastio.converters.record_values import encode_values
from fastio.errors import SourceError
from fastio.types.schema import Field, Schema
from fastio.types.spans import Spans

__all__ = ["StoredField", "chosen_fields", "read_chosen"]


@dataclass(frozen=True, slots=True)
class StoredField:
    """``field`` is made of the stored field ``source``, or of what ``path`` leads to in its JSON."""

    field: Field
    source: Field
    path: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """What ``--field`` calls it."""
        return ".".join((self.source.name, *self.path))

    @property
    def is_as_stored(self) -> bool:
        """Whether every stored value is one of the new field, byte for byte."""
        if self.path or self.field.is_column != self.source.is_column:
            return False
        if self.field.traits.is_picture and self.source.traits.is_picture:
            return True
        return replace(self.field, name=self.source.name, role=self.source.role) == self.source


def chosen_fields(
    path: str,
    schema: Schema,
    extensions: Mapping[str, Sequence[str]],
    choices: Sequence[FieldChoice],
    without: Collection[str] = (),
) -> list[StoredField]:
    """
    Return the fields asked for, and those that stay without being asked for: the picture and the label; all, if none
    are asked for. Fields in ``without`` do not stay.

    WHERE is the name of a stored field, or an extension of members in tar shards of other tools, and may go on into
    JSON: ``json.objects.bbox`` is the ``bbox`` of each object. Raises SourceError for what is not there.
    """
    chosen = [_chosen(path, schema, extensions, choice) for choice in choices]
    names = [each.field.name for each in chosen]
    if len(set(names)) < len(names):
        raise SourceError(f"{path}: --field: a field is asked for twice, got {', '.join(names)}")
    taken = {each.source.name for each in chosen if not each.path}
    kept = [
        StoredField(field, field)
        for field in schema.fields
        if (not choices or field.name in ("image", "label")) and field.name not in {*names, *taken, *without}
    ]
    every = sorted([*kept, *chosen], key=lambda each: (each.field.is_column, each.field.name != "image"))
    renamed = {each.source.name: each.field.name for each in every if not each.path}
    owners = {**renamed, **{each.field.name: each.field.name for each in every}}
    return [replace(each, field=_with_owner(each.field, owners)) for each in every]


def _with_owner(field: Field, owners: Mapping[str, str]) -> Field:
    """The field whose rows belong to another by the new name of that one; to none if that one is not asked for."""
    if not field.owner:
        return field
    return replace(field, role=f"per:{owners[field.owner]}" if field.owner in owners else "")


def _chosen(path: str, schema: Schema, extensions: Mapping[str, Sequence[str]], choice: FieldChoice) -> StoredField:
    by_extension = {end: name for name, ends in extensions.items() for end in ends}
    parts = choice.where.split(".")
    for count in range(len(parts), 0, -1):
        name = ".".join(parts[:count])
        name = name if name in schema else by_extension.get(name, "")
        if name and name in schema:
            return _of(path, schema[name], tuple(parts[count:]), choice)
    names = ", ".join(field.name for field in schema.fields)
    raise SourceError(f"{path}: --field {choice}: there is no field {choice.where!r}; there is {names}")


def _of(path: str, source: Field, below: tuple[str, ...], choice: FieldChoice) -> StoredField:
    if below and not source.traits.is_json:
        raise SourceError(f"{path}: --field {choice}: {source.name!r} holds {source}, and only JSON has values in it")
    if below and choice.field is None:
        raise SourceError(f"{path}: --field {choice}: name the type of what is in the JSON, as in {choice}:xywh")
    return StoredField(choice.field or replace(source, name=choice.name), source, below)


def read_chosen(fields: Sequence[StoredField], read: Read, columns: Mapping[str, NDArray[Any]]) -> Read:
    """Make a ``Read`` for these fields from that of the store's payload fields, and its columns."""

    def begin(indices: Indices, pool: _native.ThreadPool | None) -> Callable[[], Values]:
        wait = read(indices, pool)
        return lambda: _converted(fields, wait(), {name: column[indices] for name, column in columns.items()})

    return begin


def _converted(fields: Sequence[StoredField], stored: Values, columns: Mapping[str, NDArray[Any]]) -> Values:
    spans: dict[str, Spans] = {}
    made: dict[str, NDArray[Any]] = {}
    problems = dict(stored.problems)
    for each in fields:
        name = each.field.name
        if each.is_as_stored and each.source.is_column:
            made[name] = columns[each.source.name]
        elif each.is_as_stored:
            spans[name] = stored.spans[each.source.name]
        else:
            values, bad = _values(each, stored, columns)
            encoded = encode_values(each.field, values)
            problems = {**encoded.problems, **bad, **problems}
            if encoded.spans is not None:
                spans[name] = encoded.spans
            elif encoded.column is not None:
                made[name] = encoded.column
    return Values(spans, problems, made)


def _values(of: StoredField, stored: Values, columns: Mapping[str, NDArray[Any]]) -> tuple[list[Any], dict[int, str]]:
    """The stored values as Python has them, and what is wrong with some."""
    source = of.source
    if source.is_column:
        return columns[source.name].tolist(), {}
    values: list[Any] = []
    problems: dict[int, str] = {}
    for i, view in enumerate(stored.spans[source.name].views()):
        value: Any = view.tobytes()
        if source.traits.is_json and not of.field.traits.is_text:
            try:
                document = parse_json(value)
                value = value_at(document, of.path)
                missing = "" if of.field.traits.is_json else missing_part(source.name, document, of.path)
                if missing:
                    problems.setdefault(i, f"has nothing for the field {of.field.name!r}: {missing}")
            except ValueError as exc:
                problems.setdefault(i, f"has a field {source.name!r} that is not JSON: {exc}")
                value = None
            except KeyError as exc:
                problems.setdefault(i, f"has no {exc.args[0]!r} in {source.name!r}: there is {document!r:.60}")
                value = None
        elif source.traits.is_plain and not source.traits.is_text:
            shape = [-1 if size is None else size for size in source.shape]
            value = np.frombuffer(value, source.dtype).reshape(shape)
        values.append(value)
    return values, problems
