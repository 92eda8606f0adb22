"""
The arrays of an index where they lie: mapped, and compared with their checksums piece by piece when they are touched.

An index of ``LARGE_FROM`` bytes or more, or of ``TABLES_FROM`` and 1/256 of its samples' bytes, has three arrays more;
start points of decoders, which nothing needs, do not count:

    index.checksums     uint32, the CRC-32 of every piece of 4 KiB of each array, the last may be shorter: those of
                        one array after the other, by name
    index.key_starts    int64, where every 256th key begins among those joined by NUL
    index.totals        int64, the sum of each array whose name ends in "_sizes", by name

Readers that do not know these read all arrays as ever. In an index of ``LARGE_FROM`` bytes or more, which they refuse,
starts, sizes and counts are kept in the narrowest of uint8, uint16 and uint32 that holds all of them, if one of these
does. The header keeps the CRC-32 of each array as a whole, tables included, so any reader may compare all at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio._native import Pieces, crc32
from fastio.errors import StoreCorrupt, StoreError
from fastio.store.index.far_arrays import FarArray, FarIndex
from fastio.store.index.seal import NARROW, PACK_AGAIN, byte_view, split_keys

__all__ = [
    "CHECKSUMS",
    "KEY_STARTS",
    "TOTALS",
    "FarBlocks",
    "IndexArray",
    "IndexArrays",
    "Keys",
    "Tables",
    "far_array",
    "has_tables",
    "is_large",
    "key_text",
    "narrowest",
    "pieces_by_name",
    "pieces_of",
    "totals_of",
]

CHECKSUMS, KEY_STARTS, TOTALS = "index.checksums", "index.key_starts", "index.totals"
_SIZES = "_sizes"
LARGE_FROM = 16 << 20  # bytes of an index; a smaller one on a disk is compared in some milliseconds when it is opened
TABLES_FROM = 256 << 10  # bytes of one that may have tables; a smaller one comes from anywhere in 4 ms at 60 MB/s
_TABLES_SHARE = 256  # of the samples' bytes: 256 readers of a smaller index read less of it than of the samples
PIECE_BYTES = 4 << 10  # a page: less is not read from a disk anyway
KEYS_TOGETHER = 256


class IndexArray:
    """
    One array of an index, read-only. What is asked of it is compared with its checksums first: StoreCorrupt.

    An entry of the file stands for ``entry * unit + base``: starts and sizes may count ids, and starts may count from
    where the payload begins. Arrays handed out hold numbers of bytes, and are of ``dtype``, whatever the file has.
    """

    __slots__ = ("_advice", "_array", "_name", "_path", "_start", "_whole", "base", "dtype", "far", "pieces", "unit")

    def __init__(
        self,
        array: NDArray[Any],
        *,
        pieces: Pieces | None = None,
        far: FarArray | None = None,
        path: str = "",
        name: str = "",
        start: int = 0,
        advice: str = PACK_AGAIN,
    ) -> None:
        """
        ``pieces`` are those of the array's bytes, which begin at ``start`` of the file; None: it was compared. ``far``
        fetches them; None: they are in memory, or mapped.
        """
        self._array, self.pieces, self.far = array, pieces, far
        self.dtype = array.dtype
        self._path, self._name, self._start, self._advice = path, name, start, advice
        self.unit, self.base = 1, 0
        self._whole: tuple[IndexArray, int] | None = None  # what these are a part of, and the place of the first

    def __len__(self) -> int:
        return len(self._array)

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of its axes."""
        return self._array.shape

    @property
    def is_compared(self) -> bool:
        """Whether all of it was found right."""
        if self._whole is not None:
            return self._whole[0].is_compared
        return self.pieces is None or self.pieces.is_whole

    @property
    def stored(self) -> NDArray[Any]:
        """The entries as the file has them: for native code, which gets ``pieces`` with those that are to compare."""
        if self._whole is not None:
            self.compare(0, len(self))
        return self._array

    def all(self) -> NDArray[Any]:
        """Return all entries."""
        return self.part(0, len(self._array))

    def part(self, start: int, stop: int) -> NDArray[Any]:
        """Return the entries ``start`` up to ``stop``, or as many as there are."""
        self.compare(start, stop)
        part = self._array[start:stop]
        if part.dtype != self.dtype:
            part = part.astype(self.dtype)
            part.setflags(write=False)
        return part if self.unit == 1 and self.base == 0 else _in_bytes(part, self.unit, self.base)

    def compare(self, start: int, stop: int) -> None:
        """Raise StoreCorrupt if a piece of these entries differs from its checksum."""
        stop = min(stop, len(self._array))
        if self.is_compared or start >= stop:
            return
        if self._whole is not None:
            whole, first = self._whole
            whole.compare(first + start, first + stop)
            return
        assert self.pieces is not None
        entry = self.entry_bytes
        if self.far is not None:
            FarBlocks([(self, self.far.blocks_between(start * entry, stop * entry))]).bring()
        piece = self.pieces.compare(start * entry, stop * entry)
        if piece is not None:
            raise self.damaged(piece)

    @property
    def entry_bytes(self) -> int:
        """Bytes of an entry in the file."""
        return self._array.nbytes // max(1, len(self._array))

    def damaged(self, piece: int) -> StoreCorrupt:
        """Return the error for a piece that differs from its checksum."""
        entry = self.entry_bytes
        first = piece * PIECE_BYTES
        end = min(first + PIECE_BYTES, self._array.nbytes)
        return StoreCorrupt(
            f"{self._path}: index array {self._name!r} (bytes {self._start + first} to {self._start + end}, entries "
            f"{first // entry} to {(end - 1) // entry}): differs from its CRC-32; damaged: {self._advice}"
        )

    def cut(self, start: int, stop: int) -> IndexArray:
        """Return the entries ``start`` up to ``stop`` where they lie, compared when they are asked for."""
        found = copy(self)
        found._array, found._whole = self._array[start:stop], (self, start)
        found.pieces = found.far = None
        return found

    def in_bytes(self, unit: int, base: int) -> IndexArray:
        """Return the same entries, which stand for ``entry * unit + base``."""
        found = copy(self)
        found.unit, found.base = unit, base
        return found

    def of_type(self, dtype: str) -> IndexArray:
        """Return the same entries, which are handed out as this type."""
        found = copy(self)
        found.dtype = np.dtype(dtype)
        return found


