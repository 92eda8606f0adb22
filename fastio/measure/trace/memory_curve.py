"""How much memory torch's allocators had allocated at each moment of a trace, by device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["MemoryCurve", "memory_curves"]

_POINTS = 1000  # points of a curve: more cannot be seen
_CPU = 0
_DEVICES = {_CPU: "cpu", 1: "cuda", 6: "hip", 12: "xpu", 13: "mps"}  # c10::DeviceType


@dataclass(frozen=True, slots=True)
class MemoryCurve:
    """
    One device's memory in bytes; ``times_us`` count from the start of the first profiled step, and may be negative.

    Figures of a CUDA device cover torch's whole caching allocator. For the CPU, only what was allocated since
    recording began is known, and nothing is reserved (None). In long traces, each stretch of time keeps the moment
    with the most memory, so the peaks are exact.
    """

    device: str
    peak_allocated_bytes: int
    peak_reserved_bytes: int | None
    times_us: list[float]
    allocated_bytes: list[int]
    reserved_bytes: list[int] | None


def memory_curves(events: Iterable[Mapping[str, Any]], start_us: float) -> tuple[MemoryCurve, ...]:
    """Return the curves of a trace's events by device; none if the trace was recorded without ``profile_memory``."""
    by_device: dict[tuple[int, int], list[tuple[float, int, int]]] = defaultdict(list)
    for event in events:
        arguments = event.get("args", {})
        if event.get("name") == "[memory]" and "Total Allocated" in arguments:
            device = int(arguments.get("Device Type", _CPU)), int(arguments.get("Device Id", -1))
            by_device[device].append(
                (float(event["ts"]) - start_us, arguments["Total Allocated"], arguments.get("Total Reserved", 0))
            )
    return tuple(_curve(device, sorted(points)) for device, points in sorted(by_device.items()))


def _curve(device: tuple[int, int], points: list[tuple[float, int, int]]) -> MemoryCurve:
    kind, index = device
    name = _DEVICES.get(kind, f"device type {kind}")
    times, allocated, reserved = (np.array(column) for column in zip(*points, strict=True))
    kept = _kept(allocated)
    return MemoryCurve(
        device=name if kind == _CPU else f"{name}:{max(index, 0)}",
        peak_allocated_bytes=int(allocated.max()),
        peak_reserved_bytes=None if kind == _CPU else int(reserved.max()),
        times_us=times[kept].tolist(),
        allocated_bytes=allocated[kept].tolist(),
        reserved_bytes=None if kind == _CPU else reserved[kept].tolist(),
    )


def _kept(allocated: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return, for each of at most that many equal runs of entries, the entry with the largest value."""
    if len(allocated) <= _POINTS:
        return np.arange(len(allocated))
    edges = np.linspace(0, len(allocated), _POINTS + 1).astype(np.int64)
    return np.array([start + allocated[start:stop].argmax() for start, stop in pairwise(edges)])
