"""Files that are mapped: where the page cache has their bytes, nothing is copied and nobody asks the kernel."""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.errors import StoreError
from fastio.machine.system import MAP_FIXED, MAP_NORESERVE
from fastio.store.files.byte_source import ByteSource, Kind
from fastio.store.files.late import LateSource, LateSources, sizes_of
from fastio.store.files.local import (
    AHEAD_BYTES,
    CHUNK_BYTES,
    check_identity,
    check_range,
    identity_of,
    is_local,
    open_descriptor,
    readable,
    regular_file,
)
from fastio.types.spans import Spans, distinct

__all__ = ["KIND", "InPlaceFiles", "MappedSource", "Reserved", "reserved"]

# Python's own mmap keeps a duplicate of the descriptor for as long as the mapping lives: a thousand shards would
# be a thousand open files, above the usual limit.
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_LIBC.mprotect.restype = ctypes.c_int
_LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_LIBC.munmap.restype = ctypes.c_int
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value


class MappedSource:
    """
    A regular file, mapped read-only and shared with the page cache; see ByteSource.

    The mapping ends with the last array over it; no descriptor stays open. The file stays the one that was opened even
    if another takes its name. If it is cut off, the next look beyond its end ends the process by SIGBUS: replace
    stores, never rewrite them.
    """

    kind = "map"

    def __init__(self, path: str) -> None:
        self.path = path
        descriptor = open_descriptor(path)
        with readable(path):
            try:
                status = regular_file(path, descriptor)
                self.memory: NDArray[np.uint8] = _mapped(path, descriptor, status.st_size)
            finally:
                os.close(descriptor)
        self.size = status.st_size
        self.identity: Mapping[str, int | str] = identity_of(status)

    def read(self, start: int, stop: int) -> NDArray[np.uint8]:
        """A view of the mapping."""
        check_range(self.path, start, stop, self.size)
        return self.memory[start:stop]

    def check(self) -> None:
        """See ByteSource."""
        check_identity(self.path, self.identity)

    def release(self) -> None:
        """Nothing is kept but the mapping."""


class InPlaceFiles:
    """Bytes that are looked at where they lie, in mappings or in memory of our own; see StoreFiles."""

    in_place = True
    threads = 1  # which waits where the disk does
    holds = False
    ahead_bytes = AHEAD_BYTES
    chunk_bytes = CHUNK_BYTES

    def __init__(self, memory: Sequence[NDArray[np.uint8]]) -> None:
        self.buffers = _native.Buffers(memory)

    def fetch(
        self,
        spans: Spans,
        *,
        pool: _native.ThreadPool | None = None,
        ring: _native.BufferRing | None = None,
        is_near: bool = False,
    ) -> _InPlace:
        """The same spans; with a pool, the kernel is asked to read those that are not in memory yet."""
        return _fetched(spans, pool, is_near=is_near)

    def read_ahead(
        self, spans: Spans, *, pool: _native.ThreadPool | None = None, comes_again: bool = False
    ) -> _native.Job:
        """Have the kernel read what is not in memory yet."""
        return _native.read_ahead(spans, pool)

    def failure(self, spans: Spans) -> None:
        """Always None: what cannot be read ends the process."""

    def close(self) -> None:
        """Nothing is held but mappings, which end with the last array over them."""


_ADVISED_S = 0.1  # thousands of small values may each take a read of the disk, which advice has done at once
_FILES_AHEAD = 256  # in one job, of which dozens may wait


class LateMappedFiles:
    """
    Files that are mapped when samples of them are fetched; see StoreFiles.

    Fetched spans have buffers of their own, the mappings that they need, and keep these alive.
    """

    in_place = False  # although nothing is copied
    threads = InPlaceFiles.threads
    holds = False
    ahead_bytes = AHEAD_BYTES
    chunk_bytes = CHUNK_BYTES

    def __init__(self, sources: Sequence[ByteSource]) -> None:
        self._sources = sources
        self.buffers = _native.Buffers(sizes_of(sources).tolist())

    def fetch(
        self,
        spans: Spans,
        *,
        pool: _native.ThreadPool | None = None,
        ring: _native.BufferRing | None = None,
        is_near: bool = False,
    ) -> _InPlace:
        """Map the files of the spans; with a pool, the kernel is asked to read those that are not in memory yet."""
        return _fetched(self._mapped(spans), pool, is_near=is_near)

    def read_ahead(
        self, spans: Spans, *, pool: _native.ThreadPool | None = None, comes_again: bool = False
    ) -> _native.Job:
        """
        Map the files, and have the kernel read what is not in memory yet.

        Of more than ``_FILES_AHEAD`` files, which are tiny ones, the first are read ahead: the job keeps all mapped.
        """
        if len(distinct(spans.shard)) > _FILES_AHEAD:
            spans = spans.part(0, _FILES_AHEAD)
        return _native.read_ahead(self._mapped(spans), pool)

    def failure(self, spans: Spans) -> None:
        """Always None: what cannot be read ends the process."""

    def close(self) -> None:
        """Let all files go: mappings end with the last array over them."""
        if isinstance(self._sources, LateSources):
            self._sources.release()
            return
        for source in self._sources:
            source.release()

    def _mapped(self, spans: Spans) -> Spans:
        """Raises StoreError for a file that is not the one that is listed."""
        numbers, which = np.unique(spans.shard, return_inverse=True)
        if len(numbers) and not 0 <= numbers[0] <= numbers[-1] < len(self._sources):
            raise IndexError(f"a span of file {numbers[-1]}, of {len(self._sources)}")
        memory = [self._sources[number].memory for number in numbers.tolist()]
        assert all(each is not None for each in memory), "files of this kind are mapped"
        buffers = _native.Buffers([each for each in memory if each is not None])
        return replace(spans, buffers=buffers, shard=which.astype(np.int32))


