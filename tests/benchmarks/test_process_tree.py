"""CPU time and memory of a process and its children."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from benchmarks.process_tree import cpu_seconds, descendants, resident_mb

BUSY = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"


@pytest.fixture
def child() -> subprocess.Popen[str]:
    """A child that has used 0.3 s of CPU time and waits for a line."""
    with subprocess.Popen(
        [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_living_children_count(child: subprocess.Popen[str]) -> None:
    """Their time is counted while they live, and once only when they have ended."""
    alive = cpu_seconds() - time.process_time()
    child.communicate("\n")
    ended = cpu_seconds() - time.process_time()

    assert alive > 0.25
    assert abs(ended - alive) < 0.15


def test_children_are_found(child: subprocess.Popen[str]) -> None:
    """Of this process; a process that is gone has none."""
    assert child.pid in descendants(os.getpid())
    assert [] == descendants(2**22 + 1)


def test_memory_counts_children(child: subprocess.Popen[str]) -> None:
    """Each has some of its own."""
    assert 0 < resident_mb(child.pid) < resident_mb(os.getpid())
