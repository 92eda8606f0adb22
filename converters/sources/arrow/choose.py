"""Decides which columns of a table become which fields: those asked for, or all, by their types."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fastio.converters.fields.types import FieldChoice, field_rank, name_from_column, refuse_equal_names, value_at
from fastio.converters.labels.columns import ALL_OTHERS
from fastio.converters.sources.arrow.columns import is_bytes, plain_type, type_at
from fastio.converters.sources.arrow.reading import (
    class_names,
    feature_at,
    inner_class_names,
)
from fastio.converters.sources.arrow.values import field_by_type
from fastio.converters.sources.column_kinds import ColumnKind, column_kind, field_of_values
from fastio.converters.sources.columns import FIRST_VALUES, SourceColumns, is_empty
from fastio.converters.sources.kind import SourceOptions
from fastio.converters.sources.optional import pyarrow
from fastio.converters.sources.tables.titles import column_path
from fastio.errors import SourceError
from fastio.types.field_types import FIELD_TYPES, type_of
from fastio.types.schema import Field

__all__ = [
    "Column",
    "Peek",
    "TableHead",
    "choose_columns",
    "has_pictures",
    "parts_left_out",
    "path_to",
    "settled_columns",
]


Peek = Callable[[Sequence[str]], bytes | None]  # the first value of bytes at a path

_LABEL = "label"


@dataclass(frozen=True, slots=True)
class Column:
    """
    A field of the samples and the column that it is read from; ``path`` leads from the column into its structs.

    ``feature`` is what ``datasets`` notes of it. ``is_label``: whole numbers, or names that become numbers. ``kind`` is
    the way in which its values stand for bytes, None if they are what they are.
    """

    field: Field
    path: tuple[str, ...]
    feature: Any = None
    is_label: bool = False
    kind: ColumnKind | None = None

    @property
    def where(self) -> str:
        """The path, in the words of ``--field``."""
        return ".".join(self.path)

    @property
    def choice(self) -> FieldChoice:
        """What the user could have typed for it."""
        return FieldChoice(self.field.name, self.where, self.field)

    @property
    def names(self) -> dict[str, list[str]]:
        """The names of classes in it, by field, or by field and path within JSON."""
        if self.is_label:
            return {}
        return dict(inner_class_names(self.feature, self.field.name))


@dataclass(frozen=True, slots=True)
class TableHead:
    """
    The first file of a source, whose columns tell the fields: its path, its schema, and the values in it.

    ``features`` are what ``datasets`` notes of the columns; ``columns`` looks at all of them.
    """

    place: str
    schema: Any
    features: Mapping[str, Any]
    peek: Peek
    columns: SourceColumns


def choose_columns(table: TableHead, options: SourceOptions) -> list[Column]:
    """
    Return the fields of the samples, pictures first and the label last.

    With ``--field`` these are the fields asked for, otherwise all columns that are not ignored and not the key or a
    filter. The label is the column of ``--label-column``, else the one called label, else the only one of which
    ``datasets`` notes the names of classes. Raises SourceError, with what to type, for columns that are not there or
    fit no field, and for names that come twice.
    """
    features, columns = table.features, options.columns
    if not columns.header:
        raise SourceError(f"{table.place}: its columns have names: drop --no-header")
    ignored = set(columns.ignore_columns)  # ``columns_of`` refuses those that no file has
    chosen = [_asked(table, choice, features) for choice in options.fields]
    label = _label_path(table, features, options, ignored)
    if label is not None:
        chosen.append(_label(table, label, feature_at(features, label)))
    if not options.fields and ALL_OTHERS not in columns.ignore_columns:
        used = ignored | {path[0] for path in _selecting(table, options) if len(path) == 1}
        used |= {each.path[0] for each in chosen}
        others = [(name,) for name in table.schema.names if name not in used]
        chosen = [*_by_rule(table, others, features), *chosen]
    if not chosen:
        raise SourceError(f"{table.place}: no column is left to pack, of {_listed(table.schema)}")
    refuse_equal_names(table.place, "column", ((each.field.name, each.where) for each in chosen))
    return sorted(chosen, key=lambda each: field_rank(each.field))


def _selecting(table: TableHead, options: SourceOptions) -> list[tuple[str, ...]]:
    """The columns that give keys and filters."""
    key, filters = options.columns.key_column, options.columns.filters
    paths = [path_to(table, name, f"--filter {name}={value}") for name, value in filters]
    return paths if key is None else [path_to(table, key, f"--key-column {key}"), *paths]


def settled_columns(columns: Sequence[Column], options: SourceOptions, selecting: Collection[str]) -> set[str]:
    """Return the columns that are packed as pictures, as the type that the user named, or that select rows."""
    typed = {choice.name for choice in options.fields if choice.field is not None}
    packed = {each.path[0] for each in columns if each.field.traits.is_picture or each.kind or each.field.name in typed}
    return packed | set(selecting)


def parts_left_out(table: TableHead, paths: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the parts of structs that none of ``paths`` leads to, of columns of which other parts are packed."""
    whole = {path[0] for path in paths if len(path) == 1}
    taken = {path[:2] for path in paths}
    return [
        f"{name}.{part}"
        for name in dict.fromkeys(path[0] for path in paths if path[0] not in whole)
        for part in _parts(table.schema.field(name).type)
        if (name, part) not in taken
    ]


