"""Pools, jobs and buffer rings from Python: lifetimes, forks, bounds."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fastio import _native
from fastio._native import BufferRing, Buffers, Job, ThreadPool
from fastio.types.spans import Spans
from tests.forking import in_fork


class Rows:
    """A gather of ``count`` rows, and where it goes."""

    def __init__(self, count: int, row_bytes: int = 100) -> None:
        self.data = np.random.default_rng(0).integers(0, 256, (count, row_bytes), np.uint8)
        self.out = np.zeros_like(self.data)
        self.status = np.full(count, -1, np.int32)

    def begin(self, pool: ThreadPool | None) -> Job:
        count, row_bytes = self.data.shape
        starts = np.arange(count, dtype=np.int64) * row_bytes
        sizes = np.full(count, row_bytes, np.int64)
        return _native.gather(Spans.of(self.data.reshape(-1), starts, sizes), self.out, self.status, pool)

    def check(self) -> None:
        assert not self.status.any()
        np.testing.assert_array_equal(self.data, self.out)


@pytest.mark.parametrize("count", [0, 1, 2, 255, 1000])
def test_jobs_in_flight(count: int) -> None:
    """Several jobs at once each do all of their rows."""
    pool = ThreadPool(2)
    batches = [Rows(count) for _ in range(5)]
    jobs = [batch.begin(pool) for batch in batches]
    assert all(job.wait() for job in jobs)
    for batch in batches:
        batch.check()


def test_without_a_pool_the_job_is_done() -> None:
    """pool=None works in the calling thread."""
    batch = Rows(10)
    assert batch.begin(None).done
    batch.check()


def test_a_job_keeps_its_memory() -> None:
    """Inputs and outputs may be dropped while a job runs; they go when it has been waited for."""
    pool = ThreadPool(1)
    batch = Rows(5000)
    out = weakref.ref(batch.out)
    job = batch.begin(pool)
    del batch
    gc.collect()
    assert job.wait()
    gc.collect()
    assert out() is None


def test_a_dropped_job_is_safe() -> None:
    """A job that nobody waits for is cancelled, and the pool goes on."""
    pool = ThreadPool(2)
    for _ in range(50):
        Rows(2000).begin(pool)
    last = Rows(10)
    last.begin(pool).wait()
    last.check()


def test_cancel() -> None:
    """A cancelled job ends; rows not begun keep their status."""
    pool = ThreadPool(1)
    jobs = [Rows(3000).begin(pool) for _ in range(20)]
    for job in jobs:
        job.cancel()
    assert all(job.wait() for job in jobs)


def test_a_closed_pool_refuses() -> None:
    """close() finishes what runs, twice does no harm, and nothing new begins."""
    pool = ThreadPool(2)
    batch = Rows(1000)
    job = batch.begin(pool)
    pool.close()
    pool.close()
    assert job.done
    batch.check()
    with pytest.raises(RuntimeError, match="closed"):
        Rows(1).begin(pool)


def test_threads_leave() -> None:
    """A pool's threads are gone with it."""
    before = len(list(Path("/proc/self/task").iterdir()))
    for _ in range(20):
        pool = ThreadPool(3)
        Rows(10).begin(pool).wait()
        pool.close()
    assert before == len(list(Path("/proc/self/task").iterdir()))


def test_a_pool_starts_anew_in_a_child() -> None:
    """The pool works on both sides of a fork, also when it was busy."""
    pool = ThreadPool(2)
    busy = [Rows(2000) for _ in range(10)]
    jobs = [batch.begin(pool) for batch in busy]

    def check() -> None:
        batch = Rows(500)
        assert batch.begin(pool).wait(30)
        batch.check()

    assert in_fork(check) == 0
    assert all(job.wait() for job in jobs)
    for batch in busy:
        batch.check()


def test_a_job_of_the_parent_is_refused_in_a_child() -> None:
    """Waiting in the child for a job begun before the fork is an error, not a hang; dropping it is safe."""
    pool = ThreadPool(1)
    jobs = [Rows(20000, 1000).begin(pool) for _ in range(3)]

    def check() -> None:
        if not jobs[-1].done:
            with pytest.raises(RuntimeError, match="fork"):
                jobs[-1].wait()
        jobs[-1].cancel()
        jobs.clear()

    assert in_fork(check) == 0
    assert all(job.wait() for job in jobs)


