"""
Walks the tree of an LMDB file that another program wrote, and finds where each value lies.

Every page number and size is checked before it is used: liblmdb trusts the file, and a damaged one can end the process.
LMDB has no checksums; what tells damage are its rules: the nodes of a page lie side by side, and keys ascend. How pages
look is drawn at the top of ``store/formats/lmdb.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SourceError
from fastio.store.files import ByteSource
from fastio.store.formats.lmdb import LmdbMeta, cut_lmdb, newest_meta
from fastio.store.index.sealed import bytes_from

__all__ = [
    "LmdbValues",
    "read_lmdb",
]


_BRANCH, _LEAF, _OVERFLOW, _LEAF2 = 1, 2, 4, 0x20
_BIG, _SUBDATA, _DUPDATA = 1, 2, 4  # flags of a node
_REVERSE_KEY, _INTEGER_KEY = 2, 8  # flags of a database, whose keys are in another order than that of their bytes
_NO_PAGE = (1 << 64) - 1
_HEADER = struct.Struct("<QHHHH")
_NODE = struct.Struct("<HHHH")
_PAGE_NUMBER = 8  # bytes of one


@dataclass(frozen=True, slots=True)
class LmdbValues:
    """Keys in the order of the tree, and where their values lie in the file."""

    keys: list[bytes]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]


def read_lmdb(file: ByteSource) -> LmdbValues:
    """
    List an LMDB file. Raises SourceError for what is no such file, is cut off or damaged, or has named databases.
    """
    read = partial(bytes_from, file)
    meta = newest_meta(read)
    if meta is None:
        raise SourceError(
            f"{file.path}: is not an LMDB file that this machine reads, or one of its first two pages is damaged"
        )
    cut = cut_lmdb(file.size, read)
    if cut:
        raise SourceError(f"{file.path}: {cut}")
    if meta.root == _NO_PAGE:
        raise SourceError(f"{file.path}: is an LMDB file without any key")
    return _Walk(file, meta).values()


class _Walk:
    """Goes through the pages of one version of the tree."""

    def __init__(self, file: ByteSource, meta: LmdbMeta) -> None:
        self._file, self._meta = file, meta
        self._seen: set[int] = set()
        self._keys: list[bytes] = []
        self._starts: list[int] = []
        self._sizes: list[int] = []

    def values(self) -> LmdbValues:
        """Return all values; SourceError if the tree is damaged."""
        waiting = [(self._meta.root, 1)]
        while waiting:
            number, depth = waiting.pop()
            page = self._page(number)
            flags = _HEADER.unpack_from(page)[2]
            if flags & _LEAF2 or not flags & (_BRANCH | _LEAF):
                raise self._damaged(number, "is neither a branch nor a leaf")
            if flags & _LEAF:
                self._leaf(number, page)
            elif depth >= self._meta.depth:
                raise self._damaged(number, "is a branch deeper than the tree")
            else:
                waiting += [(child, depth + 1) for child in reversed(list(self._children(number, page)))]
        if len(self._keys) != self._meta.entries:
            raise SourceError(
                f"{self._file.path}: has {len(self._keys):,} keys, expected {self._meta.entries:,}: copy it again"
            )
        if not self._meta.flags & (_REVERSE_KEY | _INTEGER_KEY):
            for one, other in pairwise(self._keys):
                if one >= other:
                    raise SourceError(
                        f"{self._file.path}: the key {other[:40]!r} comes behind {one[:40]!r}, out of its order: the "
                        "file is damaged, copy it again"
                    )
        return LmdbValues(self._keys, np.array(self._starts, np.int64), np.array(self._sizes, np.int64))

    def _page(self, number: int) -> bytes:
        if not 2 <= number <= self._meta.last_page:
            raise self._damaged(number, f"is not one of the {self._meta.last_page + 1}")
        if number in self._seen:
            raise self._damaged(number, "is in the tree twice")
        self._seen.add(number)
        size = self._meta.page_size
        page = self._file.read(number * size, (number + 1) * size).tobytes()
        if _HEADER.unpack_from(page)[0] != number:
            raise self._damaged(number, "has another number written on it")
        return page

    def _nodes(self, number: int, page: bytes) -> Iterator[tuple[int, int, int, int, int]]:
        """Offset in the page, and the four numbers, of each node."""
        _, _, _, lower, _ = _HEADER.unpack_from(page)
        if lower < _HEADER.size or lower % 2 or lower > len(page):
            raise self._damaged(number, "has a damaged header")
        for (at,) in struct.iter_unpack("<H", page[_HEADER.size : lower]):
            if not lower <= at <= len(page) - _NODE.size:
                raise self._damaged(number, "has a node outside it")
            low, high, flags, key_size = _NODE.unpack_from(page, at)
            if at + _NODE.size + key_size > len(page):
                raise self._damaged(number, "has a key that leaves it")
            yield at, low, high, flags, key_size

    def _children(self, number: int, page: bytes) -> Iterator[int]:
        for _, low, high, flags, _ in self._nodes(number, page):
            yield low | high << 16 | flags << 32

    def _leaf(self, number: int, page: bytes) -> None:
        places = list[tuple[int, int]]()
        for at, low, high, flags, key_size in self._nodes(number, page):
            key = page[at + _NODE.size : at + _NODE.size + key_size]
            size, begin = low | high << 16, at + _NODE.size + key_size
            if flags & (_SUBDATA | _DUPDATA):
                what = "a database of its own" if flags & _SUBDATA else "several values"
                raise SourceError(
                    f"{self._file.path}: the key {key[:40]!r} has {what}, which is not read: copy its values to keys "
                    "of their own"
                )
            if flags & _BIG:
                start = self._overflow(number, page, begin, size)
            elif begin + size <= len(page):
                start = number * self._meta.page_size + begin
            else:
                raise self._damaged(number, "has a value that leaves it")
            places.append((at, begin + (_PAGE_NUMBER if flags & _BIG else size) + 1 & ~1))
            self._keys.append(key)
            self._starts.append(start)
            self._sizes.append(size)
        places.sort()
        if [stop for _, stop in places] != [*(at for at, _ in places[1:]), len(page)]:
            raise self._damaged(number, "has nodes that overlap, or room between them")

    def _overflow(self, number: int, page: bytes, begin: int, size: int) -> int:
        """Where a value on pages of its own begins."""
        if begin + _PAGE_NUMBER > len(page):
            raise self._damaged(number, "has a damaged node")
        first = int.from_bytes(page[begin : begin + _PAGE_NUMBER], "little")
        start = first * self._meta.page_size + _HEADER.size
        if not 2 <= first <= self._meta.last_page or start + size > self._meta.file_size:
            raise self._damaged(number, "has a value outside the file")
        head = _HEADER.unpack_from(self._file.read(start - _HEADER.size, start).tobytes())
        if head[0] != first or not head[2] & _OVERFLOW:
            raise self._damaged(first, "is not the beginning of a value")
        return start

    def _damaged(self, page: int, what: str) -> SourceError:
        return SourceError(f"{self._file.path}: page {page} {what}: the file is damaged, copy it again")
