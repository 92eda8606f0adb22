"""Files that appear whole or not at all: killed packers, stale partial files, full disks."""

from __future__ import annotations

import errno
import os
import re
import resource
import signal
from pathlib import Path
from typing import Any

import pytest

from fastio.errors import StoreError
from fastio.store import atomic, create_store, hdf5, open_store
from fastio.store.atomic import PartialFile, publish, remove_stale
from fastio.store.target import Target
from fastio.store.verify import verify_store
from tests.store.build import LABELLED, hidden, in_fork, make_batch, make_samples, read_all, visible, write

SAMPLES = make_samples(20)
CALLS = ("open", "write", "pwrite", "fsync", "ftruncate", "link", "rename")


class _Fatal:
    """Stands in for the module ``os``: the process dies by SIGKILL at the n-th call that changes a disk."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def __getattr__(self, name: str) -> Any:
        if name in CALLS:
            self.left -= 1
            if self.left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return getattr(os, name)


def _pack_and_die(path: str, calls: int) -> None:
    fatal = _Fatal(calls)
    atomic.os = fatal  # type: ignore[attr-defined]
    hdf5.os = fatal  # type: ignore[attr-defined]
    real = Path.rename

    def rename(self: Path, target: str) -> Path:
        assert fatal.rename
        return real(self, target)

    Path.rename = rename  # type: ignore[method-assign, assignment]
    write(path, SAMPLES, batch_size=8, overwrite=True, shard_bytes=25_000 if "%" in path else None)


@pytest.mark.parametrize("name", ["out.lmdb", "out.h5", "out.tar", "out-%06d.tar"])
@pytest.mark.parametrize("old", [False, True])
def test_killed_packer_leaves_nothing_half(tmp_path: Path, name: str, old: bool) -> None:
    """A packer killed at any point leaves no store or the old one, never half of one, and the next run succeeds."""
    path, before = str(tmp_path / name), make_samples(5, seed=9)
    calls, died = 0, True
    while died:
        if old:
            write(path, before, overwrite=True)
        calls += 1
        died = in_fork(lambda calls=calls: _pack_and_die(path, calls)) == -signal.SIGKILL
        if died and visible(tmp_path):
            _check_old_or_new(path, before if old else None, is_set="%" in name)
        write(path, SAMPLES, overwrite=True, shard_bytes=25_000 if "%" in name else None)
        assert hidden(tmp_path) == []
        with open_store(path) as store:
            assert read_all(store) == SAMPLES
        for left in visible(tmp_path):
            (tmp_path / left).unlink()
    assert calls > 6


def _check_old_or_new(path: str, before: dict[str, bytes] | None, *, is_set: bool) -> None:
    """What a reader finds after a kill."""
    try:
        with open_store(path) as store:
            assert read_all(store) in ([before, SAMPLES] if before else [SAMPLES])
            assert verify_store(store) == []
    except StoreError:
        assert is_set  # between two renames: refused by name, never read


@pytest.mark.parametrize("name", ["out.lmdb", "out.h5", "out.tar"])
def test_two_packers_at_once(tmp_path: Path, name: str) -> None:
    """A second packer of the same target leaves the living one's file alone; the last to close stays."""
    first = create_store(tmp_path / name, LABELLED, overwrite=True)
    second = create_store(tmp_path / name, LABELLED, overwrite=True)
    assert len(hidden(tmp_path)) == 2
    second.append(make_batch(["second"], [b"2"]))
    second.close()
    first.append(make_batch(["first"], [b"1"]))
    first.close()
    with open_store(tmp_path / name) as store:
        assert read_all(store) == {"first": b"1"}
    assert hidden(tmp_path) == []


def test_stale_files_of_this_target_only(tmp_path: Path) -> None:
    """Partial files of dead writers go, those of living ones, of other targets and of other kinds stay."""
    living = PartialFile(str(tmp_path / "a.lmdb"))
    for name in (".a.lmdb.partial-1-0", ".b.lmdb.partial-1-0", ".a.lmdb", ".a.lmdb.partial"):
        (tmp_path / name).touch()
    (tmp_path / ".c.partial-1-0").mkdir()  # a folder of the same dead process, which `unpack` fills
    remove_stale(tmp_path, re.compile(re.escape("a.lmdb")))
    kept = {".b.lmdb.partial-1-0", ".a.lmdb", ".a.lmdb.partial", ".c.partial-1-0", Path(living.partial).name}
    assert kept == set(hidden(tmp_path))
    living.discard()


