"""TableFile: the rows of a .csv, .tsv, .jsonl, .json, Parquet or Arrow file, as often as they are read."""

from __future__ import annotations

import codecs
import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fastio.converters.fields.types import NamedTwice, NamedTwiceError, json_object, value_at
from fastio.converters.sources.arrow.reading import part_at, plain_array, python_values, reading, sound
from fastio.converters.sources.streams import MAX_DOCUMENT_BYTES, Stream, opened
from fastio.errors import SourceError
from fastio.store.kinds.names import ARROW_SUFFIXES, METADATA_NAMES, STREAM_KINDS, is_table_name, plain_name

__all__ = [
    "Constant",
    "JsonText",
    "Row",
    "TableFile",
    "document_in",
    "has_split_column",
    "json_of",
    "kind_in_json",
    "value_in",
]


# Number of the row's first line, in .json of the object; and its fields, or one sentence on what is wrong with it.
Row = tuple[int, Mapping[str, Any] | str]

_DELIMITERS = {"csv": ",", "tsv": "\t"}
_STYLE_BYTES = 1 << 20  # of a first line, at most, that tells how the others are written


def has_split_column(path: str, split: str) -> bool:
    """Return whether a table, or that of a folder without a folder ``split``, has a column "split"."""
    if Path(path, split).is_dir():
        return False
    tables = [Path(path, name) for name in METADATA_NAMES] if Path(path).is_dir() else [Path(path)]
    return any(
        each.is_file() and is_table_name(each.name) and "split" in (TableFile(str(each)).first() or ())
        for each in tables
    )


@dataclass(frozen=True, slots=True)
class TableFile:
    """
    One file of a table at ``path``, compressed or not: the one way to its rows, whatever its format.

    ``kind`` is the format: "csv", "tsv", "jsonl", "json", "parquet" or "arrow"; "" goes by the name. ``has_titles`` is
    whether the first line of a .csv or .tsv names the columns. Text in a row may wait in memory up to ``limit`` bytes.
    """

    path: str
    has_titles: bool = True
    kind: str = ""
    limit: int = MAX_DOCUMENT_BYTES

    def __post_init__(self) -> None:
        suffix = Path(plain_name(self.path)).suffix.lower()
        by_name = "arrow" if suffix in ARROW_SUFFIXES else suffix.removeprefix(".")
        object.__setattr__(self, "kind", self.kind or by_name)

    @property
    def name(self) -> str:
        """The file's name."""
        return Path(self.path).name

    @property
    def has_columns(self) -> bool:
        """Whether the format keeps columns with types (Parquet, Arrow), and not one row after the other."""
        return self.kind not in STREAM_KINDS

    @property
    def is_typed(self) -> bool:
        """Whether values have types; the cells of .csv and .tsv are text, of which types are inferred."""
        return self.kind not in _DELIMITERS

    def rows(self) -> Iterator[Row]:
        """
        Yield number of the line (in .json, Parquet and Arrow of the row, from 1) and values by title of each row, or a
        sentence on what is wrong with it.

        Raises SourceError where what follows cannot be told apart either.
        """
        if not self.has_titles and self.is_typed:
            raise SourceError(f"{self.path}: --no-header is for .csv and .tsv")
        if self.has_columns:
            yield from self._rows_of_columns()
            return
        with opened(self.path) as stream:
            yield from self.rows_in(stream)

    def rows_in(self, stream: Stream) -> Iterator[Row]:
        """Yield the rows of a file that keeps one after the other and is open already."""
        if self.kind == "jsonl":
            return _jsonl(stream, self.limit)
        if self.kind == "json":
            return _json(stream, self.limit)
        return _table(stream, self.limit, _DELIMITERS[self.kind], has_titles=self.has_titles)

    def values(self, path: Sequence[str]) -> Iterator[tuple[int, object]]:
        """Yield the number of each good row and what ``path`` leads to in it (see ``value_in``), None for nothing."""
        if not self.has_columns:
            for number, row in self.rows():
                if not isinstance(row, str):
                    with suppress(KeyError, ValueError):
                        yield number, value_in(row, path)
            return
        number = 0
        with reading(self.kind, self.path, [path[0]]) as file:
            for batch in file.batches:
                sound(batch, path[0])
                for value in python_values(plain_array(part_at(batch, path))):
                    number += 1
                    yield number, value

    def first(self) -> Mapping[str, Any] | None:
        """Return the first good row; None if there is none, or if the file cannot be read."""
        try:
            return next((row for _, row in self.rows() if not isinstance(row, str)), None)
        except SourceError:
            return None

    def style(self) -> dict[str, Any]:
        """Return how JSON lines are written (for ``json.dumps``), or how .csv lines end, as far as the first tells."""
        if self.kind not in ("jsonl", "csv", "tsv") or plain_name(self.path) != self.path:
            return {}
        with Path(self.path).open("rb") as file:
            line = file.readline(_STYLE_BYTES)
        if self.kind != "jsonl":
            return {"line_end": "\r\n"} if line.endswith(b"\r\n") else {}
        for style in _JSON_STYLES:
            try:
                if json.dumps(json.loads(line), **style).encode() == line.rstrip(b"\r\n"):
                    return style
            except (ValueError, RecursionError):  # not JSON, or a surrogate: the row itself is a problem
                break
        return {}

    def _rows_of_columns(self) -> Iterator[Row]:
        number = 0
        with reading(self.kind, self.path) as file:
            titles = file.schema.names
            if len(set(titles)) < len(titles):
                raise SourceError(f"{self.path}: two columns have the same name: {titles}")
            for batch in file.batches:
                try:
                    columns = [python_values(plain_array(sound(batch, title))) for title in titles]
                except UnicodeDecodeError as exc:  # within lists and structs, where Arrow decodes text itself
                    raise SourceError(f"{self.path}: text from row {number + 1} on is not UTF-8: {exc.reason}") from exc
                for values in zip(*columns, strict=True):
                    number += 1
                    yield number, dict(zip(titles, values, strict=True))


