"""
Label files: .pkl, .csv, .tsv, .json and .jsonl to one mapping of file names to numbers.

    .pkl    {name: label}, name as str or bytes; read as data, nothing in it is run
    .csv    name and label by header (filename, file, image, path ... / label, class, target ...), or just the two
    .tsv    the same, tabs between
    .json   {name: label}, or a list of {"filename": name, "label": label} or of [name, label]
    .jsonl  one such record a line

A label is a whole number, the name of a class (which becomes its position in the sorted list of names), a fraction,
or a list of numbers. A file has labels of one kind. Columns that are neither used nor ignored are refused.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastio.converters.labels.columns import Columns, LabelOptions, choose_columns, has_known_title
from fastio.converters.labels.filters import RowFilter
from fastio.converters.labels.values import NumberedLabels, Row, TableLabels, number_labels, plain_label, type_cells
from fastio.converters.sources.streams import opened
from fastio.errors import SourceError
from fastio.store.kinds.names import plain_name
from fastio.types.picture_kinds import kind_by_name

__all__ = [
    "LABEL_SUFFIXES",
    "LabelFile",
    "LabelOptions",
    "Labels",
    "is_label_name",
    "learn_classes",
    "look_like_captions",
    "read_labels",
]


_BLOCK_BYTES = 1 << 20
_MANY = 20  # samples from which nearly as many classes are doubted
_SENTENCE_WORDS = 3  # from which a label is more likely a caption than a name


@dataclass(frozen=True, slots=True)
class LabelFile:
    """A label file to read, and how."""

    path: str
    options: LabelOptions = field(default_factory=LabelOptions)


@dataclass(frozen=True, slots=True)
class Labels:
    """
    What a label file says.

    ``by_name`` maps each file name to its number or numbers, ``classes`` are the names of the numbers, None if the
    file has its own numbers. ``contradictions`` are names with two different labels, each with a sentence; they are
    not in ``by_name``. ``filtered`` are names that the user's filters leave out. ``titles`` are those of a table's
    label columns.
    """

    path: str
    numbered: NumberedLabels
    contradictions: Mapping[str, str]
    filtered: frozenset[str] = frozenset()
    titles: tuple[str, ...] = ()

    @property
    def by_name(self) -> Mapping[str, Any]:
        """The label of each file name: an int, a float or a tuple of them."""
        return self.numbered.by_name

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of the numbers, if the labels were names."""
        return self.numbered.classes


def is_label_name(name: str) -> bool:
    """Return whether a file of this name may hold labels."""
    return plain_name(name).lower().endswith(LABEL_SUFFIXES)


def read_labels(
    path: str | os.PathLike[str], options: LabelOptions | None = None, *, files: Container[str] = frozenset()
) -> Labels:
    """
    Read a label file by its suffix, compressed (.gz, .zst) or not.

    Raises SourceError that names the file, the position and what was expected.

    ``files`` are the names of the files to be labelled: they tell a header from a first row.
    """
    path = os.fspath(path)
    options = options or LabelOptions()
    if not is_label_name(path):
        raise SourceError(f"{path}: not a label file by its suffix; expected one of {', '.join(LABEL_SUFFIXES)}")
    with opened(path) as stream:
        data = b"".join(iter(lambda: stream.read(_BLOCK_BYTES), b""))
    try:
        stated = read_statements(path, data, options, files)
        labels, contradictions = _collect(stated.rows)
        numbered = number_labels(labels) if labels else NumberedLabels({})
        if numbered.classes is not None and not options.many_classes:
            _refuse_captions(numbered)
    except SourceError as exc:
        raise SourceError(f"{path}: {exc}") from exc
    if not numbered.by_name and not contradictions:
        left = f" that pass the filters; all {len(stated.filtered):,} rows have other values" if stated.filtered else ""
        raise SourceError(f"{path}: holds no labels{left}")
    filtered = frozenset(stated.filtered).difference(labels, contradictions)
    return Labels(path, numbered, contradictions, filtered, stated.titles)


