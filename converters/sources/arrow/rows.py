"""Reads rows of Parquet and Arrow files by number: in order as a stream, in any other order from mapped files."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.converters.sources.arrow.reading import groups_of, reading, sound
from fastio.converters.sources.listed import Indices
from fastio.converters.sources.optional import pyarrow
from fastio.errors import SourceError

__all__ = [
    "Piece",
    "TableFiles",
    "TableRows",
]


_MOST_DECODED = 16 << 20  # bytes that decompressed batches of Arrow may take
_Batch = tuple[int, Any]  # the number of its first row, and the record batch


@dataclass(frozen=True, slots=True)
class Piece:
    """A record batch, the number of its first row, its file's number, and all bytes of that; see ``OpenTable``."""

    start: int
    batch: Any
    file: int
    memory: Any


@dataclass(frozen=True, slots=True)
class TableFiles:
    """
    The files of a table, in order, and which of their columns are read.

    ``group_*`` describe the groups of all files (see ``groups_of``): first row, file, number in its file, bytes a row.
    ``column_places`` has the first file with each column, also of those that are not read.
    """

    kind: str
    places: Sequence[str]
    columns: Sequence[str]
    group_starts: NDArray[np.int64]
    group_files: NDArray[np.int64]
    group_numbers: NDArray[np.int64]
    group_row_bytes: NDArray[np.int64]
    file_rows: NDArray[np.int64]
    column_places: Mapping[str, str]

    @classmethod
    def scan(cls, kind: str, places: Sequence[str], columns: Sequence[str]) -> TableFiles:
        """
        Read where the groups of all files are. Raises SourceError if a file's columns are not those of the first.
        """
        rows: list[int] = []
        files: list[int] = []
        numbers: list[int] = []
        row_bytes: list[int] = []
        file_rows: list[int] = []
        column_places: dict[str, str] = {}
        first: Any = None
        for number, place in enumerate(places):
            schema, groups = groups_of(kind, place, columns)
            first = first or schema
            for name in schema.names:
                column_places.setdefault(name, place)
            _check_same(places[0], first, place, schema, columns)
            rows += [count for count, _ in groups]
            row_bytes += [-(-size // max(count, 1)) for count, size in groups]
            files += [number] * len(groups)
            numbers += range(len(groups))
            file_rows.append(sum(count for count, _ in groups))
        counts = np.array(rows, np.int64)
        return cls(
            kind,
            places,
            columns,
            np.cumsum(counts) - counts,
            np.array(files, np.int64),
            np.array(numbers, np.int64),
            np.array(row_bytes, np.int64),
            np.array(file_rows, np.int64),
            column_places,
        )

    @property
    def file_starts(self) -> NDArray[np.int64]:
        """The number of each file's first row."""
        return np.asarray(np.cumsum(self.file_rows) - self.file_rows)

    @property
    def row_bytes(self) -> NDArray[np.int64]:
        """Bytes of each row: the mean of its group, as only reading tells more."""
        rows = np.diff(np.append(self.group_starts, self.file_rows.sum()))
        return np.repeat(self.group_row_bytes, rows)

    def batches(self, group: int = 0, columns: Sequence[str] | None = None) -> Iterator[_Batch]:
        """Yield the record batches from a group on, with checked offsets, each with the number of its first row."""
        return ((piece.start, piece.batch) for piece in self.pieces(group, columns))

    def pieces(self, group: int = 0, columns: Sequence[str] | None = None) -> Generator[Piece, None, None]:
        """Yield the same, each with its file."""
        columns = self.columns if columns is None else columns
        start = 0
        for number in range(int(self.group_files[group]) if len(self.group_files) else 0, len(self.places)):
            is_first = bool(len(self.group_files)) and number == self.group_files[group]
            first_group = int(self.group_numbers[group]) if is_first else 0
            start = int(self.group_starts[group] if is_first else self.file_starts[number])
            with reading(self.kind, self.places[number], columns, first_group=first_group) as file:
                for batch in file.batches:
                    for name in columns:
                        sound(batch, name)
                    yield Piece(start, batch, number, file.memory)
                    start += batch.num_rows
                if start != int(self.file_starts[number] + self.file_rows[number]):
                    raise SourceError(f"{self.places[number]}: changed while it was being read: it has other rows now")


def _check_same(first_place: str, first: Any, place: str, schema: Any, columns: Sequence[str]) -> None:
    for name in columns:
        count = schema.names.count(name)
        if count != 1:
            others = ", ".join(map(repr, schema.names))
            raise SourceError(
                f"{place}: has {count or 'no'} column{'s' * (count > 1)} {name!r}, unlike {Path(first_place).name}; it "
                f"has {others}"
            )
        expected, found = first.field(name).type, schema.field(name).type
        if expected != found:
            raise SourceError(f"{place}: column {name!r} is {found}, but {expected} in {Path(first_place).name}")


@dataclass(slots=True)
class TableRows:
    """
    Gives rows of files as slices of record batches.

    Rows that ascend from call to call are read as a stream. Others lead back to the beginning of their group, and if
    one call asks for rows that do not ascend, all are first written to a temporary file, which is mapped. Arrow files
    without compression are mapped as they are.
    """

    files: TableFiles
    _stream: Generator[Piece, None, None] | None = None
    _first: int = 0
    _batch: Any = None
    _mapped: list[_Batch] | None = None
    _starts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def slices(self, rows: Indices) -> list[tuple[Any, NDArray[np.int64]]]:
        """Return batches that hold these rows, and which of the rows, by position, each of them holds."""
        order = np.argsort(rows, kind="stable")
        if self._mapped is None and (np.diff(rows) < 0).any():
            self._map()
        ascending, found, i = rows[order], [], 0
        while i < len(rows):
            first, batch = self._holding(int(ascending[i]))
            stop = int(np.searchsorted(ascending, first + batch.num_rows))
            found.append((_picked(batch, ascending[i:stop] - first), order[i:stop]))
            i = stop
        return found

    def _holding(self, row: int) -> _Batch:
        """The batch that a row is in."""
        if self._mapped is not None:
            return self._mapped[int(np.searchsorted(self._starts, row, side="right")) - 1]
        while True:
            last = self._first + (0 if self._batch is None else self._batch.num_rows)
            if self._batch is not None and self._first <= row < last:
                return self._first, self._batch
            group = int(np.searchsorted(self.files.group_starts, row, side="right")) - 1
            if self._stream is None or row < last or self.files.group_starts[group] > last:
                self.close()
                self._stream = self.files.pieces(group)
            piece = next(self._stream)
            self._first, self._batch = piece.start, piece.batch

    def map_in_place(self) -> None:
        """Keep all batches at hand if their values lie in mapped files, which takes no memory."""
        if self.files.kind == "parquet":
            return
        arrow = pyarrow("to read tables")
        before = arrow.total_allocated_bytes()
        batches = []
        for each in self.files.batches():
            if arrow.total_allocated_bytes() - before > _MOST_DECODED:
                return
            batches.append(each)
        self._keep(batches)

    def _keep(self, batches: list[_Batch]) -> None:
        self._mapped = [each for each in batches if each[1].num_rows]
        self._starts = np.array([start for start, _ in self._mapped], np.int64)

    def _map(self) -> None:
        """Write all rows to a temporary file, from which they can be read in any order."""
        with tempfile.NamedTemporaryFile(prefix="fastio-") as copy:
            try:
                self._copy_to(copy.name)
            except OSError as exc:
                raise SourceError(
                    f"{self.files.places[0]}: cannot be unpacked into {tempfile.gettempdir()}, which other orders than "
                    f"its own need: {exc.strerror or exc}; free space there, or name another folder in TMPDIR"
                ) from exc
            mapped = TableFiles.scan("arrow", [copy.name], self.files.columns)
            self._keep(list(mapped.batches()))  # the file lives on without a name while they do

    def _copy_to(self, place: str) -> None:
        """Write all rows as an Arrow stream, in which a batch may have another dictionary than the one before."""
        writer: Any = None
        try:
            for _, batch in self.files.batches():
                writer = writer or pyarrow("to read tables").ipc.new_stream(place, batch.schema)
                writer.write_batch(batch)
        finally:
            if writer is not None:
                writer.close()

    def close(self) -> None:
        """Close the file that is being read."""
        if self._stream is not None:
            self._stream.close()
        self._stream, self._batch = None, None


def _picked(batch: Any, rows: NDArray[np.int64]) -> Any:
    """These rows of a batch, in ascending order; without a copy if they are neighbours."""
    first, last = int(rows[0]), int(rows[-1])
    if last - first + 1 == len(rows):
        return batch.slice(first, len(rows))
    return batch.take(pyarrow("to read tables").array(rows))
