"""Which kind reads a file: by its file system, or as told."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fastio.store.files import local, open_file
from fastio.store.files.byte_source import JointPrefetch
from fastio.store.files.local import network_file_system


@pytest.mark.parametrize(("kind", "expected"), [("nfs", "pread"), (None, "map")])
def test_auto_goes_by_the_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str | None, expected: str
) -> None:
    """Network file systems are read by pread, all others through the mapping, unless told otherwise."""
    path = tmp_path / "x.tar"
    path.touch()
    monkeypatch.setattr("fastio.store.files.pread.network_file_system", lambda folder: kind)

    assert open_file(str(path)).kind == expected
    assert open_file(str(path), "map").kind == "map"
    assert open_file(str(path), "pread").kind == "pread"


def test_auto_looks_at_the_file_that_a_link_leads_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link in a local folder to a file on a server is read by pread, and the other way round it is not."""
    for folder in ("server", "local"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.tar").touch()
    (tmp_path / "local" / "remote.tar").symlink_to(tmp_path / "server" / "x.tar")
    (tmp_path / "server" / "near.tar").symlink_to(tmp_path / "local" / "x.tar")

    class Libc:
        """A statfs that takes one folder for NFS; like the real one it follows links."""

        @staticmethod
        def statfs(path: bytes, answer: Any) -> int:
            answer[0] = 0x6969 if b"/server" in os.path.realpath(path) else 0
            return 0

    monkeypatch.setattr(local, "_LIBC", Libc)
    found = {
        name: open_file(str(tmp_path / name)).kind == "pread"
        for name in ("local/x.tar", "local/remote.tar", "server/x.tar", "server/near.tar")
    }

    assert {"local/x.tar": False, "local/remote.tar": True, "server/x.tar": True, "server/near.tar": False} == found


def test_file_systems(tmp_path: Path) -> None:
    """A local folder is none, nor is one that is not there."""
    assert network_file_system(tmp_path) is None
    assert network_file_system(tmp_path / "missing") is None


class _Slow:
    """Something that comes nearer in 3 seconds of a clock that only waiting moves."""

    def __init__(self, clock: list[float]) -> None:
        self.clock, self.left_s, self.is_cancelled = clock, 3.0, False

    @property
    def done(self) -> bool:
        return self.left_s == 0

    def wait(self, timeout_s: float = -1.0) -> bool:
        spent_s = self.left_s if timeout_s < 0 else min(self.left_s, timeout_s)
        self.clock[0] += spent_s
        self.left_s -= spent_s
        return self.done

    def cancel(self) -> None:
        self.is_cancelled = True


def test_several_prefetches_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """All are waited for, together as long as was asked."""
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    parts = [_Slow(clock), _Slow(clock)]
    both = JointPrefetch(parts)

    assert (False, 4.0, False) == (both.wait(4.0), clock[0], both.done)
    assert (True, 6.0, True) == (both.wait(), clock[0], both.done)
    both.cancel()
    assert all(part.is_cancelled for part in parts)
