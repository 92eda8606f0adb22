"""Tables of Arrow as a source of samples: every row is one, its columns are the fields."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fastio import _native
from fastio._native import Buffers
from fastio.converters.fields.types import FieldChoice, field_rank, name_from_column, refuse_equal_names, value_at
from fastio.converters.fields.values import EncodedField
from fastio.converters.labels.columns import ALL_OTHERS, LabelOptions
from fastio.converters.labels.file import learn_classes
from fastio.converters.labels.values import TableLabels
from fastio.converters.sources.arrow.columns import (
    columns_of,
    is_bytes,
    is_list,
    is_list_of_bytes,
    is_text,
    is_text_or_list,
    plain_type,
    type_at,
)
from fastio.converters.sources.arrow.placed import PlacedColumn, PlacedField, in_arrow, in_parquet
from fastio.converters.sources.arrow.reading import (
    check_cached,
    chosen_rows,
    class_names,
    feature_at,
    features_of,
    inner_class_names,
    is_cached,
    part_at,
    plain_array,
    python_values,
    reading,
    saved_features,
    saved_indices,
    saved_names,
    sound,
)
from fastio.converters.sources.arrow.rows import TableFiles, TableRows
from fastio.converters.sources.arrow.values import decode_array, encode_array, encode_lists, field_by_type, joined
from fastio.converters.sources.chat_forms import TURNS, ChatColumns, chat_columns, refuse_pictures_twice
from fastio.converters.sources.column_kinds import ColumnKind, column_kind, field_of_values
from fastio.converters.sources.columns import FIRST_VALUES, SourceColumns, is_empty
from fastio.converters.sources.file_set import FileSet
from fastio.converters.sources.listed import Indices, ListedSource, Values, names_at
from fastio.converters.sources.optional import pyarrow
from fastio.converters.sources.options import SourceOptions, source_record
from fastio.converters.sources.tables.names import RowKeys, passing, unique_keys
from fastio.converters.sources.tables.titles import column_path, nearest
from fastio.errors import SourceError
from fastio.store.kinds.names import ARROW_SUFFIXES, PARQUET_SUFFIXES, has_columns
from fastio.store.kinds.scan import Problem, SourcePath
from fastio.types.field_types import FIELD_TYPES, field_of, type_of
from fastio.types.schema import Field, Schema
from fastio.types.spans import ListSpans, Spans

__all__ = [
    "holds_pictures",
    "open_arrow",
    "open_parquet",
    "open_saved",
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


def open_arrow(place: SourcePath, options: SourceOptions) -> ListedSource:
    """Open an Arrow file or stream, those that a pattern matches, or those in a folder; see ``table_source``."""
    is_wanted = partial(has_columns, suffixes=ARROW_SUFFIXES)
    files = FileSet.of(place, is_wanted, "an Arrow file", ", ".join(ARROW_SUFFIXES))
    features = saved_features(files.folder) if is_cached(files.folder) else None
    return table_source("arrow", "arrow", place, files, options, features=features)


def open_parquet(place: SourcePath, options: SourceOptions) -> ListedSource:
    """Open a Parquet file, those that a pattern matches, or those in a folder; see ``table_source``."""
    is_wanted = partial(has_columns, suffixes=PARQUET_SUFFIXES)
    files = FileSet.of(place, is_wanted, "a Parquet file", ", ".join(PARQUET_SUFFIXES))
    return table_source("parquet", "parquet", place, files, options)


def open_saved(place: SourcePath, options: SourceOptions) -> ListedSource:
    """Open what ``datasets.Dataset.save_to_disk`` wrote; of a dictionary of splits, one of its folders."""
    names, indices = saved_names(place.path), saved_indices(place.path)
    status = [Path(place.path, name).stat() for name in names]
    sizes = sum(each.st_size for each in status), sum(each.st_blocks * 512 for each in status)
    files = FileSet(place.path, names, *sizes)
    features = saved_features(place.path)
    source = table_source("datasets", "arrow", place, files, options, features=features, indices=indices)
    notes = [f"{place.path}/{name}" for name in (*names, *indices, "state.json", "dataset_info.json")]
    return replace(source, paths=lambda: notes, files_opened=len(notes))


def table_source(
    kind: str,
    reader: str,
    place: SourcePath,
    files: FileSet,
    options: SourceOptions,
    *,
    features: Mapping[str, Any] | None = None,
    indices: Sequence[str] = (),
) -> ListedSource:
    """
    Return the rows of all files as a source; ``reader`` is that of ``reading``. ``features`` are what
    ``datasets`` notes of the columns, if their files do not say so themselves; ``indices`` are the files that choose
    rows, see ``saved_indices``.

    Keys are the file's name and the row's position (``train/00012``), or the values of ``--key-column``. Rows without a
    key, or with one that an earlier row has, are problems; those that do not pass a filter are left out.
    """
    places = [files.place(name) for name in files.names]
    with reading(reader, places[0], []) as file:
        features = features_of(places[0], file.schema) or features or {}
        head = columns_of(reader, dict.fromkeys(file.schema.names, places[0]), file.schema, ())
        table = TableHead(places[0], file.schema, features, lambda path: _first_bytes(reader, places[0], path), head)
    chat = chats_in(table, options)
    columns = choose_columns(table, options, chat)
    key, row_filter = options.columns.key_column, options.columns.row_filter
    named = {name: path_to(table, name, f"--filter {row_filter}") for name in row_filter.columns}
    named |= {} if key is None else {key: path_to(table, key)}
    paths = [*(each.path for each in columns), *named.values()]
    rows = TableFiles.scan(reader, places, list(dict.fromkeys(path[0] for path in paths)))
    if reader == "arrow":
        check_cached(files.folder, files.names, rows.file_rows.tolist())
    settled = (
        set(rows.column_places)
        if options.as_recorded
        else settled_columns(columns, options, {*(path[0] for path in named.values()), *(chat.titles if chat else ())})
    )
    unpacked = columns_of(reader, rows.column_places, table.schema, options.columns.ignore_columns).left_out(
        {path[0] for path in paths}, settled
    )
    unpacked += parts_left_out(table, paths)
    row_keys = RowKeys.of(files.names, rows.file_rows, (*PARQUET_SUFFIXES, *ARROW_SUFFIXES, ".bin"))
    order, left_out = passing(row_keys, row_filter, lambda name: _values_of(rows, named[name]), where=place.path)
    if indices:
        chosen = chosen_rows(place.path, indices, int(rows.file_rows.sum()))
        others = row_keys.at(np.setdiff1d(order, chosen))
        left_out += [Problem(key, "is not among the rows that the indices beside the data choose") for key in others]
        order = chosen[np.isin(chosen, order)]
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
        metadata=_metadata(kind, place, columns, options, rule, unpacked, chat),
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
        listed=files.listed,
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
class _InPlace:
    """Where the values of fields lie in the files, why those of others do not, and what reads those."""

    placed: Mapping[str, PlacedField]
    unfit: Mapping[str, str]
    rows: TableRows
    buffers: Any


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads rows and encodes their fields."""

    columns: Sequence[Column]
    rows: TableRows
    rule: TableLabels | None
    in_place: dict[bool, _InPlace] = field(default_factory=dict)  # found once, with checksums compared and without

    def begin(self, indices: Indices, pool: _native.ThreadPool | None) -> Callable[[], Values]:
        """Begin to read rows; see ``ListedSource.read``."""
        if pool is None:
            values = self._values(indices)
            return lambda: values
        return lambda: self._values(indices)  # Arrow knows no native pool: rows that wait would only take memory

    def places(self, indices: Indices, *, check: bool) -> Values:
        """Return where the values of some rows lie, and those that lie in no file; see ``Placer``."""
        found = self.in_place.get(check)
        if found is None:
            found = self.in_place[check] = self._in_place(check=check)
        values, places = self._values(indices, found), self.rows.files.places
        return replace(values, files=dict.fromkeys(found.placed, places), unfit=found.unfit)

    def _in_place(self, *, check: bool) -> _InPlace:
        """Return where the values of all rows lie, of fields that may lie in the files."""
        files = self.rows.files
        of_bytes = [
            PlacedColumn(each.field, each.path, each.where)
            for each in self.columns
            if not (each.field.is_column or each.kind or each.is_label)
        ]
        found = in_parquet(files, of_bytes, check=check) if files.kind == "parquet" else in_arrow(files, of_bytes)
        placed = {name: each for name, each in found.items() if not each.unfit}
        unfit = {each.field.name: f"are {each.kind.what} ({each.where})" for each in self.columns if each.kind}
        unfit |= {name: each.unfit for name, each in found.items() if each.unfit}
        names = dict.fromkeys(each.path[0] for each in self.columns if each.field.name not in placed)
        rows = TableRows(replace(files, columns=list(names))) if files.kind == "parquet" else self.rows
        return _InPlace(placed, unfit, rows, Buffers([Path(place).stat().st_size for place in files.places]))

    def _values(self, indices: Indices, in_place: _InPlace | None = None) -> Values:
        """Return the values of some rows; of those that lie ``in_place``, where."""
        found = in_place or _InPlace({}, {}, self.rows, None)
        is_read = any(column.field.name not in found.placed for column in self.columns)
        slices = found.rows.slices(indices) if is_read else []
        positions = np.concatenate([at for _, at in slices]) if slices else np.zeros(0, np.int64)
        back = np.argsort(positions, kind="stable")
        spans, columns, problems = {}, {}, dict[int, str]()
        lists = dict[str, ListSpans]()
        for column in self.columns:
            there = found.placed.get(column.field.name)
            if there is not None:
                spans[column.field.name] = Spans(
                    found.buffers, there.files[indices], there.starts[indices], there.sizes[indices]
                )
                for i, row in enumerate(indices.tolist() if there.problems else ()):
                    if row in there.problems:
                        problems.setdefault(i, there.problems[row])
                continue
            whole = joined([self._encoded(column, batch) for batch, _ in slices])
            for i, sentence in whole.problems.items():
                problems.setdefault(int(positions[i]), sentence)
            if whole.spans is not None and whole.counts is not None:
                lists[column.field.name] = ListSpans(whole.spans, whole.counts).at(back)
            elif whole.spans is not None:
                spans[column.field.name] = whole.spans.at(back)
            elif whole.column is not None:
                columns[column.field.name] = whole.column[back]
        return Values(spans, problems, columns, lists=lists)

    def _encoded(self, column: Column, batch: Any) -> EncodedField:
        array = part_at(batch, column.path)
        if column.kind is not None:
            return decode_array(column.kind, column.field, array, where=column.where)
        if column.is_label and self.rule is not None:
            return encode_labels(self.rule, array, where=column.where)
        if column.field.is_list:
            return encode_lists(column.field, array, where=column.where)
        return encode_array(column.field, array, where=column.where)


