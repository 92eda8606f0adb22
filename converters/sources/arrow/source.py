"""Tables of Arrow as a source of samples: every row is one, its columns are the fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fastio import _native
from fastio.converters.fields.values import EncodedField
from fastio.converters.labels.columns import LabelOptions
from fastio.converters.labels.file import look_like_captions
from fastio.converters.labels.values import TableLabels
from fastio.converters.sources.arrow.choose import (
    Column,
    TableHead,
    choose_columns,
    has_pictures,
    parts_left_out,
    path_to,
    settled_columns,
)
from fastio.converters.sources.arrow.columns import columns_of
from fastio.converters.sources.arrow.reading import (
    ARROW_SUFFIXES,
    PARQUET_SUFFIXES,
    class_names,
    features_of,
    part_at,
    plain_array,
    python_values,
    reading,
    sound,
)
from fastio.converters.sources.arrow.rows import TableFiles, TableRows
from fastio.converters.sources.arrow.values import decode_array, encode_array, joined
from fastio.converters.sources.file_set import FileSet
from fastio.converters.sources.kind import SourceOptions, SourcePath, source_record
from fastio.converters.sources.listed import Indices, ListedSource, Values, names_at
from fastio.converters.sources.optional import pyarrow
from fastio.converters.sources.source import Problem
from fastio.converters.sources.tables.names import RowKeys, passing, unique_keys
from fastio.errors import SourceError
from fastio.types.schema import Schema

__all__ = [
    "holds_pictures",
    "table_source",
]


_PEEKED_ROWS = 1000


def holds_pictures(reader: str, place: str) -> bool:
    """Return whether a column of the file ``place`` holds pictures, by the first of its values."""
    if not place:
        return False
    with reading(reader, place, []) as file:
        features = features_of(place, file.schema)
        columns = columns_of(reader, dict.fromkeys(file.schema.names, place), file.schema, ())
        table = TableHead(place, file.schema, features, lambda path: _first_bytes(reader, place, path), columns)
    return has_pictures(table)


def table_source(
    kind: str,
    reader: str,
    place: SourcePath,
    files: FileSet,
    options: SourceOptions,
    *,
    features: Mapping[str, Any] | None = None,
) -> ListedSource:
    """
    Return the rows of all files as a source; ``reader`` is "parquet" or "arrow". ``features`` are what
    ``datasets`` notes of the columns, if their files do not say so themselves.

    Keys are the file's name and the row's position (``train/00012``), or the values of ``--key-column``. Rows without a
    key, or with one that an earlier row has, are problems; those that do not pass a filter are left out.
    """
    places = [files.place(name) for name in files.names]
    with reading(reader, places[0], []) as file:
        features = features_of(places[0], file.schema) or features or {}
        head = columns_of(reader, dict.fromkeys(file.schema.names, places[0]), file.schema, ())
        table = TableHead(places[0], file.schema, features, lambda path: _first_bytes(reader, places[0], path), head)
    columns = choose_columns(table, options)
    key, filters = options.columns.key_column, options.columns.filters
    named = {name: path_to(table, name) for name in (key, *(name for name, _ in filters)) if name is not None}
    paths = [*(each.path for each in columns), *named.values()]
    rows = TableFiles.scan(reader, places, list(dict.fromkeys(path[0] for path in paths)))
    settled = (
        set(rows.column_places)
        if options.as_recorded
        else settled_columns(columns, options, {path[0] for path in named.values()})
    )
    unpacked = columns_of(reader, rows.column_places, table.schema, options.columns.ignore_columns).left_out(
        {path[0] for path in paths}, settled
    )
    unpacked += parts_left_out(table, paths)
    row_keys = RowKeys.of(files.names, rows.file_rows, (*PARQUET_SUFFIXES, *ARROW_SUFFIXES))
    order, left_out = passing(row_keys, filters, lambda name: _values_of(rows, named[name]))
    problems = list[Problem]()
    keys_at: Callable[[Indices], list[str]] = row_keys.at
    if key is not None:
        keys, problems = unique_keys(row_keys, key, order, lambda name: _values_of(rows, named[name]))
        keys_at, order = names_at(keys), order[np.array([bool(keys[i]) for i in order.tolist()], bool)]
    label = next((each for each in columns if each.is_label), None)
    rule = None if label is None else label_rule(place.path, rows, label, options.columns)
    reader_of = _Reader(columns, TableRows(rows), rule)
    reader_of.rows.map_in_place()
    return ListedSource(
        path=place.path,
        kind=kind,
        schema=Schema(tuple(each.field for each in columns)),
        metadata=_metadata(kind, place, columns, options, rule, unpacked),
        keys_at=keys_at,
        sizes=rows.row_bytes,
        read=reader_of.begin,
        disk_bytes=files.disk_bytes,
        files_opened=len(places),
        problems=[*files.problems, *problems],
        left_out=[*files.left_out, *left_out],
        order=order,
        is_by_name=False,
        paths=lambda: places,
        place_at=partial(_place_at, columns, rows),
    )


def _place_at(columns: Sequence[Column], rows: TableFiles, index: int, name: str) -> str:
    """The row and the column of a picture that its column keeps as another type."""
    column = next((each for each in columns if each.field.name == name and each.kind), None)
    if column is None:
        return ""
    file = int(np.searchsorted(rows.file_starts, index, side="right")) - 1
    return f"{Path(rows.places[file]).name}:{index - int(rows.file_starts[file]) + 1}, column {column.where!r},"


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads rows and encodes their fields."""

    columns: Sequence[Column]
    rows: TableRows
    rule: TableLabels | None

    def begin(self, indices: Indices, pool: _native.ThreadPool | None) -> Callable[[], Values]:
        """Begin to read rows; see ``ListedSource.read``."""
        if pool is None:
            values = self._values(indices)
            return lambda: values
        return lambda: self._values(indices)  # Arrow knows no native pool: rows that wait would only take memory

    def _values(self, indices: Indices) -> Values:
        slices = self.rows.slices(indices)
        positions = np.concatenate([at for _, at in slices]) if slices else np.zeros(0, np.int64)
        back = np.argsort(positions, kind="stable")
        spans, columns, problems = {}, {}, dict[int, str]()
        for column in self.columns:
            whole = joined([self._encoded(column, batch) for batch, _ in slices])
            for i, sentence in whole.problems.items():
                problems.setdefault(int(positions[i]), sentence)
            if whole.spans is not None:
                spans[column.field.name] = whole.spans.at(back)
            elif whole.column is not None:
                columns[column.field.name] = whole.column[back]
        return Values(spans, problems, columns)

    def _encoded(self, column: Column, batch: Any) -> EncodedField:
        array = part_at(batch, column.path)
        if column.kind is not None:
            return decode_array(column.kind, column.field, array, where=column.where)
        if column.is_label and self.rule is not None:
            return encode_labels(self.rule, array, where=column.where)
        return encode_array(column.field, array, where=column.where)


