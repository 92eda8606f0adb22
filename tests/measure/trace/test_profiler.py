"""The recorder that is torch.profiler: what it notes, how its traces are named, and that they stay in bounds."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fastio import FastLoader, _native
from fastio.measure.trace.profiler import (
    NATIVE,
    Recording,
    TraceRecorder,
    add_native_ranges,
    record_native_ranges,
    recorded_native_ranges,
    shorten_trace,
    without_kineto_lines,
)
from fastio.measure.trace.trace import read_trace
from fastio.measure.trace.training import Schedule


def run(recorder: TraceRecorder) -> TraceRecorder:
    """As many steps as it wants."""
    with recorder:
        done = 0
        while True:
            done += 1
            torch.ones(8, 8) @ torch.ones(8, 8)
            if recorder.step(done):
                return recorder


def header(path: Path) -> dict[str, Any]:
    """What a trace says of itself."""
    said: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return said


def test_what_is_noted(tmp_path: Path) -> None:
    """Memory unless it is not wanted; flops bring shapes with them; stacks on request."""
    plain = header(run(TraceRecorder(Schedule(0, 1, 1), tmp_path / "a.json.gz")).traces[0])
    assert (plain["profile_memory"], plain.get("record_shapes", 0), plain.get("with_stack", 0)) == (1, 0, 0)

    wanted = Recording(record_shapes=True, with_stack=True, profile_memory=False)
    full = header(run(TraceRecorder(Schedule(0, 1, 1), tmp_path / "b.json.gz", wanted)).traces[0])
    assert (full.get("profile_memory", 0), full["record_shapes"], full["with_stack"]) == (0, 1, 1)
    (product,) = (each for each in read_trace(tmp_path / "b.json.gz").operators if each.name == "aten::mm")
    assert product.flops == 2 * 8**3


def test_what_profiling_costs(tmp_path: Path) -> None:
    """Steps under the profiler and steps without are timed apart: the first one and those that warm up are neither."""
    recorder = run(TraceRecorder(Schedule(2, 1, 3, 2), tmp_path / "t.json"))
    cost = recorder.cost
    assert cost is not None

    assert (6, 1 + 2 + 3) == (cost.steps, cost.steps_without)
    assert cost.trace_bytes == sum(path.stat().st_size for path in recorder.traces)
    assert cost.ratio is not None
    assert cost.ratio > 0


def test_a_training_that_ends_with_its_last_profiled_step(tmp_path: Path) -> None:
    """There is nothing to compare with then."""
    recorder = TraceRecorder(Schedule(0, 1, 2), tmp_path / "t.json")
    with recorder:
        for done in range(1, 4):
            torch.ones(8, 8) @ torch.ones(8, 8)
            recorder.step(done)
    cost = recorder.cost
    assert cost is not None

    assert (2, 0, None, None) == (cost.steps, cost.steps_without, cost.step_without_s, cost.ratio)


def test_ranks_and_cycles_have_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No trace overwrites another one's."""
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    recorder = run(TraceRecorder(Schedule(0, 1, 1, 2), tmp_path / "t.json"))

    assert ["t-rank3-1.json", "t-rank3-2.json"] == [path.name for path in recorder.traces]
    assert {path.name for path in recorder.traces} == {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_a_trace_stays_in_bounds(name: str, tmp_path: Path) -> None:
    """It loses its last steps, and it is known how many."""
    recorder = run(TraceRecorder(Schedule(0, 1, 4), tmp_path / name, max_bytes=1))

    assert recorder.steps_cut == 3
    assert read_trace(recorder.traces[0]).steps == 1
    assert [name] == [path.name for path in tmp_path.iterdir()]


def test_a_training_that_fails(tmp_path: Path) -> None:
    """Its exception comes out, and another recording can begin."""
    recorder = TraceRecorder(Schedule(0, 1, 5), tmp_path / "t.json")
    with pytest.raises(ZeroDivisionError), recorder:
        divmod(1, 0)
    assert run(TraceRecorder(Schedule(0, 1, 1), tmp_path / "u.json")).traces


# Traces that are too large lose whole steps from the end.


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Four steps of 100 us with fifty operators each."""
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}]
    for step in range(4):
        mark = {"cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": 100 * step, "dur": 99}
        operators = [{"cat": "cpu_op", "name": "a", "ts": 100 * step + 2 * number, "dur": 1} for number in range(48)]
        events += [{"ph": "X", "pid": 1, "tid": 1, **event} for event in (mark, *operators)]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": events, "distributedInfo": {"rank": 2}}))
    return path


@pytest.mark.parametrize(("part", "kept"), [(1.0, 4), (0.9, 3), (0.6, 2), (0.3, 1), (0.0, 1)])
def test_last_steps_go(part: float, kept: int, trace: Path) -> None:
    """As many as needed, never the first one; the rest of the trace is as it was."""
    before = read_trace(trace)
    assert 4 - kept == shorten_trace(trace, max_bytes=int(trace.stat().st_size * part))
    found = read_trace(trace)

    assert (found.steps, found.rank, found.operators[0].calls) == (kept, 2, 48 * kept)
    assert found.per_step == before.per_step[:kept]


def test_one_step_stays(trace: Path) -> None:
    """There is nothing to cut from a single step, nor from a trace without marks."""
    shorten_trace(trace, max_bytes=0)
    assert 0 == shorten_trace(trace, max_bytes=0)

    trace.write_text('{"traceEvents": []}')
    assert 0 == shorten_trace(trace, max_bytes=0)


# Stderr while a profiler starts and stops: only the lines of its work, and of a GPU that is not there, are missing.

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
        "import os\nfrom fastio.measure.trace.profiler import without_kineto_lines\n"
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


# Native threads in a profiler's trace: there, on its clock, on lines of their own, and in no row of the breakdown.


def epochs(store: Path, count: int) -> int:
    """Samples of so many epochs, decoded by native threads."""
    with FastLoader(store, 4, threads=2) as loader:
        return sum(len(images) for _ in range(count) for images, _ in loader)


def test_every_sample_is_in_a_range(png_stores: dict[str, Path]) -> None:
    """Ranges tell what was done, of how many samples, by which thread and when; nothing is noted unless asked for."""
    epochs(png_stores["lmdb"], 1)
    assert _native.recorded_ranges() == ([], 0)
    begun_ns = time.time_ns()
    record_native_ranges()
    samples = epochs(png_stores["lmdb"], 2)
    ranges = recorded_native_ranges()
    ended_ns = time.time_ns()

    assert samples == sum(count for *_, what, count in ranges if what == "fastio.decode")
    assert all(begun_ns <= start <= stop <= ended_ns for _, start, stop, *_ in ranges)
    assert threading.get_native_id() not in {thread for thread, *_ in ranges}
    assert _native.recorded_ranges() == ([], 0)


def test_too_many_are_counted(png_stores: dict[str, Path]) -> None:
    """The list is bounded."""
    _native.record_ranges(2)
    epochs(png_stores["lmdb"], 3)
    ranges, dropped = _native.recorded_ranges()

    assert len(ranges) == 2
    assert dropped > 0


@pytest.mark.parametrize("schedule", [Schedule(1, 1, 3), Schedule(0, 1, 2, 2)])
def test_ranges_stand_in_the_trace(tmp_path: Path, png_stores: dict[str, Path], schedule: Schedule) -> None:
    """Each overlaps the profiled steps, on the clock of the trace, and has a line with a name."""
    recorder = TraceRecorder(schedule, tmp_path / "t.json")
    with recorder:
        for done in range(1, 100):
            with torch.profiler.record_function("work"):
                epochs(png_stores["lmdb"], 1)
            if recorder.step(done):
                break
    for path in recorder.traces:
        events = json.loads(path.read_text())["traceEvents"]
        ours = [event for event in events if event.get("cat") == NATIVE]
        work = [event for event in events if event["name"] == "work" and event["cat"] == "user_annotation"]
        first, last = min(each["ts"] for each in work), max(each["ts"] + each["dur"] for each in work)
        names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}

        assert {"fastio.decode"} <= {event["name"] for event in ours}
        # Two clocks of one machine, of which one was set by the other some time ago.
        assert all(first - 1e3 <= event["ts"] <= event["ts"] + event["dur"] <= last + 1e3 for event in ours)
        assert all(names[event["tid"]].startswith("fastio native") for event in ours)
        assert {os.getpid()} == {event["pid"] for event in ours}


def test_the_breakdown_is_undisturbed(tmp_path: Path) -> None:
    """The eight rows and the operators are the same with native ranges and without."""
    path = tmp_path / "t.json"
    recorder = TraceRecorder(Schedule(0, 1, 2), path)
    with recorder:
        for done in range(1, 10):
            torch.ones(64, 64) @ torch.ones(64, 64)
            if recorder.step(done):
                break
    before = read_trace(path)
    now_ns = time.time_ns()
    add_native_ranges(path, [(77, now_ns - 10**9, now_ns, "fastio.decode", 3)])

    assert before == replace(read_trace(path), path=str(path))
    assert NATIVE in path.read_text()


def test_an_empty_trace(tmp_path: Path) -> None:
    """Without other events, and without the key that newer traces have."""
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [ ]}')
    add_native_ranges(path, [(7, 2_000, 5_000, "fastio.decode", 3)])

    (name, event) = json.loads(path.read_text())["traceEvents"]
    assert (7, "M") == (name["tid"], name["ph"])
    assert (2.0, 3.0, {"samples": 3}) == (event["ts"], event["dur"], event["args"])