class _InPlace:
    """Spans that need no fetching, perhaps with advice to the kernel under way; see Fetched."""

    __slots__ = ("_advice", "_spans")

    def __init__(self, spans: Spans, advice: _native.Job | None) -> None:
        self._spans = spans
        self._advice = advice

    def wait(self) -> tuple[Spans, None]:
        """The spans. Advice that cannot be given in a moment is dropped: from now on they are looked at."""
        if self._advice is not None:
            self._advice.wait(_ADVISED_S)
            self._advice = None
        return self._spans, None


def _fetched(spans: Spans, pool: _native.ThreadPool | None, *, is_near: bool) -> _InPlace:
    wants_advice = pool is not None and not is_near and len(spans) > 0
    return _InPlace(spans, _native.read_ahead(spans, pool) if wants_advice else None)


def _mapped(path: str, descriptor: int, size: int) -> NDArray[np.uint8]:
    if size == 0:
        return _read_only(np.empty(0, np.uint8))
    address = _LIBC.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if address is None or address == _FAILED:
        raise _unmapped(path, size)
    return _held(address, size)


@dataclass(frozen=True, slots=True)
class Reserved:
    """A range of addresses for files that are mapped side by side."""

    path: str  # for messages
    address: int

    def map(self, start: int, descriptor: int, size: int) -> None:
        """Map a file from the byte ``start`` of the range on, which begins a page. Raises StoreError."""
        if size == 0:
            return
        flags = mmap.MAP_SHARED | MAP_FIXED
        address = _LIBC.mmap(self.address + start, size, mmap.PROT_READ, flags, descriptor, 0)
        if address is None or address == _FAILED:
            raise _unmapped(self.path, size)

    def share(self, start: int, descriptor: int, size: int, offset: int) -> bool:
        """
        Let whole pages, from the byte ``start`` of the range on, be those of a file from ``offset`` on, shared with the
        page cache until somebody writes to them. Returns whether the system does so.
        """
        protection, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | MAP_FIXED
        address = _LIBC.mmap(self.address + start, size, protection, flags, descriptor, offset)
        return address is not None and address != _FAILED

    def protect(self, size: int) -> None:
        """Let nobody write to the first bytes of the range any more."""
        if size and _LIBC.mprotect(self.address, size, mmap.PROT_READ) != 0:
            raise _unmapped(self.path, size)


def reserved(path: str, size: int) -> tuple[NDArray[np.uint8], Reserved]:
    """
    Reserve ``size`` bytes of address space, as an array and as a place for files; they go with the array.

    Bytes that nothing is mapped over are zeros. Raises StoreError.
    """
    length = max(size, mmap.PAGESIZE)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    address = _LIBC.mmap(None, length, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if address is None or address == _FAILED:
        raise _unmapped(path, size)
    return _held(address, length)[:size], Reserved(path, address)


def _unmapped(path: str, size: int) -> StoreError:
    problem = os.strerror(ctypes.get_errno())
    return StoreError(f"{path}: {size} bytes cannot be mapped ({problem}); raise ulimit -v")


def _held(address: int, size: int) -> NDArray[np.uint8]:
    """A mapping as an array, which ends with the last view of it."""
    holder: Any = (ctypes.c_uint8 * size).from_address(address)
    # Not at exit: native threads may still be reading then.
    weakref.finalize(holder, _LIBC.munmap, address, size).atexit = False
    return _read_only(np.frombuffer(holder, np.uint8))


def _read_only(array: NDArray[np.uint8]) -> NDArray[np.uint8]:
    array.setflags(write=False)
    return array


def _files(sources: Sequence[MappedSource | LateSource]) -> InPlaceFiles | LateMappedFiles:
    if isinstance(sources, LateSources):
        return LateMappedFiles(sources)
    mapped = [source.memory for source in sources if isinstance(source, MappedSource)]
    return InPlaceFiles(mapped) if len(mapped) == len(sources) else LateMappedFiles(sources)


KIND = Kind("map", claims=is_local, open=lambda path, _options: MappedSource(path), files=_files)
