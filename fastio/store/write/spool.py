"""Spool: an array of the index on its way into a store; and arrays of the index read a block at a time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fastio._native import crc32
from fastio.store.files.local import is_local
from fastio.store.index.arrays import narrowest
from fastio.store.index.seal import Place, byte_view
from fastio.store.write.atomic import PartialFile, write_all

__all__ = [
    "Rows",
    "Spool",
    "SpoolPart",
    "array_bytes",
    "blocks_of",
    "crc_of",
    "narrowed",
    "write_array",
    "write_parts",
]


SPOOL_BYTES = 1 << 20  # of an array in memory: a store may have dozens of them
BLOCK_BYTES = 1 << 20
_PARTS = 4096


class Rows(Protocol):
    """
    An array of the index on its way into a store, ``(n, *row)``, which may be larger than memory.

    An ``IndexArray`` is one, too.
    """

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its values."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """``(n, *row)``."""
        ...

    def part(self, start: int, stop: int) -> NDArray[Any]:
        """Return these rows, which exist, in memory. May raise OSError."""
        ...


def array_bytes(array: Rows) -> int:
    """Return how many bytes an array takes."""
    return int(np.prod(array.shape, dtype=np.int64)) * array.dtype.itemsize


def blocks_of(array: Rows, block_bytes: int = BLOCK_BYTES) -> Iterator[NDArray[Any]]:
    """Yield an array in blocks of rows of about this size. May raise OSError."""
    count = array.shape[0]
    step = max(1, block_bytes * count // max(1, array_bytes(array)))
    for start in range(0, count, step):
        yield array.part(start, min(start + step, count))


def narrowed(array: Rows) -> Rows:
    """Return numbers in the narrowest type that holds them all: see ``narrowest``. May raise OSError."""
    return _Converted(array, narrowest(array.dtype, blocks_of(array)))


@dataclass(frozen=True, slots=True)
class _Converted:
    """The numbers of an array as another type, which holds them. Satisfies ``Rows``."""

    rows: Rows
    dtype: np.dtype[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.rows.shape

    def part(self, start: int, stop: int) -> NDArray[Any]:
        return self.rows.part(start, stop).astype(self.dtype, copy=False)


def crc_of(array: Rows, crc: int = 0) -> int:
    """Return the CRC-32 of an array's bytes, which follow those of ``crc``."""
    for block in blocks_of(array):
        crc = crc32(byte_view(block), crc)
    return crc


def write_array(file: PartialFile, array: Rows) -> Place:
    """Append an array to a file, a block at a time, and return where it lies there."""
    return write_parts(file, chain([np.empty((0, *array.shape[1:]), array.dtype)], blocks_of(array)))


def write_parts(file: PartialFile, parts: Iterable[NDArray[Any]]) -> Place:
    """Append an array that comes in parts, at least one, to a file, and return where it lies there."""
    start = file.size
    dtype, row, count, crc = np.dtype(np.uint8), (), 0, 0
    for part in parts:
        raw = byte_view(part)
        dtype, row, count, crc = part.dtype, part.shape[1:], count + len(part), crc32(raw, crc)
        file.write(raw)
    file.flush()
    return Place(start, dtype.str, (count, *row), crc)


class Spool:
    """
    An array that grows at its end, ``(n, *row)``. Satisfies ``Rows``.

    Up to ``SPOOL_BYTES`` of it are in memory; more goes to a temporary file beside the store, where room is needed
    anyway, or to TMPDIR if ``beside`` is None or a URL. That file has no name, so nobody sees it, and it is gone with
    the process. Every method may raise OSError.
    """

    def __init__(self, dtype: DTypeLike, row: tuple[int, ...] = (), *, beside: str | None) -> None:
        self.dtype = np.dtype(dtype)
        self._row = row
        self._row_bytes = self.dtype.itemsize * int(np.prod(row))
        self._beside = beside
        self._parts: list[NDArray[Any]] = []
        self._pending_bytes = 0
        self._count = 0
        self._file: IO[bytes] | None = None

    def __len__(self) -> int:
        return self._count

    @property
    def shape(self) -> tuple[int, ...]:
        """See ``Rows``."""
        return (self._count, *self._row)

    def append(self, rows: NDArray[Any]) -> None:
        """Copy rows of this dtype and shape to the end."""
        assert rows.dtype == self.dtype, (rows.dtype, self.dtype)
        assert rows.shape[1:] == self._row, (rows.shape, self._row)
        self._parts.append(np.array(rows))
        self._count += len(rows)
        self._pending_bytes += rows.nbytes
        if len(self._parts) >= _PARTS:  # samples that come one by one
            self._parts = [np.concatenate(self._parts)]
        if self._pending_bytes > SPOOL_BYTES:
            self._spill()

    def part(self, start: int, stop: int) -> NDArray[Any]:
        """Return these rows, read-only; more may be appended later."""
        if self._file is not None:
            self._spill()
            size = (stop - start) * self._row_bytes
            data = os.pread(self._file.fileno(), size, start * self._row_bytes) if size else b""
            assert len(data) == size, (len(data), size)
            return np.frombuffer(data, self.dtype).reshape(stop - start, *self._row)
        if len(self._parts) != 1:
            self._parts = [np.concatenate(self._parts) if self._parts else np.empty((0, *self._row), self.dtype)]
        rows = self._parts[0][start:stop]
        rows.flags.writeable = False
        return rows

    def close(self) -> None:
        """Release file and memory."""
        if self._file is not None:
            self._file.close()
        self._parts, self._file = [], None

    def _spill(self) -> None:
        if self._file is None:
            import tempfile  # not for commands that only read

            folder = Path(self._beside).parent if self._beside is not None and is_local(self._beside) else None
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - see close
        for part in self._parts:
            write_all(self._file.fileno(), byte_view(part))
        self._parts, self._pending_bytes = [], 0


@dataclass(frozen=True, slots=True)
class SpoolPart:
    """Consecutive rows of a spool. Satisfies ``Rows``."""

    spool: Spool
    start: int
    stop: int

    @property
    def dtype(self) -> np.dtype[Any]:
        """See ``Rows``."""
        return self.spool.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """See ``Rows``."""
        return (self.stop - self.start, *self.spool.shape[1:])

    def part(self, start: int, stop: int) -> NDArray[Any]:
        """See ``Rows``."""
        return self.spool.part(self.start + start, self.start + stop)
