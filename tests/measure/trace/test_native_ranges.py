"""Native threads in a profiler's trace: there, on its clock, on lines of their own, and in no row of the breakdown."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fastio import FastLoader, _native
from fastio.measure.trace.native_ranges import NATIVE, add_native_ranges, record_native_ranges, recorded_native_ranges
from fastio.measure.trace.profiler import TraceRecorder
from fastio.measure.trace.trace import read_trace
from fastio.measure.trace.training import Schedule


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