def test_many_threads_share_a_pool() -> None:
    """Python threads may submit to one pool at the same time."""
    pool = ThreadPool(2)
    batches = [Rows(300) for _ in range(8)]

    def work(batch: Rows) -> None:
        for _ in range(20):
            batch.begin(pool).wait()

    threads = [threading.Thread(target=work, args=(batch,)) for batch in batches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for batch in batches:
        batch.check()


def test_views_stay_inside() -> None:
    """A view shares memory, is read-only, and raises IndexError beyond its buffer."""
    data = np.arange(10, dtype=np.uint8)
    buffers = Buffers([data, data[:0]])
    view = buffers.view(0, 2, 3)
    assert (len(buffers), view.tolist(), view.flags.writeable) == (2, [2, 3, 4], False)
    assert np.shares_memory(view, data)
    for shard, start, size in ((0, 8, 3), (0, -1, 1), (0, 0, -1), (2, 0, 0), (-1, 0, 0), (0, 1 << 62, 1 << 62)):
        with pytest.raises(IndexError):
            buffers.view(shard, start, size)


def test_read_only_buffers_are_taken() -> None:
    """Bytes and read-only maps are good enough to read from."""
    frozen = np.frombuffer(b"abc", np.uint8)
    buffers = Buffers([frozen])
    view = buffers.view(0, 0, 3)
    del buffers, frozen
    assert view.tobytes() == b"abc"


@pytest.mark.parametrize("wrong", [np.zeros((10, 3), np.uint8), np.zeros((9, 100), np.uint8)])
def test_wrong_outputs_are_refused(wrong: NDArray[np.uint8]) -> None:
    """Another row size is a status; another number of rows is an error."""
    batch = Rows(10)
    batch.out = wrong
    if len(wrong) == 10:
        batch.begin(None)
        assert (batch.status == _native.BAD_SHAPE).all()
    else:
        with pytest.raises(ValueError, match="out has 9 entries, expected 10"):
            batch.begin(None)


def test_wrong_dtypes_are_refused() -> None:
    """Nothing is converted on the way: a status of another dtype is a TypeError."""
    batch = Rows(10)
    batch.status = batch.status.astype(np.int64)
    with pytest.raises(TypeError):
        batch.begin(None)


def test_ring_memory_comes_back_from_a_tensor() -> None:
    """A buffer is used again after the last tensor over it has died, and not before."""
    ring = BufferRing(2)
    array = ring.acquire(1000)
    address = array.ctypes.data
    assert address % 64 == 0
    tensor = torch.from_numpy(array)[10:]
    del array
    assert ring.acquire(1000).ctypes.data != address
    del tensor
    assert address in {ring.acquire(1000).ctypes.data, ring.acquire(1000).ctypes.data}


def test_ring_is_bounded() -> None:
    """Free buffers beyond ``keep`` are given back."""
    ring = BufferRing(2)
    arrays = [ring.acquire(1 << 20) for _ in range(5)]
    assert ring.allocated_bytes > 5 << 20
    arrays.clear()
    assert 2 << 20 < ring.allocated_bytes < 3 << 20


def test_ring_may_die_first() -> None:
    """An array outlives its ring."""
    array = BufferRing(1).acquire(100)
    gc.collect()
    array[:] = 7
    assert array.sum() == 700


def test_crc32_is_zlibs() -> None:
    """The same number as zlib's, in one piece and in two, small and large."""
    for size in (0, 1, 1000, 200_000):
        data = np.random.default_rng(size).bytes(size)
        assert zlib.crc32(data) == _native.crc32(data)
        assert zlib.crc32(data) == _native.crc32(memoryview(data)[size // 3 :], _native.crc32(data[: size // 3]))


def test_checksums_of_spans() -> None:
    """A batch of CRCs is that of each span."""
    data = np.random.default_rng(0).integers(0, 256, 1000, np.uint8)
    starts, sizes = np.array([0, 500, 1000], np.int64), np.array([500, 17, 0], np.int64)
    out = np.zeros(3, np.uint32)
    _native.checksum(Spans.of(data, starts, sizes), out, ThreadPool(2)).wait()
    assert out.tolist() == [zlib.crc32(data[a : a + n]) for a, n in zip(starts, sizes, strict=True)]


def test_a_daemon_thread_does_not_abort_the_end_of_the_process() -> None:
    """A thread that wants the GIL back while Python ends waits for the end, and the exit code stays 0."""
    script = """
import threading, numpy as np
from fastio import _native
values, is_running = np.arange(1 << 16), threading.Event()
def shuffle():
    while True:
        _native.shuffle(values, 0, 0)
        is_running.set()
for _ in range(4):
    threading.Thread(target=shuffle, daemon=True).start()
is_running.wait()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert (0, "") == (done.returncode, done.stderr)
