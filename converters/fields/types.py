"""Fields as the user asks for them: ``--field NAME=WHERE[:TYPE]``, names from columns, paths into JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fastio.errors import SchemaError, SourceError
from fastio.types.field_types import field_of, type_of
from fastio.types.schema import Field

__all__ = [
    "FieldChoice",
    "PathCheck",
    "field_rank",
    "missing_part",
    "name_from_column",
    "parse_choice",
    "refuse_equal_names",
    "value_at",
]


_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class FieldChoice:
    """
    A field of the samples and where the source has it.

    ``where`` is what the kind of source makes of it: a column (``objects.bbox`` goes into JSON), a folder, a member's
    extension, a feature. ``field`` is the field with its type, None if the user leaves the type to the source.
    """

    name: str
    where: str
    field: Field | None = None

    def __str__(self) -> str:
        """
        Return the words that ``parse_choice`` takes; stores keep these in the record of their source, as "fields".

        >>> str(parse_choice("boxes=objects.bbox:xywh"))
        'boxes=objects.bbox:xywh'
        """
        return f"{self.name}={self.where}" + ("" if self.field is None else f":{type_of(self.field)}")


def parse_choice(words: str) -> FieldChoice:
    """
    Parse ``NAME=WHERE`` or ``NAME=WHERE:TYPE``, with a type that ``field_of`` takes.

    >>> parse_choice("mask=masks/"), parse_choice("boxes=objects.bbox:xywh").field.role
    (FieldChoice(name='mask', where='masks/', field=None), 'xywh')

    Raises SourceError for anything else. A colon in WHERE is no problem unless a type follows it.
    """
    name, equals, where = words.partition("=")
    if not (equals and where) or not _NAME.match(name):
        raise SourceError(
            f"--field {words}: expected NAME=WHERE or NAME=WHERE:TYPE, as in mask=masks/ or boxes=objects.bbox:xywh; "
            "names are lower-case letters, digits and _"
        )
    before, colon, type_ = where.rpartition(":")
    if colon and before:
        try:
            return FieldChoice(name, before, field_of(name, type_))
        except SchemaError:
            if "/" not in type_ and "\\" not in type_:
                raise
    return FieldChoice(name, where)


def field_rank(field: Field) -> int:
    """Return where a field of a table comes among others: pictures, masks, other values, columns, the label last."""
    if field.element.traits.is_picture:
        return 1 if field.element.traits.is_mask else 0
    return 2 if not field.is_column else 3 if field.name != "label" else 4


# Names of fields that columns of a table, or features of a record, give.


def name_from_column(place: str, kind: str, column: str) -> str:
    """
    Return the name of the field that a column becomes: in small letters, with "_" for whatever a name cannot have.

    ``kind`` is what messages call it. Raises SourceError if nothing is left.
    """
    name = re.sub(r"[^a-z0-9_]", "_", column.lower()).lstrip("_0123456789")
    if not name:
        raise SourceError(f"{place}: {kind} {column!r} cannot name a field: --field NAME={column} gives it a name")
    return name


def refuse_equal_names(place: str, kind: str, fields: Iterable[tuple[str, str]]) -> None:
    """Raise SourceError if two ``fields``, names with the columns that they come from, have one name."""
    columns: dict[str, str] = {}
    for name, column in fields:
        if name in columns:
            raise SourceError(
                f"{place}: {kind}s {columns[name]!r} and {column!r} would both be the field {name!r}: name the fields, "
                f"such as --field {name}_2={column}"
            )
        columns[name] = column


# Paths into JSON: what they lead to, and which part of one is nowhere.


class NamedTwiceError(ValueError):
    """An object of JSON has a name twice, and its value was to be read; the message follows a sample's key."""


class NamedTwice(dict[str, Any]):
    """An object of JSON in which ``name`` comes twice; readers keep the last of such values alone."""

    name = ""

    @property
    def words(self) -> str:
        """What is wrong with it, as a sentence."""
        return f"has the name {self.name!r} twice in an object, so it is unclear which one counts"


def json_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of these names and values, for ``object_pairs_hook``."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        found = NamedTwice(found)
        found.name = next(name for i, name in enumerate(names) if name in names[:i])
    return found


def value_at(document: Any, path: Sequence[str]) -> Any:
    """
    Return what a path leads to; of a list, what it leads to in each of its members. None where there is nothing.

    Raises KeyError for a path through a number or a text, NamedTwiceError for one through an object with a name twice.
    """
    if not path or document is None:
        return document
    if isinstance(document, list):
        return [value_at(each, path) for each in document]
    if not isinstance(document, dict):
        raise KeyError(path[0])
    if isinstance(document, NamedTwice):
        raise NamedTwiceError(document.words)
    return value_at(document.get(path[0]), path[1:])


def missing_part(name: str, document: Any, path: Sequence[str]) -> str:
    """
    Return which part of the path no object on the way has, in words; "" if there is one, or no object to tell by.

    ``name`` is what the document is called.

    >>> missing_part("objects", {"bbox": [], "kind": []}, ["bboxx"])
    "no 'bboxx' in 'objects', only 'bbox', 'kind'"
    """
    values = [document]
    for part in path:
        objects = [each for each in _members(values) if isinstance(each, dict)]
        if objects and not any(part in each for each in objects):
            return f"no {part!r} in {name!r}, only {', '.join(map(repr, objects[0]))}"
        values = [each[part] for each in objects if part in each]
        name = f"{name}.{part}"
    return ""


def _members(values: Sequence[Any]) -> Iterator[Any]:
    for each in values:
        if isinstance(each, list):
            yield from _members(each)
        else:
            yield each


@dataclass(slots=True)
class PathCheck:
    """
    Finds out whether a path leads to anything in at least one of many documents called ``name``.

    ``missing`` says, as ``missing_part``, what the first of them lacks; it is "" as soon as one lacks nothing.
    """

    name: str
    path: Sequence[str]
    missing: str = ""
    _is_there: bool = False

    def look_at(self, document: Any, value: Any) -> str:
        """Take one more document, in which the path leads to ``value``; return what it lacks, in words."""
        is_there = value is not None and not (isinstance(value, list) and all(each is None for each in value))
        missing = "" if is_there else missing_part(self.name, document, self.path)
        if is_there:
            self._is_there, self.missing = True, ""
        elif not self._is_there:
            self.missing = self.missing or missing
        return missing
