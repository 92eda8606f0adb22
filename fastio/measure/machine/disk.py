"""Measures a file system: sequential, random and small-file reads, from the disk and from the page cache."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np

from fastio.errors import FastioError
from fastio.machine.system import advise_order, drop_cached
from fastio.measure.machine.disk_kind import DiskKind, disk_kind

__all__ = ["EXPECTED_DISK", "EXPECTED_NVME", "DiskReport", "ReadRate", "expected_rate", "measure_disk"]

Cache = Literal["cold", "warm"]

# Bytes per second that a course on training performance expects of disks and of NVMe drives, read in order.
EXPECTED_DISK = 150e6
EXPECTED_NVME = 3000e6

_MIB = 1 << 20
_SEED = 20_240_417
_SMALL_BYTES = 4096
_THREADS = 16  # concurrent reads, in the rows that have more than one
_SEQUENTIAL = "sequential 4 MiB"


@dataclass(frozen=True, slots=True)
class ReadRate:
    """
    One way of reading.

    ``cache`` says where the bytes were: "cold" (on the disk) or "warm" (in the page cache). Latencies, in seconds,
    are of one read, or of opening, reading and closing one small file.
    """

    access: str
    cache: Cache
    threads: int
    reads: int
    bytes_per_s: float
    reads_per_s: float
    p50_s: float
    p99_s: float
    max_s: float


@dataclass(frozen=True, slots=True)
class DiskReport:
    """
    ``write_bytes_per_s`` includes fsync; without ``can_drop``, the kernel kept the pages and nothing was cold.

    ``kind`` is None if the kernel does not tell what is under the path.
    """

    path: str
    size_bytes: int
    files: int
    write_bytes_per_s: float
    can_drop: bool
    rates: tuple[ReadRate, ...]
    kind: DiskKind | None = None

    @property
    def sequential_bytes_per_s(self) -> float | None:
        """The best cold sequential rate, which the courses' figures refer to; None if nothing was read cold."""
        cold = (rate.bytes_per_s for rate in self.rates if (rate.access, rate.cache) == (_SEQUENTIAL, "cold"))
        return max(cold, default=None)


def expected_rate(kind: DiskKind | None) -> float | None:
    """Return the sequential rate that the course expects of this kind of disk; None if the kind is unknown."""
    if kind is None:
        return None
    return EXPECTED_NVME if kind == "nvme" else EXPECTED_DISK


def measure_disk(path: str | Path, *, size_bytes: int = 1 << 30, files: int = 2000, reads: int = 2000) -> DiskReport:
    """
    Write one file of ``size_bytes`` and ``files`` small ones into a new folder below ``path``, and read them.

    For cold reads, pages are dropped by ``posix_fadvise``, which needs no privileges; whether they are gone is
    checked. Names and inodes stay cached, so cold small files miss only their contents. Everything is removed again.
    Raises FastioError unless twice the space is free.
    """
    if size_bytes < 4 * _MIB:
        raise FastioError(f"size {size_bytes} B: at least 4 MiB are needed for a sequential read")
    free = shutil.disk_usage(path).free
    if free < 2 * size_bytes:
        raise FastioError(f"{path}: {free:,} B are free, but the test needs {2 * size_bytes:,}: pass a smaller --size")
    with TemporaryDirectory(prefix=".fastio-disk-", dir=path) as folder:
        big = Path(folder) / "big"
        written = _write_big(big, size_bytes)
        small = _write_small(Path(folder) / "small", files)
        can_drop = drop_cached(big) and _is_cold(big)
        rates = list(_rates(big, small, size_bytes, reads, caches=("cold", "warm") if can_drop else ("warm",)))
    return DiskReport(str(path), size_bytes, files, written, can_drop, tuple(rates), disk_kind(path))