def _first_bytes(reader: str, place: str, path: Sequence[str]) -> bytes | None:
    """The first bytes in a column of bytes, or in one of structs of bytes and path; None if it is of another type."""
    read = 0
    with reading(reader, place, [path[0]]) as file:
        for batch in file.batches:
            sound(batch, path[0])
            value = _bytes_in(part_at(batch, path))
            read += batch.num_rows
            if value is not None or read >= _PEEKED_ROWS:
                return value
    return None


def _bytes_in(array: Any) -> bytes | None:
    for value in array.slice(0, _PEEKED_ROWS):
        plain = value.as_py() if value.is_valid else None
        if isinstance(plain, dict) and {"bytes", "path"} == plain.keys():
            plain = plain["bytes"]
        if plain is not None:
            return plain if isinstance(plain, bytes) else None
    return None


def _values_of(rows: TableFiles, path: Sequence[str]) -> Iterator[Any]:
    for _, batch in rows.batches(columns=[path[0]]):
        yield from python_values(plain_array(part_at(batch, path)))


def _metadata(
    kind: str,
    place: SourcePath,
    columns: Sequence[Column],
    options: SourceOptions,
    rule: TableLabels | None,
    unpacked: Sequence[str],
) -> dict[str, Any]:
    fields = [str(each.choice) for each in columns]
    record = source_record(kind, place.name, labels=None, fields=fields, root=options.root, left_out=unpacked)
    record["label_options"] = options.columns.to_json()
    if decoded := {each.field.name: each.kind.name for each in columns if each.kind}:
        record["decoded"] = decoded
    metadata: dict[str, Any] = {"classes": None if rule is None else rule.classes, "source": record}
    names = {name: each for column in columns for name, each in column.names.items()}
    return {**metadata, "field_classes": names} if names else metadata


# The labels of a table of Arrow as numbers: whole numbers, names that it declares, or names learned from all rows.


def label_rule(path: str, rows: TableFiles, label: Column, options: LabelOptions) -> TableLabels:
    """
    Return how labels become numbers; where they are names, all rows are read.

    Raises SourceError for numbers among names, and for nearly as many names as samples.
    """
    rule = TableLabels(is_typed=True, known=class_names(label.feature))
    if rule.known is not None or not _has_names(rows, label):
        return rule
    try:
        rule.learn(_labels(rows, label))
    except SourceError as exc:
        raise SourceError(f"{path}: {exc}") from exc
    classes, count = rule.classes or [], int(rows.file_rows.sum())
    if not options.many_classes and look_like_captions(classes, count):
        raise SourceError(
            f"{path}: {count:,} samples have {len(classes):,} different labels, e.g. {classes[0]!r:.60}: captions or "
            f"names rather than classes? Keep them as text with --field caption={label.where}, or add --many-classes "
            "if each is a class"
        )
    return rule


def encode_labels(rule: TableLabels, array: Any, *, where: str) -> EncodedField:
    """Encode the labels of some rows as int64; labels that are missing or unknown are problems."""
    array, arrow = plain_array(array), pyarrow("to read tables")
    column, problems = np.zeros(len(array), np.int64), dict[int, str]()
    if array.null_count == 0 and arrow.types.is_integer(array.type) and not arrow.types.is_uint64(array.type):
        column = array.to_numpy(zero_copy_only=False).astype(np.int64)
        is_known = np.ones(len(column), bool) if rule.known is None else (column >= 0) & (column < len(rule.known))
        if is_known.all():
            return EncodedField(column=column)
    positions = rule.positions()
    for i, label in enumerate(python_values(array)):
        number = rule.number(label, positions)
        if isinstance(number, str):
            problems[i] = f"{number} (column {where!r})"
        else:
            column[i] = number
    return EncodedField(column=column, problems=problems)


def _has_names(rows: TableFiles, label: Column) -> bool:
    """Whether the column holds names, and not numbers."""
    types = pyarrow("to read tables").types
    for _, batch in rows.batches(columns=[label.path[0]]):
        type_ = plain_array(part_at(batch, label.path)).type
        return not (types.is_integer(type_) or types.is_boolean(type_))
    return False


def _labels(rows: TableFiles, label: Column) -> Iterator[tuple[str, object]]:
    for start, batch in rows.batches(columns=[label.path[0]]):
        for row, value in enumerate(python_values(plain_array(part_at(batch, label.path))), start + 1):
            yield f"row {row}", value
