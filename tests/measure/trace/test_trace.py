"""The trace reader: its rows against a plain count, its totals against torch's, verdicts from planted traces."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from fastio import FastLoader
from fastio.errors import FastioError
from fastio.measure import verdict
from fastio.measure.loop.verdict import Bound
from fastio.measure.trace import trace
from fastio.measure.trace.trace import ROWS, OperatorTime, memory_curves, read_trace
from fastio.measure.trace.training import Schedule
from tests.warm_python import WarmPython

Planted = tuple[str, str, float, float]  # category, name, start, duration

LOADER = "enumerate(DataLoader)#x"


def write(path: Path, events: list[Planted], *, steps: tuple[float, ...] = (0, 100), rank: int = 3) -> Path:
    """A trace of these events, with steps between these times."""
    marks = [
        ("user_annotation", f"ProfilerStep#{number}", start, stop - start)
        for number, (start, stop) in enumerate(pairwise(steps))
    ]
    said: dict[str, Any] = {
        "distributedInfo": {"rank": rank},
        "traceEvents": [
            {"ph": "X", "cat": category, "name": name, "ts": start, "dur": duration, "pid": 1, "tid": category}
            for category, name, start, duration in [*marks, *events]
        ],
    }
    said["traceEvents"].append({"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": 1})
    path.write_text(json.dumps(said))
    return path


def test_each_moment_belongs_to_one_row(tmp_path: Path) -> None:
    """Overlaps go to the first in the order of the courses; what nothing covers is Other."""
    found = read_trace(
        write(
            tmp_path / "t.json",
            [
                ("user_annotation", LOADER, 0, 30),
                ("cpu_op", "aten::empty", 10, 5),
                ("cpu_op", "aten::mm", 30, 40),
                ("cuda_runtime", "cudaLaunchKernel", 35, 5),
                ("kernel", "ampere_fp16_s16816gemm", 38, 30),
                ("kernel", "ncclDevKernel_AllReduce", 60, 12),
                ("gpu_memcpy", "Memcpy HtoD", 20, 4),
                ("gpu_memset", "Memset", 90, 2),
                ("kernel", "of the step after", 150, 10),
            ],
        )
    )

    assert found.rows_us == {
        "Kernel": 22,
        "Memcpy": 4,
        "Memset": 2,
        "Communication": 12,
        "Runtime": 3,
        "DataLoader": 26,
        "CPU Exec": 5,
        "Other": 26,
    }
    assert (found.total_us, found.steps, found.rank) == (100, 1, 3)
    assert (found.idle_us, found.compute_us, found.non_compute_us) == (60, 30, 10)
    assert found.tensor_core_share == pytest.approx(30 / 42)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cpu_op", "python_function"]),
            st.sampled_from(["a", "ncclDevKernel", "cudaDeviceSynchronize"]),
            st.integers(-20, 120),
            st.integers(0, 60),
        ),
        max_size=12,
    )
)
@settings(max_examples=60)
def test_rows_equal_a_plain_count(events: list[Planted]) -> None:
    """Moment after moment, looked at one by one, gives the same rows."""
    in_steps = [event for event in events if event[2] < 100 and event[2] + event[3] > 0]
    made = [
        {"ph": "X", "cat": category, "name": name, "ts": start, "dur": duration}
        for category, name, start, duration in in_steps
    ]
    owner = np.full(100, len(trace._PRIORITY))
    for event in made:
        row = trace._row_of(event)
        if row is not None:
            moments = slice(max(0, event["ts"]), max(0, event["ts"] + event["dur"]))
            owner[moments] = np.minimum(owner[moments], trace._PRIORITY.index(row))
    rows = trace._rows(trace._by_row(made, (0, 100)), 100)

    assert [*(int((owner == number).sum()) for number in range(len(trace._PRIORITY) + 1))] == [
        rows[name] for name in (*trace._PRIORITY, "Other")
    ]


CASES: list[tuple[Bound, list[Planted]]] = [
    ("io_bound", [("user_annotation", LOADER, 0, 94.2), ("cpu_op", "aten::mm", 94.2, 5), ("kernel", "k", 95, 4.94)]),
    (
        "compute_bound",
        [("user_annotation", LOADER, 0, 0.23), ("cpu_op", "aten::mm", 1, 20), ("kernel", "k", 10, 86.84)],
    ),
    ("launch_bound", [("cpu_op", "aten::mm", 0, 77), *(("kernel", "k", start, 1.0) for start in range(10, 16))]),
    (
        "sync_bound",
        [
            ("cpu_op", "aten::mm", 0, 40),
            ("kernel", "k", 35, 45),
            ("cpu_op", "aten::item", 40, 55),
            ("cuda_runtime", "cudaStreamSynchronize", 41, 54),
        ],
    ),
    (
        "compute_bound",  # a host that is far ahead waits long, and it does no harm
        [("cpu_op", "aten::mm", 0, 10), ("kernel", "k", 1, 98), ("cuda_runtime", "cudaDeviceSynchronize", 11, 88)],
    ),
    ("balanced", [("user_annotation", LOADER, 0, 5), ("cpu_op", "aten::mm", 5, 95)]),
]


@pytest.mark.parametrize(("bound", "events"), CASES)
def test_verdicts_from_traces(bound: Bound, events: list[Planted], tmp_path: Path) -> None:
    """Traces built like the published cases, and with planted faults, get their names."""
    assert bound == verdict(shares=read_trace(write(tmp_path / "t.json", events)).shares).bound


# In a process of its own: after thousands of other tests, torch 2.13 recursed without end where it joined stacks.
PROFILED = """
import json, sys
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

