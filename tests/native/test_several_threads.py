"""Several Python threads in the native module at once: with the GIL they take turns, without it they do not."""

from __future__ import annotations

import gc
import subprocess
import sys
import sysconfig
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fastio import _native
from fastio.types.spans import Spans
from tests.at_once import at_once
from tests.conftest import as_spans, encode, pictures

ROUNDS = 200


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python has a GIL")
def test_importing_leaves_the_gil_off() -> None:
    """A module that does not declare that it needs no GIL would bring it back for the whole process."""
    code = "import sys, fastio._native; print(sys._is_gil_enabled())"
    assert "False\n" == subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_a_pool_and_a_ring_are_shared() -> None:
    """Threads that decode on one pool, into memory of one ring, each get all their pixels."""
    expected = np.stack(pictures(24))
    spans = as_spans([encode(pixels) for pixels in expected])
    pool, ring = _native.ThreadPool(2), _native.BufferRing(3)

    def decode(_: int) -> bool:
        for _ in range(ROUNDS // 4):
            out, status = ring.acquire(expected.nbytes).reshape(expected.shape), np.empty(24, np.int32)
            job = _native.decode_images(spans, out, status, pool)
            job.wait()
            if status.any() or not np.array_equal(expected, out):
                return False
        return True

    assert all(at_once(decode))


def test_threads_wait_for_the_same_jobs() -> None:
    """A job that several threads wait for lets go of its arrays once."""
    rows = np.arange(4096, dtype=np.uint8).reshape(-1, 1).repeat(64, axis=1)
    spans = Spans.of(rows.reshape(-1), np.arange(4096) * 64, np.full(4096, 64))
    outs = [np.zeros_like(rows) for _ in range(ROUNDS // 4)]
    pool = _native.ThreadPool(2)
    jobs = [_native.gather(spans, out, np.empty(4096, np.int32), pool) for out in outs]

    assert all(at_once(lambda _: all(job.wait() for job in jobs)))
    assert [True] * len(outs) == [np.array_equal(rows, out) for out in outs]
    gone = [weakref.ref(out) for out in outs]
    del outs
    gc.collect()
    assert [None] * len(gone) == [ref() for ref in gone]


def test_a_new_name_is_new_to_one_thread() -> None:
    """Of the threads that insert a name, exactly one does not find it there."""
    keys = _native.KeySet()
    names = [f"name {number}".encode() for number in range(10 * ROUNDS)]

    found = at_once(lambda _: [keys.insert(name) for name in names])

    assert [1] * len(names) == [answers.count(None) for answers in zip(*found, strict=True)]


def test_counts_add_up() -> None:
    """No batch is lost that several iterations count at once."""
    counts = _native.BatchCounts()

    at_once(lambda _: [counts.count(3, 7, waited_s=0.5, first=False) for _ in range(10 * ROUNDS)])

    assert (40 * ROUNDS, 120 * ROUNDS, 40 * ROUNDS) == (counts.batches, counts.samples, sum(counts.waits))
    assert 20.0 * ROUNDS == counts.loading_s


def test_a_loop_is_for_one_thread() -> None:
    """A second thread that asks a loop for a batch is refused while the first one is at work."""
    pending = SimpleNamespace(result=lambda: None, cancel=lambda: None)
    loop: Any = _native.BatchLoop(
        iter([pending]),
        1,
        counts=_native.BatchCounts(),
        cursor=SimpleNamespace(batch=0),
        note=print,
        settle=print,
    )

    def watched() -> bool:
        at_once(lambda _: next(loop), threads=1)
        return True

    with pytest.raises(RuntimeError, match="another thread is using this loop of batches"):
        next(loop.run(9, watched))
    assert list(loop.run(9, lambda: True)) == []  # it is free again


def test_pages_take_whole_batches() -> None:
    """Threads that write pages at once add all samples of a batch or are refused, and then none."""
    pages = _native.LmdbPages([b"/a"])
    values = as_spans([bytes([number]) * 100 for number in range(50)])

    def append(_: int) -> int:
        done = 0
        for _ in range(ROUNDS // 4):
            try:
                pages.append([values])
            except RuntimeError:
                continue
            done += 1
        return done

    written = sum(at_once(append))

    pages.finish()
    starts, _ = pages.take()
    assert (50 * written, True) == (len(starts), written >= ROUNDS // 4)