_JSON_STYLES: Final[tuple[dict[str, Any], ...]] = (
    {"ensure_ascii": False},
    {"ensure_ascii": False, "separators": [",", ":"]},
    {},
    {"separators": [",", ":"]},
)


# Reads the rows of .jsonl, .json, .csv and .tsv files, one by one, each with its number.

_BLOCK_BYTES = 1 << 20
_SPACE = " \t\r\n"
_KINDS = {str: "a string", bool: "true or false", int: "a number", float: "a number", list: "a list"}
_UTF_16 = ("\udcff\udcfe", "\udcfe\udcff")  # how it begins, where bytes that are no UTF-8 are surrogates


def document_in(value: object) -> object:
    """Return a value of a row that a path leads into: text is parsed as JSON. Raises ValueError for other text."""
    return json_of(value) if isinstance(value, str) else value


def value_in(row: Mapping[str, Any], path: Sequence[str]) -> Any:
    """
    Return what a path leads to in a row, from a title into the JSON or the objects below it; None for nothing.

    Raises KeyError for a path through a number or a text, ValueError where JSON is expected and is none.
    """
    value = row.get(path[0])
    return value if len(path) == 1 else value_at(document_in(value), path[1:])


def kind_in_json(value: object) -> str:
    """Return what a value is called in JSON."""
    return "null" if value is None else _KINDS.get(float if isinstance(value, float) else type(value), "an object")


def _row_limit(limit: int) -> int:
    """Bytes of a row that may wait in memory: its other fields may be longer than a document may be."""
    return max(limit, MAX_DOCUMENT_BYTES)


def _jsonl(stream: Stream, limit: int) -> Iterator[Row]:
    """An object a line; blank lines are noted and passed over."""
    most = _row_limit(limit)
    for number, line in stream.lines(most):
        if line is None:
            yield number, f"is a line of more than {most:,} bytes; --max-document raises that limit"
            continue
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)  # noqa: PLW2901 - the same line without its mark
        if line.strip():
            yield number, _json_row(line)
        else:
            stream.blank_lines.append(number)


