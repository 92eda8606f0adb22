"""
Start points that are noted when a file in place is first read, for ``open_store(path, jump=True)``.

They lie in one file beside the index of the folder, ``<path>.start-points.fastio-index``, which every process that
reads the folder maps, DataLoader's workers included:

    0   the magic number
    8   int64   how many samples
    16  int64   bytes of the file
    24  uint32  the CRC-32 of the list of files that it is about: names, sizes and times
    28  uint32  the CRC-32 of these 28 bytes
    32  int64   for each sample, how many bytes its table has; 0 while none is noted
    ..  for each sample a place for its table, ``_LEAST_BYTES`` and a part of the file's size; none for small files

The places are there from the beginning, as a hole, so nobody has to be asked for one. Two processes that note the same
picture write the same bytes. Nothing here is sealed: a table has a checksum that ties it to its file, and a decoder
leaves one aside that is damaged, half-written, or of another file.

``fastio index`` keeps the same tables without holes, with the checksums of all files, in the index.
"""

from __future__ import annotations

import logging
import os
import struct
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio._native import crc32
from fastio.errors import StoreError
from fastio.store.files.local import network_file_system
from fastio.store.files.mapped import MappedSource
from fastio.store.index.sealed import PlacedIntervals
from fastio.store.jump_tables import JumpRule, begin_jump_tables
from fastio.store.sets.names import SIDECAR_SUFFIX
from fastio.store.write.atomic import PartialFile, publish_file, pwrite_all, writing
from fastio.store.write.locks import turn
from fastio.types.spans import Spans

__all__ = ["NotedPoints", "points_path"]

_MAGIC = b"fastiopt"
_HEAD = struct.Struct("<8sqqI")
_SUM = struct.Struct("<I")
_SIZES_AT = _HEAD.size + _SUM.size
# The tables of 300 photos of ImageNet take 1.2 % of their bytes; 99 of 100 fit here.
_LEAST_BYTES, _SHARE = 1 << 10, 64
_LOG = logging.getLogger(__name__)


def points_path(index: str) -> str:
    """Return where the points beside an index lie."""
    return f"{index.removesuffix(SIDECAR_SUFFIX)}.start-points{SIDECAR_SUFFIX}"


class NotedPoints:
    """
    The start points of the pictures of one field, one file each, as far as they are noted; see the top of this file.

    ``sizes`` are the bytes of the pictures, ``listing`` identifies the list of files. The file is made where there is
    none for this list. Raises StoreError and OSError if it cannot be written, or lies on a network file system, where
    processes do not see at once what others write.
    """

    def __init__(self, path: str, sizes: NDArray[np.int64], listing: int) -> None:
        if network_file_system(Path(path).parent) is not None:
            raise StoreError(f"{path}: lies on a network file system")
        room = np.where(JumpRule().takes(sizes), (_LEAST_BYTES + sizes // _SHARE) & ~7, 0)
        starts = _SIZES_AT + 8 * len(sizes) + np.cumsum(room) - room
        total = int(starts[-1] + room[-1]) if len(room) else _SIZES_AT
        head = _HEAD.pack(_MAGIC, len(sizes), total, listing)
        with turn(path):
            if not _is_about(path, head, total, room):
                _make(path, head, total)
            self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # of this very file, whatever takes its name
            weakref.finalize(self, os.close, self._fd)
            memory = MappedSource(path).memory
        self._path, self._room, self._starts, self._is_full = path, room, starts, False
        self._sizes = _table_sizes(memory, len(sizes))
        self.placed = PlacedIntervals(_native.Buffers([memory]), starts, self._sizes)

    def note(self, spans: Spans, pool: _native.ThreadPool | None) -> Spans:
        """
        Return pictures in memory, whose ``intervals`` lie in this file, with all that is noted now: pictures without
        start points are gone through first, and theirs are noted.
        """
        known = spans.intervals
        if known is None or self._is_full:
            return spans
        rows = np.flatnonzero((known.sizes == 0) & JumpRule().takes(spans.sizes))
        noted = begin_jump_tables(replace(spans.at(rows), intervals=None), pool)()[0].intervals
        if noted is None:
            return spans
        samples = np.searchsorted(self._starts, known.starts[rows], side="right") - 1
        try:
            self._write(samples.tolist(), noted.views())
        except OSError as exc:
            self._is_full = True
            _LOG.warning("%s: no more start points are noted: %s", self._path, exc.strerror or exc)
        sizes = known.sizes.copy()
        sizes[rows] = self._sizes[samples]
        return replace(spans, intervals=replace(known, sizes=sizes))

    def _write(self, samples: Sequence[int], tables: Sequence[NDArray[np.uint8]]) -> None:
        """Write the table of each sample to its place, then its size. Those that do not fit are left out."""
        for sample, table in zip(samples, tables, strict=True):
            if 0 < table.size <= self._room[sample]:
                pwrite_all(self._fd, table, int(self._starts[sample]))
                pwrite_all(self._fd, struct.pack("<q", table.size), _SIZES_AT + 8 * sample)


def _table_sizes(memory: NDArray[np.uint8], count: int) -> NDArray[np.int64]:
    return memory[_SIZES_AT : _SIZES_AT + 8 * count].view(np.int64)


def _is_about(path: str, head: bytes, total: int, room: NDArray[np.int64]) -> bool:
    """Return whether a file is about these samples, and its sizes are possible."""
    try:
        file = MappedSource(path)
    except StoreError:
        return False
    if file.size != total or file.memory[:_SIZES_AT].tobytes() != head + _SUM.pack(crc32(head)):
        return False
    sizes = _table_sizes(file.memory, len(room))
    return bool(((sizes >= 0) & (sizes <= room)).all())


def _make(path: str, head: bytes, total: int) -> None:
    """Write a file in which nothing is noted, over one that has the name."""
    file = PartialFile(path)
    try:
        file.write(head + _SUM.pack(crc32(head)))
        file.flush()
        with writing(path):
            os.ftruncate(file.fd, total)
        publish_file(file, replace=True)
    finally:
        file.discard()