def _parts(type_: Any) -> list[str]:
    """The names of the parts of a struct, or of the structs in a list."""
    plain = plain_type(type_)
    while not pyarrow("to read tables").types.is_struct(plain):
        plain = plain_type(plain.value_type)
    return [part.name for part in plain]


def has_pictures(table: TableHead) -> bool:
    """Return whether a column holds pictures."""
    features = table.features
    for name in table.schema.names:
        if table.schema.names.count(name) == 1 and is_bytes(table.schema.field(name).type):
            field = field_by_type("it", table.schema.field(name).type, features.get(name), partial(table.peek, (name,)))
            if field.traits.is_picture:
                return True
        elif table.schema.names.count(name) == 1 and column_kind(_values_at(table, (name,))):
            return True
    return False


def path_to(table: TableHead, where: str, words: str = "") -> tuple[str, ...]:
    """
    Return the column that ``where`` names, followed by the parts of structs: ``objects.bbox``.

    Raises SourceError if there is none; ``words`` are what the user typed.
    """
    names = table.schema.names
    parts = column_path(where, dict.fromkeys(names))
    if parts is None:
        raise SourceError(f"{table.place}: {words}: there is no such column among {_listed(table.schema)}")
    if names.count(parts[0]) > 1:
        raise SourceError(
            f"{table.place}: has {names.count(parts[0])} columns named {parts[0]!r}, so it is unclear which one counts"
        )
    type_at(table.place, table.schema, parts)
    return parts


def _listed(schema: Any) -> str:
    return ", ".join(f"{each.name!r} ({each.type})" for each in schema)


def _asked(table: TableHead, choice: FieldChoice, features: Mapping[str, Any]) -> Column:
    """A field that the user named; without a type, the column's own."""
    path = path_to(table, choice.where, f"--field {choice}")
    feature = feature_at(features, path)
    if choice.field is not None:
        is_label = choice.name == _LABEL and choice.field == Field(_LABEL, *FIELD_TYPES["label"])
        takes_bytes = choice.field.traits.is_picture or type_of(choice.field) == "bytes"
        kind = column_kind(_values_at(table, path)) if takes_bytes else None
        return Column(choice.field, path, feature, is_label=is_label, kind=kind)
    if choice.name == _LABEL:
        return _label(table, path, feature)
    return _of_type(table, choice.name, path, feature)


def _values_at(table: TableHead, path: Sequence[str]) -> list[Any]:
    """The first texts of a column, or of a part of its structs, that are not empty; none of other columns."""
    types = pyarrow("to read tables").types
    if not any(is_(type_at(table.place, table.schema, path)) for is_ in (types.is_string, types.is_large_string)):
        return []
    values = (value_at(value, path[1:]) for value in table.columns.first_values(path[0]))
    return [value for value in values if not is_empty(value)][:FIRST_VALUES]


