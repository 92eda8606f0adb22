"""How long an amount of data takes over each link, by published rates and by rates measured here."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

__all__ = [
    "LINKS",
    "BusRate",
    "has_cuda",
    "measure_bus",
    "measured_links",
]


_COPY_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Link:
    """A link and its bytes per second; ``is_measured`` says whether that was measured on this machine."""

    name: str
    bytes_per_s: float
    is_measured: bool = False

    def seconds(self, size_bytes: float) -> float:
        """Return how long ``size_bytes`` take over it."""
        return size_bytes / self.bytes_per_s


# The rates that a course on training performance publishes, in bytes. Its SATA row confuses gigabits with gigabytes:
# 6 Gb/s are 0.6 GB/s after 8b/10b coding.
LINKS = (
    Link("NVLink", 40e9),
    Link("PCIe", 30e9),
    Link("network, 56 Gb/s", 6.8e9),
    Link("PCIe x8", 5e9),
    Link("NVMe drive", 3e9),
    Link("network, 10 Gb/s", 1e9),
    Link("SATA, 6 Gb/s", 0.6e9),
    Link("disk", 0.15e9),
)


def measured_links(path: str | Path, *, size_bytes: int = 256 << 20) -> list[Link]:
    """Measure the disk under ``path`` (read cold and in order, if possible), memory, and a CUDA device's bus."""
    from fastio.measure.machine.disk import measure_disk

    links = [Link("memory, copied by one thread", _copy_rate(), is_measured=True)]
    report = measure_disk(path, size_bytes=size_bytes, files=16, reads=64)
    if report.sequential_bytes_per_s is not None:
        links.append(Link(f"disk under {path}, cold", report.sequential_bytes_per_s, is_measured=True))
    if has_cuda():
        best = max(measure_bus(), key=lambda rate: rate.bytes_per_s)
        links.append(Link(f"host to device, {best.memory}", best.bytes_per_s, is_measured=True))
    return links


def _copy_rate() -> float:
    """Return the best of five copies: other programs only make it slower."""
    source = np.ones(_COPY_BYTES, np.uint8)
    target = np.empty_like(source)
    best = 0.0
    for _ in range(5):
        begun = time.perf_counter()
        np.copyto(target, source)
        best = max(best, _COPY_BYTES / (time.perf_counter() - begun))
    return best


# Measures the bus to a CUDA device, from pinned and from pageable memory, in both directions.

Direction = Literal["host to device", "device to host"]
Memory = Literal["pinned", "pageable"]

_SIZES = (64 << 10, 1 << 20, 16 << 20, 256 << 20)
_REPEATS = 10


@dataclass(frozen=True, slots=True)
class BusRate:
    """Copies of ``size_bytes`` between host memory and the device: the median rate of ten, and their spread."""

    direction: Direction
    memory: Memory
    size_bytes: int
    bytes_per_s: float
    slowest_bytes_per_s: float
    fastest_bytes_per_s: float


def has_cuda() -> bool:
    """Return whether there is a CUDA device to copy to."""
    return torch.cuda.is_available()


def measure_bus(sizes: tuple[int, ...] = _SIZES) -> list[BusRate]:
    """Copy to and from the current CUDA device, timed by events on its stream."""
    return [
        _rate(direction, memory, size_bytes)
        for direction in get_args(Direction)
        for memory in get_args(Memory)
        for size_bytes in sizes
    ]


def _rate(direction: Direction, memory: Memory, size_bytes: int) -> BusRate:
    host = torch.ones(size_bytes, dtype=torch.uint8, device="cpu", pin_memory=memory == "pinned")
    device = torch.empty(size_bytes, dtype=torch.uint8, device="cuda")
    source, target = (host, device) if direction == "host to device" else (device, host)
    # The first copy maps memory and does not count.
    rates = [size_bytes / _copy_s(source, target) for _ in range(_REPEATS + 1)][1:]
    return BusRate(direction, memory, size_bytes, statistics.median(rates), min(rates), max(rates))


def _copy_s(source: torch.Tensor, target: torch.Tensor) -> float:
    begun, ended = _event(), _event()
    begun.record()
    target.copy_(source, non_blocking=True)
    ended.record()
    ended.synchronize()
    return float(begun.elapsed_time(ended)) / 1e3


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call] # torch's annotations end here
