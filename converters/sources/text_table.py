"""TextTable: one column of a table as text or token ids, one document per row, whatever the format of its files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastio._native import ThreadPool
from fastio.converters.fields.types import NamedTwiceError
from fastio.converters.labels.columns import ALL_OTHERS
from fastio.converters.labels.values import TableLabels
from fastio.converters.sources.arrow.columns import columns_of, type_at
from fastio.converters.sources.arrow.reading import (
    class_names,
    feature_at,
    features_of,
    is_cached,
    part_at,
    plain_array,
    python_values,
    reading,
    saved_indices,
    saved_names,
    size_bytes,
    sound,
    value_bytes,
)
from fastio.converters.sources.chat_forms import CHATS, chat_column
from fastio.converters.sources.columns import FIRST_VALUES, SourceColumns, is_empty, mentions_picture
from fastio.converters.sources.documents import Documents, Gathering, Limits, TextOptions
from fastio.converters.sources.file_set import FileSet
from fastio.converters.sources.optional import pyarrow
from fastio.converters.sources.options import source_record
from fastio.converters.sources.streams import opened
from fastio.converters.sources.tables.rows import TableFile, kind_in_json, value_in
from fastio.converters.sources.tables.titles import column_path
from fastio.errors import SourceError
from fastio.store.kinds.names import ARROW_SUFFIXES, COMPRESSED, has_columns, plain_name
from fastio.store.kinds.scan import Problem, SourcePath, shown

__all__ = [
    "FIRST_ROWS",
    "OtherColumns",
    "TextTable",
    "listed",
    "open_saved_text",
    "open_text_table",
    "slices",
]

DEFAULT_FIELD = "text"
FIRST_ROWS, _MOST_FIRST_ROWS = 64, 1000  # that tell which columns there are; the latter if one is looked for
_SHOWN = 8  # columns in a message


def open_text_table(kind: str, suffixes: tuple[str, ...], path: str, options: TextOptions) -> TextTable:
    """Open a file with one of these suffixes, those that a pattern matches, or those in a folder."""
    extensions = ", ".join(each + more for each in suffixes for more in ("", *COMPRESSED))
    place, is_wanted = SourcePath(path), partial(has_columns, suffixes=suffixes)
    return _opened(kind, place, FileSet.of(place, is_wanted, f"a {kind} file", extensions, leaves_out=None), options)


def open_saved_text(path: str, options: TextOptions) -> TextTable:
    """
    Open what ``datasets.Dataset.save_to_disk`` wrote, of a dictionary of splits one of its folders, or Arrow files of
    the library's cache.
    """
    place = SourcePath(path)
    if is_cached(path):
        is_wanted = partial(has_columns, suffixes=ARROW_SUFFIXES)
        return _opened("arrow", place, FileSet.of(place, is_wanted, "an arrow file", ".arrow"), options)
    names = saved_names(path)
    if saved_indices(path):
        raise SourceError(f"{path}: holds indices beside its data: save it again after flatten_indices()")
    status = [Path(path, name).stat() for name in names]
    sizes = sum(each.st_size for each in status), sum(each.st_blocks * 512 for each in status)
    return _opened("datasets", place, FileSet(path, names, *sizes), options)


def _opened(kind: str, place: SourcePath, files: FileSet, options: TextOptions) -> TextTable:
    """Look at the first file's columns, and at all labels where these are names."""
    options.refuse(place.path, "split", *(() if options.chat is None else ("text_field", "label_field")))
    unread = TextTable(kind, place, files, options, ("",), None, None, OtherColumns.none())
    if options.chat is not None:
        return unread  # ``open_text`` looks for the chats
    first = unread.first_file
    head = _head_of_columns if first.has_columns else _head_of_rows
    source = head(unread, first)
    rule = source.label_rule
    if rule is not None and rule.known is None:
        try:
            rule.learn(source.labels())
        except SourceError as exc:
            raise SourceError(f"{place.path}: {exc}") from exc
    return source


def _format(kind: str) -> str:
    """The format of the files of a kind of text."""
    return "arrow" if kind == "datasets" else kind