def _of_type(table: TableHead, name: str, path: tuple[str, ...], feature: Any) -> Column:
    values = _values_at(table, path)
    if kind := column_kind(values):
        return Column(field_of_values(name, kind, values), path, feature, kind=kind)
    try:
        field = field_by_type(name, type_at(table.place, table.schema, path), feature, partial(table.peek, path))
    except SourceError as exc:
        raise SourceError(f"{table.place}: column {'.'.join(path)!r} {exc}; --without {path[0]} leaves it out") from exc
    return Column(field, path, feature)


def _label_path(
    table: TableHead, features: Mapping[str, Any], options: SourceOptions, ignored: set[str]
) -> tuple[str, ...] | None:
    """The column with the labels, None if there is none."""
    named = options.columns.label_columns
    if len(named) > 1:
        raise SourceError(
            f"{table.place}: --label-column {','.join(named)}: a table has one label; keep the others as fields: "
            f"--field {named[1]}={named[1]}"
        )
    if any(choice.name == _LABEL for choice in options.fields):
        return None
    if named:
        return path_to(table, named[0], f"--label-column {named[0]}")
    if ALL_OTHERS in options.columns.ignore_columns:
        return None
    taken = ignored | {choice.where.partition(".")[0] for choice in options.fields}
    free = [name for name in table.schema.names if name not in taken]
    if _LABEL in free:
        return (_LABEL,) if _label_words(type_at(table.place, table.schema, (_LABEL,))) else None
    with_names = [name for name in free if features.get(name) and class_names(features[name]) is not None]
    with_names = [name for name in with_names if features[name].get("_type") == "ClassLabel"]
    return (with_names[0],) if len(with_names) == 1 else None


def _label(table: TableHead, path: tuple[str, ...], feature: Any) -> Column:
    """The label: whole numbers and names as int64, fractions as float64."""
    type_ = type_at(table.place, table.schema, path)
    words = _label_words(type_)
    if not words:
        raise SourceError(
            f"{table.place}: column {'.'.join(path)!r} is {type_}, expected numbers or names as "
            f"labels: keep it under another name: --field {path[-1]}s={'.'.join(path)}"
        )
    return Column(Field(_LABEL, *FIELD_TYPES[words]), path, feature, is_label=words == "label")


def _label_words(type_: Any) -> str:
    """The type of a label whose column is of this Arrow type; "" if it holds no labels."""
    types = pyarrow("to read tables").types
    if types.is_floating(type_):
        return "float"
    whole_or_name = (types.is_integer, types.is_boolean, types.is_string, types.is_large_string, types.is_string_view)
    return "label" if any(is_(type_) for is_ in whole_or_name) else ""


def _by_rule(table: TableHead, paths: Sequence[tuple[str, ...]], features: Mapping[str, Any]) -> Iterator[Column]:
    """
    All these columns, under their own names, except that the only picture that is not a mask is called image.

    A label is a number; a picture in a column of that name is a mask, and a list is called labels.
    """
    found = []
    for path in paths:
        path_to(table, path[0])  # refuses names that come twice
        is_kind = column_kind(_values_at(table, path)) is not None
        if not is_kind and not is_bytes(table.schema.field(path[0]).type):  # of these, types that fit no field say less
            table.columns.refuse_pictures(path[0], table.columns.first_values(path[0]))
        name = name_from_column(table.place, "column", path[0])
        is_picture = name == _LABEL and table.peek(path) is not None
        name = "mask" if is_picture else "labels" if name == _LABEL else name
        found.append(_of_type(table, name, path, feature_at(features, path)))
    pictures = [each for each in found if each.field.traits.is_picture and not each.field.traits.is_mask]
    is_free = not any(each.field.name == "image" for each in found)
    for each in found:
        renamed = is_free and [each] == pictures
        yield replace(each, field=replace(each.field, name="image")) if renamed else each