wait, warmup, active, repeat, steps, with_stack = map(int, sys.argv[1:])
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters())
cycles = []

def keep(recorder):
    recorder.export_chrome_trace(f"{len(cycles)}.json")
    averages = recorder.key_averages()
    cycles.append({each.key: (each.count, each.cpu_time_total, each.self_cpu_time_total) for each in averages})

recorder = profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=wait, warmup=warmup, active=active, repeat=repeat),
    on_trace_ready=keep,
    with_stack=bool(with_stack),
)
with recorder:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(16, 64)).sum().backward()
        optimizer.step()
        recorder.step()
with open("cycles", "w") as file:
    json.dump(cycles, file)
"""


@pytest.mark.parametrize("plan", [Schedule(1, 1, 5, 1), Schedule(1, 1, 3, 2), Schedule(10, 10, 10), Schedule(10, 3, 3)])
@pytest.mark.parametrize("with_stack", [False, True])
def test_totals_by_the_courses_schedules(
    plan: Schedule, with_stack: bool, tmp_path: Path, warm_torch: WarmPython
) -> None:
    """Each operator's own and total time and its calls as torch sums them, in every cycle, within 1 %."""
    numbers = (plan.wait, plan.warmup, plan.active, plan.repeat, plan.steps, int(with_stack))
    done = warm_torch.run(PROFILED, *map(str, numbers), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    cycles = json.loads((tmp_path / "cycles").read_text())

    assert len(cycles) == plan.repeat
    for number, theirs in enumerate(cycles):
        found = read_trace(tmp_path / f"{number}.json")
        assert found.steps == len(found.per_step) == plan.active
        assert 0 < sum(step.total_us for step in found.per_step) <= found.total_us
        for ours in found.operators:
            calls, total_us, self_us = theirs[ours.name]
            assert ours.calls == calls, ours.name
            assert ours.total_us == pytest.approx(total_us, rel=0.01, abs=0.02 * ours.calls)
            assert ours.self_us == pytest.approx(self_us, rel=0.01, abs=0.02 * ours.calls)
        total = sum(each.total_us for each in found.operators)
        assert total == pytest.approx(sum(theirs[each.name][1] for each in found.operators), rel=0.01)


def test_totals_are_torchs(tmp_path: Path, png_stores: dict[str, Path]) -> None:
    """Own and total time of every operator as key_averages() has them, within 1 %; the loader's wait is a row."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 3))
    optimizer = torch.optim.SGD(model.parameters())
    recorder = profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=1, active=3, repeat=1))
    with FastLoader(png_stores["lmdb"], 10) as loader, recorder as recorded:
        for images, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images.float()), labels).backward()
            optimizer.step()
            recorded.step()
    recorded.export_chrome_trace(str(tmp_path / "t.json.gz"))
    found = read_trace(tmp_path / "t.json.gz")
    ours = {operator.name: operator for operator in found.operators}
    theirs = {each.key: each for each in recorded.key_averages() if each.key.startswith("aten::")}

    assert sum(each.self_cpu_time_total for each in theirs.values()) == pytest.approx(
        sum(ours[name].self_us for name in theirs), rel=0.01
    )
    assert all(ours[name].calls == each.count for name, each in theirs.items())
    assert 0 < found.rows_us["DataLoader"] < found.total_us
    assert sum(found.rows_us.values()) == pytest.approx(found.total_us)
    assert (found.steps, found.idle_us, tuple(found.rows_us)) == (3, None, ROWS)


def test_own_time_is_without_what_was_called(tmp_path: Path) -> None:
    """Nested operators share the time of the outermost one; other threads have their own."""
    events: list[Planted] = [("cpu_op", "a", 0, 50), ("cpu_op", "b", 10, 20), ("cpu_op", "c", 12, 10)]
    found = {each.name: each for each in read_trace(write(tmp_path / "t.json", events)).operators}

    assert (found["a"].self_us, found["a"].total_us) == (30, 50)
    assert (found["b"].self_us, found["b"].total_us, found["b"].calls) == (10, 20, 1)


def test_overloads_are_one_call(tmp_path: Path) -> None:
    """An operator whose only work is another one of its name was called once; with other work they are two."""
    events: list[Planted] = [
        ("cpu_op", "sum", 0, 10),
        ("cpu_op", "sum", 1, 8),
        ("cpu_op", "sum", 20, 10),
        ("cpu_op", "fill", 21, 1),
        ("cpu_op", "sum", 23, 5),
    ]
    found = {each.name: each for each in read_trace(write(tmp_path / "t.json", events)).operators}

    assert (found["sum"].calls, found["sum"].total_us, found["sum"].self_us) == (3, 25, 19)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"\x1f\x8bnothing", gzip.compress(b"[1]", mtime=0), b'{"traceEvents": 3}']
)
def test_what_is_no_trace(data: bytes, tmp_path: Path) -> None:
    """Any other file is an error that names it."""
    (tmp_path / "x.json").write_bytes(data)
    with pytest.raises(FastioError, match=r"x\.json: not a trace"):
        read_trace(tmp_path / "x.json")


def test_a_trace_without_steps(tmp_path: Path) -> None:
    """Without marks there is no step to break down."""
    with pytest.raises(FastioError, match=r"prof\.step"):
        read_trace(write(tmp_path / "t.json", [("cpu_op", "a", 0, 1)], steps=()))


# Floating point operations from shapes: as torch counts them, and what it leaves out by the sizes themselves.

OPERATIONS: list[tuple[str, str, Callable[[], object]]] = [
    ("aten::mm", "aten::mm", lambda: torch.ones(3, 4) @ torch.ones(4, 5)),
    ("aten::bmm", "aten::bmm", lambda: torch.ones(2, 3, 4) @ torch.ones(2, 4, 5)),
    ("aten::addmm", "aten::addmm", lambda: nn.functional.linear(torch.ones(3, 4), torch.ones(5, 4), torch.ones(5))),
    ("aten::baddbmm", "aten::baddbmm", lambda: torch.baddbmm(torch.ones(2, 3, 5), *_pair())),
    ("aten::convolution", "aten::conv2d", lambda: _convolved(2, 1, 2, 1)),
    ("aten::convolution", "aten::conv2d", lambda: _convolved(1, 0, 1, 2)),
]


def _pair() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(2, 3, 4), torch.ones(2, 4, 5)


def _convolved(stride: int, padding: int, dilation: int, groups: int) -> torch.Tensor:
    weights = torch.ones(6, 4 // groups, 3, 5)
    return nn.functional.conv2d(torch.ones(2, 4, 17, 18), weights, None, stride, padding, dilation, groups)


def recorded(work: Callable[[], object], path: Path) -> tuple[dict[str, OperatorTime], dict[str, int]]:
    """The operators of a trace, and torch's own counts by name."""
    recorder = profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_flops=True)
    with recorder, record_function("ProfilerStep#1"):
        work()
    recorder.export_chrome_trace(str(path))
    theirs = {each.key: each.flops for each in recorder.key_averages()}
    return {each.name: each for each in read_trace(path).operators}, theirs


