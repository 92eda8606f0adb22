"""
Arrays of a large index that is not mapped, such as one behind a URL: what is asked for of them is fetched first.

An array lies in memory of its own, as large as the array, of which the system gives what is written to. It is divided
into blocks of 4 pieces (16 KiB, see ``arrays``), fetched when somebody asks for one of them, and for good. A rank that
reads its own part of a store fetches that part of the index, a few neighbouring samples take a block of each array.
Long runs that a cache directory has are mapped there, so that the processes of a node share their pages.

Blocks come as samples do, by ``StoreFiles.fetch``: requests are repeated within the same limits, what is on this
machine already is read there, and a piece that does not have its CRC-32 is fetched once more.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastio._native import Pieces, checksum, crc32
from fastio.errors import StoreError
from fastio.store.files import ByteSource, StoreFiles, files_of
from fastio.store.files.byte_source import Fetched
from fastio.store.files.mapped import reserved
from fastio.types.spans import Spans

__all__ = ["FarArray", "FarIndex", "Run"]


_BLOCK_PIECES = 4
_GAP_BLOCKS = 4  # fetched with both sides rather than left out: 64 KiB take 1 ms at 60 MB/s, an answer takes longer
_RUN_BLOCKS = 128  # of a request: 2 MiB, 35 ms at 60 MB/s, as long as many first bytes take
_WHOLE_SHARE = 8  # of the blocks, from which on all are fetched: a block is slower alone than eight in a row
_LOOK_UP_BYTES = 256 << 10  # what a look-up that waits counts for: those that could have brought the whole bring it
_LEAST_SHARED = 1 << 20  # bytes of a run that is mapped: the kernel allows a process 65,530 mappings
_MOST_AHEAD = 1024  # blocks fetched ahead for who asks for one block after the other, 16 MiB


class FarIndex:
    """The file that has an index, and what fetches some of it."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self.path = source.path
        self.files: StoreFiles = files_of([source])  # what fetches

    def count_in(self, files: StoreFiles) -> None:
        """Count requests among those of the samples' ``files``: the limits of an epoch are for both together."""
        own: Any = self.files
        if hasattr(own, "requests") and hasattr(files, "requests"):  # of RemoteFiles, which are imported for URLs alone
            own.requests = files.requests

    def kept(self, start: int, stop: int) -> int | None:
        """Return a descriptor of the file that has a range in a cache directory, to be closed; None if none has it."""
        cached = getattr(self._source, "cached", None)  # of RemoteSource
        found: int | None = None if cached is None else cached.opened(start, stop)
        return found

    def close(self) -> None:
        """End what fetches. What is there stays."""
        self.files.close()


class Run(NamedTuple):
    """Pieces of an array on their way, one behind the other."""

    first: int
    stop: int
    fetched: Fetched