def _first_bytes(reader: str, place: str, path: Sequence[str]) -> bytes | None:
    """
    The first bytes in a column of bytes, of structs of bytes and path, or of lists of these; None if it is of another
    type. Many lists may be empty before the first that is not.
    """
    read = 0
    with reading(reader, place, [path[0]]) as file:
        is_list = is_list_of_bytes(type_at(place, file.schema, path))
        for batch in file.batches:
            sound(batch, path[0])
            values = part_at(batch, path)
            value = _bytes_in(plain_array(values).flatten() if is_list else values)
            read += batch.num_rows
            if value is not None or (read >= _PEEKED_ROWS and not is_list):
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
    chat: ChatColumns | None,
) -> dict[str, Any]:
    fields = [str(each.choice) for each in columns if chat is None or each.field.name not in chat.parts]
    record = source_record(kind, place.name, labels=None, fields=fields, root=options.root, left_out=unpacked)
    record["label_options"] = options.columns.to_json()
    if decoded := {each.field.name: each.kind.name for each in columns if each.kind}:
        record["decoded"] = decoded
    if chat is not None:
        record |= {"chat": options.chat, **chat.to_json()}
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
    count = int(rows.file_rows.sum())
    learn_classes(rule, _labels(rows, label), count, where=path, column=label.where, many_classes=options.many_classes)
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


