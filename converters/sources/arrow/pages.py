"""
Where the values of a column of Parquet lie in its file, if they lie there as they are: in plain, uncompressed pages.

A column chunk is a row of pages, a header in Thrift's compact protocol before each. What is read of one:

    page      levels | values                                of version 2, the header says how many bytes levels have
    levels    runs of numbers: how much of a value is there; in version 1, uint32 size before them
    values    plain: uint32 size | bytes, of each; or, after a page with a dictionary of plain values, runs of indices
    run       varint n: n >> 1 times one number (bit 0 clear), or n >> 1 times eight numbers packed in bits (set)

A dictionary's values lie in one piece, too, so that several samples may have the same. Every number is checked.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SourceError

__all__ = ["REMEDY", "ColumnChunk", "ColumnPlaces", "NotPlainError", "places_of"]

_DATA, _INDEX, _DICTIONARY, _DATA_2 = range(4)  # types of pages
_ENCODINGS = {
    0: "PLAIN",
    2: "PLAIN_DICTIONARY",
    3: "RLE",
    4: "BIT_PACKED",
    5: "DELTA_BINARY_PACKED",
    6: "DELTA_LENGTH_BYTE_ARRAY",
    7: "DELTA_BYTE_ARRAY",
    8: "RLE_DICTIONARY",
    9: "BYTE_STREAM_SPLIT",
}
_PLAIN, _OF_DICTIONARY, _RLE = 0, (2, 8), 3
REMEDY = 'use_dictionary=False, compression="none" of the writer avoid that'
_SIZE = struct.Struct("<I")
_LONGEST_VARINT, _DEEPEST = 10, 16


class NotPlainError(Exception):
    """Values that do not lie in their file as they are, in words that follow "its values"."""


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """
    What a file's footer says of a ``column`` in one row group, which is called ``where`` in messages.

    It has ``size`` bytes from ``start`` on and ``count`` values, counted with those that are null. ``levels`` is how
    many of the structs that lead to a value, with itself, may be null. ``width`` is the bytes of a value, 0 if they
    have sizes of their own.
    """

    where: str
    column: str
    start: int
    size: int
    count: int
    levels: int
    width: int = 0


@dataclass(frozen=True, slots=True)
class ColumnPlaces:
    """Where the values of a chunk lie in the file, and which of them are there: ``(n,)`` each, zeros where none is."""

    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    is_there: NDArray[np.bool_]


def places_of(data: NDArray[np.uint8], chunk: ColumnChunk, *, check: bool = False) -> ColumnPlaces:
    """
    Return where the values of a chunk lie in ``data``, the bytes of its file; with ``check``, compare pages' checksums.

    Raises NotPlainError for an encoding under which they do not lie in one piece, and SourceError, in words that
    ``chunk.where`` begins, for damage.
    """
    starts, sizes = np.zeros(chunk.count, np.int64), np.zeros(chunk.count, np.int64)
    is_there, done = np.zeros(chunk.count, bool), 0
    words = _Places.none()
    for page in _pages(data, chunk, check=check):
        if page.kind == _DICTIONARY:
            words = page.plain(page.start, page.number(1), chunk.width)
            continue
        found, there = page.values(chunk, words)
        stop = done + len(there)
        positions = np.flatnonzero(there) + done
        starts[positions], sizes[positions] = found.starts, found.sizes
        is_there[done:stop] = there
        done = stop
    return ColumnPlaces(starts, sizes, is_there)


@dataclass(frozen=True, slots=True)
class _Places:
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @classmethod
    def none(cls) -> _Places:
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64))


def _pages(data: NDArray[np.uint8], chunk: ColumnChunk, *, check: bool) -> Iterator[_Page]:
    """Yield the dictionary and the pages of values, until these are all there."""
    if not 0 <= chunk.start <= chunk.start + chunk.size <= len(data):
        raise _damaged(chunk.where, chunk.start, f"its {chunk.size:,} bytes lead out of the file")
    view, at, stop, left = data.data, chunk.start, chunk.start + chunk.size, chunk.count
    while left:
        reader = _Thrift(view, at, stop, chunk.where)
        header = reader.fields()
        kind, size, begin = header.get(1), header.get(3), reader.at
        if not isinstance(size, int) or not isinstance(kind, int) or not 0 <= size <= stop - begin:
            raise _damaged(chunk.where, at, f"a page of {size} bytes leads out of its column")
        if header.get(2) != size:
            raise _damaged(
                chunk.where, at, f"a page without compression has {size} bytes, and {header.get(2)} of values"
            )
        if check and isinstance(header.get(4), int):
            found = zlib.crc32(view[begin : begin + size])
            if found != header[4] & 0xFFFFFFFF:
                raise _damaged(chunk.where, at, "the page differs from its checksum")
        at = begin + size
        inner = {_DATA: 5, _DICTIONARY: 7, _DATA_2: 8}.get(kind)
        if inner is None:
            continue  # an index
        fields = header.get(inner)
        if not isinstance(fields, dict):
            raise _damaged(chunk.where, begin, "a page has no header of its type")
        page = _Page(chunk.where, view, begin, at, kind, fields)
        if kind != _DICTIONARY:
            count = page.number(1)
            if count > left:
                raise _damaged(chunk.where, begin, f"{count:,} values in a page, where {left:,} are left")
            left -= count
        yield page


@dataclass(frozen=True, slots=True)
class _Page:
    """A page whose bytes are ``view[start:stop]``; ``fields`` is the header of its type, by the numbers of Thrift."""

    where: str
    view: Any
    start: int
    stop: int
    kind: int
    fields: dict[int, Any]

    def number(self, field: int) -> int:
        """Return a number of the header that is not negative."""
        value = self.fields.get(field)
        if not isinstance(value, int) or value < 0:
            raise _damaged(self.where, self.start, f"a page says {value} where a number is expected")
        return value

    def values(self, chunk: ColumnChunk, words: _Places) -> tuple[_Places, NDArray[np.bool_]]:
        """Return where the values lie that are there, and which of all are."""
        count, encoding = self.number(1), self.number(4 if self.kind == _DATA_2 else 2)
        if encoding != _PLAIN and encoding not in _OF_DICTIONARY:
            name = _ENCODINGS.get(encoding, f"number {encoding}")
            raise NotPlainError(f"are encoded as {name} ({chunk.column}; {REMEDY})")
        at, there = self._levels(count, chunk.levels)
        present = int(there.sum())
        if encoding == _PLAIN:
            return self.plain(at, present, chunk.width), there
        if present == 0:
            return _Places.none(), there
        if at >= self.stop:
            raise _damaged(self.where, self.start, "a page ends before its values")
        indices = _runs(self, at + 1, self.stop, present, self.view[at])
        if len(indices) and int(indices.max()) >= len(words.starts):
            raise _damaged(
                self.where, self.start, f"value {int(indices.max()):,} of {len(words.starts):,} in a dictionary"
            )
        return _Places(words.starts[indices], words.sizes[indices]), there

    def _levels(self, count: int, levels: int) -> tuple[int, NDArray[np.bool_]]:
        """Return where the values begin, and which of them are there."""
        at, size = self.start, 0
        if self.kind == _DATA_2:
            size, repeated = self.number(5), self.number(6)
            if repeated:
                raise _damaged(self.where, at, "a page has lists, which the column has not")
        elif levels:
            if self.number(3) != _RLE:
                name = _ENCODINGS.get(self.number(3), f"number {self.number(3)}")
                raise NotPlainError(f"have nulls that are encoded as {name} ({REMEDY})")
            if self.stop - at < _SIZE.size:
                raise _damaged(self.where, at, "a page ends before its levels")
            size = _SIZE.unpack_from(self.view, at)[0]
            at += _SIZE.size
        if size > self.stop - at:
            raise _damaged(self.where, at, f"{size:,} bytes of levels lead out of their page")
        if levels == 0:
            return at + size, np.ones(count, bool)
        return at + size, _runs(self, at, at + size, count, levels.bit_length()) == levels

    def plain(self, at: int, count: int, width: int) -> _Places:
        """Return where values lie that are one behind the other until the end of the page."""
        if width:
            if count * width != self.stop - at:
                raise _damaged(self.where, at, f"{count:,} values of {width} bytes in {self.stop - at:,}")
            return _Places(at + np.arange(count) * width, np.full(count, width, np.int64))
        if count > (self.stop - at) // _SIZE.size:
            raise _damaged(self.where, at, f"{count:,} values in {self.stop - at:,} bytes")
        starts, sizes = np.zeros(count, np.int64), np.zeros(count, np.int64)
        size_at, view, stop = _SIZE.unpack_from, self.view, self.stop
        for i in range(count):
            size = size_at(view, at)[0] if stop - at >= _SIZE.size else stop
            at += _SIZE.size
            if size > stop - at:
                raise _damaged(self.where, at, "a value leads out of its page")
            starts[i], sizes[i] = at, size
            at += size
        if at != stop:
            raise _damaged(self.where, self.start, f"{stop - at:,} bytes follow the values of a page")
        return _Places(starts, sizes)


def _runs(page: _Page, at: int, stop: int, count: int, bits: int) -> NDArray[np.int64]:
    """Return ``count`` numbers of so many bits from ``page.view[at:stop]``."""
    if bits > 32:
        raise _damaged(page.where, at, f"numbers of {bits} bits")
    values, done, width = np.zeros(count, np.int64), 0, (bits + 7) // 8
    reader = _Thrift(page.view, at, stop, page.where)
    while done < count:
        head = reader.varint()
        if head & 1:
            size = (head >> 1) * bits
            packed = reader.take(min(size, stop - reader.at))  # the last run may end with its numbers
            flags = np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little")
            found = np.zeros(min(count - done, (head >> 1) * 8), np.int64)
            if bits:
                found = flags[: len(flags) // bits * bits].reshape(-1, bits) @ (1 << np.arange(bits))
            found = found[: count - done]
        else:
            number = int.from_bytes(reader.take(width), "little")
            found = np.full(min(head >> 1, count - done), number, np.int64)
        if len(found) == 0:
            raise _damaged(page.where, at, "a run of no numbers")
        values[done : done + len(found)] = found
        done += len(found)
    return values


class _Thrift:
    """Reads a struct of Thrift's compact protocol; every number is compared with ``stop``."""

    def __init__(self, view: Any, at: int, stop: int, where: str) -> None:
        self.at = at
        self._view, self._stop, self._where = view, stop, where

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        if not 0 <= size <= self._stop - self.at:
            raise _damaged(self._where, self.at, "the header of a page leads out of its column")
        self.at += size
        return bytes(self._view[self.at - size : self.at])

    def varint(self) -> int:
        """Return a number of which each byte has seven bits, the least first."""
        number = 0
        for i in range(_LONGEST_VARINT):
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << (7 * i)
            if byte < 0x80:
                return number
        raise _damaged(self._where, self.at, "the header of a page holds no number")

    def fields(self, depth: int = 0) -> dict[int, Any]:
        """Return numbers, truths and structs of a struct by their numbers; other values are passed over."""
        found: dict[int, Any] = {}
        number = 0
        while (head := self.take(1)[0]) != 0:
            number = number + (head >> 4) if head >> 4 else self._signed()
            found[number] = self._value(head & 15, depth)
        return found

    def _signed(self) -> int:
        number = self.varint()
        return (number >> 1) ^ -(number & 1)

    def _value(self, type_: int, depth: int) -> Any:
        if type_ in (1, 2):
            return type_ == 1
        if type_ == 3:
            return self.take(1)[0]
        if type_ in (4, 5, 6):
            return self._signed()
        if type_ == 7:
            return self.take(8)
        if type_ == 8:
            self._skip(self.varint())
            return None
        if type_ in (9, 10) and depth < _DEEPEST:
            head = self.take(1)[0]
            for _ in range(self.varint() if head >> 4 == 15 else head >> 4):
                self.take(1) if head & 15 in (1, 2) else self._value(head & 15, depth + 1)
            return None
        if type_ == 12 and depth < _DEEPEST:
            return self.fields(depth + 1)
        raise _damaged(self._where, self.at, "the header of a page is none of Parquet's")

    def _skip(self, size: int) -> None:
        if size > self._stop - self.at:
            raise _damaged(self._where, self.at, "the header of a page leads out of its column")
        self.at += size


def _damaged(where: str, at: int, words: str) -> SourceError:
    return SourceError(f"{where}, at byte {at:,}: {words}: damaged or truncated? get the file again")