def _json_row(line: bytes) -> Mapping[str, Any] | str:
    try:
        found = json.loads(line.decode("utf-8"), object_pairs_hook=json_object, parse_constant=Constant)
    except UnicodeDecodeError as exc:
        return f"is not UTF-8: byte {exc.start} of the line is 0x{line[exc.start]:02x} ({exc.reason}); convert it"
    except json.JSONDecodeError as exc:
        return f"is not JSON: {exc.msg} at character {exc.pos + 1} of the line, expected an object with fields"
    except (ValueError, RecursionError) as exc:
        return f"is not JSON: {exc}"
    return _fields(found)


class Constant(float):
    """NaN or an infinity that is written by its name; other infinities are numbers beyond float64, such as 1e400."""


def json_of(text: str | bytes) -> Any:
    """
    Return the value of JSON within a row. Raises ValueError for what is none, and for an object with a name twice;
    RecursionError if it is too deep.
    """
    return json.loads(text, object_pairs_hook=_object_once, parse_constant=Constant)


def _object_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = json_object(pairs)
    if isinstance(found, NamedTwice):
        raise NamedTwiceError(found.words)
    return found


def _fields(found: object) -> Mapping[str, Any] | str:
    if isinstance(found, NamedTwice):
        return f"has the field {found.name!r} twice, so it is unclear which one counts"
    if isinstance(found, dict):
        return found
    return f"is {kind_in_json(found)}, expected an object with fields"


def _json(stream: Stream, limit: int) -> Iterator[Row]:
    """
    A list of objects, or objects one after the other.

    They are counted: several may stand in one line. What stands behind an object that is broken cannot be told apart:
    that is a SourceError, not a bad row.
    """
    number = 0
    text = JsonText(stream, _row_limit(limit))
    text.skip(_SPACE)
    is_list = text.peek() == "["
    if is_list:
        text.take()
        text.skip(_SPACE)
    while text.peek() and not (is_list and text.peek() == "]"):
        line, found = text.line, text.value()
        number += 1
        row = _fields(found)
        yield number, f"{row} (line {line})" if isinstance(row, str) else row
        text.skip(_SPACE)
        if is_list and text.peek() == ",":
            text.take()
            text.skip(_SPACE)
        elif is_list and text.peek() not in ("]", ""):
            raise SourceError(f"{stream.path}: line {text.line}: expected ',' or ']' after an object of the list")
    if not is_list:
        return
    if not text.peek():
        raise SourceError(f"{stream.path}: line {text.line}: the list has no end; the file is truncated")
    text.take()
    text.skip(_SPACE)
    if text.peek():
        raise SourceError(
            f"{stream.path}: line {text.line}: {text.peek()!r} follows the end of the list; expected a single list"
        )


