"""Traces that are too large lose whole steps from the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fastio.measure.trace.trace import read_trace
from fastio.measure.trace.trace_size import shorten_trace


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