# Which columns become which fields: those asked for, or all, by their types.

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


def chats_in(table: TableHead, options: SourceOptions) -> ChatColumns | None:
    """Return where the chats of a table are, None if none are asked for. Raises SourceError if there are none."""

    def values(path: tuple[str, ...]) -> list[Any]:
        path_to(table, ".".join(path), f"--chat {options.chat}")
        return [value_at(value, path[1:]) for value in table.columns.first_values(path[0])]

    if options.chat is None:
        return None
    return chat_columns(table.place, options.chat, table.schema.names, options.columns.ignore_columns, values)


def _of_chats(table: TableHead, chat: ChatColumns, names: Sequence[str]) -> list[Column]:
    """The pictures in these columns, any number in a row or one that may be missing, and the parts of chats."""
    holding = [(name,) for name in names if _holds_pictures(table, name)]
    pictures = [
        each if each.field.is_list else replace(each, field=each.field.listed(is_optional=True))
        for each in _by_rule(table, holding, table.features)
    ]
    turns = chat.parts.get(TURNS)
    if turns is not None and pictures:
        first = [value_at(value, turns[1:]) for value in table.columns.first_values(turns[0])]
        column, name = ".".join(pictures[0].path), pictures[0].field.name
        of_turns = "those of the turns are taken from JSON lines alone"
        refuse_pictures_twice(table.place, turns, first, column, name, of_turns=of_turns)
    types = {True: "text?", False: "json"}
    parts = [
        Column(field_of(part, types[is_text(type_at(table.place, table.schema, path))]), path)
        for part, path in chat.parts.items()
    ]
    return [*pictures, *parts]