def test_write_and_publish(tmp_path: Path) -> None:
    """Bytes arrive in order, the checksum sees all but what was skipped."""
    file = PartialFile(str(tmp_path / "out"))
    file.write(b"abc")
    file.write(b"")
    file.skip(2)
    file.write(b"d" * (3 << 20))
    file.overwrite(3, b"XY")
    assert file.size == 5 + (3 << 20)
    publish([file], leftovers=list, replace=True)
    file.discard()
    assert (tmp_path / "out").read_bytes() == b"abcXY" + b"d" * (3 << 20)
    assert atomic.crc32(b"abc" + b"d" * (3 << 20)) == file.crc


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["out.lmdb", "out.h5", "out.tar", "out-%06d.tar"])
def test_synced_then_renamed_then_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, overwrite: bool
) -> None:
    """Every file is on the disk after its last byte and before any has its name; the folder comes last."""
    calls: list[tuple[str, str]] = []

    class Recorder:
        def __getattr__(self, call: str) -> Any:
            real = getattr(os, call)
            if call not in ("fsync", "write", "pwrite", "link"):
                return real

            def record(first: Any, *rest: Any) -> Any:
                calls.append((call, first if call == "link" else str(Path(f"/proc/self/fd/{first}").readlink())))
                return real(first, *rest)

            return record

    real_rename = Path.rename

    def rename(self: Path, target: str) -> Path:
        calls.append(("rename", str(self)))
        return real_rename(self, target)

    monkeypatch.setattr(atomic, "os", Recorder())
    monkeypatch.setattr(hdf5, "os", Recorder())
    monkeypatch.setattr(Path, "rename", rename)
    write(tmp_path / name, SAMPLES, overwrite=overwrite, shard_bytes=25_000 if "%" in name else None)

    count = len(visible(tmp_path))
    assert count == (4 if "%" in name else 1)
    moves = ("rename",) if overwrite else ("link",)
    moved = [i for i, (call, _) in enumerate(calls) if call in moves]
    partials = {path for _, path in calls if ".partial-" in path}
    assert count == len(moved) == len(partials)
    for partial in partials:
        mine = [(i, call) for i, (call, path) in enumerate(calls) if path == partial]
        synced = max(i for i, call in mine if call == "fsync")
        assert max(i for i, call in mine if call in ("write", "pwrite")) < synced < min(moved)
    assert calls[-1] == ("fsync", str(tmp_path))
    assert calls[moved[0] : -1] == [calls[i] for i in moved]


def _pack_with_few_descriptors(path: str, samples: dict[str, bytes]) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    write(path, samples, batch_size=64, shard_bytes=1)


def test_more_shards_than_descriptors(tmp_path: Path) -> None:
    """200 shards are packed by a process that may open 64 files."""
    samples = make_samples(200)
    assert in_fork(lambda: _pack_with_few_descriptors(str(tmp_path / "out-%06d.tar"), samples)) == 0
    with open_store(tmp_path / "out-%06d.tar") as store:
        assert len(store.shard_paths) == 200
        assert read_all(store) == samples
        assert verify_store(store) == []
    assert hidden(tmp_path) == []


@pytest.mark.parametrize("other", ["out-%06d.tar", "out-000001.tar"])
def test_resting_shards_are_not_stale(tmp_path: Path, other: str) -> None:
    """A packer of the same names leaves the finished shards of a living one alone, though nobody has them open."""
    with create_store(tmp_path / "out-%06d.tar", LABELLED, shard_bytes=1) as writer:
        writer.append(make_batch(["a", "b", "c"], [b"1", b"2", b"3"]))
        before = hidden(tmp_path)
        assert len(before) == 3
        create_store(tmp_path / other, LABELLED).abort()
        assert before == hidden(tmp_path)
    with open_store(tmp_path / "out-%06d.tar") as store:
        assert read_all(store) == {"a": b"1", "b": b"2", "c": b"3"}


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize(
    ("name", "fast", "slow"), [("out.lmdb", 1, 1), ("out.tar", 2, 1), ("out-%06d.tar", 1, 4), ("out-%06d.tar", 4, 2)]
)
def test_a_name_taken_at_the_last_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, fast: int, slow: int, links: bool
) -> None:
    """Of two packers that may not overwrite, the second to close replaces nothing, however late the first one came."""

    def no_links(*_: str) -> None:
        raise PermissionError(errno.EPERM, "no hard links here")

    if not links:
        monkeypatch.setattr(os, "link", no_links)
    monkeypatch.setattr(Target, "check_free", lambda self: None)
    size = 1 if "%" in name else None
    first, second = (create_store(tmp_path / name, LABELLED, shard_bytes=size) for _ in range(2))
    first.append(make_batch([f"fast{i}" for i in range(fast)], [b"1"] * fast))
    second.append(make_batch([f"slow{i}" for i in range(slow)], [b"2"] * slow))
    first.close()
    left = {each: (tmp_path / each).read_bytes() for each in visible(tmp_path)}
    with pytest.raises(StoreError, match=r"out.*: exists; choose"):
        second.close()
    assert left == {each: (tmp_path / each).read_bytes() for each in visible(tmp_path)}
    assert hidden(tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_without_permission(tmp_path: Path) -> None:
    """A folder that may not be written to is named."""
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="cannot be written"):
        create_store(tmp_path / "out.lmdb", LABELLED)
    tmp_path.chmod(0o700)
