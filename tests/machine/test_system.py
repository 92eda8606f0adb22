"""Calls that Linux has and POSIX does not, and what stands in for them where they are missing."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from fastio.machine import available_cpus, system

LINUX = ("sched_getaffinity", "posix_fallocate", "memfd_create", "posix_fadvise", "O_DIRECT")


@pytest.fixture(params=["here", "elsewhere"])
def is_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether ``os`` has what Linux has."""
    if request.param == "elsewhere":
        for name in LINUX:
            monkeypatch.delattr(os, name, raising=False)
        monkeypatch.setattr(system.fcntl, "fcntl", lambda fd, command, value: 0)  # commands that Linux does not know
    return request.param == "here"


def test_cpus(is_here: bool) -> None:
    """Where a process is bound to none, it counts on those of the machine."""
    assert (system.cpus_of(0) is not None) == (is_here and hasattr(os, "sched_getaffinity"))
    assert 1 <= available_cpus(environ={}) <= (os.cpu_count() or 1)
    assert 1 <= available_cpus(environ={"LOCAL_WORLD_SIZE": "2"}) <= (os.cpu_count() or 1)


@pytest.mark.parametrize("size", [1, 4096, 3 << 20])
@pytest.mark.usefixtures("is_here")
def test_room(tmp_path: Path, size: int) -> None:
    """The file has all of its bytes, and the disk their room."""
    path = tmp_path / "a"
    with path.open("wb", buffering=0) as file:
        system.take_room(file.fileno(), size)
    about = path.stat()

    assert (size, b"\0" * size) == (about.st_size, path.read_bytes())
    assert about.st_blocks * 512 >= size


@pytest.mark.usefixtures("is_here")
def test_files_without_a_name() -> None:
    """They keep what is written, and each is another one."""
    first, second = system.unnamed_file(), system.unnamed_file()
    try:
        assert 5 == os.write(first, b"apple")
        assert [b"apple", b""] == [os.pread(fd, 10, 0) for fd in (first, second)]
    finally:
        os.close(first)
        os.close(second)


@pytest.mark.usefixtures("is_here")
def test_files_are_read_in_any_way(tmp_path: Path) -> None:
    """Whether around the page cache or not, bytes are the same."""
    path = tmp_path / "a"
    values = np.random.default_rng(0).integers(0, 256, 4096, np.uint8).tobytes()
    path.write_bytes(values)
    system.drop_cached(path)
    for sequential in (True, False):
        fd = os.open(path, os.O_RDONLY)
        system.advise_order(fd, sequential=sequential)
        assert values == os.read(fd, 4096)
        os.close(fd)
    try:
        fd = system.open_uncached(path)
    except OSError:  # a file system in memory
        return
    os.close(fd)


def test_nobody_to_ask_for_pages(is_here: bool, tmp_path: Path) -> None:
    """Where pages cannot be dropped, a measurement is told so."""
    path = tmp_path / "a"
    path.write_bytes(b"1")

    assert system.drop_cached(path) or not is_here
    assert is_here or not system.drop_cached(path)
