"""Label files: .pkl, .csv, .tsv, .json and .jsonl to one mapping of file names to numbers.

Whole numbers stay as they are. Names become the positions in their sorted list, the classes. Both in one file,
or fractions, are refused: they would have to be guessed at.

    .pkl    {name: label}, name as str or bytes; read as data, nothing in it is run
    .csv    name and label by header (filename, file, image, path ... / label, class, target ...), or just the two
    .tsv    the same, tabs between
    .json   {name: label}, or a list of {"filename": name, "label": label} or of [name, label]
    .jsonl  one such record a line
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastio.converters.restricted_pickle import load_pickle
from fastio.errors import SourceError

__all__ = ["LABEL_SUFFIXES", "WHOLE", "Labels", "format_labels", "read_labels"]

_NAME_TITLES = ("filename", "file_name", "file", "image", "image_name", "path", "name", "key", "fname", "img", "id")
_LABEL_TITLES = ("label", "class", "target", "category", "labels", "class_name", "class_id", "y")
WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.0*)?\Z")
_FRACTION = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")
_INT64 = range(-(2**63), 2**63)
_PRINTED_BITS = 128

# One statement of a label file: file name, label as it stands there, and where ("line 3", or "" where there are none).
_Row = tuple[Any, Any, str]


@dataclass(frozen=True, slots=True)
class Labels:
    """
    What a label file says.

    ``by_name`` gives each file name its number; ``classes`` are the names of the numbers, or None
    where the file has numbers of its own. ``contradictions`` are names with two different
    labels, each with a sentence; they are not in ``by_name``.
    """

    path: str
    by_name: Mapping[str, int]
    classes: tuple[str, ...] | None
    contradictions: Mapping[str, str]


def read_labels(path: str | os.PathLike[str]) -> Labels:
    """Read a label file by its suffix; SourceError names file, place and what was expected."""
    path = os.fspath(path)
    reader = _READERS.get(Path(path).suffix.lower())
    if reader is None:
        raise SourceError(f"{path}: not a label file by its suffix; expected one of {', '.join(LABEL_SUFFIXES)}")
    try:
        data = Path(path).read_bytes()
    except OSError as exc:
        raise SourceError(f"{path}: labels cannot be read: {exc.strerror or exc}") from exc
    try:
        labels, contradictions = _collect(reader(data))
        by_name, classes = _numbers(labels)
    except SourceError as exc:
        raise SourceError(f"{path}: {exc}") from exc
    if not by_name and not contradictions:
        raise SourceError(f"{path}: holds no labels")
    return Labels(path, by_name, classes, contradictions)


def format_labels(path: str | os.PathLike[str], labels: Mapping[str, int | str]) -> str:
    """The text of a label file by its suffix (.csv, .tsv, .json or .jsonl); ``read_labels`` gives the same back."""
    suffix = Path(path).suffix.lower()
    if suffix in (".csv", ".tsv"):
        if any(
            isinstance(label, str) and (_FRACTION.match(label) or label != label.strip()) for label in labels.values()
        ):
            raise SourceError(f"{path}: class names that look like numbers would come back as numbers; write .json")
        text = io.StringIO(newline="")
        writer = csv.writer(text, delimiter="," if suffix == ".csv" else "\t", lineterminator="\n")
        writer.writerow(("filename", "label"))
        writer.writerows(labels.items())
        return text.getvalue()
    if suffix == ".json":
        return json.dumps(dict(labels), indent=0, ensure_ascii=False) + "\n"
    if suffix == ".jsonl":
        rows = ({"filename": name, "label": label} for name, label in labels.items())
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    raise SourceError(f"{path}: expected a label file to write as .csv, .tsv, .json or .jsonl")


def _collect(rows: Iterable[_Row]) -> tuple[dict[str, Any], dict[str, str]]:
    """Rows to a mapping; a name that comes again with another label is a contradiction."""
    rows = list(rows)
    labels: dict[str, Any] = {name: label for name, label, _ in rows if type(name) is str and name}
    if len(labels) == len(rows):
        return labels, {}  # the usual file: every name is a string, and comes once
    labels = {}
    places: dict[str, str] = {}
    contradictions: dict[str, str] = {}
    for name, label, where in rows:
        key = _file_name(name, where)
        known = labels.setdefault(key, label)
        if known is not label and _scalar(key, known) != _scalar(key, label):
            first, second = places.get(key, ""), where
            both = f" ({first} and {second})" if first and second else ""
            contradictions[key] = f"has two labels that contradict each other, {known!r} and {label!r}{both}"
        if where:
            places.setdefault(key, where)
    for key in contradictions:
        del labels[key]
    return labels, contradictions


def _file_name(name: object, where: str) -> str:
    if isinstance(name, bytes):
        name = os.fsdecode(name)
    if not isinstance(name, str):
        raise SourceError(f"{_at(where)}file name is {name!r:.60}, expected a string")
    if not name:
        raise SourceError(f"{_at(where)}file name is empty")
    return name


def _at(where: str) -> str:
    return f"{where}: " if where else ""


def _numbers(labels: Mapping[str, Any]) -> tuple[dict[str, int], tuple[str, ...] | None]:
    """Labels as int64 numbers, and the classes where they were names."""
    kinds = set(map(type, labels.values()))
    if kinds - {int, str}:
        labels = {name: _scalar(name, label) for name, label in labels.items()}
        kinds = set(map(type, labels.values()))
    numbers = labels.values() if kinds == {int} else [label for label in labels.values() if type(label) is int]
    if numbers and (min(numbers) not in _INT64 or max(numbers) not in _INT64):
        raise next(
            _too_large(name, label) for name, label in labels.items() if type(label) is int and label not in _INT64
        )
    if kinds <= {int}:
        return dict(labels), None
    if kinds == {str}:
        classes = sorted(set(labels.values()))
        if classes[0] == "":
            raise SourceError(f"{next(name for name, label in labels.items() if label == '')!r}: label is empty")
        position = {name: i for i, name in enumerate(classes)}
        return {name: position[label] for name, label in labels.items()}, tuple(classes)
    number = next(name for name, label in labels.items() if type(label) is int)
    word = next(name for name, label in labels.items() if type(label) is str)
    raise SourceError(
        f"labels are numbers and names at once: {number!r} has {labels[number]!r}, {word!r} has {labels[word]!r:.60}; "
        f"make all of them numbers or all of them names"
    )


def _scalar(name: str, label: object) -> int | str:
    """One label as int or str, whatever type the file keeps numbers and strings in."""
    if isinstance(label, np.ndarray) and label.size == 1:
        label = label.reshape(()).item()
    if isinstance(label, bytes):
        label = os.fsdecode(label)
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    if isinstance(label, int) and label not in _INT64:
        raise _too_large(name, label)
    if isinstance(label, int | str):
        return int(label) if isinstance(label, int) else label
    kind = f"{label!r:.60}" if isinstance(label, float | None) else f"of type {type(label).__name__}"
    raise SourceError(f"{name!r}: label is {kind}; expected a whole number or a class name")


def _too_large(name: str, label: int) -> SourceError:
    """Python refuses to print numbers of thousands of digits."""
    words = str(label) if label.bit_length() <= _PRINTED_BITS else f"is a number of {label.bit_length()} bits and"
    return SourceError(f"{name!r}: label {words} does not fit in 64 bits")


def _rows_of_pickle(data: bytes) -> Iterable[_Row]:
    content = load_pickle(data)
    if not isinstance(content, dict):
        raise SourceError(f"the pickle holds a {type(content).__name__}, expected a dict of file name to label")
    return ((name, label, "") for name, label in content.items())


def _rows_of_csv(data: bytes) -> list[_Row]:
    return _rows_of_table(data, ",")


def _rows_of_tsv(data: bytes) -> list[_Row]:
    return _rows_of_table(data, "\t")


def _rows_of_table(data: bytes, delimiter: str) -> list[_Row]:
    """
    The name and label columns of a table.

    A table has no types: where every label reads as a whole number (without leading zeros) they are numbers,
    otherwise names.
    """
    reader = csv.reader(io.StringIO(_utf8(data), newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    rows: list[tuple[str, str, str]] = []
    columns: tuple[int, int] | None = None
    width = 0
    try:
        for row in reader:
            if not row:
                continue
            where = f"line {reader.line_num}"
            if columns is None:
                width, columns = len(row), _header(row, where)
                if columns is not None:
                    continue
                columns = 0, 1
                if width > 2:
                    raise SourceError(_unnamed_columns(where, row, delimiter))
            if len(row) <= max(columns) or len(row) > width:
                raise SourceError(_unfit_row(where, row, width, delimiter))
            label = row[columns[1]].strip()
            if not label:
                raise SourceError(f"{where} has no label")
            rows.append((row[columns[0]], label, where))
    except csv.Error as exc:
        raise SourceError(f"line {reader.line_num}: {exc}") from exc
    return _typed(rows)


def _unnamed_columns(where: str, row: list[str], delimiter: str) -> str:
    seen = delimiter.join(row)
    return (
        f"{where}: {len(row)} columns ({seen:.100}), and no header that says which are the file name and the label; "
        f"expected e.g. filename{delimiter}label as the first line, or only these two columns"
    )


def _unfit_row(where: str, row: list[str], width: int, delimiter: str) -> str:
    """What to say of a row with too few cells, or too many."""
    if len(row) > width > 1:
        return f"{where}: {len(row)} columns, expected {width}; a name that contains {delimiter!r} needs quotes"
    other = next((each for each in ("\t", ";", ",") if each != delimiter and each in row[0]), None)
    hint = f"; {other!r} seems to be between its columns, expected {delimiter!r}" if len(row) == 1 and other else ""
    return f"{where}: {len(row)} column(s), expected a file name and a label{hint}"


def _header(row: list[str], where: str) -> tuple[int, int] | None:
    """Positions of name and label where the row is a header; SourceError where one of them comes twice."""
    titles = [cell.strip().lower() for cell in row]
    name = next((t for t in _NAME_TITLES if t in titles), None)
    label = next((t for t in _LABEL_TITLES if t in titles), None)
    if name is None or label is None:
        return None
    for title in (name, label):
        if titles.count(title) > 1:
            raise SourceError(f"{where}: {title!r} comes twice, so it is not known which one counts; rename one")
    return titles.index(name), titles.index(label)


def _typed(rows: list[tuple[str, str, str]]) -> list[_Row]:
    """Cells to numbers where all are whole numbers; some numbers among names are refused, for they may be slips."""
    whole = [WHOLE.match(label) is not None for _, label, _ in rows]
    if all(whole):
        return [(name, _whole(label, where), where) for name, label, where in rows]
    if all(_FRACTION.match(label) for _, label, _ in rows):
        if not any(re.search(r"[.eE]", label) for _, label, _ in rows):
            return list(rows)  # leading zeros: "007" and "7" are two names
        _, label, where = rows[whole.index(False)]
        raise SourceError(f"{where}: label {label!r} is not a whole number; expected whole numbers or class names")
    if any(whole):
        number, word = rows[whole.index(True)], rows[whole.index(False)]
        raise SourceError(
            f"labels are numbers and names at once: {number[2]} has {number[1]!r}, {word[2]} has {word[1]!r:.60}; "
            f'make all of them numbers or all of them names (in .json, "1" in quotes is a name)'
        )
    return list(rows)


def _whole(label: str, where: str) -> int:
    try:
        return int(label.partition(".")[0])
    except ValueError as exc:  # thousands of digits
        raise SourceError(f"{where}: label {label:.20}... does not fit in 64 bits") from exc


def _rows_of_json(data: bytes) -> Iterator[_Row]:
    content = _json(_utf8(data))
    if isinstance(content, _Pairs):
        return ((name, label, "") for name, label in content.pairs)
    if not isinstance(content, list):
        raise SourceError(
            f"holds a {type(content).__name__}, expected an object of names and labels or a list of records"
        )
    return (_record(entry, f"record {i}") for i, entry in enumerate(content))


def _rows_of_jsonl(data: bytes) -> Iterator[_Row]:
    for number, line in enumerate(_utf8(data).split("\n"), start=1):
        if line.strip():
            try:
                entry = _json(line)
            except SourceError as exc:
                raise SourceError(f"line {number}: {exc}") from exc
            yield _record(entry, f"line {number}")


def _record(entry: object, where: str) -> _Row:
    """Name and label of ``{"filename": ..., "label": ...}``, ``[name, label]`` or ``{name: label}``."""
    if isinstance(entry, list) and len(entry) == 2:
        return entry[0], entry[1], where
    if isinstance(entry, _Pairs):
        titles = [title.lower() for title, _ in entry.pairs]
        columns = _header(titles, where)
        if columns is not None:
            return entry.pairs[columns[0]][1], entry.pairs[columns[1]][1], where
        if len(entry.pairs) == 1:
            return *entry.pairs[0], where
    raise SourceError(f'{where}: expected {{"filename": ..., "label": ...}} or [name, label]')


@dataclass(frozen=True, slots=True)
class _Pairs:
    """A JSON object with its doubles, which a dict would lose."""

    pairs: list[tuple[str, Any]]


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError) as exc:
        raise SourceError(f"not readable as JSON: {exc}") from exc


def _utf8(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        raise SourceError(f"line {line}: not UTF-8 text") from exc


_READERS: dict[str, Callable[[bytes], Iterable[_Row]]] = {
    ".pkl": _rows_of_pickle,
    ".pickle": _rows_of_pickle,
    ".csv": _rows_of_csv,
    ".tsv": _rows_of_tsv,
    ".json": _rows_of_json,
    ".jsonl": _rows_of_jsonl,
}

LABEL_SUFFIXES = tuple(_READERS)