class FarBlocks:
    """Blocks of far arrays on their way, all asked for at once unless they are there; see Prefetch."""

    def __init__(self, wanted: Iterable[tuple[IndexArray, NDArray[np.bool_]]]) -> None:
        self._begun = [(each, each.far, each.far.begin(blocks)) for each, blocks in wanted if each.far is not None]

    def bring(self) -> None:
        """Wait for them. Raises StoreCorrupt for a piece that came damaged twice, StoreError for what is not read."""
        begun, self._begun = self._begun, []
        for each, far, runs in begun:
            piece = far.finish(runs)
            if piece is not None:
                raise each.damaged(piece)

    @property
    def done(self) -> bool:
        """Whether nothing is left to wait for."""
        return not any(runs for *_, runs in self._begun)

    def wait(self, timeout_s: float = -1.0) -> bool:
        """Wait for them, without a bound. What cannot be had is asked for again by its look-up, which says why."""
        if timeout_s < 0:
            with suppress(StoreError):
                self.bring()
        return self.done

    def cancel(self) -> None:
        """Let go of them."""
        self._begun = []


def _in_bytes(values: NDArray[np.int64], unit: int, base: int) -> NDArray[np.int64]:
    # A damaged value must not wrap around into the file: it stays far outside.
    limit = np.iinfo(np.int64).max // unit - base
    found = values * unit + base
    found[(values < 0) | (values > limit)] = -1
    found.setflags(write=False)
    return found


