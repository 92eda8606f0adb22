"""The monitor: its figures make sense, a process is followed with its children."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from fastio.errors import FastioError
from fastio.measure.machine.monitor import Monitor, _busy_percents


def test_the_machine() -> None:
    """CPUs, memory and rates are within their bounds."""
    with Monitor() as monitor:
        sample = monitor.sample()
    assert sample is not None

    assert len(sample.cpu_percents) == psutil.cpu_count()
    assert 0 <= sample.cpu_percent <= 100
    assert 0 < sample.memory_used_bytes < sample.memory_total_bytes
    assert min(sample.disk_read_bytes_per_s, sample.disk_written_bytes_per_s, sample.own_cpu_percent) >= 0
    assert sample.process is None
    assert "psutil" in monitor.sources[0]


def test_the_first_sample_of_another_thread() -> None:
    """Who samples needs not be who made the monitor: a thread that computes keeps a CPU busy in its first sample."""
    seen: list[float] = []

    def sample(monitor: Monitor) -> None:
        ends = time.process_time() + 0.05
        while time.process_time() < ends:
            pass
        found = monitor.sample()
        seen.append(0.0 if found is None else max(found.cpu_percents))

    with Monitor() as monitor:
        thread = threading.Thread(target=sample, args=(monitor,))
        thread.start()
        thread.join()

    assert seen[0] > 0


def test_a_cpu_is_busy_while_it_does_not_wait() -> None:
    """Work over all time; a CPU that was not there before, or whose clock stood still, was idle."""
    last = ((10.0, 20.0), (5.0, 5.0))
    now = ((11.0, 24.0), (5.0, 5.0), (1.0, 9.0))

    assert (75.0, 0.0, 0.0) == _busy_percents(last, now)


def test_a_process_and_its_children() -> None:
    """This process with a child of its own, whose memory counts; a thread's child is one too."""
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child,
        Monitor(os.getpid()) as monitor,
    ):
        sample = monitor.sample()
        child.communicate(b"\n")
    assert sample is not None
    assert sample.process is not None

    assert sample.process.pid == os.getpid()
    assert sample.process.processes >= 2
    assert sample.process.rss_bytes > 1 << 20


def test_a_process_and_its_disk(tmp_path: Path) -> None:
    """What a process writes to a disk is its own; what nobody may know of another's is None."""
    with Monitor(os.getpid()) as monitor:
        with (tmp_path / "written").open("wb") as file:
            file.write(bytes(1 << 20))
            os.fsync(file.fileno())
        sample = monitor.sample()
    assert sample is not None
    assert sample.process is not None

    on_disk = subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True, check=True)
    if on_disk.stdout.strip() == "tmpfs":
        pytest.skip("the test's folder lies in memory")
    assert sample.process.disk_written_bytes_per_s
    assert sample.process.disk_written_bytes_per_s * sample.seconds >= 1 << 20


def test_what_the_kernel_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a process's I/O is not to be read, its CPU time still is."""

    def denied(process: psutil.Process) -> None:
        raise psutil.AccessDenied(process.pid)

    monkeypatch.setattr(psutil.Process, "io_counters", denied)
    with Monitor(os.getpid()) as monitor:
        sample = monitor.sample()
    assert sample is not None
    assert sample.process is not None

    assert sample.process.disk_read_bytes_per_s is None
    assert sample.process.cpu_percent >= 0


def test_used_cpu_is_seen() -> None:
    """A process that computes has a CPU time above zero."""
    with Monitor(os.getpid()) as monitor:
        begun = psutil.Process().cpu_times().user
        while psutil.Process().cpu_times().user < begun + 0.05:
            sum(range(10_000))
        sample = monitor.sample()
    assert sample is not None
    assert sample.process is not None

    assert sample.process.cpu_percent > 0


def test_the_end_of_a_process_is_the_end() -> None:
    """No sample after it has ended, as a zombie or for good; none to begin with is an error."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with Monitor(child.pid) as monitor:
        assert child.stdin is not None
        child.stdin.close()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert monitor.sample() is None
        child.wait()
        assert monitor.sample() is None
    with pytest.raises(FastioError, match="no such process"):
        Monitor(child.pid)
