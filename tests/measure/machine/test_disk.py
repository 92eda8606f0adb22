"""bench disk: every way of reading is measured, nothing is left behind, and memory is not taken for a disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fastio.errors import FastioError
from fastio.measure.machine import disk
from fastio.measure.machine.disk import measure_disk

SIZE = 4 << 20


def test_every_access_is_measured(tmp_path: Path) -> None:
    """Each way of reading, with plausible figures; the folder is as it was."""
    report = measure_disk(tmp_path, size_bytes=SIZE, files=20, reads=40)
    caches = ("cold", "warm") if report.can_drop else ("warm",)

    assert [] == list(tmp_path.iterdir())
    assert len(report.rates) == 4 * len(caches) + 4  # one thread in each cache, several in the first
    assert {rate.access for rate in report.rates} == {
        "sequential 4 MiB",
        "random 128 KiB",
        "random 4 KiB",
        "files of 4 KiB",
    }
    assert all(0 < rate.p50_s <= rate.p99_s <= rate.max_s for rate in report.rates)
    assert all(rate.bytes_per_s > 0 and rate.threads in (1, 16) for rate in report.rates)
    assert (report.sequential_bytes_per_s is not None) == report.can_drop


def test_reads_are_complete(tmp_path: Path) -> None:
    """Rates count bytes that came: reads per second times the size of a read."""
    report = measure_disk(tmp_path, size_bytes=SIZE, files=20, reads=40)
    page = next(rate for rate in report.rates if rate.access == "random 4 KiB")

    assert page.bytes_per_s == pytest.approx(page.reads_per_s * 4096)
    assert page.reads == 40


def test_memory_is_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pages stay after they were dropped, nothing is called cold."""
    monkeypatch.setattr(disk, "_is_cold", lambda path: False)
    report = measure_disk(tmp_path, size_bytes=SIZE, files=20, reads=40)

    assert not report.can_drop
    assert {rate.cache for rate in report.rates} == {"warm"}
    assert report.sequential_bytes_per_s is None
    assert report.sequential_bytes_per_s is None


def test_a_page_just_read_is_not_cold(tmp_path: Path) -> None:
    """The check sees the page cache."""
    path = tmp_path / "warm"
    path.write_bytes(os.urandom(1 << 20))
    path.read_bytes()

    assert not disk._is_cold(path)


def test_a_full_disk_is_refused(tmp_path: Path) -> None:
    """Nothing is written where it would not fit."""
    with pytest.raises(FastioError, match="--size"):
        measure_disk(tmp_path, size_bytes=1 << 60)
    with pytest.raises(FastioError, match="4 MiB"):
        measure_disk(tmp_path, size_bytes=1)

    assert [] == list(tmp_path.iterdir())