class IndexArrays(Mapping[str, NDArray[Any]]):
    """Arrays of an index by name: ``arrays[name]`` is the whole one, compared; ``lies[name]`` what it lies in."""

    __slots__ = ("lies",)

    def __init__(self, lies: Mapping[str, IndexArray]) -> None:
        self.lies = lies

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]]) -> IndexArrays:
        """Return arrays in memory as such; those of an index as they are."""
        return arrays if isinstance(arrays, IndexArrays) else cls({name: IndexArray(a) for name, a in arrays.items()})

    def of_types(self, dtypes: Mapping[str, str]) -> IndexArrays:
        """Return the same arrays; those that are named are handed out as these types."""
        return IndexArrays(
            {name: array.of_type(dtypes[name]) if name in dtypes else array for name, array in self.lies.items()}
        )

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.lies[name].all()

    def __iter__(self) -> Iterator[str]:
        return iter(self.lies)

    def __len__(self) -> int:
        return len(self.lies)

    def __contains__(self, name: object) -> bool:
        return name in self.lies


# The tables that an index may have besides its arrays.


class Tables:
    """Makes the tables of an index from its arrays, in any order: one pass over each, which may come in parts."""

    def __init__(self) -> None:
        self._sums: dict[str, _PieceChecksums] = {}
        self._key_starts: _KeyStarts | None = None
        self._totals: dict[str, int] = {}

    def add(self, name: str, parts: Iterable[NDArray[Any]]) -> None:
        """Take one of the arrays."""
        for _ in self.through(name, parts):
            pass

    def through(self, name: str, parts: Iterable[NDArray[Any]]) -> Iterator[NDArray[Any]]:
        """Yield the parts of one of the arrays, and take them on their way."""
        sums = self._sums[name] = _PieceChecksums()
        for part in parts:
            raw = byte_view(part)
            sums.add(raw)
            if name == "keys" and part.dtype == np.uint8:
                self._key_starts = self._key_starts or _KeyStarts()
                self._key_starts.add(raw)
            if name.endswith(_SIZES) and part.dtype.kind in "iu":
                self._totals[name] = self._totals.get(name, 0) + int(part.sum(dtype=np.int64))
            yield part

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the tables."""
        tables: dict[str, NDArray[Any]] = {}
        if self._key_starts is not None:
            tables[KEY_STARTS] = self._key_starts.table()
        tables[TOTALS] = np.array([self._totals[name] for name in sorted(self._totals)], np.int64)
        for name, table in tables.items():
            self._sums[name] = _PieceChecksums()
            self._sums[name].add(byte_view(table))
        tables[CHECKSUMS] = np.concatenate([self._sums[name].table() for name in sorted(self._sums)])
        return tables


def is_large(index_bytes: int) -> bool:
    """
    Whether an index of so many bytes, without start points, in the types that its arrays are handed out as, is narrow.
    """
    return index_bytes >= LARGE_FROM


def has_tables(index_bytes: int, data_bytes: int) -> bool:
    """Whether an index of so many bytes, without start points, gets tables beside ``data_bytes`` of samples."""
    return is_large(index_bytes) or (index_bytes >= TABLES_FROM and index_bytes * _TABLES_SHARE >= data_bytes)


def narrowest(dtype: np.dtype[Any], parts: Iterable[NDArray[Any]], *, most: int | None = None) -> np.dtype[Any]:
    """
    Return the narrowest of ``NARROW`` that holds all numbers of these parts, or ``dtype`` if none is narrower.

    With ``most``, which none of them is above, or below 0, parts are looked at as long as they may change the answer.
    """
    widest = None if most is None else _narrow(dtype, 0, most)
    found, low, high = _narrow(dtype, 0, 0), 0, 0
    for part in parts:
        low, high = min(low, int(part.min(initial=0))), max(high, int(part.max(initial=0)))
        found = _narrow(dtype, low, high)
        if found == widest:
            break
    return found


def _narrow(dtype: np.dtype[Any], low: int, high: int) -> np.dtype[Any]:
    narrow = (np.dtype(each) for each in NARROW)
    fitting = (each for each in narrow if low >= 0 and high <= np.iinfo(each).max and each.itemsize < dtype.itemsize)
    return next(fitting, dtype)


def totals_of(arrays: IndexArrays) -> dict[str, int]:
    """Return the sum of each array of sizes, by the array's name; none where the index does not say it."""
    if TOTALS not in arrays:
        return {}
    named = sorted(name for name, array in arrays.lies.items() if name.endswith(_SIZES) and array.dtype.kind in "iu")
    totals = arrays[TOTALS].tolist()
    return dict(zip(named, totals, strict=True)) if len(named) == len(totals) else {}


