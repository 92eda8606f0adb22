"""Disks that are really full: a small file system of its own, which only root may mount."""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fastio.converters import open_source, pack
from fastio.errors import StoreError
from fastio.store import open_store
from fastio.store.files.remote_options import Remote
from fastio.store.staging import stage
from tests.converters.trees import picture
from tests.servers.fixtures import Served
from tests.store.build import write

SIZE = 256 << 10


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """An empty disk of 256 KiB."""
    libc, folder = ctypes.CDLL(None, use_errno=True), tmp_path / "disk"
    folder.mkdir()
    if libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, f"size={SIZE}".encode()) != 0:
        pytest.skip(f"no file system can be mounted here: {os.strerror(ctypes.get_errno())}")
    yield folder
    libc.umount2(os.fsencode(folder), 2)  # also if a failed test still has files of it open


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", ["x.tar", "x-%06d.tar", "x.lmdb", "x.h5"])
def test_packing(disk: Path, tmp_path: Path, name: str) -> None:
    """One line says so; under a final name is nothing, or a shard that a whole pack writes too."""
    source = tmp_path / "source"
    source.mkdir()
    for number in range(60):
        (source / f"{number}.png").write_bytes(picture(number, size=(60, 50)))
    shard_bytes = SIZE // 4 if "%" in name else None
    with pytest.raises(StoreError, match="No space left") as caught:
        pack(open_source(source), disk / name, shard_bytes=shard_bytes)
    assert "\n" not in str(caught.value)
    whole = tmp_path / "whole"
    whole.mkdir()
    pack(open_source(source), whole / name, shard_bytes=shard_bytes)
    for path in _files(disk):
        assert (whole / path.name).read_bytes() == path.read_bytes()
        assert path.suffix == ".tar"


def test_staging(disk: Path, tmp_path: Path) -> None:
    """One line says so; no store is there that opens, and the copy goes on once there is room."""
    values = {f"{number}.png": os.urandom(5000) for number in range(100)}
    write(tmp_path / "x.h5", values)
    with pytest.raises(StoreError, match="free") as caught:
        stage(str(tmp_path / "x.h5"), str(disk))
    assert "\n" not in str(caught.value)
    assert not list(disk.rglob("*.h5"))


def test_a_cache(disk: Path, tmp_path: Path, served: Served, caplog: pytest.LogCaptureFixture) -> None:
    """Every sample comes as it is, twice; one line says that the cache is off; nothing half-written stays."""
    values = {f"{number}.png": os.urandom(5000) for number in range(100)}
    write(served.root / "x.h5", values)
    remote = Remote(cache_dir=str(disk), cache_limit=100 * SIZE, download_retry=0)
    with (
        caplog.at_level(logging.WARNING),
        open_store(f"{served.url}/x.h5", remote=remote) as store,
    ):
        for number in [*range(0, 100, 5), *range(0, 100, 5)]:
            spans, status = store.files.fetch(store.spans("image", np.arange(number, number + 5))).wait()
            assert status is None
            expected = list(values.values())[number : number + 5]
            assert expected == [view.tobytes() for view in spans.views()]
    assert 1 == len(caplog.records)
    assert "No space left" in caplog.text
    kept = [path.name for path in _files(disk) if path.name != ".lock"]
    assert kept
    assert not [name for name in kept if name.startswith(".")]