@pytest.mark.parametrize(("ours", "theirs", "work"), OPERATIONS)
def test_flops_are_those_that_torch_counts(ours: str, theirs: str, work: Callable[[], object], tmp_path: Path) -> None:
    """The same number as with_flops, which knows these."""
    found, counts = recorded(work, tmp_path / "t.json")

    assert found[ours].flops == counts[theirs] > 0


def test_what_torch_leaves_out(tmp_path: Path) -> None:
    """Each gradient of a convolution takes what going forward took; a transposed one counts its inputs' places."""
    images = torch.ones(2, 4, 9, 9, requires_grad=True)
    weights = torch.ones(6, 4, 3, 3, requires_grad=True)
    forward = 2 * 2 * 49 * 6 * 4 * 9

    found, _ = recorded(lambda: nn.functional.conv2d(images, weights).sum().backward(), tmp_path / "a.json")
    assert (found["aten::convolution"].flops, found["aten::convolution_backward"].flops) == (forward, 2 * forward)
    found, _ = recorded(lambda: nn.functional.conv2d(images.detach(), weights).sum().backward(), tmp_path / "b.json")
    assert found["aten::convolution_backward"].flops == forward
    found, _ = recorded(lambda: nn.functional.conv_transpose2d(images, torch.ones(4, 6, 3, 3)), tmp_path / "c.json")
    assert found["aten::convolution"].flops == 2 * 2 * 81 * 4 * 6 * 9


