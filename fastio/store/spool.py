"""Spool: rows of the index on their way into a store, a few in memory, the rest in a file without a name."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fastio.store.arrays import byte_view
from fastio.store.atomic import write_all

__all__ = ["Spool"]

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