def choose_columns(table: TableHead, options: SourceOptions, chat: ChatColumns | None = None) -> list[Column]:
    """
    Return the fields of the samples, pictures first and the label last.

    With ``--field`` these are the fields asked for, otherwise all columns that are not ignored and not the key or a
    COLUMN=VALUE. The label is the column of ``--label-column``, else the one called label, else the only one of which
    ``datasets`` notes the names of classes. With ``chat``, these are the fields asked for, the pictures unless some are
    among those, and the parts of chats. Raises SourceError, with what to type, for columns that are not there or fit no
    field, and for names that come twice.
    """
    features, columns = table.features, options.columns
    if not columns.header:
        raise SourceError(f"{table.place}: its columns have names: drop --no-header")
    ignored = set(columns.ignore_columns)  # ``columns_of`` refuses those that no file has
    chosen = [_asked(table, choice, features) for choice in options.fields]
    label = _label_path(table, features, options, ignored) if chat is None or columns.label_columns else None
    if label is not None:
        chosen.append(_label(table, label, feature_at(features, label)))
    if chat is not None:
        used = {*ignored, *chat.titles, *(each.path[0] for each in chosen)}
        is_asked = any(each.field.element.traits.is_image for each in chosen)
        chosen += _of_chats(table, chat, [] if is_asked else [name for name in table.schema.names if name not in used])
    elif not options.fields and ALL_OTHERS not in columns.ignore_columns:
        used = ignored | {path[0] for path in _selecting(table, options) if len(path) == 1}
        used |= {each.path[0] for each in chosen}
        others = [(name,) for name in table.schema.names if name not in used]
        chosen = [*_by_rule(table, others, features), *chosen]
    if not chosen:
        raise SourceError(f"{table.place}: no column is left to pack, of {_listed(table.schema)}")
    refuse_equal_names(table.place, "column", ((each.field.name, each.where) for each in chosen))
    return sorted(chosen, key=lambda each: field_rank(each.field))


