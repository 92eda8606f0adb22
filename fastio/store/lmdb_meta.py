"""The meta pages of an LMDB file: which version of its tree is the newest, and how many bytes the file must have."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from fastio.store.seal import ReadBytes

__all__ = ["LmdbMeta", "cut_lmdb", "newest_meta"]

_MAGIC, _VERSION, _META = 0xBEEFC0DE, 1, 8
_HEADER = struct.Struct("<QHHHH")
_META_HEAD = struct.Struct("<IIQQ")
_DB = struct.Struct("<IHHQQQQQ")
_TAIL = struct.Struct("<QQ")
_SIZE = _HEADER.size + _META_HEAD.size + 2 * _DB.size + _TAIL.size
_MOST_DEPTH = 32


@dataclass(frozen=True, slots=True)
class LmdbMeta:
    """What a meta page says; ``lmdb.py`` draws it."""

    page_size: int
    depth: int
    entries: int
    root: int
    last_page: int
    txnid: int

    @property
    def file_size(self) -> int:
        """How many bytes the file has at least."""
        return (self.last_page + 1) * self.page_size


def newest_meta(read: ReadBytes) -> LmdbMeta | None:
    """Return the meta page of the last transaction; None if this is no LMDB file, or its first page is damaged."""
    first = _meta(read(0, _SIZE))
    second = None if first is None else _meta(read(first.page_size, _SIZE))
    return max((meta for meta in (first, second) if meta is not None), key=lambda meta: meta.txnid, default=None)


def cut_lmdb(file_size: int, read: ReadBytes) -> str:
    """Say at which byte an LMDB file is cut off, and what to do; "" if it is as long as it should be."""
    meta = newest_meta(read)
    if meta is None or meta.file_size <= file_size:
        return ""
    return f"is cut off at {file_size:,} of {meta.file_size:,} bytes: copy it again"


def _meta(data: bytes) -> LmdbMeta | None:
    if len(data) < _SIZE:
        return None
    _, _, flags, _, _ = _HEADER.unpack_from(data)
    magic, version, _, _ = _META_HEAD.unpack_from(data, _HEADER.size)
    if magic != _MAGIC or version != _VERSION or not flags & _META:
        return None
    page_size, *_ = _DB.unpack_from(data, _HEADER.size + _META_HEAD.size)
    _, _, depth, _, _, _, entries, root = _DB.unpack_from(data, _HEADER.size + _META_HEAD.size + _DB.size)
    last_page, txnid = _TAIL.unpack_from(data, _SIZE - _TAIL.size)
    if page_size & (page_size - 1) or not 256 <= page_size <= 65536 or depth > _MOST_DEPTH:
        return None
    return LmdbMeta(page_size, depth, entries, root, last_page, txnid)
