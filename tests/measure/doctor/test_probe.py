"""Looking at a thread that waits: where, for what, and that work is not taken for waiting."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fastio.measure.doctor.probe import Wait, WaitSampler
from tests.measure.doctor.planted import burn

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
LOOKS = 5


@pytest.fixture
def sampler() -> Iterator[WaitSampler]:
    """Looks at the test's own thread."""
    made = WaitSampler()
    yield made
    made.close()


def when_looked_at(sampler: WaitSampler, do: Callable[[], object]) -> threading.Thread:
    """A thread that calls ``do`` once the sampler has looked some times."""

    def run() -> None:
        while sampler.looks < LOOKS:
            os.sched_yield()
        do()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_wait_of_the_users_own_line(sampler: WaitSampler) -> None:
    """A line that waits in a C function is named as it stands."""
    lock = threading.Lock()
    lock.acquire()
    other = when_looked_at(sampler, lock.release)
    sampler.begin(test_a_wait_of_the_users_own_line.__code__)
    line = sys._getframe().f_lineno + 1
    lock.acquire()
    seen = sampler.end()
    other.join()

    # The test's own function is the root here, so that the innermost frame of all is named.
    assert {Wait(False, __file__, line, "test_a_wait_of_the_users_own_line", None)} == set(seen)


def test_a_wait_within_a_library(sampler: WaitSampler) -> None:
    """The user's line is named, and the library's function in which it waits."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert child.stdin is not None
    other = when_looked_at(sampler, child.stdin.close)

    def reads() -> None:
        child.wait()

    sampler.begin(test_a_wait_within_a_library.__code__)
    reads()
    seen = sampler.end()
    other.join()
    ((wait, _),) = seen.most_common(1)

    assert (__file__, "reads", False) == (wait.file, wait.function, wait.is_reading)
    assert str(wait.call).startswith("Popen.")


def test_work_is_no_wait(sampler: WaitSampler) -> None:
    """A thread that computes, and often has to wait for the GIL because of the looks, does not wait."""
    sampler.begin(test_work_is_no_wait.__code__)
    while sampler.looks < LOOKS:
        burn(0.001)

    assert not sampler.end()


def test_nothing_is_seen_afterwards(sampler: WaitSampler) -> None:
    """What is seen belongs to one stretch between begin and end."""
    event = threading.Event()
    other = when_looked_at(sampler, event.set)
    sampler.begin(test_nothing_is_seen_afterwards.__code__)
    event.wait()
    first = sampler.end()
    other.join()
    sampler.begin(test_nothing_is_seen_afterwards.__code__)

    assert first.total() > 0
    assert not sampler.end()
