"""Keys that come once, and the keys of a store being written: in bounded memory, however many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.store.write.spool import BLOCK_BYTES, Rows, Spool, SpoolPart, blocks_of

__all__ = [
    "KeyLedger",
    "KeyRange",
    "UniqueKeys",
    "UniqueNames",
    "fixed_keys",
    "key_pieces",
    "places_of",
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
    """Takes keys in UTF-8, joined by NUL, keeps them, and finds one that comes twice. May raise OSError."""

    def __init__(self, *, beside: str) -> None:
        self._beside = beside
        self._joined = Spool(np.uint8, beside=beside)  # a NUL after each key
        self._unique = UniqueKeys(self._all, beside=beside)
        self._fixed_spools: list[Spool] = []

    def add(self, joined: bytes) -> int | None:
        """
        Add the keys of the next samples, at least one. Returns the position of the first that is known to come twice,
        and then adds none; what else comes twice is found by ``repeated``.
        """
        twice = self._unique.add(joined)
        if twice is None:
            self._joined.append(np.frombuffer(joined + b"\0", np.uint8))
        return twice

    def repeated(self) -> bytes | None:
        """Return a key that comes twice in all that were added."""
        return self._unique.repeated()

    def places_of(self, key: bytes) -> list[int]:
        """Return the positions of the first two keys that are this one."""
        return places_of(key, self._all())

    def array(self, part: KeyRange, *, fixed: bool) -> Rows:
        """
        Return a range as an index array: joined by NUL, or, if ``fixed`` and not wasteful, strings of one width. It can
        be read until ``close``.
        """
        total = max(0, part.stop - part.start - 1)
        if fixed and part.longest and part.longest * part.count <= _FIXED_FACTOR * total + _FIXED_BYTES:
            return self._fixed(part)
        return SpoolPart(self._joined, part.start, part.start + total)

    def _fixed(self, part: KeyRange) -> Spool:
        spool = Spool(f"S{part.longest}", beside=self._beside)
        self._fixed_spools.append(spool)
        for piece in key_pieces(SpoolPart(self._joined, part.start, part.stop)):
            spool.append(fixed_keys(piece, part.longest))
        return spool

    def _all(self) -> Iterator[bytes]:
        return key_pieces(SpoolPart(self._joined, 0, len(self._joined)))

    def close(self) -> None:
        """Release files and memory."""
        self._unique.close()
        for spool in (self._joined, *self._fixed_spools):
            spool.close()


def key_pieces(keys: Rows, piece_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
    """Yield keys that are joined by NUL some at a time, about ``piece_bytes``. May raise OSError."""
    carried = b""
    for block in blocks_of(keys, piece_bytes):
        some, nul, carried = (carried + block.tobytes()).rpartition(b"\0")
        if nul:
            yield some
    if carried:
        yield carried


def fixed_keys(joined: bytes, width: int) -> NDArray[np.bytes_]:
    """Return keys joined by NUL as strings of this width, which is at least that of the longest."""
    data = np.frombuffer(joined, np.uint8)
    ends = np.append(np.flatnonzero(data == 0), len(data))
    lengths = np.diff(ends, prepend=-1) - 1
    rows = np.zeros((len(ends), width), np.uint8)
    rows[np.arange(width) < lengths[:, None]] = data[data != 0]
    return rows.view(f"S{width}").reshape(-1)


# Finds what comes twice: at once while memory reaches, the rest by merging sorted runs of hashes.

TABLE_NAMES = 1_400_000  # 32 MiB: what a native table of 2^21 slots takes
_MERGED_ROWS = 1 << 20  # hashes of all runs that are compared at a time
_READ_ROWS = 1 << 12  # hashes of a run that are read at a time


class UniqueKeys:
    """
    Finds a key that comes twice, in bounded memory, however many there are.

    Keys that rise, by bytes or with numbers in them (files sorted by name, numbered lines), are unique by that; once
    one does not, all go to ``UniqueNames``. ``earlier`` yields all keys that were added, joined by NUL, some at a time.
    Methods may raise OSError.
    """

    def __init__(self, earlier: Callable[[], Iterable[bytes]], *, beside: str | None) -> None:
        self._earlier = earlier
        self._rising = _native.KeySet()
        self._is_rising = True
        self._names = UniqueNames(beside=beside)

    def add(self, joined: bytes) -> int | None:
        """
        Add the next keys, at least one. Returns the position of the first that is known to come twice, and then adds
        none.
        """
        if self._is_rising and self._rising.rise(joined):
            return None
        if self._is_rising:
            self._is_rising = False
            for piece in self._earlier():
                twice = self._names.insert(piece)
                assert twice is None, "rising keys"
        return self._names.insert(joined)

    def repeated(self) -> bytes | None:
        """Return a key that was added twice; None if there is none."""
        found = self._names.repeated()
        if found is None:
            return None
        for piece in self._earlier():
            places = np.flatnonzero((_native.name_hashes(piece) == found).all(axis=1))
            if len(places):
                return piece.split(b"\0")[int(places[0])]
        raise AssertionError("every hash is that of a key")

    def close(self) -> None:
        """Release file and memory."""
        self._names.close()


def places_of(key: bytes, pieces: Iterable[bytes]) -> list[int]:
    """Return the positions of the first two keys that are this one, in pieces of keys joined by NUL."""
    places: list[int] = []
    start = 0
    for piece in pieces:
        keys = piece.split(b"\0") if key in piece else []
        places += [start + position for position, each in enumerate(keys) if each == key]
        if len(places) > 1:
            break
        start += piece.count(b"\0") + 1
    return places[:2]


class UniqueNames:
    """
    Finds a name that comes twice, of names in any order, by 128 bits of each.

    Those of ``TABLE_NAMES`` are kept in a table, in which a name that comes twice is found at once. A full table goes
    to a spool as a sorted run; what is in two runs is found by ``repeated``.
    """

    def __init__(self, *, beside: str | None) -> None:
        self._table = _native.KeySet()
        self._runs = Spool(np.uint64, (2,), beside=beside)
        self._stops: list[int] = []  # of the runs, in rows

    def insert(self, joined: bytes) -> int | None:
        """
        Add names joined by NUL. Returns the position of the first that is known to come twice, and then adds none. May
        raise OSError.
        """
        twice = self._table.insert(joined)
        if twice is None and len(self._table) >= TABLE_NAMES:
            self._end_run()
        return twice

    def repeated(self) -> NDArray[np.uint64] | None:
        """Return the 128 bits of a name that was added twice; None if there is none. May raise OSError."""
        if not self._stops:
            return None  # the table has found all
        if len(self._table):
            self._end_run()
        starts = [0, *self._stops[:-1]]
        cursors = [_RunCursor(self._runs, *bounds) for bounds in zip(starts, self._stops, strict=True)]
        parts = len(self._runs) // _MERGED_ROWS + 1
        for part in range(1, parts + 1):
            limit = (part << 64) // parts
            rows = np.concatenate([cursor.below(limit) for cursor in cursors])
            first = np.sort(rows[:, 0])
            if not (first[1:] == first[:-1]).any():
                continue
            rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
            twice = np.flatnonzero((rows[1:] == rows[:-1]).all(axis=1))
            if len(twice):
                found: NDArray[np.uint64] = rows[twice[0]]
                return found
        return None

    def close(self) -> None:
        """Release file and memory."""
        self._runs.close()

    def _end_run(self) -> None:
        self._runs.append(self._table.take())
        self._stops.append(len(self._runs))


class _RunCursor:
    """Reads a sorted run of hashes from its beginning to its end."""

    def __init__(self, runs: Spool, start: int, stop: int) -> None:
        self._runs = runs
        self._at, self._stop = start, stop
        self._read = np.empty((0, 2), np.uint64)  # and not handed out yet

    def below(self, limit: int) -> NDArray[np.uint64]:
        """Return the hashes up to the first whose first half is not below this."""
        parts: list[NDArray[np.uint64]] = []
        while True:
            first = np.ascontiguousarray(self._read[:, 0])
            count = len(first) if limit >> 64 else int(np.searchsorted(first, np.uint64(limit)))
            parts.append(self._read[:count])
            self._read = self._read[count:]
            if len(self._read) or self._at == self._stop:
                return np.concatenate(parts)
            stop = min(self._at + _READ_ROWS, self._stop)
            self._read, self._at = self._runs.part(self._at, stop), stop