def _selecting(table: TableHead, options: SourceOptions) -> list[tuple[str, ...]]:
    """The columns that give keys, and those of which a filter takes one value."""
    key, filters = options.columns.key_column, options.columns.row_filter.pairs
    paths = [path_to(table, name, f"--filter {name}={value}") for name, value in filters]
    return paths if key is None else [path_to(table, key, f"--key-column {key}"), *paths]


def settled_columns(columns: Sequence[Column], options: SourceOptions, selecting: Collection[str]) -> set[str]:
    """Return the columns that are packed as pictures, as the type that the user named, or that select rows."""
    typed = {choice.name for choice in options.fields if choice.field is not None}
    packed = {
        each.path[0]
        for each in columns
        if each.field.element.traits.is_picture or each.kind or each.field.name in typed
    }
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
    return any(_holds_pictures(table, name) for name in table.schema.names)


def _holds_pictures(table: TableHead, name: str) -> bool:
    """Whether a column, the only one of its name, holds pictures."""
    if table.schema.names.count(name) != 1:
        return False
    type_ = table.schema.field(name).type
    if is_bytes(type_) or is_list_of_bytes(type_):
        field = field_by_type("it", type_, table.features.get(name), partial(table.peek, (name,)))
        return field.element.traits.is_picture
    return column_kind(_values_at(table, (name,))) is not None


def path_to(table: TableHead, where: str, words: str = "") -> tuple[str, ...]:
    """
    Return the column that ``where`` names, followed by the parts of structs: ``objects.bbox``.

    Raises SourceError if there is none; ``words`` are what the user typed.
    """
    names = table.schema.names
    parts = column_path(where, dict.fromkeys(names))
    if parts is None:
        raise SourceError(
            f"{table.place}: {words}: there is no such column among {_listed(table.schema)}{nearest(where, names)}"
        )
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
        takes_bytes = choice.field.element.traits.is_picture or type_of(choice.field.element) == "bytes"
        kind = column_kind(_values_at(table, path)) if takes_bytes else None
        _check_lists(
            f"{table.place}: --field {choice}: column {choice.where!r}",
            choice.field,
            type_at(table.place, table.schema, path),
        )
        return Column(choice.field, path, feature, is_label=is_label, kind=kind)
    if choice.name == _LABEL:
        return _label(table, path, feature)
    return _of_type(table, choice.name, path, feature)


def _check_lists(where: str, field: Field, type_: Any) -> None:
    """Raise SourceError for a field of lists if the column ``where`` is none of lists."""
    if field.is_list and not field.is_optional and not is_list(type_):
        raise SourceError(f"{where} is {type_}, expected lists for {type_of(field)}")


def _values_at(table: TableHead, path: Sequence[str]) -> list[Any]:
    """
    The first texts of a column, or of a part of its structs, or lists of them, that are not empty; none of other
    columns.
    """
    if not is_text_or_list(type_at(table.place, table.schema, path)):
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
    All these columns, under their own names, except that the only picture that is not a mask is called image, and lists
    of pictures kept as text images.

    A label is a number; a picture in a column of that name is a mask, and a list is called labels.
    """
    found = []
    for path in paths:
        path_to(table, path[0])  # refuses names that come twice
        is_kind = column_kind(_values_at(table, path)) is not None
        type_ = table.schema.field(path[0]).type
        if not (is_kind or is_bytes(type_) or is_list_of_bytes(type_)):  # types that fit no field say less of these
            table.columns.refuse_pictures(path[0], table.columns.first_values(path[0]))
        name = name_from_column(table.place, "column", path[0])
        is_picture = name == _LABEL and table.peek(path) is not None
        name = "mask" if is_picture else "labels" if name == _LABEL else name
        found.append(_of_type(table, name, path, feature_at(features, path)))
    pictures = [each for each in found if each.field.element.traits.is_image and (each.kind or not each.field.is_list)]
    name = "images" if pictures and pictures[0].field.is_list else "image"
    is_free = not any(each.field.name == name for each in found)
    for each in found:
        renamed = is_free and [each] == pictures
        yield replace(each, field=replace(each.field, name=name)) if renamed else each