class _PieceChecksums:
    """The CRC-32 of each piece of bytes that come one behind the other."""

    def __init__(self) -> None:
        self._sums = array("I")
        self._crc = self._filled = 0  # of the last piece

    def add(self, data: NDArray[np.uint8]) -> None:
        """Take the next bytes."""
        at = 0
        while at < len(data):
            part = data[at : at + PIECE_BYTES - self._filled]
            self._crc, self._filled, at = crc32(part, self._crc), self._filled + len(part), at + len(part)
            if self._filled == PIECE_BYTES:
                self._sums.append(self._crc)
                self._crc = self._filled = 0

    def table(self) -> NDArray[np.uint32]:
        """Return those of all pieces, of which the last may be shorter."""
        return np.array([*self._sums, *([self._crc] if self._filled else [])], np.uint32)


def pieces_by_name(sizes: Mapping[str, int], sums: NDArray[np.uint32], *, path: str) -> dict[str, NDArray[np.uint32]]:
    """
    Return the checksums of the pieces of each array but their own, given the bytes of all.

    Raises StoreCorrupt if they are not as many as there are pieces.
    """
    counts = {name: -(-sizes[name] // PIECE_BYTES) for name in sorted(sizes.keys() - {CHECKSUMS})}
    if sums.dtype.str != "<u4" or sums.shape != (sum(counts.values()),):
        raise StoreCorrupt(
            f"{path}: index array {CHECKSUMS!r}: expected {sum(counts.values())} of <u4, got {sums.dtype.str} "
            f"{sums.shape}: pack again"
        )
    ends = np.cumsum(list(counts.values()))
    return dict(zip(counts, np.split(sums, ends[:-1]), strict=True))


def pieces_of(data: NDArray[np.uint8], sums: NDArray[np.uint32]) -> Pieces:
    """Return the bytes of an array as pieces that have these checksums."""
    return Pieces(data, sums, PIECE_BYTES)


def far_array(index: FarIndex, start: int, size: int, sums: NDArray[np.uint32]) -> FarArray:
    """Return an array that begins at ``start`` of a file that is not mapped, as pieces that have these checksums."""
    return FarArray(index, start, size, sums, piece_bytes=PIECE_BYTES)


# The keys of an index.

_BLOCK_BYTES = 1 << 20  # bytes of keys examined together, which limits temporary memory


class _KeyStarts:
    """Where every 256th of keys begins that are joined by NUL, and come in parts of any size."""

    def __init__(self) -> None:
        self._starts = [np.empty(0, np.int64)]
        self._bytes = self._keys = 0

    def add(self, joined: NDArray[np.uint8]) -> None:
        """Take the next bytes."""
        if len(joined) and not self._bytes:
            self._starts.append(np.zeros(1, np.int64))
            self._keys = 1
        for at in range(0, len(joined), _BLOCK_BYTES):
            begins = np.flatnonzero(joined[at : at + _BLOCK_BYTES] == 0) + (self._bytes + at + 1)
            self._starts.append(begins[-self._keys % KEYS_TOGETHER :: KEYS_TOGETHER].astype(np.int64))
            self._keys += len(begins)
        self._bytes += len(joined)

    def table(self) -> NDArray[np.int64]:
        """Return where they begin."""
        return np.concatenate(self._starts)


def _key_starts(joined: NDArray[np.uint8]) -> NDArray[np.int64]:
    starts = _KeyStarts()
    starts.add(joined)
    return starts.table()


def key_text(key: bytes) -> str:
    """Return a key as text; names of files that are not UTF-8 get surrogates, as from ``os.fsdecode``."""
    return key.decode("utf-8", "surrogateescape")


class Keys:
    """
    The keys of so many samples: strings of one width, or UTF-8 joined by NUL, with a table of where every 256th begins.

    Raises StoreCorrupt for a part of them that is damaged, or has more or fewer keys than it should.
    """

    __slots__ = ("_array", "_count", "_path", "_starts")

    def __init__(self, array: IndexArray, count: int, *, path: str, starts: IndexArray | None = None) -> None:
        """
        ``starts`` is the table of joined keys; without it they are counted here. Raises StoreCorrupt if there are more
        or fewer than samples.
        """
        self._array, self._count, self._path = array, count, path
        if starts is None or array.dtype.kind == "S":
            found = split_keys(array.stored if array.dtype.kind == "S" else array.all(), count, path=path)
            starts = None if found is None else IndexArray(found[:count:KEYS_TOGETHER].copy())
        if starts is not None and (len(starts) != -(-count // KEYS_TOGETHER) or starts.dtype != np.int64):
            raise StoreCorrupt(f"{path}: index array {KEY_STARTS!r}: {len(starts)} for {count} keys: pack again")
        self._starts = starts

    @classmethod
    def of(cls, array: NDArray[Any], count: int, *, path: str) -> Keys:
        """Return keys in memory."""
        return cls(IndexArray(array), count, path=path)

    @property
    def array(self) -> NDArray[Any]:
        """All of them as stored."""
        return self._array.all()

    @property
    def nbytes(self) -> int:
        """How many bytes they take."""
        return self._array.stored.nbytes

    @property
    def are_fixed(self) -> bool:
        """Whether they have one width."""
        return self._starts is None

    def __getitem__(self, index: int) -> bytes:
        if self._starts is None:
            return bytes(self._array.part(index, index + 1)[0])
        group, position = divmod(index, KEYS_TOGETHER)
        return self._group(group).split(b"\0")[position]

    def joined(self, start: int, stop: int) -> bytes:
        """Return the keys ``start`` up to ``stop`` in UTF-8, joined by NUL."""
        if self._starts is None:
            return b"\0".join(map(bytes, self._array.part(start, stop)))
        if start >= stop:
            return b""
        first, last = self._begin(start), self._begin(stop)
        return self._array.part(first, last - 1).tobytes()

    def part(self, start: int, stop: int) -> Keys:
        """Return the keys ``start`` up to ``stop``."""
        return Keys.of(np.frombuffer(self.joined(start, stop), np.uint8), stop - start, path=self._path)

    def compare(self) -> None:
        """Compare all of them. Raises StoreCorrupt."""
        joined = self._array.all()
        if self._starts is not None and len(self._starts):
            if not np.array_equal(_key_starts(joined), self._starts.all()):
                raise StoreCorrupt(f"{self._path}: index array {KEY_STARTS!r} is not of these keys: pack again")
            self._group(len(self._starts) - 1)

    def _begin(self, index: int) -> int:
        """Where a joined key begins; of one past the last, where it would."""
        assert self._starts is not None
        if index == self._count:
            return len(self._array) + 1
        group, position = divmod(index, KEYS_TOGETHER)
        before = self._group(group).split(b"\0")[:position]
        return int(self._starts.part(group, group + 1)[0]) + sum(map(len, before)) + position

    def _group(self, group: int) -> bytes:
        """The keys of one entry of the table, joined by NUL."""
        assert self._starts is not None
        start, stop = [*self._starts.part(group, group + 2).tolist(), len(self._array) + 1][:2]
        if not 0 <= start < stop <= len(self._array) + 1:
            raise StoreCorrupt(f"{self._path}: index array {KEY_STARTS!r} contradicts itself: pack again")
        raw = self._array.part(start, stop - 1).tobytes()
        expected = min(KEYS_TOGETHER, self._count - group * KEYS_TOGETHER)
        if raw.count(b"\0") + 1 != expected:
            found = raw.count(b"\0") + 1
            raise StoreCorrupt(
                f"{self._path}: the index has {found} keys from number {group * KEYS_TOGETHER} on, expected "
                f"{expected}: pack again"
            )
        return raw
