"""Memory curves: from planted events, thinned with their peaks, and as torch's profiler counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile, schedule

from fastio.measure.trace.memory_curve import memory_curves
from fastio.measure.trace.trace import read_trace


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


def test_as_torch_counts(tmp_path: Path) -> None:
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
