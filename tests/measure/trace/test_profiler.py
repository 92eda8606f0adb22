"""The recorder that is torch.profiler: what it notes, how its traces are named, and that they stay in bounds."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from fastio.measure.trace.profiler import Recording, TraceRecorder
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

    wanted = Recording(with_flops=True, with_stack=True, profile_memory=False)
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
