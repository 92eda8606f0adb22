"""The keys of a store being written, and the rows of its index: in bounded memory, however many."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fastio import _native
from fastio.store.index.seal import byte_view
from fastio.store.write.atomic import write_all

__all__ = [
    "KeyLedger",
    "KeyRange",
    "Spool",
    "fixed_keys",
]


# Keys of fixed width may take this many times the bytes of keys joined by NUL.
_FIXED_FACTOR, _FIXED_BYTES = 4, 1 << 20


@dataclass(slots=True)
class KeyRange:
    """Consecutive keys: how many, the longest in bytes, and where they lie in the ledger."""

    start: int
    stop: int
    count: int = 0
    longest: int = 0


class KeyLedger:
    """
    Takes keys in UTF-8, joined by NUL, and finds duplicates.

    Ascending keys (files sorted by name, numbered lines) are unique and go to a spool; once a key does not ascend,
    all keys need memory, 23 to 46 bytes each. May raise OSError.
    """

    def __init__(self, *, beside: str) -> None:
        self._beside = beside
        self._joined = Spool(np.uint8, beside=beside)  # a NUL after each key
        self._set = _native.KeySet()
        self._is_rising = True

    def add(self, joined: bytes) -> int | None:
        """
        Add the keys of the next samples, at least one. Returns the position of the first duplicate, and then adds
        none.
        """
        if self._is_rising and not self._set.rise(joined):
            self._is_rising = False
            for piece in self._pieces(0, len(self._joined)):
                twice = self._set.insert(piece)
                assert twice is None, "ascending keys"
        if not self._is_rising:
            twice = self._set.insert(joined)
            if twice is not None:
                return twice
        self._joined.append(np.frombuffer(joined + b"\0", np.uint8))
        return None

    def array(self, part: KeyRange, *, fixed: bool) -> NDArray[Any]:
        """Return a range as an index array: joined by NUL, or, if ``fixed`` and not wasteful, strings of one width."""
        total = max(0, part.stop - part.start - 1)
        if fixed and part.longest and part.longest * part.count <= _FIXED_FACTOR * total + _FIXED_BYTES:
            return self._fixed(part)
        return self._joined.rows(part.start, part.start + total)

    def _fixed(self, part: KeyRange) -> NDArray[Any]:
        spool = Spool(f"S{part.longest}", beside=self._beside)
        for piece in self._pieces(part.start, part.stop):
            spool.append(fixed_keys(piece, part.longest))
        rows = spool.rows()
        spool.close()
        return rows

    def _pieces(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the keys between these positions joined by NUL, about SPOOL_BYTES at a time."""
        carried = b""
        for part in self._joined.pieces():
            inside = part[max(0, start) : max(0, stop)]
            start, stop = start - len(part), stop - len(part)
            for first in range(0, len(inside), SPOOL_BYTES):
                keys, nul, carried = (carried + inside[first : first + SPOOL_BYTES].tobytes()).rpartition(b"\0")
                if nul:
                    yield keys
        assert not carried

    def close(self) -> None:
        """Release file and memory; arrays handed out stay valid."""
        self._joined.close()


def fixed_keys(joined: bytes, width: int) -> NDArray[np.bytes_]:
    """Return keys joined by NUL as strings of this width, which is at least that of the longest."""
    data = np.frombuffer(joined, np.uint8)
    ends = np.append(np.flatnonzero(data == 0), len(data))
    lengths = np.diff(ends, prepend=-1) - 1
    rows = np.zeros((len(ends), width), np.uint8)
    rows[np.arange(width) < lengths[:, None]] = data[data != 0]
    return rows.view(f"S{width}").reshape(-1)


# Spool: rows of the index on their way into a store, a few in memory, the rest in a file without a name.

SPOOL_BYTES = 8 << 20
_PARTS = 4096


class Spool:
    """
    An array that grows at its end, ``(n, *row)``.

    Up to ``SPOOL_BYTES`` of it are in memory; more goes to a temporary file beside the store, where room is needed
    anyway. That file has no name, so nobody sees it, and it is gone with the process. Every method may raise OSError.
    """

    def __init__(self, dtype: DTypeLike, row: tuple[int, ...] = (), *, beside: str) -> None:
        self._dtype, self._row = np.dtype(dtype), row
        self._beside = beside
        self._parts: list[NDArray[Any]] = []
        self._pending_bytes = 0
        self._count = 0
        self._file: IO[bytes] | None = None

    def __len__(self) -> int:
        return self._count

    def append(self, rows: NDArray[Any]) -> None:
        """Copy rows of this dtype and shape to the end."""
        assert rows.dtype == self._dtype, (rows.dtype, self._dtype)
        assert rows.shape[1:] == self._row, (rows.shape, self._row)
        self._parts.append(np.array(rows))
        self._count += len(rows)
        self._pending_bytes += rows.nbytes
        if len(self._parts) >= _PARTS:  # samples that come one by one
            self._parts = [np.concatenate(self._parts)]
        if self._pending_bytes > SPOOL_BYTES:
            self._spill()

    def rows(self, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """Return these rows, read-only; many of them as a mapping of the file. More may be appended later."""
        if self._file is not None:
            self._spill()
            rows = self._mapped()
        else:
            if len(self._parts) != 1:
                self._parts = [np.concatenate(self._parts) if self._parts else np.empty((0, *self._row), self._dtype)]
            rows = self._parts[0][:]
        rows.flags.writeable = False
        return rows[start:stop]

    def pieces(self) -> list[NDArray[Any]]:
        """Return all rows so far in pieces; more may be appended later."""
        parts: list[NDArray[Any]] = [] if self._file is None else [self._mapped()]
        return parts + self._parts

    def close(self) -> None:
        """Release file and memory; arrays handed out stay valid."""
        if self._file is not None:
            self._file.close()
        self._parts, self._file = [], None

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=Path(self._beside).parent, buffering=0)  # noqa: SIM115 - see close
        for part in self._parts:
            write_all(self._file.fileno(), byte_view(part))
        self._parts, self._pending_bytes = [], 0

    def _mapped(self) -> NDArray[Any]:
        assert self._file is not None
        size = os.fstat(self._file.fileno()).st_size // (self._dtype.itemsize * max(1, int(np.prod(self._row))))
        return np.asarray(np.memmap(self._file, self._dtype, mode="r", shape=(size, *self._row)))
