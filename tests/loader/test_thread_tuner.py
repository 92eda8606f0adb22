"""The number of threads, by figures made up; and that a loader's batches do not depend on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fastio import FastLoader
from fastio.loader import thread_tuner
from fastio.loader.thread_tuner import ThreadTuner, Window, threads_needed


@dataclass
class FakePool:
    """Counts what it is told."""

    threads: int = 8
    used: int = 8
    cpu_seconds: float = 0.0
    told: list[int] = field(default_factory=list)

    def use(self, threads: int) -> None:
        """As ThreadPool's."""
        self.used = threads
        self.told.append(threads)


@dataclass
class FakeLoop:
    """A training loop of ten batches a second, with figures made up."""

    tuner: ThreadTuner = field(default_factory=ThreadTuner)
    pool: FakePool = field(default_factory=FakePool)
    now_s: float = 0.0
    loading_s: float = 0.0
    batches: int = 0

    def run(self, seconds: int, *, waiting: float, busy: float) -> None:
        """It waits for this share of the time, while so many threads are busy."""
        for _ in range(seconds * 10):
            self.now_s += 0.1
            self.loading_s += waiting / 10
            self.pool.cpu_seconds += busy / 10
            self.batches += 1
            self.tuner.look(self.pool, now_s=self.now_s, loading_s=self.loading_s, batches=self.batches)


@pytest.mark.parametrize(
    ("waited_s", "busy_s", "expected"),
    [(0.0, 0.1, 1), (0.0, 0.7, 2), (0.0, 1.9, 3), (0.0, 7.5, 8), (0.01, 0.5, 1), (0.03, 0.5, 8), (0.9, 8.0, 8)],
)
def test_threads_needed(waited_s: float, busy_s: float, expected: int) -> None:
    """Those that were busy and half as many again, unless the loop waits."""
    assert threads_needed(Window(1.0, waited_s, busy_s), most=8) == expected


@given(
    wall_s=st.floats(0.1, 1e6),
    waited_s=st.floats(0, 1e6),
    busy_s=st.floats(0, 1e7),
    most=st.integers(1, 500),
)
def test_never_above_the_bound(wall_s: float, waited_s: float, busy_s: float, most: int) -> None:
    """1 to the bound, whatever was measured."""
    assert 1 <= threads_needed(Window(wall_s, waited_s, busy_s), most=most) <= most


def test_chosen_once() -> None:
    """After a second, and not again while the loop does not wait, however little is computed then."""
    loop = FakeLoop()
    loop.run(2, waiting=0.0, busy=1.5)
    loop.run(5, waiting=0.0, busy=0.2)

    assert loop.pool.told == [3]


def test_a_loop_that_waits_keeps_all() -> None:
    """A loop faster than the decoders has all threads from the first to the last."""
    loop = FakeLoop()
    loop.run(2, waiting=0.5, busy=8)
    loop.run(3, waiting=0.0, busy=0.5)

    assert loop.pool.told == [8]


def test_a_loop_that_waits_later_gets_all_back() -> None:
    """For good: a loop that changes its pace is not tuned to and fro."""
    loop = FakeLoop()
    loop.run(2, waiting=0.0, busy=0.5)
    loop.run(3, waiting=0.5, busy=1)
    loop.run(3, waiting=0.0, busy=0.5)

    assert loop.pool.told == [1, 8]


def test_a_pause_between_iterations_does_not_count() -> None:
    """A validation of ten seconds, without a batch, is no sign that few threads are enough."""
    loop = FakeLoop()
    loop.run(1, waiting=0.0, busy=8)
    loop.now_s += 10
    loop.tuner.restart()
    loop.run(2, waiting=0.0, busy=3.9)

    assert loop.pool.told == [6]


def test_few_batches_say_nothing() -> None:
    """A second with less than eight batches is too short."""
    tuner, pool = ThreadTuner(), FakePool()
    # one batch a second
    for batch in range(8):
        tuner.look(pool, now_s=batch * 1.0, loading_s=0.0, batches=batch)

    assert pool.told == []


@pytest.mark.parametrize(("threads", "expected"), [(0, 1), (4, 4)])
def test_a_loader_tunes_itself_only_when_asked(
    png_store: Path, monkeypatch: pytest.MonkeyPatch, threads: int, expected: int
) -> None:
    """threads=0 ends with the one thread that is enough here, as the stats say; a number is kept; equal batches."""
    monkeypatch.setattr("fastio.loader.options.available_cpus", lambda: 4)
    monkeypatch.setattr(thread_tuner, "_WINDOW_S", 0.0)
    monkeypatch.setattr(thread_tuner, "_WAITING", 2.0)
    monkeypatch.setattr(thread_tuner, "_HEADROOM", 0.0)
    with (
        FastLoader(png_store, 1, threads=threads, shuffle=True) as loader,
        FastLoader(png_store, 1, threads=1, shuffle=True) as other,
    ):
        assert loader.stats.threads == 4
        for (images, labels), (other_images, other_labels) in zip(loader, other, strict=True):
            assert torch.equal(images, other_images)
            assert torch.equal(labels, other_labels)
        assert loader.stats.threads == expected