class FarArray:
    """
    The bytes of one array of an index, from byte ``start`` of the file on; ``sums`` are the CRC-32s of its pieces.

    ``data`` is all of it, read-only; what was not fetched is zeros there. ``pieces`` are those of ``data``. Threads may
    share it.
    """

    def __init__(self, index: FarIndex, start: int, size: int, sums: NDArray[np.uint32], *, piece_bytes: int) -> None:
        self.index = index
        self._pad = start % mmap.PAGESIZE  # so that pages here are pages of the file
        memory, self._room = reserved(index.path, self._pad + size)
        self.data = memory[self._pad :]
        self.pieces = Pieces(self.data, sums, piece_bytes)
        self._start, self._sums, self._piece = start, sums, piece_bytes
        self._has = np.zeros(-(-len(sums) // _BLOCK_PIECES), bool)
        self._look_ups = 0  # that had to wait
        self._next, self._ahead = -1, 0  # the block after the last one that was fetched, and how many came unasked

    def blocks_of(self, places: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which blocks have these bytes."""
        blocks = np.zeros(len(self._has), bool)
        blocks[places // (self._piece * _BLOCK_PIECES)] = True
        return blocks

    def blocks_between(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Return which blocks have the bytes from ``start`` up to ``stop``."""
        block = self._piece * _BLOCK_PIECES
        blocks = np.zeros(len(self._has), bool)
        blocks[start // block : -(-stop // block)] = True
        return blocks

    def begin(self, blocks: NDArray[np.bool_]) -> list[Run]:
        """
        Begin to fetch what is not there of these blocks, and what comes with it: short gaps, all if these are many or
        if many look-ups have waited, and more and more of what follows for who asks for one after the other.
        """
        has = self._has.copy()  # other threads finish theirs meanwhile
        missing = blocks & ~has
        if not missing.any():
            return []
        self._read_on(missing, has)
        self._look_ups += 1
        is_worn = self._look_ups * _LOOK_UP_BYTES >= len(self.data)
        if is_worn or _WHOLE_SHARE * int(missing.sum()) >= len(missing):
            missing = ~has
        return [self._fetched(first, stop) for first, stop in _runs(np.flatnonzero(missing), has)]

    def finish(self, runs: list[Run]) -> int | None:
        """
        Wait for what ``begin`` has begun. Returns a piece that came with another CRC-32 twice, None if all are right.

        Raises StoreError for what cannot be read.
        """
        damaged = None
        for first, stop, fetched in runs:
            spans, status = fetched.wait()
            if status is not None and status.any():
                raise self._unread(first, stop)
            sums = np.empty(len(spans), np.uint32)
            checksum(spans, sums).wait()
            wrong = np.flatnonzero(sums != self._sums[first:stop])
            if len(wrong):
                damaged = first + int(wrong[0]) if damaged is None else damaged
                continue  # nothing but right bytes is written, so that threads which write the same may do so at once
            parts = spans.runs().views()
            self._write(first * self._piece, parts[0] if len(parts) == 1 else np.concatenate(parts))
            self._has[first // _BLOCK_PIECES : -(-stop // _BLOCK_PIECES)] = True
        return damaged

    def _write(self, start: int, data: NDArray[np.uint8]) -> None:
        """Write what has arrived of the array from byte ``start`` on, or share pages of a file that has the same."""
        begin, end = self._pad + start, self._pad + start + len(data)
        inner, outer = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE, end // mmap.PAGESIZE * mmap.PAGESIZE
        if outer - inner < _LEAST_SHARED or not self._shares(inner, outer, data[inner - begin : outer - begin]):
            inner = outer = end
        for first, last in ((begin, inner), (outer, end)):
            part = data[first - begin : last - begin]
            ctypes.memmove(self._room.address + first, part.ctypes.data, len(part))

    def _shares(self, inner: int, outer: int, data: NDArray[np.uint8]) -> bool:
        """Share whole pages that should have these bytes; False if there are none, or they have others."""
        place = self._start - self._pad + inner
        descriptor = self.index.kept(place, place + len(data))
        if descriptor is None:
            return False
        try:
            is_shared = self._room.share(inner, descriptor, len(data), place)
        finally:
            os.close(descriptor)
        return is_shared and crc32(self.data[inner - self._pad : outer - self._pad]) == crc32(data)

    def _read_on(self, missing: NDArray[np.bool_], has: NDArray[np.bool_]) -> None:
        """Add what follows to the blocks that are fetched, if they follow what was fetched before."""
        first, last = int(missing.argmax()), len(missing) - 1 - int(missing[::-1].argmax())
        ahead = min(2 * self._ahead + 1, _MOST_AHEAD) if first == self._next else 0
        following = slice(last + 1, last + 1 + ahead)
        missing[following] = ~has[following]
        self._next, self._ahead = following.stop, ahead

    def _fetched(self, first: int, stop: int) -> Run:
        pieces = np.arange(first * _BLOCK_PIECES, min(stop * _BLOCK_PIECES, len(self._sums)))
        places = pieces * self._piece
        sizes = np.minimum(self._piece, len(self.data) - places)
        files = self.index.files
        spans = Spans(files.buffers, np.zeros(len(pieces), np.int32), self._start + places, sizes, self._sums[pieces])
        return Run(int(pieces[0]), int(pieces[-1]) + 1, files.fetch(spans))

    def _unread(self, first: int, stop: int) -> StoreError:
        begin, end = (self._start + piece * self._piece for piece in (first, stop))
        starts = np.arange(begin, end, self._piece)
        spans = Spans(self.index.files.buffers, np.zeros(len(starts), np.int32), starts, np.zeros_like(starts))
        why = self.index.files.failure(spans)
        return StoreError(
            f"{self.index.path}: bytes {begin} to {end}, which are of the index, cannot be read"
            + (f": {why}" if why else ": check the disk, or the server")
        )


def _runs(blocks: NDArray[np.int64], has: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield the first of blocks that are fetched together, and the one after the last; of gaps, what is not there."""
    there = np.cumsum(has)[blocks]
    cuts = np.flatnonzero((np.diff(blocks) > _GAP_BLOCKS + 1) | (np.diff(there) > 0)) + 1
    for begin, end in pairwise((0, *cuts.tolist(), len(blocks))):
        first, stop = int(blocks[begin]), int(blocks[end - 1]) + 1
        for at in range(first, stop, _RUN_BLOCKS):
            yield at, min(at + _RUN_BLOCKS, stop)
