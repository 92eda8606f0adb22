"""TableFile: the rows of a .csv, .tsv, .jsonl, .json or Parquet file, as often as they are read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fastio.converters.extra import pyarrow
from fastio.converters.streams import opened, plain_name, seekable
from fastio.converters.text.rows import MAX_DOCUMENT_BYTES, ROWS, Row, untitled_rows
from fastio.errors import SourceError

__all__ = ["METADATA_NAMES", "TABLE_SUFFIXES", "TableFile", "has_split_column", "is_table_name"]

TABLE_SUFFIXES: Final = (".csv", ".tsv", ".jsonl", ".json", ".parquet")
METADATA_NAMES: Final = ("metadata.csv", "metadata.jsonl", "metadata.parquet")  # of a folder of pictures
_DELIMITERS = {"csv": ",", "tsv": "\t"}
_BATCH_ROWS = 1024
_STYLE_BYTES = 1 << 20  # of a first line, at most, that tells how the others are written


def is_table_name(name: str) -> bool:
    """Return whether a file of this name is a table."""
    return plain_name(name).lower().endswith(TABLE_SUFFIXES)


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
    """A table at ``path``; ``has_titles`` is whether the first line of a .csv or .tsv names the columns."""

    path: str
    has_titles: bool = True

    @property
    def name(self) -> str:
        """The file's name."""
        return Path(self.path).name

    @property
    def kind(self) -> str:
        """The suffix without its dot, and without that of a compression."""
        return Path(plain_name(self.path)).suffix.lower().removeprefix(".")

    @property
    def is_typed(self) -> bool:
        """Whether values have types; the cells of .csv and .tsv are text, of which types are inferred."""
        return self.kind not in _DELIMITERS

    def rows(self) -> Iterator[Row]:
        """
        Yield number of the line (in .json and Parquet of the row, from 1) and values by title of each row, or a
        sentence on what is wrong with it.

        Raises SourceError where what follows cannot be told apart either.
        """
        if self.kind == "parquet":
            yield from self._parquet_rows()
            return
        if self.kind not in ROWS:
            raise SourceError(f"{self.path}: not a table by its name; expected one of {', '.join(TABLE_SUFFIXES)}")
        if not self.has_titles and self.is_typed:
            raise SourceError(f"{self.path}: --no-header is for .csv and .tsv")
        with opened(self.path) as stream:
            if self.has_titles:
                yield from ROWS[self.kind](stream, MAX_DOCUMENT_BYTES)
            else:
                yield from untitled_rows(stream, MAX_DOCUMENT_BYTES, _DELIMITERS[self.kind])

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

    def _parquet_rows(self) -> Iterator[Row]:
        purpose = f"to read {self.path}"
        parquet, arrow = pyarrow(purpose, "pyarrow.parquet"), pyarrow(purpose)
        number = 0
        try:
            with seekable(self.path) as file, parquet.ParquetFile(file, page_checksum_verification=True) as table:
                titles = table.schema_arrow.names
                if len(set(titles)) < len(titles):
                    raise SourceError(f"{self.path}: two columns have the same name: {titles}")
                for batch in table.iter_batches(_BATCH_ROWS):
                    for row in batch.to_pylist():
                        number += 1
                        yield number, row
        except (arrow.ArrowException, OSError, ValueError) as exc:
            words = str(exc).splitlines()[:1] or [type(exc).__name__]
            raise SourceError(f"{self.path}: row {number + 1}: cannot be read as Parquet: {words[0]}") from exc


_JSON_STYLES: Final[tuple[dict[str, Any], ...]] = (
    {"ensure_ascii": False},
    {"ensure_ascii": False, "separators": [",", ":"]},
    {},
    {"separators": [",", ":"]},
)
