"""Tables of text: one document per row of a .jsonl, .json, .csv or .tsv file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastio._native import ThreadPool
from fastio.converters.labels.columns import ALL_OTHERS
from fastio.converters.labels.values import TableLabels
from fastio.converters.sources.arrow.reading import sound, value_bytes
from fastio.converters.sources.columns import FIRST_VALUES, SourceColumns, is_empty
from fastio.converters.sources.documents import Documents, Gathering, Limits, TextFiles, TextOptions
from fastio.converters.sources.kind import source_record
from fastio.converters.sources.optional import pyarrow
from fastio.converters.sources.source import Problem
from fastio.converters.sources.streams import Stream, opened
from fastio.converters.sources.tables.rows import ROWS, Row, kind_in_json
from fastio.errors import SourceError

__all__ = [
    "OtherColumns",
    "RowSource",
    "column_documents",
    "kind_of",
    "known_column",
    "open_table",
]


DEFAULT_FIELD = "text"


@dataclass(slots=True)
class OtherColumns:
    """
    The columns that are not packed, as far as rows have been read: ``names``, in the order in which they first came.

    ``columns`` looks at the first values of each, and refuses those that hold pictures.
    """

    columns: SourceColumns
    used: frozenset[str]
    names: list[str] = field(default_factory=list)
    _known: set[str] = field(default_factory=set)  # columns that need no further look
    _counts: dict[str, int] = field(default_factory=dict)  # of values looked at

    def __post_init__(self) -> None:
        self._known |= self.used

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


@dataclass(frozen=True, slots=True)
class RowSource:
    """
    A kind of table: its files, which field of a row is text, and how labels are read; ``read`` is each kind's own.

    ``others`` are the columns that are not packed, complete when everything has been read.
    """

    kind: str
    files: TextFiles
    options: TextOptions
    label_rule: TableLabels | None
    others: OtherColumns
    is_ids: bool = False

    @property
    def path(self) -> str:
        """As the user named it."""
        return self.files.path

    @property
    def has_labels(self) -> bool:
        """Whether a field of labels was named."""
        return self.label_rule is not None

    @property
    def problems(self) -> Sequence[Problem]:
        """Files that belong to no table."""
        return self.files.problems

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
        return {"classes": classes, "source": source_record(self.kind, self.files.shown_name, **fields)}

    @property
    def text_field(self) -> str:
        """The field that is text."""
        return self.options.text_field or DEFAULT_FIELD


# Tables of text in .jsonl, .json, .csv and .tsv files: one document per row.

_FIRST_ROWS, _MOST_FIRST_ROWS = 64, 1000  # that tell which columns there are; the latter if one is looked for
_SHOWN = 8  # columns in a message
_TYPED = ("jsonl", "json")  # kinds of tables whose values have types, and whose bytes are all UTF-8


def open_table(kind: str, path: str, options: TextOptions) -> TableSource:
    """Open a file, or a folder of files, of one kind of table: "jsonl", "json", "csv" or "tsv"."""
    options.refuse(path, "split")
    files = TextFiles.below(path, (f".{kind}",))
    labels = None
    if options.label_field is not None:
        labels = TableLabels(is_typed=kind in _TYPED)
    source = TableSource(kind, files, options, labels, OtherColumns(*_columns(path, files, options)))
    _check_first(source)
    if labels is not None:
        try:
            labels.learn(source.labels())
        except SourceError as exc:
            raise SourceError(f"{path}: {exc}") from exc
    return source


def _columns(path: str, files: TextFiles, options: TextOptions) -> tuple[SourceColumns, frozenset[str]]:
    """What is asked about columns, and those that are used."""
    used = frozenset(filter(None, (options.text_field or DEFAULT_FIELD, options.label_field)))
    return SourceColumns(path, (), lambda _: (), options.without, root=files.folder), used


def _check_first(source: TableSource) -> None:
    """Raise SourceError if no column of the first rows is the text, or one to leave out is in none of them."""
    found: dict[str, None] = {}
    has_text, missing = False, {name for name in source.options.without if name != ALL_OTHERS}
    with opened(source.files.place(source.files.names[0])) as stream:
        for count, (_, row) in enumerate(source.rows(stream), 1):
            if not isinstance(row, str):
                source.others.see(row)
                found |= dict.fromkeys(row)
                has_text = has_text or isinstance(row.get(source.text_field), str)
                missing -= row.keys()
            if count >= (_FIRST_ROWS if not missing else _MOST_FIRST_ROWS):
                break
    if found and missing:
        replace(source.others.columns, names=list(found)).left_out((), found)
    if found and not has_text:
        raise SourceError(f"{source.path}: {_no_text(source.text_field, list(found))}")


def _no_text(field: str, names: Sequence[str]) -> str:
    """What to say where no row has text in its column."""
    listed = ", ".join(map(repr, names[:_SHOWN])) + (", ..." if len(names) > _SHOWN else "")
    there = f"no string in the column {field!r}" if field in names else f"no column {field!r}, only {listed}"
    return f"has {there}: {other_ways(field, names)}"


@dataclass(frozen=True, slots=True)
class TableSource(RowSource):
    """
    Rows of one or several files. Satisfies ``TextSource``.

    A document's key is its file's name and the number of the row's first line. If labels are asked for, the files are
    read once before, for the labels' names.
    """

    def read(self, limits: Limits, pool: ThreadPool | None = None) -> Iterator[Documents]:
        """Yield all rows, in pieces."""
        del pool  # rows are found one after the other
        positions = {} if self.label_rule is None else self.label_rule.positions()
        for name in self.files.names:
            with opened(self.files.place(name)) as stream:
                gathering = Gathering(limits, stream, self.has_labels)
                for number, row in self.rows(stream):
                    self._add(gathering, f"{self.files.key(name)}:{number}", row, positions)
                    if gathering.is_full:
                        yield gathering.take()
                yield gathering.take()

    def labels(self) -> Iterator[tuple[str, object]]:
        """Yield key and label of every row that has one."""
        for name in self.files.names:
            with opened(self.files.place(name)) as stream:
                for number, row in self.rows(stream):
                    if not isinstance(row, str):
                        yield f"{self.files.key(name)}:{number}", row.get(self.options.label_field or "")

    def rows(self, stream: Stream) -> Iterator[Row]:
        """Yield the rows of an open file."""
        return ROWS[self.kind](stream, self.options.max_document_bytes)

    def _add(self, gathering: Gathering, key: str, row: Mapping[str, Any] | str, positions: dict[str, int]) -> None:
        """One row: a document, or a problem."""
        if isinstance(row, str):
            gathering.refuse(key, row)
            return
        self.others.see(row)
        text = _text(row, self.text_field, has_bytes=self.kind not in _TYPED)
        if isinstance(text, str):
            gathering.refuse(key, text)
            return
        if len(text) > self.options.max_document_bytes:
            gathering.refuse(key, self.options.too_long)
            return
        label: int | str = 0
        if self.label_rule is not None:
            label = self.label_rule.number(row.get(self.options.label_field or ""), positions)
        if isinstance(label, str):
            gathering.refuse(key, f"{label} (field {self.options.label_field!r})")
        else:
            gathering.add(key, text, label)


def _text(row: Mapping[str, Any], field: str, *, has_bytes: bool) -> bytes | str:
    """
    The bytes of a row's text, or a sentence on why there are none.

    A surrogate is a byte that is no UTF-8 where ``has_bytes``; in JSON it was written as one, and is no text.
    """
    if field not in row:
        names = ", ".join(repr(name) for name in list(row)[:8])
        return f"has no field {field!r}, only {names or 'none'}: name another with --text-field"
    value = row[field]
    if not isinstance(value, str):
        return f"has {kind_in_json(value)} in the field {field!r}, expected a string"
    try:
        return value.encode("utf-8", "surrogateescape" if has_bytes else "strict")
    except UnicodeEncodeError as exc:
        return f"has half of a character (a lone surrogate) at {exc.start} of the field {field!r}"


# Turns one column of Arrow arrays into documents, without a Python object for each.

_CHATS = ("messages", "conversations", "conversation", "dialog")  # what columns of lists of turns are called


def kind_of(place: str, schema: Any, field: str) -> Literal["text", "ids"]:
    """Return what a column holds, by its type. Raises SourceError if it is neither text nor ids."""
    known_column(place, schema, field, option="--text-field")
    types = pyarrow("to read tables").types
    kind = schema.field(field).type
    if types.is_dictionary(kind):
        kind = kind.value_type
    if any(is_(kind) for is_ in (types.is_string, types.is_large_string, types.is_string_view)):
        return "text"
    if types.is_binary(kind) or types.is_large_binary(kind):
        return "text"
    is_list = any(is_(kind) for is_ in (types.is_list, types.is_large_list, types.is_fixed_size_list))
    if is_list and types.is_integer(kind.value_type):
        return "ids"
    raise SourceError(
        f"{place}: column {field!r} is {kind}, expected strings or lists of integers: {other_ways(field, schema.names)}"
    )


def known_column(place: str, schema: Any, field: str, *, option: str) -> None:
    """Raise SourceError if a file has no column of this name, or several."""
    count = schema.names.count(field)
    if count > 1:
        raise SourceError(f"{place}: has {count} columns named {field!r}, so it is unclear which one counts")
    if not count:
        columns = ", ".join(f"{each.name!r} ({each.type})" for each in schema)
        advice = other_ways(field, schema.names) if option == "--text-field" else f"name another with {option}"
        raise SourceError(f"{place}: has no column {field!r}, only {columns}: {advice}")


def other_ways(field: str, names: Sequence[str]) -> str:
    """Return what to type for columns of which none is text, or not ``field``."""
    chat = next((name for name in (field, *_CHATS) if name in names), "")
    if chat:
        packs = f"--field {chat}={chat} keeps it as JSON, chats are not tokenized"
    else:
        packs = f"--field packs columns as fields, as in --field {names[0].lower()}={names[0]}"
    return f"{packs}; --text-field names another column of text"


def column_documents(batch: Any, options: TextOptions, *, key: str, row: int) -> tuple[Documents, dict[int, str]]:
    """
    Return the rows of a batch, the first of which is number ``row``, and what is wrong with some of them, by
    position.
    """
    field = options.text_field or "text"
    column = sound(batch, field)
    arrow = pyarrow("to read tables")
    if arrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    is_ids = kind_of(key, batch.schema, field) == "ids"
    data, starts, sizes = _ids(arrow, column) if is_ids else value_bytes(arrow, column)
    problems = {int(i): f"has null in the column {field!r}" for i in np.flatnonzero(_nulls(column))}
    if is_ids:
        for i in np.flatnonzero(_inner_nulls(column)).tolist():
            problems.setdefault(i, f"has null among the ids of the column {field!r}")
    for i in np.flatnonzero(sizes > options.max_document_bytes).tolist():
        problems[i] = options.too_long
    keys = [f"{key}:{number}" for number in range(row, row + len(column))]
    return Documents(keys, data, starts, sizes, None, (), 0), problems


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