class JsonText:
    """The text of a JSON file, of which only the part being looked at is in memory."""

    def __init__(self, stream: Stream, limit: int) -> None:
        self._stream, self._limit = stream, limit
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._json = json.JSONDecoder(object_pairs_hook=json_object, parse_constant=Constant)
        self._text, self._at, self._is_end = "", 0, False
        self.line = 1

    def peek(self) -> str:
        """Return the next character, empty at the end."""
        while self._at >= len(self._text) and not self._is_end:
            self._fill()
        return self._text[self._at : self._at + 1]

    def take(self) -> None:
        """Advance by one character."""
        self.line += self._text[self._at] == "\n"
        self._at += 1

    def skip(self, characters: str) -> None:
        """Advance to the next character that is not one of these."""
        while (next_ := self.peek()) and next_ in characters:
            self.take()

    def value(self) -> Any:
        """Return the JSON value that begins here."""
        while True:
            try:
                found, stop = self._json.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as exc:
                if self._is_end or isinstance(exc, RecursionError):
                    why = exc.msg if isinstance(exc, json.JSONDecodeError) else exc
                    raise SourceError(f"{self._stream.path}: line {self.line}: no JSON: {why}") from exc
                if len(self._text) - self._at > self._limit:
                    raise SourceError(
                        f"{self._stream.path}: line {self.line}: no end of a JSON value within {self._limit:,} "
                        f"characters; is it broken? --max-document raises that limit"
                    ) from exc
                self._fill()
                continue
            if stop == len(self._text) and not self._is_end:  # a number may go on
                self._fill()
                continue
            self.line += self._text.count("\n", self._at, stop)
            self._at = stop
            return found

    def _fill(self) -> None:
        # As much again as is waiting: a large value is looked at a few times, not once a block.
        data = self._stream.read(max(_BLOCK_BYTES, len(self._text) - self._at))
        try:
            more = self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as exc:
            raise SourceError(f"{self._stream.path}: from line {self.line} on: not UTF-8: {exc.reason}") from exc
        self._text, self._at, self._is_end = self._text[self._at :] + more, 0, not data


def _table(stream: Stream, limit: int, delimiter: str, *, has_titles: bool = True) -> Iterator[Row]:
    """Rows under a header. Bytes that are no UTF-8 stay in the fields, as surrogates, and are found there."""
    most = _row_limit(limit)
    csv.field_size_limit(max(most, csv.field_size_limit()))
    titles: list[str] | None = None
    for line, cells in _cells(_csv_lines(stream, most), delimiter, stream):
        if titles is None:
            if isinstance(cells, str):
                raise SourceError(f"{stream.path}: line {line}: the {'header' if has_titles else 'first row'} {cells}")
            titles = cells
            if not has_titles:
                titles = [str(i) for i in range(1, len(cells) + 1)]
                yield line, dict(zip(titles, cells, strict=True))
            if titles[0].startswith(_UTF_16):
                raise SourceError(f"{stream.path}: is not UTF-8: it begins like UTF-16; convert it")
            if len(set(titles)) < len(titles):
                raise SourceError(f"{stream.path}: line {line}: two columns have the same name: {cells}")
        elif isinstance(cells, str):
            yield line, cells
        elif len(cells) != len(titles):
            yield line, f"has {len(cells)} columns, expected {len(titles)}; text with {delimiter!r} needs quotes"
        else:
            yield line, dict(zip(titles, cells, strict=True))


def _cells(lines: Iterator[str], delimiter: str, stream: Stream) -> Iterator[tuple[int, list[str] | str]]:
    """
    Number of the first line and cells of every row, or a sentence on what is wrong with it.

    What follows a quote left open cannot be told apart: that is a SourceError. A carriage return alone is one of the
    text for some writers (Python's own leaves it unquoted), the end of a row for some readers.
    """
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    cells: list[str] | str | None = []
    while cells is not None:
        line = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as exc:
            if "new-line character" not in str(exc):
                raise SourceError(
                    f"{stream.path}: the row from line {line} on cannot be read: {exc}; is a quote open?"
                ) from exc
            cells = "has a carriage return outside quotes; put the field in quotes, or end lines by a line feed"
        if cells:
            yield line, cells
        elif cells is not None:
            stream.blank_lines.append(line)


def _csv_lines(stream: Stream, limit: int) -> Iterator[str]:
    """Lines with their ends, as the csv module wants them."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="surrogateescape")
    rest, number, is_end = "", 1, False
    while not is_end:
        data = stream.read(max(_BLOCK_BYTES, len(rest)))
        is_end = not data
        # At the end too: what is left of a character there is bytes that are no UTF-8.
        *lines, rest = (rest + decoder.decode(data, is_end)).split("\n")
        number += len(lines)
        for line in lines:
            yield line + "\n"
        if len(rest) > limit:
            raise SourceError(
                f"{stream.path}: line {number} is longer than {limit:,} bytes; --max-document raises that limit"
            )
    if rest:
        yield rest
