"""Files that are read into memory by pread.

A mapping costs nothing for cached pages, and the native core reads ahead for the others. Network file systems answer
page faults one by one and in small pieces, and a server's error or a truncated file becomes a SIGBUS that kills the
process. There, ``pread`` fetches the spans of about 16 MiB of samples at a time, and an error becomes a status.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.errors import StoreCorrupt, StoreError
from fastio.store.files.byte_source import ByteSource, Kind
from fastio.store.files.late import LateSource, LateSources, sizes_of
from fastio.store.files.local import (
    AHEAD_BYTES,
    CHUNK_BYTES,
    FLAGS,
    aligned,
    check_identity,
    check_range,
    identity_of,
    is_local,
    network_file_system,
    open_descriptor,
    readable,
    regular_file,
)
from fastio.types.spans import Spans, distinct

__all__ = ["KIND", "PreadFiles", "PreadSource"]

_KEPT_OPEN = 64  # descriptors at a time, unless several look-ups are under way


class PreadSource:
    """A regular file whose ranges are copied; see ByteSource. Its descriptor stays open until ``release``."""

    kind = "pread"
    memory = None

    def __init__(self, path: str, identity: Mapping[str, int | str], file: _Descriptor | None = None) -> None:
        self.path = path
        self.identity = identity
        self.size = int(identity["size"])
        self._file = file

    @classmethod
    def open(cls, path: str) -> Self:
        """Raises StoreNotFound for a missing file, StoreError for one that cannot be opened."""
        with readable(path):
            file = _Descriptor(open_descriptor(path))
            return cls(path, identity_of(regular_file(path, file.number)), file)

    def read(self, start: int, stop: int) -> NDArray[np.uint8]:
        """A copy."""
        check_range(self.path, start, stop, self.size)
        file, copy, done = self.opened(), aligned(start, stop - start), 0
        with readable(self.path):
            while done < len(copy):
                got = os.preadv(file.number, [copy[done:].data], start + done)
                if got == 0:
                    raise StoreCorrupt(
                        f"{self.path}: cut off at {start + done} bytes, expected {self.size}; copy or pack again"
                    )
                done += got
        copy.setflags(write=False)
        return copy

    def opened(self) -> _Descriptor:
        """
        The open file, which lives as long as somebody holds it. Two threads may open it at once.

        Raises StoreError unless it is the version that was opened first.
        """
        file = self._file
        if file is None:
            file = self._file = _reopened(self.path, self.identity)
        return file

    def check(self) -> None:
        """See ByteSource."""
        check_identity(self.path, self.identity)

    def release(self) -> None:
        """Close the file as soon as nobody reads it."""
        self._file = None


class PreadFiles:
    """
    The files of a store for ``pread``: opened on first use, at most 64 at a time; see StoreFiles.

    Raises StoreError if a file has been replaced or changed since the store was opened.
    """

    in_place = False
    threads = 4  # a server answers several questions at once
    holds = False
    ahead_bytes = AHEAD_BYTES
    chunk_bytes = CHUNK_BYTES

    def __init__(self, sources: Sequence[ByteSource]) -> None:
        self._sources = sources if isinstance(sources, LateSources) else list(map(_late, sources))
        self._open: dict[int, None] = {}  # shards, the one used last at the end
        self.buffers = _native.Buffers(sizes_of(sources).tolist())

    def fetch(
        self,
        spans: Spans,
        *,
        pool: _native.ThreadPool | None = None,
        ring: _native.BufferRing | None = None,
        is_near: bool = False,
    ) -> _Fetched:
        """Begin to read the spans into memory, one after the other; of more files than may be open, wait for them."""
        total = max(1, int(spans.sizes.sum()))
        out = np.empty(total, np.uint8) if ring is None else ring.acquire(total)
        starts, error = np.empty(len(spans), np.int64), np.zeros(len(spans), np.int32)
        groups = self._groups(spans)
        job, begin = None, 0
        for positions in groups:
            part = spans if len(groups) == 1 else spans.at(positions)
            ends = begin + np.cumsum(part.sizes)
            starts[positions] = ends - part.sizes
            end = int(ends[-1]) if len(part) else begin
            status = error if len(groups) == 1 else np.zeros(len(part), np.int32)
            job = _native.read_spans(part, *self._descriptors(part), out[begin : max(end, begin + 1)], status, pool)
            if len(groups) > 1:
                job.wait()
                error[positions] = status
            begin = end
        assert job is not None
        shard = np.zeros(len(spans), np.int32)
        there = Spans(_native.Buffers([out]), shard, starts, spans.sizes, spans.checksums, spans.intervals)
        return _Fetched(there, job, error)

    def read_ahead(
        self, spans: Spans, *, pool: _native.ThreadPool | None = None, comes_again: bool = False
    ) -> _native.Job:
        """Have the kernel read the spans, whether they are in memory or not: nobody can look."""
        first = spans.at(self._groups(spans)[0])  # of more files than may be open, the others are not read ahead
        return _native.read_files_ahead(first, *self._descriptors(first), pool)

    def failure(self, spans: Spans) -> None:
        """Always None: the status says all that is known."""

    def close(self) -> None:
        """Close the files that nobody reads."""
        for shard in list(self._open):
            self._open.pop(shard, None)
            self._sources[shard].release()

    def _groups(self, spans: Spans) -> list[NDArray[np.int64]]:
        """Return the positions of spans of some files, as many as may be open at a time, and of the next ones."""
        numbers, which = np.unique(spans.shard, return_inverse=True)
        if len(numbers) <= _KEPT_OPEN:
            return [np.arange(len(spans))]
        order = np.argsort(which, kind="stable")
        return np.split(order, np.searchsorted(which[order], np.arange(_KEPT_OPEN, len(numbers), _KEPT_OPEN)))

    def _descriptors(self, spans: Spans) -> tuple[NDArray[np.int32], list[_Descriptor]]:
        """A descriptor for each file of the store, -1 for those without a span, and what keeps them open."""
        descriptors = np.full(len(self._sources), -1, np.int32)
        files = []
        for shard in distinct(spans.shard).tolist():
            file = self._file(shard)
            descriptors[shard] = file.number
            files.append(file)
        return descriptors, files

    def _file(self, shard: int) -> _Descriptor:
        file = _descriptor(self._sources[shard])
        self._open.pop(shard, None)
        self._open[shard] = None
        for oldest in list(self._open)[:-_KEPT_OPEN]:
            self._open.pop(oldest, None)
            self._sources[oldest].release()
        return file


class _Descriptor:
    """An open file, closed with its last user, which may be a native job."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        with contextlib.suppress(OSError):  # it was only read, so errors of close do not matter
            os.close(self.number)


