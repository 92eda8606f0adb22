"""The keys of a store being written: unique, in order, as an array of the index at the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.store.spool import SPOOL_BYTES, Spool

__all__ = ["KeyLedger", "KeyRange", "fixed_keys"]

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
