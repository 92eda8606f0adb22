"""Tar files of others that are replaced or edited: noticed, and never taken for the same store."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

from fastio import FastLoader
from fastio.errors import StoreError
from fastio.store import open_store
from fastio.store.sets.names import SIDECAR_SUFFIX

COUNT = 400


def archive(path: Path, *, blob: bytes = b"blob", label: int = 0, at: int = 7, folder: str = "d") -> Path:
    """Samples of 3 kB with labels; that at ``at`` has ``blob`` in its middle and this label."""
    with tarfile.open(path, "w") as tar:
        for index in range(COUNT):
            chosen = index == at
            value = bytes(1500) + (blob if chosen else b"blob") + bytes(1500)
            for name, data in (("bin", value), ("cls", str(label if chosen else index % 5).encode())):
                info = tarfile.TarInfo(f"{folder}/{index:04d}.{name}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return path


def identity(path: Path) -> int:
    with open_store(path) as store:
        return store.identity


def as_old(path: Path, before: os.stat_result) -> None:
    """Give the file its old times, as ``touch -r`` and ``rsync -t`` do; the time of its change is the kernel's."""
    while True:  # the kernel's clock ticks every few milliseconds
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        if path.stat().st_ctime_ns != before.st_ctime_ns:
            return


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("other", [{"folder": "e"}, {"label": 3}, {"label": 3, "at": 399}])
def test_another_archive_of_the_same_size_is_another_store(
    tmp_path: Path, other: dict[str, str], has_index: bool
) -> None:
    """Names and labels are part of what names a store: a state of the old one is refused."""
    path = archive(tmp_path / "a.tar")
    before, was = path.stat(), identity(path)
    with FastLoader(path, 4) as loader:
        next(iter(loader))
        state = loader.state_dict()
    archive(tmp_path / "b.tar", **other).replace(path)  # type: ignore[arg-type]
    as_old(path, before)
    if not has_index:
        Path(f"{path}{SIDECAR_SUFFIX}").unlink()
    assert (before.st_size, before.st_mtime_ns) == (path.stat().st_size, path.stat().st_mtime_ns)

    assert was != identity(path)
    with FastLoader(path, 4) as loader, pytest.raises(ValueError, match="store is"):
        loader.load_state_dict(state)


def test_contents_name_a_store(tmp_path: Path) -> None:
    """Archives whose headers are equal differ by what stands in the middle of their members."""
    found = {identity(archive(tmp_path / f"{n}.tar", blob=b"%04d" % n, at=0)) for n in range(4)}

    assert 4 == len(found)


def test_a_label_edited_in_place_is_noticed(tmp_path: Path) -> None:
    """An archive edited under the same size and time is scanned again: the kernel's own time of change differs."""
    path = archive(tmp_path / "a.tar")
    before, was = path.stat(), identity(path)
    with tarfile.open(path) as tar:
        start = tar.getmember("d/0123.cls").offset_data
    with path.open("r+b") as file:
        file.seek(start)
        file.write(b"9")
    as_old(path, before)

    with open_store(path) as store:
        assert 9 == store.column("label")[123]
        assert was != store.identity


def test_a_copy_is_the_same_store(tmp_path: Path) -> None:
    """The same archive elsewhere, with or without the index beside it, keeps its identity."""
    path = archive(tmp_path / "a.tar")
    was = identity(path)
    (tmp_path / "copy").mkdir()
    copy = shutil.copy2(path, tmp_path / "copy" / "a.tar")
    assert was == identity(copy)
    Path(f"{copy}{SIDECAR_SUFFIX}").unlink()

    assert was == identity(copy)


def test_a_pickled_store_refuses_another_archive(tmp_path: Path) -> None:
    """A worker that opens the store by its path notices that another archive lies there."""
    path = archive(tmp_path / "a.tar")
    with open_store(path) as store:
        assert np.array_equal(store.column("label"), pickle.loads(pickle.dumps(store)).column("label"))
        packed = pickle.dumps(store)
    archive(tmp_path / "b.tar", label=4).replace(path)

    with pytest.raises(StoreError, match="was replaced"):
        pickle.loads(packed)
