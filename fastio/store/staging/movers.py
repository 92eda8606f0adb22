"""What brings the blocks of copies: threads that read the source, or downloads that can be stopped."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Protocol

from fastio._native import crc32
from fastio.errors import StoreError
from fastio.store.files.remote.client import RequestFailed
from fastio.store.files.remote.download_thread import ByteRange, Download, DownloadThread
from fastio.store.files.remote.in_flight import InFlight
from fastio.store.files.remote.range_loader import RangeLoader
from fastio.store.files.remote.remote_source import RemoteSource
from fastio.store.files.remote.request_thread import end_requests
from fastio.store.staging.file_copy import FileCopy

__all__ = ["DownloadMover", "Mover", "StageStopped", "ThreadMover"]

_BLOCKS = 4  # under way beside an epoch; each takes 16 MiB of memory

Finish = Callable[[FileCopy], None]
Progress = Callable[[int], None]


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
    Downloads a few blocks at once, beside an epoch that reads the same store.

    ``stop``, from another thread, ends it with StageStopped. Threads that wait for obstore could not be ended, and must
    not live on when the interpreter ends.
    """

    check_threads = 1  # the others decode

    def __init__(self) -> None:
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
                under_way.append(self._begin(copy, block))
                if len(under_way) == _BLOCKS:
                    self._take(under_way.popleft(), left, finish, progress)
            while under_way:
                self._take(under_way.popleft(), left, finish, progress)
        except BaseException:
            _close(left)
            raise

    def stop(self) -> None:
        """End what is under way; twice does no harm."""
        self._stopped.set()
        self._thread.close()

    @property
    def is_stopped(self) -> bool:
        """Whether ``stop`` was called."""
        return self._stopped.is_set()

    def pause(self, seconds: float) -> None:
        """Sleep, or raise StageStopped as soon as it is stopped."""
        if self._stopped.wait(seconds):
            raise StageStopped("stopped")

    def _begin(self, copy: FileCopy, block: int) -> _PendingBlock:
        self.pause(0)
        missing = copy.begin(block)
        if missing is None:
            return _PendingBlock(copy, block, [], is_there=True)
        source = copy.file.source
        if not isinstance(source, RemoteSource):  # a shard on this machine
            copy.bring(block, missing)
            return _PendingBlock(copy, block, [], is_there=True)
        if not self._sources or self._sources[-1] is not source:
            self._sources.append(source)
        shard = len(self._sources) - 1
        downloads = [self._thread.begin(ByteRange(shard, start, stop), is_urgent=False) for start, stop in missing]
        return _PendingBlock(copy, block, downloads)

    def _take(self, arriving: _PendingBlock, left: dict[FileCopy, int], finish: Finish, progress: Progress) -> None:
        """Wait for a block, and write it."""
        copy, block, crc = arriving.copy, arriving.block, None
        for download in arriving.downloads:
            data = download.result()
            self.pause(0)
            if isinstance(data, RequestFailed):
                raise data
            copy.write(download.range.start, data)
            if download.range.size == arriving.size:
                crc = crc32(data)
        if not arriving.is_there:
            copy.note(block, crc)
        _count(copy, block, left, finish, progress)


@dataclass(frozen=True, slots=True)
class _PendingBlock:
    """A block on its way: the downloads of what is missing of it."""

    copy: FileCopy
    block: int
    downloads: list[Download]
    is_there: bool = False

    @property
    def size(self) -> int:
        start, stop = self.copy.blocks[self.block]
        return stop - start


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
