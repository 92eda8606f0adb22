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
from fastio.store import create_store, open_store
from fastio.store.index.verify import verify_store
from fastio.store.listing import remove_stale
from fastio.store.write import atomic
from fastio.store.write.atomic import PartialFile, publish_file
from fastio.store.write.locks import Claim
from fastio.store.write.target import Target
from tests.conftest import SUFFIXES
from tests.forking import in_fork
from tests.store.build import LABELLED, hidden, make_batch, make_samples, names, read_all, visible, write
from tests.store.faults import fault, kill

SAMPLES = make_samples(20)


FILES = [f"out.{suffix}" for suffix in SUFFIXES]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("old", [False, True])
def test_killed_packer_leaves_nothing_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, old: bool
) -> None:
    """A packer killed at any point leaves no store or the old one, never half of one, and the next run succeeds."""
    path, before = str(tmp_path / name), make_samples(5, seed=9)
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # dozens of packs need not wait for the disk

    def pack_and_die(at: int) -> None:
        with fault(at, kill):
            write(path, SAMPLES, batch_size=8, overwrite=True)

    at, died = 0, True
    while died:
        if old:
            write(path, before, overwrite=True)
        at += 1
        died = in_fork(lambda at=at: pack_and_die(at)) == -signal.SIGKILL
        if died and visible(tmp_path):
            with open_store(path) as store:
                assert read_all(store) in ([before, SAMPLES] if old else [SAMPLES])
                assert verify_store(store) == []
        write(path, SAMPLES, overwrite=True)
        assert hidden(tmp_path) == []
        with open_store(path) as store:
            assert read_all(store) == SAMPLES
        (tmp_path / name).unlink()
    assert at > 6


@pytest.mark.parametrize("name", FILES)
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


def test_what_the_dead_left_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A new packer removes what killed ones left, once, and says what it was and how large."""
    (tmp_path / ".out.tar.partial-1-0").write_bytes(bytes(2500))
    create_store(tmp_path / "out.tar", LABELLED).abort()
    assert [f"{tmp_path}/.out.tar.partial-1-0: removed (2.5 kB), left by a process that was killed"] == caplog.messages
    caplog.clear()
    for i in range(5):
        (tmp_path / f".out-{i:06d}.tar.partial-1-0").write_bytes(bytes(1000))
    write(tmp_path / "out-%06d.tar", SAMPLES)
    write(tmp_path / "out-%06d.tar", SAMPLES, overwrite=True)
    (message,) = caplog.messages
    assert f"{tmp_path}: removed 5 hidden files (5.0 kB), left by processes that were killed: .out-000000" in message
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
    publish_file(file, replace=True)
    file.discard()
    assert (tmp_path / "out").read_bytes() == b"abcXY" + b"d" * (3 << 20)
    assert atomic.crc32(b"abc" + b"d" * (3 << 20)) == file.crc


@pytest.mark.parametrize("name", FILES)
def test_a_disk_that_takes_a_little_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A system that writes less than it was given is asked again; one that writes nothing at all is an error."""
    real, real_at = os.write, os.pwrite
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[: len(data) // 2 + 1]))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real_at(fd, data[: len(data) // 2 + 1], at))
    write(tmp_path / name, SAMPLES)
    with open_store(tmp_path / name) as store:
        assert verify_store(store) == []
        assert read_all(store) == SAMPLES
    for call in ("write", "pwrite"):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, lambda *_: 0)
            with pytest.raises(StoreError, match=rf"{name}: cannot be written \(.*0 bytes.*untouched"):
                write(tmp_path / name, SAMPLES, overwrite=True)
    assert [name] == names(tmp_path)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_synced_then_renamed_then_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, overwrite: bool
) -> None:
    """A file is on the disk after its last byte and before it has its name; the folder comes last."""
    calls = _recorded(monkeypatch)
    write(tmp_path / name, SAMPLES, overwrite=overwrite)

    moved = [i for i, (call, _) in enumerate(calls) if call in ("rename", "link")]
    assert [("rename" if overwrite else "link")] == [calls[i][0] for i in moved]
    written = [(i, call) for i, (call, path) in enumerate(calls) if ".partial-" in path and i not in moved]
    assert max(i for i, call in written if call in ("write", "pwrite")) < written[-1][0] < moved[0]
    assert "fsync" == written[-1][1]
    assert [calls[moved[0]], ("fsync", str(tmp_path))] == calls[moved[0] :]


