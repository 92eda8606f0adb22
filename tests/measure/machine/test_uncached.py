"""The rate of reading past the page cache: everything is read once, nothing is measured that is not read."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest

from fastio.cli.epoch_line import epoch_line
from fastio.measure.machine import disk_kind
from fastio.measure.machine.disk_kind import LEAST_BYTES, UncachedRead, file_system, read_uncached

_SPARE = 16  # descriptors

pytestmark = pytest.mark.filterwarnings("error")


def test_all_pieces_are_read_once(tmp_path: Path) -> None:
    """Of files of any size, also those that end within a piece; where the file system lets it be read so."""
    sizes = (LEAST_BYTES + 12_345, 1 << 20, 7)
    paths = [tmp_path / str(size) for size in sizes]
    for path, size in zip(paths, sizes, strict=True):
        path.write_bytes(os.urandom(size))
    read = read_uncached(paths, seconds=60)

    assert read is None or (sum(sizes) == read.size_bytes and read.seconds > 0)
    if file_system(tmp_path) in ("ext4", "xfs"):
        assert read is not None


def test_more_files_than_may_be_open(tmp_path: Path) -> None:
    """Each piece is opened while it is read: a set may have a hundred thousand shards."""
    paths = [tmp_path / str(number) for number in range(2 * _SPARE)]
    for path in paths:
        path.write_bytes(bytes(LEAST_BYTES // _SPARE))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + _SPARE, hard))
    try:
        read = read_uncached(paths, seconds=60)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert read is None or read.size_bytes == 2 * LEAST_BYTES


def test_no_more_than_the_time_allows(tmp_path: Path) -> None:
    """Without time each thread reads one piece, so that there is a rate."""
    path = tmp_path / "a"
    path.write_bytes(bytes(3 * LEAST_BYTES))
    read = read_uncached([path], seconds=0)

    assert read is None or 0 < read.size_bytes <= LEAST_BYTES


def test_what_cannot_be_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files, file systems that refuse O_DIRECT, and those in memory give no figure; other errors are errors."""
    small, large = tmp_path / "s", tmp_path / "l"
    small.write_bytes(b"x")
    large.write_bytes(bytes(LEAST_BYTES))
    assert read_uncached([small]) is None

    monkeypatch.setattr(disk_kind, "file_system", lambda _: "tmpfs")
    assert read_uncached([large]) is None

    def refuse(number: int) -> object:
        def opened(*_: object) -> int:
            raise OSError(number, os.strerror(number))

        return opened

    monkeypatch.setattr(disk_kind, "file_system", lambda _: "ext4")
    monkeypatch.setattr(disk_kind.os, "open", refuse(errno.EINVAL))
    assert read_uncached([large]) is None
    monkeypatch.setattr(disk_kind.os, "open", refuse(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        read_uncached([large])


def test_the_line() -> None:
    """An epoch is the whole store at the measured rate; without a rate no figure is given."""
    facts = {"seconds": 10.0, "size_bytes": 2_000_000_000, "bytes_per_s": 200e6, "measured_bytes": 60_000_000}

    assert epoch_line(facts, 0).startswith(
        "epoch:  reading the store once takes 10.0 s at 200.0 MB/s, what the disk gives without the page cache "
        "(measured now over 60.0 MB;"
    )
    assert "not measured" in epoch_line(None, 0)
    assert 5.0 == UncachedRead(10, 2.0).bytes_per_s
