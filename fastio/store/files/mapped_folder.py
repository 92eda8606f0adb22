"""
Few large files that are read as one, mapped side by side: containers of other programs, read in place.

They take one range of addresses, each file from a page of its own on, so that a sample is a run of bytes in one buffer,
as it is in a packed store. Unlike a packed store, these files belong to programs that may write to them: size and time
of each file are compared whenever some of its values are asked for.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.errors import StoreError
from fastio.store.files.listed import FileList, ListedFolder
from fastio.store.files.local import AHEAD_BYTES, CHUNK_BYTES, check_range, readable
from fastio.store.files.mapped import InPlaceFiles, reserved
from fastio.types.spans import Spans, distinct

__all__ = ["MappedFiles", "MappedFolder", "are_few"]

_MOST_FILES = 16_384  # a process has 65,530 mappings
_VALUES_A_FILE = 2


def are_few(files: FileList, values: int) -> bool:
    """Return whether files with so many values in them are few enough, and hold enough each, to be mapped."""
    return len(files.sizes) <= _MOST_FILES and values >= _VALUES_A_FILE * len(files.sizes)


class MappedFolder:
    """
    The files of a ``ListedFolder``, mapped read-only and shared with the page cache; see ByteSource.

    Raises StoreError if a file is not what was listed. The mappings end with the last array over them; no descriptor
    stays open. If a file is cut off, the next look beyond its end ends the process by SIGBUS.
    """

    kind = "mapped folder"

    def __init__(self, listed: ListedFolder) -> None:
        self.listed = listed
        self.path = listed.path
        sizes = np.concatenate((np.array([len(listed.files.kept)]), listed.files.sizes))
        pages = -(-sizes // mmap.PAGESIZE) * mmap.PAGESIZE
        self.bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum(pages)))  # of the kept bytes and of each file
        self.size = int(self.bounds[-1])
        self.identity: Mapping[str, int | str] = listed.identity
        self.memory = self._mapped()

    def _mapped(self) -> NDArray[np.uint8]:
        listed, bounds = self.listed, self.bounds.tolist()
        memory, place = reserved(self.path, self.size)
        kept = np.ascontiguousarray(listed.files.kept)
        ctypes.memmove(place.address, kept.ctypes.data, len(kept))
        for number, size in enumerate(listed.files.sizes.tolist()):
            name = listed.files.name(number)
            with readable(f"{listed.root}/{name}"):
                descriptor = os.open(f"{listed.root}/{name}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                try:
                    status = os.fstat(descriptor)
                    if (status.st_size, status.st_mtime_ns) != (size, int(listed.files.mtimes[number])):
                        words = listed.what_changed(int(listed.bounds[number + 1]), size)
                        raise StoreError(f"{self.path}: {words or f'{name!r} was changed: open it again'}")
                    place.map(bounds[number + 1], descriptor, size)
                finally:
                    os.close(descriptor)
        place.protect(bounds[1])
        return memory

    def placed(self, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where values that begin at ``starts`` of the listed folder begin here."""
        before = self.listed.bounds
        file = np.clip(np.searchsorted(before, starts, side="right") - 1, 0, len(self.bounds) - 2)
        return np.ascontiguousarray(starts - before[file] + self.bounds[file])

    def place_of(self, start: int) -> tuple[str, int]:
        """Return the file that a value begins in, and where in it; of kept bytes, the folder."""
        number = min(int(np.searchsorted(self.bounds, start, side="right")) - 1, len(self.bounds) - 2)
        return self.listed.place_of(start - int(self.bounds[number]) + int(self.listed.bounds[number]))

    def read(self, start: int, stop: int) -> NDArray[np.uint8]:
        """A view of the mapping."""
        check_range(self.path, start, stop, self.size)
        return self.memory[start:stop]

    def check(self) -> None:
        """Raise StoreError if what was looked into, or one of the files, is another by now."""
        self.listed.check()

    def release(self) -> None:
        """Nothing is kept but the mappings."""

    def touched(self, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of the file that each value lies in; -1 for kept bytes, and for no bytes."""
        if len(self.listed.files.sizes) == 1:
            return np.where((starts >= self.bounds[1]) & (sizes > 0), 0, -1)
        return np.where(sizes > 0, np.searchsorted(self.bounds, starts, side="right") - 2, -1)

    def changed(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of these files are no longer what was listed."""
        files, root = self.listed.files, self.listed.root
        differs = np.zeros(len(numbers), np.bool_)
        for i, number in enumerate(numbers.tolist()):
            try:
                status = os.stat(f"{root}/{files.name(number)}")  # noqa: PTH116 - for each batch
            except OSError:
                differs[i] = True
                continue
            differs[i] = (status.st_size, status.st_mtime_ns) != (files.sizes[number], files.mtimes[number])
        return differs

    def what_changed(self, number: int) -> str | None:
        """Return what is wrong with a file at the moment, in words; None if it is as listed."""
        listed = self.listed
        return listed.what_changed(int(listed.bounds[number + 1]), int(listed.files.sizes[number]))


class MappedFiles:
    """The files of mapped folders: bytes that are looked at where they lie; see StoreFiles."""

    in_place = True
    threads = 1
    holds = False
    ahead_bytes = AHEAD_BYTES
    chunk_bytes = CHUNK_BYTES

    def __init__(self, sources: Sequence[MappedFolder]) -> None:
        self._sources = sources
        self._files = InPlaceFiles([source.memory for source in sources])
        self.buffers = self._files.buffers

    def fetch(
        self,
        spans: Spans,
        *,
        pool: _native.ThreadPool | None = None,
        ring: _native.BufferRing | None = None,
        is_near: bool = False,
    ) -> _Checked:
        """The same spans; those of a file that was changed have a status that says so."""
        return _Checked(self._files.fetch(spans, pool=pool, ring=ring, is_near=is_near).wait()[0], self._status(spans))

    def read_ahead(
        self, spans: Spans, *, pool: _native.ThreadPool | None = None, comes_again: bool = False
    ) -> _native.Job:
        """Have the kernel read what is not in memory yet."""
        return self._files.read_ahead(spans, pool=pool, comes_again=comes_again)

    def failure(self, spans: Spans) -> str | None:
        """Return which file of these spans is not what was listed, and why."""
        for shard, source in enumerate(self._sources):
            chosen = spans.shard == shard
            for number in distinct(source.touched(spans.starts[chosen], spans.sizes[chosen])).tolist():
                words = source.what_changed(number) if number >= 0 else None
                if words is not None:
                    return words
        return None

    def close(self) -> None:
        """Nothing is held but mappings, which end with the last array over them."""

    def _status(self, spans: Spans) -> NDArray[np.int32] | None:
        """Return the status of each value, None if all their files are as listed."""
        status: NDArray[np.int32] | None = None
        for shard, source in enumerate(self._sources):
            own = np.flatnonzero(spans.shard == shard) if len(self._sources) > 1 else slice(None)
            touched = source.touched(spans.starts[own], spans.sizes[own])
            numbers = distinct(touched)
            numbers = numbers[numbers >= 0]
            changed = numbers[source.changed(numbers)]
            if len(changed):
                status = np.full(len(spans), _native.OK, np.int32) if status is None else status
                status[own] = np.where(np.isin(touched, changed), _native.CHANGED, status[own])
        return status


class _Checked:
    """Spans that need no fetching, and the status of those whose files were changed; see Fetched."""

    __slots__ = ("_spans", "_status")

    def __init__(self, spans: Spans, status: NDArray[np.int32] | None) -> None:
        self._spans, self._status = spans, status

    def wait(self) -> tuple[Spans, NDArray[np.int32] | None]:
        """The spans, at once; of a file that was changed, nothing is looked at."""
        if self._status is None:
            return self._spans, None
        sizes = np.where(self._status == _native.OK, self._spans.sizes, 0)
        return replace(self._spans, sizes=sizes), self._status
