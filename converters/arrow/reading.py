"""Opens Parquet and Arrow files, and reads their batches with checks that Arrow leaves out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from fastio.converters.extra import pyarrow
from fastio.converters.streams import opened, plain_name, seekable
from fastio.errors import FastioError, SourceError

__all__ = ["ARROW_SUFFIXES", "PARQUET_SUFFIXES", "OpenTable", "groups_of", "reading", "size_bytes"]

PARQUET_SUFFIXES, ARROW_SUFFIXES = (".parquet",), (".arrow", ".feather", ".ipc")
_MAGIC = b"ARROW1"  # of an Arrow file; a stream has none
_END = b"\xff\xff\xff\xff\0\0\0\0"  # of a stream
_BATCH_BYTES, _LEAST_ROWS, _MOST_ROWS = 4 << 20, 16, 8192  # of what is decoded of a Parquet file at a time


@dataclass(frozen=True, slots=True)
class OpenTable:
    """An open file: its schema, an iterator over its record batches, and how many of its bytes have been read."""

    schema: Any
    batches: Iterator[Any]
    position: Callable[[], int]


@contextmanager
def reading(kind: str, place: str, columns: Sequence[str], *, first_group: int = 0) -> Iterator[OpenTable]:
    """
    Open a file of the kind "parquet", or any other word for Arrow; of Parquet only these columns are read.

    Batches begin with those of group ``first_group`` (see ``groups_of``). What Arrow raises becomes a SourceError that
    names the file.
    """
    arrow = pyarrow(f"to read {place}")
    try:
        if kind == "parquet":
            with seekable(place) as file:
                yield _parquet(file, columns, first_group)
        elif _is_file(place):
            with seekable(place) as file, arrow.ipc.open_file(file) as reader:
                yield _arrow_file(reader, Path(place).stat().st_size, first_group)
        elif plain_name(place) != place:
            with opened(place) as stream:
                readable = _Readable(stream)
                with arrow.ipc.open_stream(arrow.PythonFile(readable)) as reader:
                    batches = _to_its_end(reader, readable.end, place)
                    yield OpenTable(reader.schema, islice(batches, first_group, None), lambda: stream.position)
        else:
            with seekable(place) as file, arrow.ipc.open_stream(file) as reader:
                batches = _to_its_end(reader, lambda: _end(file), place)
                yield OpenTable(reader.schema, islice(batches, first_group, None), file.tell)
    except FastioError:
        raise
    except (arrow.ArrowException, OSError) as exc:
        raise SourceError(f"{place}: expected {kind} data: {exc}; damaged or truncated?") from exc


def groups_of(kind: str, place: str, columns: Sequence[str]) -> tuple[Any, list[tuple[int, int]]]:
    """
    Return a file's schema, and rows and bytes (decoded, of these columns) of each of its groups.

    A group is what can be read without those before it: a row group of Parquet, a record batch of Arrow.
    """
    with reading(kind, place, columns) as file:
        if kind == "parquet":
            return file.schema, _row_groups(place, columns)
        names = [name for name in columns if name in file.schema.names]
        sizes = [(batch.num_rows, sum(size_bytes(batch.column(name)) for name in names)) for batch in file.batches]
        return file.schema, sizes


def size_bytes(data: Any) -> int:
    """
    Return the bytes of the values of a column or a batch.

    Of views of strings or bytes, which older pyarrow cannot measure, return those of their buffers, which may hold
    more.
    """
    try:
        return int(data.nbytes)
    except pyarrow("to read Arrow").ArrowTypeError:
        return int(data.get_total_buffer_size())


def _row_groups(place: str, columns: Sequence[str]) -> list[tuple[int, int]]:
    with seekable(place) as file:
        metadata = pyarrow("to read Parquet", "pyarrow.parquet").read_metadata(file)
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        leaves = [
            i
            for i in range(metadata.num_columns)
            if any(f"{metadata.schema.column(i).path}.".startswith(f"{name}.") for name in columns)
        ]
        return [(group.num_rows, sum(group.column(i).total_uncompressed_size for i in leaves)) for group in groups]


def _parquet(file: Any, columns: Sequence[str], first_group: int) -> OpenTable:
    parquet = pyarrow("to read Parquet", "pyarrow.parquet").ParquetFile(
        file, pre_buffer=False, page_checksum_verification=True
    )
    groups = range(parquet.metadata.num_row_groups)
    size = sum(parquet.metadata.row_group(i).total_byte_size for i in groups)
    rows = max(parquet.metadata.num_rows, 1)
    batch_rows = int(max(_LEAST_ROWS, min(_MOST_ROWS, rows * _BATCH_BYTES // max(size, 1))))
    done = 0

    def batches() -> Iterator[Any]:
        nonlocal done
        options = {"batch_size": batch_rows, "columns": list(columns), "use_threads": False}
        for batch in parquet.iter_batches(row_groups=groups[first_group:], **options):
            done += batch.num_rows
            yield batch

    file.seek(0, 2)
    on_disk = file.tell()
    return OpenTable(parquet.schema_arrow, batches(), lambda: on_disk * done // rows)


def _arrow_file(reader: Any, size: int, first_group: int) -> OpenTable:
    total = max(reader.num_record_batches, 1)
    done = first_group

    def batches() -> Iterator[Any]:
        nonlocal done
        for done in range(first_group, reader.num_record_batches):
            yield reader.get_batch(done)

    return OpenTable(reader.schema, batches(), lambda: size * (done + 1) // total)


def _to_its_end(reader: Any, end: Callable[[], bytes], place: str) -> Iterator[Any]:
    """
    The batches of a stream. ``end`` is what its last bytes are, and the byte behind them.

    A stream without its mark may have lost some, and what stands behind the mark is not read: Arrow says nothing.
    """
    yield from reader
    found = end()
    if found[: len(_END)] != _END:
        raise SourceError(f"{place}: the Arrow stream has no end mark: it is truncated or was not closed; get it again")
    if found != _END:
        raise SourceError(
            f"{place}: bytes follow the end of the Arrow stream, perhaps a second one: write one per file"
        )


def _end(file: Any) -> bytes:
    """The last bytes that were read of a file, and the next one."""
    file.seek(file.tell() - len(_END))
    return bytes(file.read(len(_END) + 1))


def _is_file(place: str) -> bool:
    """Whether this is an Arrow file, which has an index at its end, and not a stream."""
    with opened(place) as stream:
        return stream.read(len(_MAGIC)) == _MAGIC


class _Readable:
    """A stream as pyarrow reads from Python objects."""

    closed = False

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._tail = b""  # the last bytes read

    def read(self, size: int = -1) -> bytes:
        """Bytes, fewer only at the end."""
        data = bytes(self._stream.read(size if size >= 0 else 1 << 62))
        self._tail = (self._tail + data[-len(_END) :])[-len(_END) :]
        return data

    def end(self) -> bytes:
        """The last bytes that were read, and the next one."""
        return self._tail + bytes(self._stream.read(1))

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """The stream belongs to whoever opened it."""