def _late(source: ByteSource) -> PreadSource | LateSource:
    """The file, to be opened when it is read."""
    return source if isinstance(source, LateSource) else PreadSource(source.path, source.identity)


def _descriptor(source: PreadSource | LateSource) -> _Descriptor:
    """The open file of a source. Raises StoreError unless it is the version that it was, or is listed as."""
    if isinstance(source, PreadSource):
        return source.opened()
    file = source.opened()
    return (file if isinstance(file, PreadSource) else PreadSource(file.path, file.identity)).opened()


def _reopened(path: str, identity: Mapping[str, int | str]) -> _Descriptor:
    """The file under this path. Raises StoreError unless it is the version with this identity."""
    try:
        file = _Descriptor(os.open(path, FLAGS))
        status = os.fstat(file.number)
    except OSError as exc:
        raise StoreError(f"{path}: can no longer be read ({exc.strerror}): open the store again") from exc
    check_identity(path, identity, status)
    return file


@dataclass(frozen=True, slots=True)
class _Fetched:
    """Spans that native threads are reading; see Fetched."""

    spans: Spans
    job: _native.Job
    error: NDArray[np.int32]

    def wait(self) -> tuple[Spans, NDArray[np.int32] | None]:
        """See Fetched."""
        self.job.wait()
        if not self.error.any():
            return self.spans, None
        status = np.where(self.error == 0, _native.OK, np.where(self.error < 0, _native.TRUNCATED, _native.IO_ERROR))
        spans = self.spans
        sizes = np.where(self.error == 0, spans.sizes, 0)  # what could not be read is not decoded
        kept = Spans(spans.buffers, spans.shard, spans.starts, sizes, spans.checksums, spans.intervals)
        return kept, status.astype(np.int32)


KIND = Kind(
    "pread",
    claims=lambda path: is_local(path) and network_file_system(path) is not None,
    open=lambda path, _options: PreadSource.open(path),
    files=PreadFiles,
    joins=frozenset({"map"}),
)
