"""Stderr while a profiler starts and stops: only the lines of its work, and of a GPU that is not there, are missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastio.measure.trace.kineto_lines import without_kineto_lines
from fastio.measure.trace.profiler import TraceRecorder
from fastio.measure.trace.training import Schedule

START = b"USDT:2026-11-21 10:10:26 17076:17076 SyncActivityProfilerHandler.cpp:52] profiler_start\n"
ERROR = b"ERROR:2026-11-21 10:10:26 17076:17076 CuptiActivityProfiler.cpp:52] no CUPTI\n"


def test_all_others_are_let_through(capfd: pytest.CaptureFixture[str]) -> None:
    """Errors of the profiler and words of the user come out in their order, an unfinished line too."""
    with without_kineto_lines():
        os.write(2, START)
        sys.stderr.write("mine\n")
        os.write(2, ERROR + START.replace(b"start", b"stop") + b"no end")

    assert b"mine\n" + ERROR + b"no end" == capfd.readouterr().err.encode()


@pytest.mark.parametrize(("code", "is_hidden"), [(35, True), (100, True), (2, False), (350, False)])
def test_no_gpu_is_no_error(code: int, is_hidden: bool, capfd: pytest.CaptureFixture[str]) -> None:
    """That there is no driver or no GPU is nothing new to who trains on a CPU; other errors of CUDA are."""
    line = f"ERROR:2026-11-21 10:10:26 1:1 DeviceProperties.cpp:56] gpuGetDeviceCount failed with code {code}\n"
    with without_kineto_lines():
        os.write(2, line.encode())

    assert ("" if is_hidden else line) == capfd.readouterr().err


def test_words_before_an_exception(capfd: pytest.CaptureFixture[str]) -> None:
    """What was written comes out, and the exception goes on."""

    @without_kineto_lines()
    def fails() -> None:
        os.write(2, b"a reason\n")
        divmod(1, 0)

    with pytest.raises(ZeroDivisionError):
        fails()

    assert capfd.readouterr().err == "a reason\n"


def test_stderr_comes_back(capfd: pytest.CaptureFixture[str]) -> None:
    """No descriptor is left, and later words are not held."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    with without_kineto_lines():
        pass
    os.write(2, START)

    assert before == len(list(Path("/proc/self/fd").iterdir()))
    assert START == capfd.readouterr().err.encode()


def test_without_stderr() -> None:
    """A process whose stderr is closed goes on as without this."""
    code = (
        "import os\nfrom fastio.measure.trace.kineto_lines import without_kineto_lines\n"
        "os.close(2)\nwith without_kineto_lines():\n    print('well')"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)

    assert ran.stdout == b"well\n"


def test_a_recording_says_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """torch.profiler runs without a line on the terminal."""
    recorder = TraceRecorder(Schedule(0, 1, 1, 2), tmp_path / "t.json")
    with recorder:
        assert [False, False, False, False, True] == [recorder.step(done) for done in range(1, 6)]

    assert capfd.readouterr().err == ""
