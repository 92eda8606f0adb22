"""Which kind reads a file: by its file system, or as told."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fastio.store.files import local, open_file
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