def _collect(rows: list[Row]) -> tuple[dict[str, Any], dict[str, str]]:
    """Rows to a mapping; a name that comes again with another label is a contradiction."""
    labels: dict[str, Any] = {name: label for name, label, _ in rows if type(name) is str and name}
    if len(labels) == len(rows):
        return labels, {}  # the usual file: every name is a string, and comes once
    labels = {}
    places: dict[str, str] = {}
    contradictions: dict[str, str] = {}
    for name, label, where in rows:
        key = _file_name(name, where)
        known = labels.setdefault(key, label)
        if known is not label and plain_label(key, known) != plain_label(key, label):
            first, second = places.get(key, ""), where
            both = f" ({first} and {second})" if first and second else ""
            contradictions[key] = f"has two contradicting labels, {known!r} and {label!r}{both}"
        if where:
            places.setdefault(key, where)
    for key in contradictions:
        del labels[key]
    return labels, contradictions


def _file_name(name: object, where: str) -> str:
    at = f"{where}: " if where else ""
    if isinstance(name, bytes):
        name = os.fsdecode(name)
    if not isinstance(name, str):
        raise SourceError(f"{at}file name is {name!r:.60}, expected a string")
    if not name:
        raise SourceError(f"{at}file name is empty")
    return name


def look_like_captions(classes: Sequence[str], count: int) -> bool:
    """Return whether more than three quarters of ``count`` samples would be a class of their own."""
    sentences = sum(len(name.split()) >= _SENTENCE_WORDS for name in classes)
    if 4 * len(classes) <= 3 * count or len(classes) < 2:
        return False
    return count >= _MANY or 2 * sentences > len(classes)


def learn_classes(
    rule: TableLabels, labels: Iterable[tuple[str, object]], count: int, *, where: str, column: str, many_classes: bool
) -> None:
    """
    Learn the names of classes from the labels of ``count`` samples, of the ``column`` of a source, ``where``.

    Raises SourceError for numbers among names, and, unless ``many_classes``, for nearly as many names as samples.
    """
    try:
        rule.learn(labels)
    except SourceError as exc:
        raise SourceError(f"{where}: {exc}") from exc
    classes = rule.classes or []
    if not many_classes and look_like_captions(classes, count):
        raise SourceError(
            f"{where}: {count:,} samples have {len(classes):,} different labels, e.g. {classes[0]!r:.60}: captions or "
            f"names rather than classes? Keep them as text with --field caption={column}, or add --many-classes if "
            "each is a class"
        )


def _refuse_captions(labels: NumberedLabels) -> None:
    classes, count = labels.classes or (), len(labels.by_name)
    if look_like_captions(classes, count):
        raise SourceError(
            f"{count:,} samples have {len(classes):,} different labels, e.g. {classes[0]!r:.60}: captions or "
            "names rather than classes? Drop --labels to pack the pictures alone, or add --many-classes if "
            "each is a class"
        )


# Reads a label file row by row: file name, label and position. Each suffix has its own reader.

_LOOKED_AT = 1000  # rows of which a column's values are given as advice


@dataclass(slots=True)
class Statements:
    """
    The rows of a label file that pass the filters, and the file names of those that do not.

    ``titles`` are those of the label columns, if there are several.
    """

    rows: list[Row] = field(default_factory=list)
    filtered: list[str] = field(default_factory=list)
    titles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Request:
    """How to read: the user's options, and the names of the files that are to be labelled."""

    options: LabelOptions
    files: Container[str]

    def is_file(self, cell: str) -> bool:
        """Return whether a cell names a picture."""
        return kind_by_name(cell) != 0 or cell in self.files


def read_statements(path: str, data: bytes, options: LabelOptions, files: Container[str]) -> Statements:
    """Read all rows of a label file with these bytes. Raises SourceError with the position of an error."""
    return _READERS[Path(plain_name(path)).suffix.lower()](data, _Request(options, files))


def _of_pickle(data: bytes, request: _Request) -> Statements:
    from fastio.converters.labels.pickle import load_pickle

    content = load_pickle(data)
    if not isinstance(content, dict):
        raise SourceError(f"the pickle holds a {type(content).__name__}, expected a dict of file name to label")
    _refuse_options(request.options, "a pickled dict")
    return Statements([(name, label, "") for name, label in content.items()])


def _refuse_options(options: LabelOptions, what: str) -> None:
    if options.names_columns:
        raise SourceError(f"{what} has no columns: drop the options that name some")


# Tables


def _of_csv(data: bytes, request: _Request) -> Statements:
    return _of_table(data, ",", request)


