"""Tables of text in .jsonl, .json, .csv and .tsv files: one document per row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastio._native import ThreadPool
from fastio.converters.label_columns import ALL_OTHERS
from fastio.converters.source_columns import SourceColumns
from fastio.converters.streams import Stream, opened
from fastio.converters.table_labels import TableLabels
from fastio.converters.text.columns import other_ways
from fastio.converters.text.documents import Documents, Gathering, Limits, TextOptions
from fastio.converters.text.files import TextFiles
from fastio.converters.text.row_source import DEFAULT_FIELD, OtherColumns, RowSource
from fastio.converters.text.rows import ROWS, Row, kind_in_json
from fastio.errors import SourceError

__all__ = ["TableSource", "open_table"]

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