def _head_of_columns(source: TextTable, first: TableFile) -> TextTable:
    """The source with its columns, by the types in the first file."""
    options, place = source.options, first.path
    with reading(first.kind, place, []) as file:
        schema = file.schema
    asked = [name for name in (source.text_field, options.label_field) if name is not None]
    used = frozenset((column_path(name, schema.names) or (name,))[0] for name in asked)
    columns = columns_of(first.kind, dict.fromkeys(schema.names, place), schema, options.without)
    others = OtherColumns(columns, used, columns.left_out(used, used))  # pictures that would be lost are said first
    text = _known_path(place, schema, source.text_field, option="--text-column")
    is_ids = _kind_of(place, schema, text) == "ids"
    label, rule = None, None
    if options.label_field is not None:
        label = _known_path(place, schema, options.label_field, option="--label-column")
        rule = TableLabels(is_typed=True, known=class_names(feature_at(features_of(place, schema), label)))
    return replace(source, text=text, label=label, label_rule=rule, others=others, is_ids=is_ids)


def _head_of_rows(source: TextTable, first: TableFile) -> TextTable:
    """
    The source with its columns, by the first rows of the first file.

    Raises SourceError if no column of them is the text, or if one that was named is in none of them.
    """
    options, path = source.options, source.path
    found: dict[str, None] = {}
    rows: list[Mapping[str, Any]] = []
    missing = {name for name in options.without if name != ALL_OTHERS}
    asked = [options.label_field] if options.label_field is not None else []
    for count, (_, row) in enumerate(replace(first, limit=options.max_document_bytes).rows(), 1):
        if not isinstance(row, str):
            found |= dict.fromkeys(row)
            missing -= row.keys()
            if count <= FIRST_ROWS:
                rows.append(row)
        is_found = not missing and all(column_path(name, found) for name in asked)
        if count >= (FIRST_ROWS if is_found else _MOST_FIRST_ROWS):
            break
    text = column_path(source.text_field, found) or (source.text_field,)
    label = None
    if options.label_field is not None:
        label = column_path(options.label_field, found) or (options.label_field,)
    used = frozenset(each[0] for each in (text, label) if each)
    columns = SourceColumns(path, (), lambda _: (), options.without, root=source.files.folder)
    others = OtherColumns(columns, used)
    for row in rows:
        others.see(row)
    if found and missing:
        replace(columns, names=list(found)).left_out((), found)
    if found and not any(isinstance(_value(row, text), str) for row in rows):
        raise SourceError(f"{path}: {_no_text(source.text_field, text, list(found))}")
    if found and label is not None and label[0] not in found:
        raise SourceError(
            f"{path}: has no column {options.label_field!r}, only {listed(list(found))}: name another with "
            "--label-column"
        )
    rule = None if label is None else TableLabels(is_typed=first.is_typed)
    return replace(source, text=text, label=label, label_rule=rule, others=others)


def _value(row: Mapping[str, Any], path: Sequence[str]) -> Any:
    """What a path leads to, None where that is nothing or cannot be told."""
    try:
        return value_in(row, path)
    except (KeyError, ValueError, RecursionError):
        return None


def _no_text(where: str, path: Sequence[str], names: Sequence[str]) -> str:
    """What to say where no row has text in its column."""
    is_there = path[0] in names
    there = f"no string in the column {where!r}" if is_there else f"no column {where!r}, only {listed(names)}"
    return f"has {there}: {_other_ways(where, names)}"


def listed(names: Sequence[str]) -> str:
    """Return the first names of columns, for messages; "" for none."""
    return ", ".join(map(repr, names[:_SHOWN])) + (", ..." if len(names) > _SHOWN else "")


@dataclass(slots=True)
class OtherColumns:
    """
    The columns that are not packed, as far as rows have been read: ``names``, in the order in which they first came.

    ``columns`` looks at the first values of each, and refuses those that hold pictures.
    """

    columns: SourceColumns
    used: frozenset[str]
    names: list[str] = field(default_factory=list)
    is_told: bool = False  # whether marks of pictures that the user leaves out were named
    _known: set[str] = field(default_factory=set)  # columns that need no further look
    _counts: dict[str, int] = field(default_factory=dict)  # of values looked at

    def __post_init__(self) -> None:
        self._known |= self.used

    @classmethod
    def none(cls) -> OtherColumns:
        """Return no columns at all."""
        return cls(SourceColumns("", (), lambda _: ()), frozenset())

    def see(self, row: Mapping[str, Any]) -> None:
        """Take the columns of one more row. Raises SourceError for a column that holds pictures."""
        if row.keys() <= self._known:
            return
        for name, value in row.items():
            if name in self._known:
                continue
            if name not in self._counts:
                self.names.append(name)
            self._counts[name] = self._counts.get(name, 0) + (not is_empty(value))
            if name in self.columns.without or ALL_OTHERS in self.columns.without:
                self._counts[name] = FIRST_VALUES
            else:
                self.columns.refuse_pictures(name, [value])
            if self._counts[name] >= FIRST_VALUES:
                self._known.add(name)

    def naming_pictures(self, row: Mapping[str, Any]) -> list[str]:
        """Return the columns in which a row, or the whole file where it keeps columns, names pictures."""
        if ALL_OTHERS in self.columns.without:
            return []
        values = {name: [row[name]] if name in row else self.columns.first_values(name) for name in self.names}
        return [name for name, some in values.items() if any(map(mentions_picture, some))]


