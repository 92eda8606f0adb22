"""Measures the bus to a CUDA device, from pinned and from pageable memory, in both directions."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch

__all__ = ["BusRate", "has_cuda", "measure_bus"]

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
