"""
Many small files that are read as one: those of a folder, listed once, lie one behind the other.

A sample of a folder is then what it is in a store, a run of bytes in a file, and one descriptor a thread is enough for
a million files: each is opened, read and closed. A file of which a batch has several values is read for all of them
before it is closed. A file that is not what was listed, by its size and time of modification, is never a sample: its
status says so.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.errors import StoreError
from fastio.store.files.byte_source import JointPrefetch, Prefetch
from fastio.store.files.local import AHEAD_BYTES, CHUNK_BYTES, check_range, readable
from fastio.types.metrics import Opens
from fastio.types.spans import Spans, distinct, numbers_within

__all__ = ["FileList", "ListedFiles", "ListedFolder"]

Note = Callable[[Spans, _native.ThreadPool | None], Spans]

_KEPT = -1  # in place of where a name begins: bytes that lie in no file


@dataclass(frozen=True, slots=True)
class FileList:
    """
    Files by their names from one folder on, and what they were when they were listed.

    ``names`` are joined, each with a NUL behind it; ``name_starts`` (n,) int64 says where each begins. ``sizes`` and
    ``mtimes`` (n,) int64 are in bytes and nanoseconds. ``kept`` are bytes of values that lie in no file of their own,
    such as those of a table: they stand before the first file.
    """

    names: NDArray[np.uint8]
    name_starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    mtimes: NDArray[np.int64]
    kept: NDArray[np.uint8]

    def bounds(self) -> NDArray[np.int64]:
        """Return where the kept bytes and each file begin, and one past the end, ``(n + 2,)``."""
        bounds = np.zeros(len(self.sizes) + 2, np.int64)
        bounds[1] = len(self.kept)
        np.cumsum(self.sizes, out=bounds[2:])
        bounds[2:] += len(self.kept)
        return bounds

    def check(self) -> None:
        """Raise ValueError unless there is a name, a size and a time for each file."""
        counts = {len(self.name_starts), len(self.sizes), len(self.mtimes)}
        if len(counts) > 1 or (self.sizes < 0).any():
            raise ValueError(f"a list of files with {sorted(counts)} names, sizes and times")

    def name(self, number: int) -> str:
        """Return the name of a file."""
        start = int(self.name_starts[number])
        stop = int(self.name_starts[number + 1]) if number + 1 < len(self.name_starts) else len(self.names)
        return os.fsdecode(self.names[start : stop - 1].tobytes())


class ListedFolder:
    """
    Files of one folder as one file; see ByteSource. Nothing stays open.

    ``path`` is what messages call it, ``root`` the folder that names begin at. ``content`` identifies what is listed,
    ``check_listing`` raises StoreError if the folder is another by now, and ``forget`` is called when a file is found
    to be another than the one that was listed.
    """

    kind = "listed"
    memory = None

    def __init__(
        self,
        path: str,
        root: str,
        files: FileList,
        *,
        content: int,
        check_listing: Callable[[], None] = lambda: None,
        forget: Callable[[], None] = lambda: None,
    ) -> None:
        self.path, self.root, self.files = path, root, files
        self.bounds = files.bounds()
        self.size = int(self.bounds[-1])
        self.identity: Mapping[str, int | str] = {"size": self.size, "content": content}
        self.check_listing = check_listing
        self.forget = forget
        self.note: Note | None = None  # what happens to values of these files whenever they were read

    def check(self) -> None:
        """Raise StoreError if the folder is another by now, or if one of its files is: all are looked at."""
        self.check_listing()
        names = os.fsdecode(self.files.names.tobytes()).split("\0")[:-1]
        seen = np.zeros((len(names), 5), np.int64)
        with readable(self.root):
            handle = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _native.stat_files(handle, names, seen)
        finally:
            os.close(handle)
        differs = (seen[:, 0] != 0) | (seen[:, 2] != self.files.sizes) | (seen[:, 4] != self.files.mtimes)
        if differs.any():
            first, count = int(differs.argmax()), int(differs.sum())
            others = f" (the first of {count:,})" if count > 1 else ""
            words = self.what_changed(int(self.bounds[first + 1]), int(self.files.sizes[first])) or "a file was changed"
            raise StoreError(f"{self.path}: {words}{others}")

    def read(self, start: int, stop: int) -> NDArray[np.uint8]:
        """A copy."""
        check_range(self.path, start, stop, self.size)
        files = ListedFiles([self])
        span = Spans(files.buffers, np.zeros(1, np.int32), np.array([start]), np.array([stop - start]))
        there, status = files.fetch(span).wait()
        if status is not None:
            reason = files.failure(span) or "one of its files cannot be read: try again"
            raise StoreError(f"{self.path}: {reason}")
        view = there.view(0)
        view.setflags(write=False)
        return view

    def release(self) -> None:
        """Nothing is kept."""

    def parts(self, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """
        Return what to read for these spans, rows for ``_native.read_parts`` whose last column is 0, and the span that
        each belongs to: one row for each file that a span touches.
        """
        bounds, stops = self.bounds, starts + sizes
        first = np.searchsorted(bounds, starts, side="right") - 1
        first = np.where(sizes > 0, first, 0)
        last = np.where(sizes > 0, np.searchsorted(bounds, stops, side="left") - 1, 0)
        owner = np.arange(len(starts))
        if (first != last).any():
            counts = last - first + 1
            owner = np.repeat(owner, counts)
            first = first[owner] + numbers_within(counts)
        begins = np.maximum(starts[owner], bounds[first])
        is_file = first > 0
        rows = np.zeros((len(owner), 6), np.int64)
        rows[:, 0] = np.where(is_file, self.files.name_starts[np.maximum(first - 1, 0)] if is_file.any() else 0, _KEPT)
        rows[:, 1] = begins - bounds[first]
        rows[:, 2] = np.minimum(stops[owner], bounds[first + 1]) - begins
        rows[:, 3] = bounds[first + 1] - bounds[first]
        if is_file.any():
            rows[is_file, 4] = self.files.mtimes[first[is_file] - 1]
        empty = sizes[owner] == 0
        rows[empty, 0], rows[empty, 1:3] = _KEPT, 0
        return rows, owner

    def part(self, start: int, size: int) -> NDArray[np.int64] | None:
        """
        Return what ``parts`` does for one span that lies within one file, ``(1, 6)``; None for others.

        A sample that is asked for alone waits for little else than this, which takes a tenth of the time.
        """
        number = int(self.bounds.searchsorted(start, side="right")) - 1
        if number < 1 or size <= 0 or number > len(self.files.sizes):
            return None
        begin, file_size = int(self.bounds[number]), int(self.files.sizes[number - 1])
        if start - begin + size > file_size:
            return None
        name, mtime = int(self.files.name_starts[number - 1]), int(self.files.mtimes[number - 1])
        return np.array([[name, start - begin, size, file_size, mtime, 0]], np.int64)

    def place_of(self, start: int) -> tuple[str, int]:
        """Return the file that a value begins in, and where in it; of kept bytes, the folder."""
        number = min(int(np.searchsorted(self.bounds, start, side="right")) - 1, len(self.files.sizes))
        if number == 0:
            return self.path, start
        return f"{self.root}/{self.files.name(number - 1)}", start - int(self.bounds[number])

    def what_changed(self, start: int, size: int) -> str | None:
        """Return what is wrong with the files of this span at the moment, in words; None if all are as listed."""
        rows, _ = self.parts(np.array([start]), np.array([size]))
        for row in rows[rows[:, 0] != _KEPT].tolist():
            name = self.files.name(int(np.searchsorted(self.files.name_starts, row[0])))
            try:
                status = Path(self.root, name).stat()
            except OSError as exc:
                self.forget()
                return f"{name!r} is no longer as it was indexed ({exc.strerror}): open {self.path} again"
            if (status.st_size, status.st_mtime_ns) != (row[3], row[4]):
                self.forget()
                sizes = f"{status.st_size:,} bytes" + (f", was {row[3]:,}" if status.st_size != row[3] else "")
                return f"{name!r} was changed since it was indexed ({sizes}): open {self.path} again"
        return None


class ListedFiles:
    """The files of one listed folder, or of several, whose values are copied into memory; see StoreFiles."""

    in_place = False
    threads = 4  # of which each waits for one file at a time
    holds = False
    ahead_bytes = AHEAD_BYTES
    chunk_bytes = CHUNK_BYTES

    def __init__(self, sources: Sequence[ListedFolder]) -> None:
        self.opens = Opens(self.threads)
        self._sources = sources
        self._note = sources[0].note if len(sources) == 1 else None
        self.buffers = _native.Buffers([source.size for source in sources])

    def fetch(
        self,
        spans: Spans,
        *,
        pool: _native.ThreadPool | None = None,
        ring: _native.BufferRing | None = None,
        is_near: bool = False,
    ) -> _Fetched:
        """Begin to read the spans into memory."""
        if len(spans) == 1 and len(self._sources) == 1 and spans.shard[0] == 0:
            row = self._sources[0].part(int(spans.starts[0]), int(spans.sizes[0]))
            if row is not None:
                return self._fetch_one(spans, row, pool, ring)
        total = max(1, int(spans.sizes.sum()))
        out = np.empty(total, np.uint8) if ring is None else ring.acquire(total)
        places = np.cumsum(spans.sizes) - spans.sizes
        reads = []
        for source, positions in self._by_source(spans):
            rows, owner = source.parts(spans.starts[positions], spans.sizes[positions])
            # Parts of one span lie one behind the other.
            is_first = np.diff(owner, prepend=-1) != 0
            before = np.cumsum(rows[:, 2]) - rows[:, 2]
            rows[:, 5] = before - before[is_first][np.cumsum(is_first) - 1] + places[positions][owner]
            status, errno = np.zeros(len(rows), np.int32), np.zeros(len(rows), np.int32)
            spent_ns = np.zeros(len(rows), np.int64)
            root, files = os.fsencode(source.root), source.files
            job = _native.read_parts(root, files.names, files.kept, rows, out, status, errno, spent_ns, pool)
            opened = len(rows) if len(distinct(rows[:, 0])) == len(rows) else 0
            reads.append(_Read(job, status, positions[owner], spent_ns, opened))
        memory = _native.Buffers([out] * len(self._sources))
        there = Spans(memory, spans.shard, places, spans.sizes, spans.checksums, spans.intervals)
        return _Fetched(there, reads, self.opens, self._note, pool)

    def _fetch_one(
        self,
        spans: Spans,
        row: NDArray[np.int64],
        pool: _native.ThreadPool | None,
        ring: _native.BufferRing | None,
    ) -> _Fetched:
        """Begin to read one span, which is all or a part of one file."""
        source, total = self._sources[0], int(row[0, 2])
        out = np.empty(total, np.uint8) if ring is None else ring.acquire(total)
        status, errno, spent_ns = np.zeros(1, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int64)
        files = source.files
        job = _native.read_parts(
            os.fsencode(source.root), files.names, files.kept, row, out, status, errno, spent_ns, pool
        )
        place = np.zeros(1, np.int64)
        there = Spans(_native.Buffers([out]), spans.shard, place, spans.sizes, spans.checksums, spans.intervals)
        return _Fetched(there, [_Read(job, status, place, spent_ns, 1)], self.opens, self._note, pool)

    def read_ahead(
        self, spans: Spans, *, pool: _native.ThreadPool | None = None, comes_again: bool = False
    ) -> Prefetch:
        """Have the kernel begin to read the files of these spans."""
        jobs = []
        for source, positions in self._by_source(spans):
            rows, _ = source.parts(spans.starts[positions], spans.sizes[positions])
            files = source.files
            jobs.append(_native.advise_parts(os.fsencode(source.root), files.names, files.kept, rows, pool))
        return jobs[0] if len(jobs) == 1 else JointPrefetch(jobs)

    def failure(self, spans: Spans) -> str | None:
        """Return which file of these spans is not what was listed, and why."""
        for shard, start, size in zip(spans.shard.tolist(), spans.starts.tolist(), spans.sizes.tolist(), strict=True):
            words: str | None = self._sources[shard].what_changed(start, size)
            if words is not None:
                return words
        return None

    def close(self) -> None:
        """Nothing is held."""

    def _by_source(self, spans: Spans) -> list[tuple[ListedFolder, NDArray[np.int64]]]:
        """Return the positions of the spans of each folder. Raises IndexError for a span that leaves its folder."""
        shard, starts, sizes = spans.shard, spans.starts, spans.sizes
        limits = np.array([source.size for source in self._sources], np.int64)
        inside = (shard >= 0) & (shard < len(limits)) & (starts >= 0) & (sizes >= 0)
        inside &= sizes <= limits[np.where(inside, shard, 0)] - starts
        if not inside.all():
            at = int(np.flatnonzero(~inside)[0])
            raise IndexError(f"{sizes[at]} bytes from {starts[at]} of file {shard[at]}")
        if len(self._sources) == 1:
            return [(self._sources[0], np.arange(len(spans)))] if len(spans) else []
        return [(self._sources[number], np.flatnonzero(shard == number)) for number in distinct(shard).tolist()]


@dataclass(frozen=True, slots=True)
class _Read:
    """
    Parts of files on their way: ``status`` of each, and the position of the span that it belongs to. ``opened`` is how
    many files are opened for them; 0 if some hold several, which stay open from one to the next.
    """

    job: _native.Job
    status: NDArray[np.int32]
    owner: NDArray[np.int64]
    spent_ns: NDArray[np.int64]
    opened: int


@dataclass(frozen=True, slots=True)
class _Fetched:
    """Spans that native threads are reading; see Fetched."""

    spans: Spans
    reads: Sequence[_Read]
    opens: Opens
    note: Note | None
    pool: _native.ThreadPool | None

    def wait(self) -> tuple[Spans, NDArray[np.int32] | None]:
        """See Fetched."""
        begun = time.perf_counter()
        for read in self.reads:
            read.job.wait()
        waited_s = time.perf_counter() - begun
        for read in self.reads:
            if read.opened:
                self.opens.add(read.opened, float(read.spent_ns.sum()) / 1e9, waited_s)
                waited_s = 0.0
        if not any(read.status.any() for read in self.reads):
            return self.spans if self.note is None else self.note(self.spans, self.pool), None
        status = np.full(len(self.spans), _native.OK, np.int32)
        for read in self.reads:
            np.maximum.at(status, read.owner, read.status)
        # What could not be read is not decoded.
        return replace(self.spans, sizes=np.where(status == _native.OK, self.spans.sizes, 0)), status
