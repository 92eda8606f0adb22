"""Measures quickly how fast files can be read in order past the page cache: the rate of a cold epoch."""

from __future__ import annotations

import errno
import mmap
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from fastio.measure.machine.disk_kind import file_system

__all__ = ["LEAST_BYTES", "UncachedRead", "read_uncached"]

LEAST_BYTES = 4 << 20  # with less, only the first read's latency would be measured

_PIECE = 1 << 20  # a multiple of any device's sector
_THREADS = 4  # concurrent pieces, as a kernel that reads ahead has them
_MOST_BYTES = 1 << 30
_IN_MEMORY = ("tmpfs", "ramfs", "hugetlbfs", "zfs")  # on these, O_DIRECT reads from memory, such as ZFS's own cache
_REFUSED = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EACCES)


@dataclass(frozen=True, slots=True)
class UncachedRead:
    """How many bytes were read past the page cache, and how long that took."""

    size_bytes: int
    seconds: float

    @property
    def bytes_per_s(self) -> float:
        """The rate."""
        return self.size_bytes / self.seconds


def read_uncached(paths: Sequence[str | Path], *, seconds: float = 0.3) -> UncachedRead | None:
    """
    Read files from their beginning, one after the other, by O_DIRECT, for ``seconds`` or up to 1 GiB.

    The page cache is neither used nor changed; a drive's or a host's own cache may be. Returns None if the file
    system cannot read this way or is in memory, or if there are less than 4 MiB.
    """
    if any(file_system(path) in _IN_MEMORY for path in paths):
        return None
    if sum(Path(path).stat().st_size for path in paths) < LEAST_BYTES:
        return None
    try:
        with ExitStack() as files:
            descriptors = []
            for path in paths:
                descriptors.append(os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC))
                files.callback(os.close, descriptors[-1])
            return _timed(descriptors, seconds)
    except OSError as exc:
        if exc.errno in _REFUSED:
            return None
        raise


def _timed(descriptors: Sequence[int], seconds: float) -> UncachedRead:
    """Read pieces in order with several threads until the time is up."""
    from concurrent.futures import ThreadPoolExecutor

    pieces, lock = _pieces(descriptors), threading.Lock()
    begun = time.perf_counter()

    def work(_: int) -> int:
        done = 0
        with mmap.mmap(-1, _PIECE) as memory:  # anonymous memory is page-aligned, as O_DIRECT requires
            while done == 0 or time.perf_counter() - begun < seconds:  # at least one piece: there must be a rate
                with lock:
                    piece = next(pieces, None)
                if piece is None:
                    break
                done += os.preadv(piece[0], [memory], piece[1])
        return done

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="fastio") as threads:
        size_bytes = sum(threads.map(work, range(_THREADS)))
    return UncachedRead(size_bytes, max(time.perf_counter() - begun, 1e-9))


def _pieces(descriptors: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield descriptor and position of each piece."""
    left = _MOST_BYTES
    for descriptor in descriptors:
        for start in range(0, min(os.fstat(descriptor).st_size, left), _PIECE):
            left -= _PIECE
            yield descriptor, start
