"""Shards on their way into a folder that is not on this machine."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from fastio.errors import StoreError
from fastio.store import FORMATS, open_store
from fastio.store.folders import LocalFolder
from fastio.store.scratch import ScratchFolder
from fastio.store.sets.seal import read_member, seal_set
from fastio.store.store_folder import FolderEntry
from fastio.store.write.destination import ShardDestination
from tests.store.build import LABELLED, make_batch
from tests.store.faults import fail, fault


class _Away(LocalFolder):
    """A folder of this machine that says it is an object store, and refuses some of what is put."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.path = f"toy://{path.name}"
        self.refused: set[str] = set()
        self.may_put = threading.Event()
        self.may_put.set()

    def entries(self) -> Mapping[str, FolderEntry]:
        return LocalFolder(self._prefix).entries()

    def put(self, name: str, file: Path, *, replace: bool = False, etag: str | None = None) -> None:
        self.may_put.wait()
        if name in self.refused:
            raise StoreError(f"{self.path}/{name}: 403")
        super().put(name, file, replace=replace, etag=etag)


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """TMPDIR, which must be empty again after the test."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


@pytest.fixture
def away(tmp_path: Path) -> _Away:
    folder = tmp_path / "away"
    folder.mkdir()
    return _Away(folder)


def _write(out: ShardDestination, number: int, *, content: bytes = b"same", overwrite: bool = False) -> str:
    name = f"in-{number:06d}.tar"
    with out.writer(name, LABELLED, plan=7, number=number, overwrite=overwrite) as writer:
        writer.append(make_batch([f"{number}/a.png", f"{number}/b.png"], [content, b"%d" % number]))
    return name


def _write_all(away: _Away, count: int) -> None:
    with ShardDestination(away) as out:
        for number in range(count):
            _write(out, number)


def test_shards_become_a_set(away: _Away, tmp_path: Path, scratch: Path) -> None:
    """What was written to another place is there when the destination is closed."""
    with ShardDestination(away) as out:
        names = [_write(out, number) for number in range(3)]
    assert list(away.entries()) == names
    seal_set(str(tmp_path / "away/in.fastio-set"), names, FORMATS["tar"], metadata=b"{}")
    with open_store(tmp_path / "away/in.fastio-set") as store:
        assert len(store) == 6


def test_same_bytes_as_local(away: _Away, tmp_path: Path, scratch: Path) -> None:
    """A shard has the same bytes wherever it is written."""
    for folder in (away, LocalFolder(str(tmp_path))):
        with ShardDestination(folder) as out:
            name = _write(out, 3)
    assert (tmp_path / name).read_bytes() == (tmp_path / "away" / name).read_bytes()


def test_same_shard_twice(away: _Away, scratch: Path) -> None:
    """Whoever makes the same shard once more does no harm."""
    for _ in range(2):
        with ShardDestination(away) as out:
            _write(out, 0)


def test_other_shard(away: _Away, scratch: Path) -> None:
    """Another shard of the same name stays, and is named, unless it is to be replaced."""
    with ShardDestination(away) as out:
        name = _write(out, 0)
    before = away.etag(name)
    with pytest.raises(StoreError, match=r"in-000000\.tar: exists"), ShardDestination(away) as out:
        _write(out, 0, content=b"other")
    assert away.etag(name) == before
    with ShardDestination(away) as out:
        _write(out, 0, content=b"other", overwrite=True)
    assert away.etag(name) != before


def test_refused_upload(away: _Away, scratch: Path) -> None:
    """A refused upload is an error of the next shard; shards before it stay."""
    away.refused.add("in-000001.tar")
    with pytest.raises(StoreError, match=r"in-000001\.tar: 403"):
        _write_all(away, 4)
    assert list(away.entries()) == ["in-000000.tar"]


def test_last_upload_refused(away: _Away, scratch: Path) -> None:
    """The error of the last upload comes out of the block."""
    away.refused.add("in-000000.tar")
    with pytest.raises(StoreError, match="403"), ShardDestination(away) as out:
        _write(out, 0)


def test_upload_overlaps(away: _Away, scratch: Path) -> None:
    """The next shard is made while one is uploaded, and no more than two lie on the disk."""
    away.may_put.clear()
    with ShardDestination(away) as out:
        _write(out, 0)
        with out.writer("in-000001.tar", LABELLED, plan=7, number=1) as writer:
            writer.append(make_batch(["a.png"], [b"x"]))
            assert len(list(scratch.glob("*/*"))) == 2
            assert not away.entries()
            away.may_put.set()
    assert len(away.entries()) == 2


def test_error_while_making(away: _Away, scratch: Path) -> None:
    """An error in the middle of a shard leaves the finished ones, whole, and nothing else."""

    def interrupted() -> None:
        with ShardDestination(away) as out:
            _write(out, 0)
            with out.writer("in-000001.tar", LABELLED, plan=7, number=1) as writer:
                writer.append(make_batch(["a.png"], [b"x"]))
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interrupted()
    assert list(away.entries()) == ["in-000000.tar"]


@pytest.mark.parametrize("at", range(1, 14))
def test_failing_disk(at: int, away: _Away, scratch: Path) -> None:
    """A disk that fails at any moment is a StoreError, and nothing half-written has a name."""
    with fault(at, fail, calls=("write", "pwrite", "fsync"), lasting=True) as count, contextlib.suppress(StoreError):
        _write_all(away, 2)
    assert count.made >= at
    for name in away.entries():
        read_member(away, name, FORMATS["tar"])


def test_little_space(away: _Away, scratch: Path) -> None:
    """A disk without room for a shard is an error before anything is written."""
    with (
        pytest.raises(StoreError, match=r"1\.0 PB are needed.*TMPDIR.*--shard-size"),
        ShardDestination(away, shard_bytes=10**15) as out,
    ):
        _write(out, 0)


def _killed(folder: str) -> None:
    tempfile.tempdir = folder
    ScratchFolder().file("in-000000.tar").write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)


def test_killed_packer(scratch: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What a killed process left on the disk goes with the next one; what a living one writes stays."""
    child = multiprocessing.get_context("spawn").Process(target=_killed, args=(str(scratch),))
    child.start()
    child.join()
    assert len(list(scratch.iterdir())) == 1
    with ScratchFolder() as first, ScratchFolder() as second:
        assert sorted(scratch.iterdir()) == sorted([first.path, second.path])
    assert "left by a process that was killed" in caplog.text


def test_vanished_scratch(away: _Away, scratch: Path) -> None:
    """A cleaner of TMPDIR that removes the scratch file is an error by name."""
    with ShardDestination(away) as out:
        writer = out.writer("in-000000.tar", LABELLED, plan=7, number=0)
        writer.append(make_batch(["a.png"], [b"x"]))
        shutil.rmtree(next(scratch.iterdir()))
        with pytest.raises(StoreError, match=r"away/in-000000\.tar: .*scratch.*set TMPDIR"):
            writer.close()