def test_others_have_none(tmp_path: Path) -> None:
    """Operators without a formula, and traces without shapes."""
    found, _ = recorded(lambda: torch.ones(3).exp(), tmp_path / "t.json")
    assert found["aten::exp"].flops is None


# Memory curves: from planted events, thinned with their peaks, and as torch's profiler counts.


def event(ts: float, allocated: int, *, reserved: int = 0, kind: int = 0, device: int = -1) -> dict[str, Any]:
    """A change of memory as torch writes it."""
    said = {"Total Allocated": allocated, "Total Reserved": reserved, "Device Type": kind, "Device Id": device}
    return {"ph": "i", "name": "[memory]", "ts": ts, "args": said}


def test_each_device_has_its_curve() -> None:
    """Sorted by time from the first step on; the CPU reserves nothing."""
    events = [
        event(30, 5),
        event(20, 7),
        event(25, 100, reserved=400, kind=1, device=1),
        event(35, 50, reserved=500, kind=1, device=1),
        {"ph": "X", "name": "aten::mm", "ts": 1},
    ]
    cpu, cuda = memory_curves(events, 10)

    assert (cpu.device, cpu.peak_allocated_bytes, cpu.peak_reserved_bytes) == ("cpu", 7, None)
    assert (cpu.times_us, cpu.allocated_bytes, cpu.reserved_bytes) == ([10, 20], [7, 5], None)
    assert (cuda.device, cuda.peak_allocated_bytes, cuda.peak_reserved_bytes) == ("cuda:1", 100, 500)
    assert cuda.reserved_bytes == [400, 500]


def test_long_curves_keep_their_peaks() -> None:
    """A hundred thousand changes become a thousand points, and the highest of them is one."""
    allocated = np.random.default_rng(3).integers(0, 10**9, 100_000).tolist()
    (curve,) = memory_curves([event(ts, size) for ts, size in enumerate(allocated)], 0)

    assert len(curve.times_us) == 1000
    assert max(curve.allocated_bytes) == curve.peak_allocated_bytes == max(allocated)
    assert curve.times_us == sorted(curve.times_us)
    assert all(allocated[int(ts)] == size for ts, size in zip(curve.times_us, curve.allocated_bytes, strict=True))


def test_memory_is_what_torch_counts(tmp_path: Path) -> None:
    """Eight megabytes that live through a step are seen, and go away again."""
    plan = schedule(wait=0, warmup=1, active=2, repeat=1)
    recorder = profile(activities=[ProfilerActivity.CPU], schedule=plan, profile_memory=True)
    with recorder as recorded:
        for _ in range(3):
            held = torch.empty(8_000_000, dtype=torch.uint8)
            torch.ones(1000) + 1
            del held
            recorded.step()
    recorded.export_chrome_trace(str(tmp_path / "t.json"))
    (curve,) = read_trace(tmp_path / "t.json").memory

    assert 8_000_000 <= curve.peak_allocated_bytes < 9_000_000
    assert curve.allocated_bytes[-1] < 1_000_000