@dataclass(frozen=True, slots=True)
class TextTable:
    """
    One column of the rows of one or several files, which is text or token ids. Satisfies ``TextSource``.

    ``text`` and ``label`` are a title and the names below it, in the JSON or the structs of that column. A document's
    key is its file's name and the number of the row's first line; in .json, Parquet and Arrow rows are counted from 1.
    If labels are asked for, the files are read once before, for the labels' names. ``others`` are the columns that are
    not packed, complete when everything has been read.
    """

    kind: str
    place: SourcePath
    files: FileSet
    options: TextOptions
    text: tuple[str, ...]
    label: tuple[str, ...] | None
    label_rule: TableLabels | None
    others: OtherColumns
    is_ids: bool = False

    @property
    def path(self) -> str:
        """As the user named it."""
        return self.place.path

    @property
    def first_file(self) -> TableFile:
        """The file that tells which columns there are."""
        return TableFile(self.files.place(self.files.names[0]), kind=_format(self.kind))

    @property
    def has_labels(self) -> bool:
        """Whether a field of labels was named."""
        return self.label_rule is not None

    @property
    def problems(self) -> Sequence[Problem]:
        """Files that belong to no table."""
        return sorted(self.files.problems, key=lambda each: each.key)

    @property
    def size_bytes(self) -> int:
        """The sum over all files."""
        return self.files.size_bytes

    @property
    def disk_bytes(self) -> int:
        """The sum over all files."""
        return self.files.disk_bytes

    @property
    def files_opened(self) -> int:
        """How many files there are."""
        return len(self.files.names)

    def file_sizes(self) -> Iterator[tuple[str, int]]:
        """Yield the path and the size of each file."""
        for path in map(self.files.place, self.files.names):
            yield path, Path(path).stat().st_size

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Which fields were used, and the classes."""
        fields = {
            "text_field": self.text_field,
            "label_field": self.options.label_field,
            "max_document_bytes": self.options.max_document_bytes,
            "left_out": list(self.others.names),
        }
        classes = None if self.label_rule is None else self.label_rule.classes
        return {"classes": classes, "source": source_record(self.kind, plain_name(self.place.name), **fields)}

    @property
    def text_field(self) -> str:
        """The field that is text, in the words of ``--text-column``."""
        return self.options.text_field or DEFAULT_FIELD

    def labels(self) -> Iterator[tuple[str, object]]:
        """Yield key and label of every row."""
        for key, table in self._tables():
            self._check_label(table)
            for number, value in table.values(self.label or ("",)):
                yield f"{key}:{number}", value

    def read(self, limits: Limits, pool: ThreadPool | None = None) -> Iterator[Documents]:
        """Yield all rows, in pieces."""
        del pool  # rows are found one after the other; Arrow has threads of its own
        positions = {} if self.label_rule is None else self.label_rule.positions()
        for key, table in self._tables():
            read = self._read_columns if table.has_columns else self._read_rows
            yield from read(table, key, limits, positions)

    def _tables(self) -> Iterator[tuple[str, TableFile]]:
        """The files, each with what the keys of its rows begin with."""
        for name in self.files.names:
            path, limit = self.files.place(name), self.options.max_document_bytes
            yield shown(plain_name(name)), TableFile(path, kind=_format(self.kind), limit=limit)

    def _read_rows(self, table: TableFile, key: str, limits: Limits, positions: dict[str, int]) -> Iterator[Documents]:
        """The documents of a file that keeps one row after the other."""
        with opened(table.path) as stream:
            gathering = Gathering(limits, stream, key, self.has_labels, self.text_field)
            has_bytes = not table.is_typed
            for number, row in table.rows_in(stream):
                self._add(gathering, positions, f"{key}:{number}", row, has_bytes)
                if gathering.is_full:
                    yield gathering.take()
            yield gathering.take()

    def _document(self, key: str, row: Mapping[str, Any], *, has_bytes: bool) -> bytes | str:
        """The document of a row, or a sentence on why there is none."""
        del key
        return _text(row, self.text, self.text_field, has_bytes=has_bytes)

    def _add(
        self,
        gathering: Gathering,
        positions: dict[str, int],
        key: str,
        row: Mapping[str, Any] | str,
        has_bytes: bool,
    ) -> None:
        """One row: a document, or a problem."""
        if isinstance(row, str):
            gathering.refuse(key, row)
            return
        self.others.see(row)
        text = self._document(key, row, has_bytes=has_bytes)
        if isinstance(text, str):
            gathering.refuse(key, text)
            return
        if len(text) > self.options.max_document_bytes:
            gathering.refuse(key, self.options.too_long)
            return
        label: int | str = 0
        if self.label_rule is not None:
            label = self.label_rule.number(_value(row, self.label or ("",)), positions)
        if isinstance(label, str):
            gathering.refuse(key, f"{label} (field {self.options.label_field!r})")
        else:
            gathering.add(key, text, label)

    def _read_columns(
        self, table: TableFile, key: str, limits: Limits, positions: dict[str, int]
    ) -> Iterator[Documents]:
        """The documents of a file that keeps columns, without a Python object for each."""
        position, row = 0, 1
        columns = list(dict.fromkeys(path[0] for path in (self.text, self.label) if path))
        with reading(table.kind, table.path, columns) as file:
            self._see(table, file.schema)
            for batch in file.batches:
                for name in columns:
                    sound(batch, name)
                for part in slices(batch, limits):
                    documents, problems = self._documents(part, key, row)
                    labels = self._labels(part, positions, problems)
                    read_bytes, position = file.position() - position, file.position()
                    row += part.num_rows
                    yield replace(documents, labels=labels, read_bytes=read_bytes).without(problems)

    def _see(self, table: TableFile, schema: Any) -> None:
        """Check the columns of a file, and take those that the first one lacks."""
        self._see_others(table, schema)
        _known_path(table.path, schema, self.text[0], option="--text-column")
        if _kind_of(table.path, schema, self.text) != ("ids" if self.is_ids else "text"):
            raise SourceError(f"{table.path}: column {self.text_field!r} is of another kind than in the first file")
        self._check_label(table, schema)

    def _see_others(self, table: TableFile, schema: Any) -> None:
        """Take the columns that are not packed and that the first file lacks."""
        others, options = self.others, self.options
        further = {name: table.path for name in schema.names if name not in {*others.used, *others.names}}
        if further:
            without = [name for name in options.without if name in further or name == ALL_OTHERS]
            others.names.extend(columns_of(table.kind, further, schema, without).left_out((), ()))

    def _check_label(self, table: TableFile, schema: Any = None) -> None:
        """Raise SourceError if a file that keeps columns lacks that of the labels."""
        if self.label is None or not table.has_columns:
            return
        if schema is None:
            with reading(table.kind, table.path, []) as file:
                schema = file.schema
        _known_path(table.path, schema, self.label[0], option="--label-column")

    def _documents(self, batch: Any, key: str, row: int) -> tuple[Documents, dict[int, str]]:
        """The rows of a batch, the first of which is number ``row``, and what is wrong with some, by position."""
        arrow, where = pyarrow("to read tables"), self.text_field
        column = plain_array(part_at(batch, self.text))
        data, starts, sizes = _ids(arrow, column) if self.is_ids else value_bytes(arrow, column)
        problems = {int(i): f"has null in the column {where!r}" for i in np.flatnonzero(_nulls(column))}
        if self.is_ids:
            for i in np.flatnonzero(_inner_nulls(column)).tolist():
                problems.setdefault(i, f"has null among the ids of the column {where!r}")
        for i in np.flatnonzero(sizes > self.options.max_document_bytes).tolist():
            problems[i] = self.options.too_long
        keys = [f"{key}:{number}" for number in range(row, row + len(column))]
        return Documents(keys, data, starts, sizes, None, (), 0, field=where), problems

    def _labels(self, batch: Any, positions: dict[str, int], problems: dict[int, str]) -> NDArray[np.int64] | None:
        """The labels of a batch; rows without one are added to ``problems``."""
        if self.label_rule is None or self.label is None:
            return None
        labels = np.zeros(batch.num_rows, np.int64)
        for i, label in enumerate(python_values(plain_array(part_at(batch, self.label)))):
            number = self.label_rule.number(label, positions)
            if isinstance(number, str):
                problems.setdefault(i, f"{number} (column {self.options.label_field!r})")
            else:
                labels[i] = number
        return labels


def _text(row: Mapping[str, Any], path: Sequence[str], where: str, *, has_bytes: bool) -> bytes | str:
    """
    The bytes of a row's text, or a sentence on why there are none.

    A surrogate is a byte that is no UTF-8 where ``has_bytes``; in JSON it was written as one, and is no text.
    """
    if path[0] not in row:
        names = ", ".join(repr(name) for name in list(row)[:_SHOWN])
        there = f"only {names}" if names else "as it is empty"
        return f"has no field {where!r}, {there}: name another with --text-column"
    try:
        value = row[path[0]] if len(path) == 1 else value_in(row, path)
    except NamedTwiceError as exc:
        return str(exc)
    except (KeyError, ValueError, RecursionError):
        return f"has no field {where!r}: there is {row[path[0]]!r:.60}"
    if not isinstance(value, str):
        return f"has {kind_in_json(value)} in the field {where!r}, expected a string"
    try:
        return value.encode("utf-8", "surrogateescape" if has_bytes else "strict")
    except UnicodeEncodeError as exc:
        return f"has half of a character (a lone surrogate) at {exc.start} of the field {where!r}"


def _known_path(place: str, schema: Any, where: str, *, option: str) -> tuple[str, ...]:
    """The column of a file, and the parts of its structs, that ``where`` means. SourceError for none, or several."""
    path = column_path(where, dict.fromkeys(schema.names))
    if path is None:
        columns = ", ".join(f"{each.name!r} ({each.type})" for each in schema)
        advice = _other_ways(where, schema.names) if option == "--text-column" else f"name another with {option}"
        raise SourceError(f"{place}: has no column {where!r}, only {columns}: {advice}")
    if (count := schema.names.count(path[0])) > 1:
        raise SourceError(f"{place}: has {count} columns named {path[0]!r}, so it is unclear which one counts")
    type_at(place, schema, path)
    return path


def _kind_of(place: str, schema: Any, path: Sequence[str]) -> Literal["text", "ids"]:
    """What a column holds, by its type. Raises SourceError if it is neither text nor ids."""
    types, kind = pyarrow("to read tables").types, type_at(place, schema, path)
    texts = (types.is_string, types.is_large_string, types.is_string_view, types.is_binary, types.is_large_binary)
    if any(is_(kind) for is_ in texts):
        return "text"
    is_list = any(is_(kind) for is_ in (types.is_list, types.is_large_list, types.is_fixed_size_list))
    if is_list and types.is_integer(kind.value_type):
        return "ids"
    where = ".".join(path)
    raise SourceError(
        f"{place}: column {where!r} is {kind}, expected strings or lists of integers: "
        f"{_other_ways(where, schema.names)}"
    )


def _other_ways(where: str, names: Sequence[str]) -> str:
    """What to type for columns of which none is text, or not ``where``."""
    chat = where if where in CHATS and where in names else chat_column(names)
    if chat:
        packs = f"--tokenizer FILE --chat {chat} packs chats as token ids, --field {chat}={chat} keeps it as JSON"
    elif where in names:
        packs = f"--field {where}={where} keeps it as JSON"
    else:
        packs = f"--field packs columns as fields, as in --field {names[0].lower()}={names[0]}"
    return f"{packs}; --text-column names another column of text"


def slices(batch: Any, limits: Limits) -> Iterator[Any]:
    """Yield a batch as it came, cut where it is too large for one piece of work."""
    rows = max(batch.num_rows, 1)
    each = max(1, min(limits.block_documents, rows * limits.block_bytes // max(size_bytes(batch), 1)))
    for start in range(0, batch.num_rows, each):
        yield batch.slice(start, each)


def _ids(arrow: Any, column: Any) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Ids as int64, and where each document's lie, in bytes. Above int64 they become its highest, which is no id."""
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    flat = column.flatten().fill_null(0)
    if flat.type == arrow.uint64():
        values = np.minimum(flat.to_numpy(zero_copy_only=False), np.uint64(2**63 - 1)).astype(np.int64)
    else:
        values = flat.cast(arrow.int64()).to_numpy(zero_copy_only=False)
    sizes = lengths * 8
    return np.ascontiguousarray(values).view(np.uint8), np.cumsum(sizes) - sizes, sizes


def _nulls(column: Any) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return found


def _inner_nulls(column: Any) -> NDArray[np.bool_]:
    """Which lists have a null in them."""
    flat = column.flatten()
    bad = np.zeros(len(column), bool)
    if flat.null_count:
        lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        owners = np.repeat(np.arange(len(column)), lengths)
        bad[owners[flat.is_null().to_numpy(zero_copy_only=False)]] = True
    return bad
