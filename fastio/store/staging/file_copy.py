"""FileCopy: one file on its way into a folder, block by block, and the threads or downloads that bring the blocks."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fastio._native import ThreadPool, checksum, crc32
from fastio.errors import StoreCorrupt, StoreError, StoreIncomplete
from fastio.store.files import ByteSource, files_of, open_file
from fastio.store.files.fetch import fetch_pieces
from fastio.store.files.local import is_local
from fastio.store.files.remote.client import RequestFailed
from fastio.store.files.remote.disk import POLL_S, Claim, DiskObject, Range
from fastio.store.files.remote.loaders import RangeLoader
from fastio.store.files.remote.local_copy import WantedRanges
from fastio.store.files.remote.remote_source import RemoteSource
from fastio.store.files.remote.request_threads import (
    ByteRange,
    Download,
    DownloadThread,
    InFlight,
    Need,
    end_requests,
)
from fastio.store.formats import FORMATS
from fastio.store.index.seal import find_seal, unsealed_regions
from fastio.store.index.sealed import bytes_from, read_shard
from fastio.store.staging.plan import CopyContent, SampleSpans, StagedFile
from fastio.store.write.atomic import sync_folder, writing
from fastio.types.spans import Spans

__all__ = [
    "BLOCK_BYTES",
    "DownloadMover",
    "FileCopy",
    "Mover",
    "StageStopped",
    "ThreadMover",
    "damage_of",
    "hidden_copy",
    "hidden_files",
    "is_copy",
]


BLOCK_BYTES = 16 << 20
_CLAIM_S = 60.0  # that one who fetches some of a block, or writes to it, is waited for
_READ_BYTES = 2 << 20  # of a local file at a time: more costs more memory, and no less time


def _nothing() -> None:
    pass


class FileCopy:
    """
    The copy of one file, hidden until ``publish`` gives it its name. Any process may read what is there, and add to it.

    A block is brought by ``copy``, or by whoever has its ``claim`` and writes its ``gaps``. Threads may bring different
    blocks at once. Errors of the folder's disk are StoreErrors that name the copy; what is there stays for the next
    attempt.
    """

    def __init__(self, file: StagedFile, folder: Path) -> None:
        self.file = file
        self.path = folder / file.name
        self.fetched_bytes = 0
        self._turn = threading.Lock()
        self._step = _READ_BYTES if is_local(file.source.path) else BLOCK_BYTES
        self._disk = hidden_copy(self.path, file.content, makes=True)
        self.partial = self._disk.path
        with writing(str(self.path)):
            self._disk.make()

    @property
    def blocks(self) -> Sequence[Range]:
        """Start and stop of each block."""
        size = self.file.source.size
        return [(start, min(start + BLOCK_BYTES, size)) for start in range(0, max(size, 1), BLOCK_BYTES)]

    def copy(self, block: int) -> None:
        """
        Bring a block, unless it is there.

        Raises StoreError if the source cannot be read or was replaced, or the folder's disk is full.
        """
        claim = self.claim(block, time.sleep)
        try:
            for first, last in self.gaps(block):
                for at in range(first, last, self._step):
                    self.write(at, self.file.source.read(at, min(at + self._step, last)))
        finally:
            claim.release()

    def claim(self, block: int, pause: Callable[[float], None]) -> Claim:
        """Wait until nobody else fetches some of a block, as long as that may take."""
        deadline = time.monotonic() + _CLAIM_S
        while True:
            claim = self._disk.claim(*self.blocks[block])
            if claim is not None or time.monotonic() > deadline:
                return claim or Claim(-1)
            pause(POLL_S)

    def gaps(self, block: int) -> list[Range]:
        """Return what is missing of a block; what is there has its CRC-32."""
        with writing(str(self.path)):
            return self._disk.gaps(*self.blocks[block])

    def write(self, start: int, data: Any) -> None:
        """Write bytes that were fetched."""
        with self._turn, writing(str(self.path)):  # threads wait here, and processes look again and again
            self.fetched_bytes += self._disk.write(start, data)

    def check(self, pool: ThreadPool | None = None, progressed: Callable[[], None] = _nothing) -> None:
        """
        Compare every sample and the whole file with their CRC-32. What differs is brought once more. Nobody else writes
        to the copy from now on.

        ``progressed`` is called after each piece. Raises StoreCorrupt if it differs again, and StoreError if the source
        was replaced.
        """
        with writing(str(self.path)):
            self._disk.hold(_CLAIM_S)
        self.file.source.check()
        problem, spans = damage_of(self.partial, self.file, pool, progressed)
        if problem is None:
            return
        for block, (start, stop) in enumerate(self.blocks):
            if not spans or any(first < stop and last > start for first, last in spans):
                self._disk.drop(start, stop)
                self.copy(block)
        problem, _ = damage_of(self.partial, self.file, pool, progressed)
        if problem is not None:
            raise StoreCorrupt(
                f"{self.file.source.path}: arrived twice with other bytes than were packed ({problem}): the source is "
                "damaged: check it by fastio verify, or pack again"
            )

    def publish(self) -> None:
        """Sync the copy and give it its name, for good; what has the name is replaced."""
        with writing(str(self.path)):
            fd = os.open(self.partial, os.O_RDWR | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
            self.partial.rename(self.path)
            sync_folder(self.path.parent)
            self._disk.record.unlink(missing_ok=True)

    def close(self) -> None:
        """Let others write again; twice does no harm."""
        self._disk.release()
        self.file.source.release()


def hidden_copy(path: Path, content: CopyContent, *, makes: bool = False) -> DiskObject:
    """Return what is there of the copy of ``path`` until it has its name."""
    partial, record, _ = hidden_files(path)
    return DiskObject(partial, record, size=content.size, content=f"{content.file_crc:08x}", makes=makes)


def hidden_files(path: Path) -> tuple[Path, Path, Path]:
    """Return where the copy of ``path`` lies until it has its name, its record, and what 0.1 wrote as that."""
    partial, record, former = (path.with_name(f".{path.name}.{kind}") for kind in ("partial", "ranges", "blocks"))
    return partial, record, former


def is_copy(path: Path, content: CopyContent) -> bool:
    """Whether a file is there that was sealed with the same content; only its size and seal are read."""
    try:
        found = open_file(str(path), "pread")
    except StoreError:
        return False
    try:
        if found.size != content.size or content.seal_at is None:
            return False
        seal = find_seal(found.path, found.size, partial(bytes_from, found), content.seal_at)
        return seal.file_crc == content.file_crc
    except StoreError:
        return False
    finally:
        found.release()


def damage_of(
    path: Path, file: StagedFile, pool: ThreadPool | None = None, progressed: Callable[[], None] = _nothing
) -> tuple[str | None, list[tuple[int, int]]]:
    """
    Compare every sample of a copy, and all of it, with their CRC-32.

    Returns what is wrong with it, or None; and the bytes that are, if it is samples. Raises StoreError if it cannot be
    read.
    """
    copy = open_file(str(path), "pread")
    try:
        return _damage(copy, file, pool, progressed)
    finally:
        copy.release()


def _damage(
    copy: ByteSource, file: StagedFile, pool: ThreadPool | None, progressed: Callable[[], None]
) -> tuple[str | None, list[tuple[int, int]]]:
    try:
        by_field = _own_spans(copy, file) if file.spans is None else file.spans
        bad = [span for spans in by_field for span in _bad_spans(copy, spans, pool, progressed)]
        if bad:
            return f"{len(bad)} samples, e.g. at bytes {bad[0][0]} to {bad[0][1]}", bad
        crc = file.file_crc if file.seal_at is None else _whole_crc(copy, file, progressed)
    except (StoreCorrupt, StoreIncomplete) as exc:  # the seal, the index, or a span outside
        return str(exc).removeprefix(f"{copy.path}: "), []
    if crc != file.file_crc:
        return f"expected CRC-32 {file.file_crc:08x} of the file, got {crc:08x}", []
    return None, []


def _own_spans(copy: ByteSource, file: StagedFile) -> list[SampleSpans]:
    """By the index in the file itself."""
    shard = read_shard(copy, format_name=file.format, seal_at=FORMATS[file.format].seal_at)
    return [
        SampleSpans(shard.starts[name].copy(), shard.sizes[name].copy(), checksums)
        for name, checksums in shard.checksums.items()
    ]


def _bad_spans(
    copy: ByteSource, spans: SampleSpans, pool: ThreadPool | None, progressed: Callable[[], None]
) -> Iterator[tuple[int, int]]:
    files, count = files_of([copy]), len(spans.starts)
    starts, sizes = np.ascontiguousarray(spans.starts), np.ascontiguousarray(spans.sizes)
    asked = Spans(files.buffers, np.zeros(count, np.int32), starts, sizes)
    for part, values, unread in fetch_pieces(files, asked, piece_bytes=_READ_BYTES):
        sums = np.empty(len(values), np.uint32)
        checksum(values, sums, pool).wait()
        progressed()
        bad = sums != spans.checksums[part]
        if unread is not None:
            bad |= unread != 0
        for i in np.flatnonzero(bad).tolist():
            start = int(starts[part][i])
            yield start, start + int(sizes[part][i])


def _whole_crc(copy: ByteSource, file: StagedFile, progressed: Callable[[], None]) -> int:
    """The CRC-32 of all but the seal; that of the seal itself is checked on reading it."""
    assert file.seal_at is not None
    seal = find_seal(copy.path, copy.size, partial(bytes_from, copy), file.seal_at)
    crc = 0
    regions = unsealed_regions(file_size=seal.file_size, seal_start=seal.seal_start, head_size=seal.head_size)
    for start, stop in regions:
        for at in range(start, stop, _READ_BYTES):
            crc = crc32(copy.read(at, min(at + _READ_BYTES, stop)), crc)
            progressed()
    return crc if seal.file_crc == file.file_crc else seal.file_crc


# What brings the blocks of copies: threads that read the source, or downloads that can be stopped.

_BLOCKS = 4  # under way beside an epoch; each takes 16 MiB of memory
_STOP_S = 0.1  # until a thread that waits for an answer sees that it is to end

Finish = Callable[[FileCopy], None]
Progress = Callable[[int], None]


def _no_progress(_size_bytes: int) -> None:
    pass


class StageStopped(StoreError):  # noqa: N818 - reads as a statement
    """Nobody needs the copy any more; what is there stays."""


class Mover(Protocol):
    """Brings blocks."""

    check_threads: int  # that compare a whole copy with its checksums

    def move(self, copies: Iterable[FileCopy], finish: Finish, progress: Progress) -> None:
        """
        Bring all blocks of all copies, in order, and ``finish`` each copy once its last block is there.

        ``progress`` gets the bytes of each block. Copies that are not finished are closed when this raises.
        """
        ...


class ThreadMover:
    """Reads the source in ``jobs`` threads, a block each."""

    check_threads = 4

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs

    def move(self, copies: Iterable[FileCopy], finish: Finish, progress: Progress) -> None:
        """See Mover."""
        left: dict[FileCopy, int] = {}
        under_way: dict[Future[None], tuple[FileCopy, int]] = {}
        tasks = _tasks(copies, left)
        with ThreadPoolExecutor(self._jobs, thread_name_prefix="fastio-stage") as pool:
            try:
                while True:
                    while len(under_way) < 2 * self._jobs and (task := next(tasks, None)) is not None:
                        under_way[pool.submit(task[0].copy, task[1])] = task
                    if not under_way:
                        break
                    wait(under_way, return_when=FIRST_COMPLETED)
                    finished = [block for block in under_way if block.done()]  # in order, as wait's set is not
                    for done in sorted(finished, key=lambda block: block.exception() is not None):  # errors last
                        done.result()
                        _count(*under_way.pop(done), left, finish, progress)
            except BaseException as exc:
                if isinstance(exc, KeyboardInterrupt):
                    end_requests(pool)
                pool.shutdown(cancel_futures=True)
                _close(left)
                raise


class DownloadMover:
    """
    Downloads a few blocks at once, beside an epoch that reads the same store; before each, what the epoch ``wanted``.

    ``stop``, from another thread, ends it with StageStopped. Threads that wait for obstore could not be ended, and must
    not live on when the interpreter ends.
    """

    check_threads = 1  # the others decode

    def __init__(self) -> None:
        self.wanted: WantedRanges | None = None
        self._stopped = threading.Event()
        self._sources: list[RemoteSource] = []
        in_flight = InFlight()
        self._thread = DownloadThread(RangeLoader(self._sources, in_flight).load, in_flight)

    def move(self, copies: Iterable[FileCopy], finish: Finish, progress: Progress) -> None:
        """See Mover."""
        left: dict[FileCopy, int] = {}
        under_way: deque[_PendingBlock] = deque()
        try:
            for copy, block in _tasks(copies, left):
                self.bring_first(under_way, progress)
                under_way.append(self._begin(copy, block))
                if len(under_way) == _BLOCKS:
                    self._take(under_way, left, finish, progress)
            while under_way:
                self._take(under_way, left, finish, progress)
        except BaseException:
            for arriving in under_way:
                arriving.claim.release()
            _close(left)
            raise

    def bring_first(self, under_way: Iterable[_PendingBlock] = (), progress: Progress = _no_progress) -> None:
        """
        Have what is ``wanted`` brought into copies that lack it, whoever makes these; blocks ``under_way`` are written
        before. Copies nothing while the first batch of an epoch is waited for.
        """
        arriving = deque[Download]()
        while (wanted := self.wanted) is not None:
            download = None if wanted.is_waiting else wanted.begin_next()
            if download is None and not wanted.is_waiting:
                break
            for block in under_way:  # epochs wait for no claim meanwhile
                self._write(block)
            if download is None:
                self.pause(POLL_S)
            else:
                arriving.append(download)
            while sum(each.range.size for each in arriving) > _BLOCKS * BLOCK_BYTES:
                self._wait(arriving.popleft())
            progress(0)
        for download in arriving:
            self._wait(download)

    def stop(self) -> None:
        """End what is under way; twice does no harm."""
        self._stopped.set()
        self._thread.close()

    @property
    def is_stopped(self) -> bool:
        """Whether ``stop`` was called."""
        return self._stopped.is_set()

    def give_way(self, seconds: float) -> None:
        """Wait until the first batch of an epoch is there, at most so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and (self.wanted is None or self.wanted.is_waiting):
            self.pause(POLL_S)

    def pause(self, seconds: float) -> None:
        """Sleep, or raise StageStopped as soon as it is stopped."""
        if self._stopped.wait(seconds):
            raise StageStopped("stopped")

    def _wait(self, download: Download) -> None:
        """Wait until a range is in its copy. An object that cannot be read is left to the copying, which says so."""
        while not download.wait(_STOP_S):
            self.pause(0)
        try:
            download.result()
        except StoreError:
            self.wanted = None

    def _begin(self, copy: FileCopy, block: int) -> _PendingBlock:
        self.pause(0)
        claim = copy.claim(block, self.pause)
        try:
            missing, source = copy.gaps(block), copy.file.source
            if not isinstance(source, RemoteSource):  # a shard on this machine
                for start, stop in missing:
                    copy.write(start, source.read(start, stop))
                missing = []
            elif not self._sources or self._sources[-1] is not source:
                self._sources.append(source)
            shard = len(self._sources) - 1
            downloads = [self._thread.begin(ByteRange(shard, start, stop), Need.SOON) for start, stop in missing]
        except BaseException:
            claim.release()
            raise
        return _PendingBlock(copy, block, downloads, claim)

    def _take(
        self, under_way: deque[_PendingBlock], left: dict[FileCopy, int], finish: Finish, progress: Progress
    ) -> None:
        """Wait for the first block, and write it. Epochs wait for no claim while a whole file is checked."""
        arriving = under_way.popleft()
        self._write(arriving)
        if left[arriving.copy] == 1:
            for later in under_way:
                self._write(later)
        _count(arriving.copy, arriving.block, left, finish, progress)

    def _write(self, arriving: _PendingBlock) -> None:
        """Wait for a block, write it, and release it; twice does no harm."""
        try:
            while arriving.downloads:
                download = arriving.downloads.pop(0)
                data = download.result()
                self.pause(0)
                if isinstance(data, RequestFailed):
                    raise data
                arriving.copy.write(download.range.start, data)
        finally:
            arriving.claim.release()


@dataclass(frozen=True, slots=True)
class _PendingBlock:
    """A block on its way: the downloads of what is missing of it, until they are written."""

    copy: FileCopy
    block: int
    downloads: list[Download]
    claim: Claim


def _tasks(copies: Iterable[FileCopy], left: dict[FileCopy, int]) -> Iterator[tuple[FileCopy, int]]:
    """Every block of every file. ``left`` counts the blocks of a file from when it is opened."""
    for copy in copies:
        blocks = range(len(copy.blocks))
        left[copy] = len(blocks)
        yield from ((copy, block) for block in blocks)


def _count(copy: FileCopy, block: int, left: dict[FileCopy, int], finish: Finish, progress: Progress) -> None:
    """Count a block that is there, and finish its file if it was the last one."""
    start, stop = copy.blocks[block]
    progress(stop - start)
    left[copy] -= 1
    if left[copy] == 0:
        finish(copy)
        del left[copy]


def _close(left: Iterable[FileCopy]) -> None:
    for copy in left:
        copy.close()
