"""How long an amount of data takes over each link: by a course's published rates, and by rates measured here."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

__all__ = ["LINKS", "Link", "measured_links"]

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
    from fastio.measure.machine.bus import has_cuda, measure_bus
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