def _of_tsv(data: bytes, request: _Request) -> Statements:
    return _of_table(data, "\t", request)


def _of_table(data: bytes, delimiter: str, request: _Request) -> Statements:
    """The rows of a table, its columns chosen by the header, or the first two where there is none."""
    lines = _lines(data, delimiter)
    if not lines:
        return Statements()
    (where, first), body = lines[0], lines[1:]
    width = len(first)
    if not request.options.header:
        first, body = [str(i + 1) for i in range(width)], lines
    elif not _is_header(first, body, request):
        if request.options.names_columns:
            raise SourceError(f"{where}: names a file, so there are no titles: add --no-header and number the columns")
        _check_unnamed(where, first, delimiter)
        return _table(lines, Columns(0, (1,)), width, delimiter, RowFilter())
    if width == 1:
        raise SourceError(_unfit_row(where, first, 2, delimiter))

    def values(position: int) -> Iterable[str]:
        return (cells[position] for _, cells in body[:_LOOKED_AT] if len(cells) > position)

    columns = choose_columns(first, request.options, where=where, values=values)
    found = _table(body, columns, width, delimiter, request.options.row_filter)
    found.titles = tuple(first[i] for i in columns.labels)
    return found


def _lines(data: bytes, delimiter: str) -> list[tuple[str, list[str]]]:
    """The rows that are not blank, each with its place."""
    reader = csv.reader(io.StringIO(_utf8(data), newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        return [(f"line {reader.line_num}", row) for row in reader if row]
    except csv.Error as exc:
        raise SourceError(f"line {reader.line_num}: {exc}") from exc


def _is_header(first: Sequence[str], body: Sequence[tuple[str, list[str]]], request: _Request) -> bool:
    """
    Whether the first row of a table holds titles.

    It does not where a cell of it names a picture. It does where a title is known, where the user names columns, or
    where the next row names a picture and it does not.
    """
    if any(map(request.is_file, first)):
        return False
    is_said = bool(request.options.names_columns)
    return is_said or has_known_title(first) or bool(body and any(map(request.is_file, body[0][1])))


def _table(
    lines: Sequence[tuple[str, list[str]]],
    columns: Columns,
    width: int,
    delimiter: str,
    row_filter: RowFilter,
) -> Statements:
    found = Statements()
    rows: list[tuple[str, Any, str]] = []
    for where, row in lines:
        if len(row) <= columns.last or len(row) > width:
            raise SourceError(_unfit_row(where, row, width, delimiter))
    cells = {name: [row[position] for _, row in lines] for name, position in columns.filters.items()}
    passes = row_filter.mask(len(lines), cells.__getitem__, where="", is_text=True)
    for (where, row), is_taken in zip(lines, passes.tolist(), strict=True):
        if not is_taken:
            found.filtered.append(row[columns.key])
            continue
        label = columns.label_of(row)
        label = [cell.strip() for cell in label] if isinstance(label, list) else label.strip()
        if not label or (isinstance(label, list) and "" in label):
            raise SourceError(f"{where} has no label")
        rows.append((row[columns.key], label, where))
    found.rows = type_cells(rows)
    return found


def _check_unnamed(where: str, row: list[str], delimiter: str) -> None:
    if len(row) > 2:
        seen = delimiter.join(row)
        raise SourceError(
            f"{where}: {len(row)} columns ({seen:.100}), but no header that says which are the file name and "
            f"the label; expected e.g. filename{delimiter}label as the first line, or --no-header --key-column "
            "1 --label-column 2 --without '*'"
        )


def _unfit_row(where: str, row: list[str], width: int, delimiter: str) -> str:
    """What to say of a row with too few cells, or too many."""
    if len(row) > width > 1:
        return f"{where}: {len(row)} columns, expected {width}; a name that contains {delimiter!r} needs quotes"
    other = next((each for each in ("\t", ";", ",") if each != delimiter and each in row[0]), None)
    hint = f"; {other!r} seems to be between its columns, expected {delimiter!r}" if len(row) == 1 and other else ""
    return f"{where}: {len(row)} column(s), expected a file name and a label{hint}"


# JSON


def _of_json(data: bytes, request: _Request) -> Statements:
    content = _json(_utf8(data))
    if isinstance(content, JsonObject):
        titles = {title for title, _ in content.pairs}
        if {"images", "annotations"} <= titles:
            raise SourceError(
                "looks like COCO annotations, which are a source of their own: fastio pack FILE.json OUT --root IMAGES"
            )
        _refuse_options(request.options, "an object of names and labels")
        return Statements([(name, label, "") for name, label in content.pairs])
    if not isinstance(content, list):
        raise SourceError(
            f"holds a {type(content).__name__}, expected an object of names and labels or a list of records"
        )
    return _of_records([(entry, f"record {i}") for i, entry in enumerate(content)], request)


def _of_jsonl(data: bytes, request: _Request) -> Statements:
    return _of_records(list(_entries(data)), request)


def _entries(data: bytes) -> Iterator[tuple[Any, str]]:
    """The lines of a .jsonl, each with its place."""
    for number, line in enumerate(_utf8(data).split("\n"), start=1):
        if line.strip():
            try:
                yield _json(line), f"line {number}"
            except SourceError as exc:
                raise SourceError(f"line {number}: {exc}") from exc


def _of_records(entries: Sequence[tuple[Any, str]], request: _Request) -> Statements:
    """Records ``{"filename": ..., "label": ...}``, ``[name, label]`` or ``{name: label}``."""
    found = Statements()
    named: list[tuple[list[Any], Columns, str]] = []
    chosen: dict[tuple[str, ...], Columns] = {}  # by the titles of a record, which may differ
    for entry, where in entries:
        if isinstance(entry, JsonObject) and (len(entry.pairs) > 1 or request.options.names_columns):
            titles = tuple(title for title, _ in entry.pairs)
            if titles not in chosen:
                chosen[titles] = _record_columns(titles, entries, where, request)
            found.titles = tuple(titles[i] for i in chosen[titles].labels)
            named.append(([value for _, value in entry.pairs], chosen[titles], where))
        else:
            found.rows.append(_pair(entry, where, request.options))
    _take(named, request.options.row_filter, found)
    return found


def _take(records: Sequence[tuple[list[Any], Columns, str]], row_filter: RowFilter, found: Statements) -> None:
    """Add the records that pass the filters, each with its columns and place, and the names of those that do not."""

    def values_of(name: str) -> Iterable[object]:
        return (cells[columns.filters[name]] for cells, columns, _ in records)

    passes = row_filter.mask(len(records), values_of, where="")
    for (cells, columns, where), is_taken in zip(records, passes.tolist(), strict=True):
        if is_taken:
            found.rows.append((cells[columns.key], columns.label_of(cells), where))
        elif isinstance(cells[columns.key], str):
            found.filtered.append(cells[columns.key])


def _record_columns(
    titles: tuple[str, ...], entries: Sequence[tuple[Any, str]], where: str, request: _Request
) -> Columns:
    def values(position: int) -> Iterable[Any]:
        for entry, _ in entries[:_LOOKED_AT]:
            if isinstance(entry, JsonObject):
                yield from (value for title, value in entry.pairs if title == titles[position])

    return choose_columns(titles, request.options, where=where, values=values)


def _pair(entry: object, where: str, options: LabelOptions) -> Row:
    """Name and label of ``[name, label]`` or ``{name: label}``."""
    if isinstance(entry, list) and len(entry) == 2:
        _refuse_options(options, f"{where}: a pair")
        return entry[0], entry[1], where
    if isinstance(entry, JsonObject) and len(entry.pairs) == 1:
        return *entry.pairs[0], where
    raise SourceError(f'{where}: expected {{"filename": ..., "label": ...}} or [name, label]')


@dataclass(frozen=True, slots=True)
class JsonObject:
    """A JSON object with its duplicate keys, which a dict would lose."""

    pairs: list[tuple[str, Any]]


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=JsonObject)
    except (ValueError, RecursionError) as exc:
        raise SourceError(f"not readable as JSON: {exc}") from exc


def _utf8(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        raise SourceError(f"line {line}: not UTF-8 text") from exc


_READERS: dict[str, Callable[[bytes, _Request], Statements]] = {
    ".pkl": _of_pickle,
    ".pickle": _of_pickle,
    ".csv": _of_csv,
    ".tsv": _of_tsv,
    ".json": _of_json,
    ".jsonl": _of_jsonl,
}

LABEL_SUFFIXES = tuple(_READERS)