def _rates(big: Path, small: list[Path], size_bytes: int, reads: int, *, caches: Sequence[Cache]) -> Iterator[ReadRate]:
    generator = random.Random(_SEED)
    blocks = [(start, 4 * _MIB) for start in range(0, size_bytes - 4 * _MIB + 1, 4 * _MIB)]
    pages = [(generator.randrange(size_bytes // 4096) * 4096, 4096) for _ in range(reads)]
    chunks = [(generator.randrange(size_bytes // 131_072) * 131_072, 131_072) for _ in range(max(1, reads // 4))]
    ways = (
        (_SEQUENTIAL, 1, blocks),
        (_SEQUENTIAL, _THREADS, blocks),
        ("random 128 KiB", 1, chunks),
        ("random 128 KiB", _THREADS, chunks),
        ("random 4 KiB", 1, pages),
        ("random 4 KiB", _THREADS, pages),
    )
    for access, threads, places in ways:
        for cache in _worth_it(caches, threads):
            with _opened(big, sequential=access.startswith("seq")) as descriptor:
                _prepare([big], cache)
                yield _measured(access, cache, threads, [partial(_read, descriptor, *span) for span in places])
    for threads in (1, _THREADS):
        for cache in _worth_it(caches, threads):
            _prepare(small, cache)
            yield _measured(
                f"files of {_SMALL_BYTES >> 10} KiB",
                cache,
                threads,
                [partial(_read_file, file) for file in small],
            )


def _worth_it(caches: Sequence[Cache], threads: int) -> Sequence[Cache]:
    """Return whether a row is worth measuring: warm reads by several threads would only show Python's lock."""
    return caches if threads == 1 else caches[:1]


Read = Callable[[], int]  # reads once, returns the number of bytes


def _measured(access: str, cache: Cache, threads: int, reads: Sequence[Read]) -> ReadRate:
    def timed(part: Sequence[Read]) -> tuple[int, list[float]]:
        size, latencies = 0, []
        for read in part:
            begun = time.perf_counter()
            size += read()
            latencies.append(time.perf_counter() - begun)
        return size, latencies

    begun = time.perf_counter()
    if threads == 1:
        parts = [timed(reads)]
    else:
        with ThreadPoolExecutor(threads) as pool:
            parts = list(pool.map(timed, [reads[first::threads] for first in range(threads)]))
    seconds = time.perf_counter() - begun
    latencies = [latency for _, part in parts for latency in part]
    p50, p99 = np.percentile(latencies, (50, 99)).tolist()
    size = sum(size for size, _ in parts)
    return ReadRate(access, cache, threads, len(reads), size / seconds, len(reads) / seconds, p50, p99, max(latencies))


def _write_big(path: Path, size_bytes: int) -> float:
    """Return the bytes per second written, including fsync. The bytes are random, because some drives compress."""
    block = np.random.default_rng(_SEED).bytes(4 * _MIB)
    begun = time.perf_counter()
    with path.open("wb") as file:
        for start in range(0, size_bytes, len(block)):
            file.write(block[: size_bytes - start])
        file.flush()
        os.fsync(file.fileno())
    return size_bytes / (time.perf_counter() - begun)


def _write_small(folder: Path, files: int) -> list[Path]:
    folder.mkdir()
    data = np.random.default_rng(_SEED).bytes(_SMALL_BYTES)
    paths = [folder / f"{number:06d}" for number in range(files)]
    for path in paths:
        path.write_bytes(data)
    random.Random(_SEED).shuffle(paths)
    return paths


def _prepare(paths: Sequence[Path], cache: Cache) -> None:
    for path in paths:
        if cache == "cold":
            drop_cached(path)
        else:
            with path.open("rb") as file:
                while file.read(4 * _MIB):
                    pass


def _is_cold(path: Path) -> bool:
    """Return whether fewer than one page in ten is in memory, by ``mincore``."""
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapping:
        pages = np.zeros(-(-len(mapping) // mmap.PAGESIZE), np.uint8)
        view = np.frombuffer(mapping, np.uint8)
        where = ctypes.c_void_p(view.ctypes.data), ctypes.c_size_t(len(mapping)), ctypes.c_void_p(pages.ctypes.data)
        failed = libc.mincore(*where)
        del view  # otherwise, the mapping could not be closed
    if failed:
        raise OSError(ctypes.get_errno(), "mincore failed", str(path))
    return float((pages & 1).mean()) < 0.1


@contextmanager
def _opened(path: Path, *, sequential: bool) -> Iterator[int]:
    """Return a descriptor with the read-ahead of this kind of access: none for random positions."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        advise_order(descriptor, sequential=sequential)
        yield descriptor
    finally:
        os.close(descriptor)


def _read(descriptor: int, start: int, size: int) -> int:
    return len(os.pread(descriptor, size, start))


def _read_file(path: Path) -> int:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return len(os.read(descriptor, _SMALL_BYTES))
    finally:
        os.close(descriptor)
