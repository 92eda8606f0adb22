"""The bandwidth table, and copies to a device where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fastio.measure.machine.bandwidth import LINKS, has_cuda, measure_bus, measured_links

PETABYTE = 1e15
HOUR, DAY = 3600.0, 86_400.0


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("PCIe", 9 * HOUR),
        ("NVLink", 7 * HOUR),
        ("PCIe x8", 2.3 * DAY),
        ("network, 56 Gb/s", 1.7 * DAY),
        ("network, 10 Gb/s", 11.6 * DAY),
        ("SATA, 6 Gb/s", 19.3 * DAY),
    ],
)
def test_a_petabyte_takes_what_is_published(name: str, seconds: float) -> None:
    """The course's table, its SATA row corrected."""
    link = next(link for link in LINKS if link.name == name)

    assert seconds == pytest.approx(link.seconds(PETABYTE), rel=0.03)
    assert not link.is_measured


def test_measured_links(tmp_path: Path) -> None:
    """Memory always, the disk where it can be read cold; each with a rate."""
    links = measured_links(tmp_path, size_bytes=4 << 20)

    assert links[0].name.startswith("memory")
    assert all(link.is_measured and link.bytes_per_s > 0 for link in links)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_bus() -> None:
    """Both directions from both kinds of memory."""
    rates = measure_bus(sizes=(1 << 20,))

    assert has_cuda()
    assert len(rates) == 4
    assert all(0 < rate.slowest_bytes_per_s <= rate.bytes_per_s <= rate.fastest_bytes_per_s for rate in rates)
