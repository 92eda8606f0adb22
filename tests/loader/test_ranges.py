"""Named ranges: nothing where nobody looks, torch's where its profiler runs, NVTX where that was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from fastio import FastLoader
from fastio.loader.ranges import COPY, NVTX, TRANSFORM, WAIT, named_range, wants_nvtx
from fastio.transforms import ChannelsLast
from tests.loader.device.slow_lane import SlowLane


def test_nothing() -> None:
    """Without a profiler all ranges are the same nothing."""
    assert named_range(WAIT) is named_range(COPY)


def test_profiler(png_stores: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's profiler sees waiting, copying and transforms of each batch."""
    monkeypatch.setattr("fastio.loader.wiring.lane_to", lambda device: SlowLane())
    loader = FastLoader(png_stores["lmdb"], 10, device="cuda", transforms=[ChannelsLast()], pin_memory=False)
    with profile(activities=[ProfilerActivity.CPU]) as seen, loader:
        batches = len(list(loader))
    counts = {event.key: event.count for event in seen.key_averages()}

    assert [batches] * 3 == [counts[name] for name in (WAIT, COPY, TRANSFORM)]


def test_nvtx(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where NVTX was asked for, ranges are NVTX's."""
    names: list[str] = []

    @contextmanager
    def noted(name: str) -> Iterator[None]:
        names.append(name)
        yield

    monkeypatch.setattr("fastio.loader.ranges._nvtx", True)
    monkeypatch.setattr(torch.cuda.nvtx, "range", noted)
    with named_range(WAIT):
        pass

    assert [WAIT] == names


@pytest.mark.parametrize(("value", "gpu", "expected"), [("1", True, True), ("0", True, False), ("1", False, False)])
def test_switch(value: str, gpu: bool, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """FASTIO_NVTX=1 asks for them, and without a GPU there are none."""
    monkeypatch.setenv(NVTX, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)

    assert expected is wants_nvtx()