@pytest.mark.parametrize("overwrite", [False, True])
def test_shards_are_on_the_disk_before_they_are_a_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    """Each shard is synced, then named; the folder is synced, then the set object written, synced and named."""
    if overwrite:
        write(tmp_path / "out-%06d.tar", make_samples(5, seed=9))
    calls = _recorded(monkeypatch)
    write(tmp_path / "out-%06d.tar", SAMPLES, overwrite=overwrite, shard_bytes=25_000)

    moved = [i for i, (call, _) in enumerate(calls) if call in ("rename", "link")]
    assert [*["link"] * 4, "rename" if overwrite else "link"] == [calls[i][0] for i in moved]
    for i in moved:
        partial = calls[i][1]
        mine = [call for call, path in calls[:i] if path == partial]
        assert "fsync" == mine[-1]
        assert "write" in mine
        assert all(path != partial for _, path in calls[i + 1 :])
    first_of_object = next(i for i, (_, path) in enumerate(calls) if path == calls[moved[-1]][1])
    assert ("fsync", str(tmp_path)) in calls[moved[-2] : first_of_object]
    assert ("fsync", str(tmp_path)) == calls[-1]


def _recorded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The calls that change a disk from now on, each with its file."""
    calls: list[tuple[str, str]] = []

    def recorder(call: str) -> Any:
        real = getattr(os, call)

        def record(first: Any, *rest: Any, **options: Any) -> Any:
            calls.append((call, str(Path(f"/proc/self/fd/{first}").readlink() if isinstance(first, int) else first)))
            return real(first, *rest, **options)

        return record

    for call in ("fsync", "write", "pwrite", "link", "rename", "ftruncate"):
        monkeypatch.setattr(os, call, recorder(call))
    return calls


def _pack_with_few_descriptors(path: str, samples: dict[str, bytes]) -> None:
    limit = 64 + len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - what the process that was forked has open
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    write(path, samples, batch_size=64, shard_bytes=1)


def test_more_shards_than_descriptors(tmp_path: Path) -> None:
    """200 shards are packed by a process that may open some 64 files more."""
    samples = make_samples(200)
    assert in_fork(lambda: _pack_with_few_descriptors(str(tmp_path / "out-%06d.tar"), samples)) == 0
    with open_store(tmp_path / "out-%06d.tar") as store:
        assert len(store.shard_paths) == 200
        assert read_all(store) == samples
        assert verify_store(store) == []
    assert hidden(tmp_path) == []


def test_one_packer_of_a_set_at_a_time(tmp_path: Path) -> None:
    """While a set is being packed another packer of it is refused by name, overwriting or not; then it may."""
    with create_store(tmp_path / "out-%06d.tar", LABELLED, shard_bytes=1) as writer:
        writer.append(make_batch(["a", "b", "c"], [b"1", b"2", b"3"]))
        before = names(tmp_path)
        for overwrite in (True, False):
            with pytest.raises(
                StoreError, match=r"out\.fastio-set: another process is packing this set \(process \d+ of"
            ):
                create_store(tmp_path / "out-%06d.tar", LABELLED, overwrite=overwrite)
        assert before == names(tmp_path)
    with open_store(tmp_path / "out-%06d.tar") as store:
        assert read_all(store) == {"a": b"1", "b": b"2", "c": b"3"}
    write(tmp_path / "out-%06d.tar", SAMPLES, overwrite=True)


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
    monkeypatch.setattr(Claim, "_take", lambda *_: None)
    size = 1 if "%" in name else None
    first, second = (create_store(tmp_path / name, LABELLED, shard_bytes=size) for _ in range(2))
    first.append(make_batch([f"fast{i}" for i in range(fast)], [b"1"] * fast))
    first.close()
    left = {each: (tmp_path / each).read_bytes() for each in visible(tmp_path)}
    with pytest.raises(StoreError, match=r"out.*: exists; choose"), second:
        second.append(make_batch([f"slow{i}" for i in range(slow)], [b"2"] * slow))
    assert left == {each: (tmp_path / each).read_bytes() for each in visible(tmp_path)}
    assert hidden(tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_without_permission(tmp_path: Path) -> None:
    """A folder that may not be written to is named."""
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="cannot be written"):
        create_store(tmp_path / "out.lmdb", LABELLED)
    tmp_path.chmod(0o700)
