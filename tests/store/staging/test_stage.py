"""Copies of stores on a disk of this machine: whole and right, or not there."""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
from collections.abc import Callable
from concurrent.futures import wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from fastio import FastDataset
from fastio.errors import SampleError, StoreCorrupt, StoreError, StoreIncomplete
from fastio.store import FORMATS, create_shard, create_store, open_store
from fastio.store.files import ByteSource, open_file
from fastio.store.files.remote_options import Remote
from fastio.store.sets.names import set_path
from fastio.store.sets.seal import seal_set
from fastio.store.staging import file_copy, plan, stage, staged_path
from fastio.store.staging.file_copy import FileCopy, ThreadMover
from fastio.store.staging.stage import Waiting, stage_lock
from tests.forking import fork, in_fork, status_of
from tests.store.build import LABELLED, make_batch
from tests.store.faults import CALLS, fault, kill
from tests.store.version_1 import make_version_1

BLOCK = 4096


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks a shard."""
    monkeypatch.setattr(file_copy, "BLOCK_BYTES", BLOCK)


def make_set(folder: Path, *, shards: int = 3, seed: int = 0, generation: int = 1) -> str:
    """A set of shards that were sealed alone."""
    folder.mkdir(exist_ok=True)
    names = []
    for number in range(shards):
        names.append(f"in-{number:06d}.tar")
        with create_shard(folder / names[-1], LABELLED, plan=7, number=number, overwrite=True) as writer:
            writer.append(batch(f"{seed}/{number}", seed + number))
    path = set_path(str(folder / "in-%06d.tar"))
    seal_set(path, names, FORMATS["tar"], metadata=b"{}", generation=generation, replace=generation > 1)
    return path


def batch(prefix: str, seed: int) -> Any:
    """Five samples of 3 kB each."""
    rng = np.random.default_rng(seed)
    return make_batch([f"{prefix}/{i}.png" for i in range(5)], [rng.bytes(3000) for _ in range(5)])


def make_file(path: Path, seed: int = 0) -> str:
    """A store of one file."""
    with create_store(path, LABELLED, overwrite=True) as writer:
        writer.append(batch("one", seed))
    return str(path)


def contents(folder: Path) -> dict[str, bytes]:
    """The visible files of a folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if not path.name.startswith(".")}


def hidden(folder: Path) -> list[str]:
    """What a copy leaves beside it, but for the lock and the record."""
    return [path.name for path in folder.glob(".*") if not path.name.endswith((".lock", ".staged"))]


class Faulty:
    """A source whose ranges pass through ``change`` before they arrive."""

    def __init__(self, source: ByteSource, change: Callable[[str, int, NDArray[np.uint8]], NDArray[np.uint8]]) -> None:
        self._source = source
        self._change = change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def read(self, start: int, stop: int) -> NDArray[np.uint8]:
        """The bytes, changed."""
        return self._change(self._source.path, start, self._source.read(start, stop))


def arriving(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[str, int, NDArray[np.uint8]], NDArray[np.uint8]]
) -> None:
    """Let the bytes of every source pass through ``change``."""
    monkeypatch.setattr(plan, "open_file", lambda *args: Faulty(open_file(*args), change))


@pytest.mark.parametrize("name", ["in.fastio-set", "in-%06d.tar", "in-*.tar", ""])
def test_set(name: str, tmp_path: Path) -> None:
    """The copy of a set has its bytes, however it was named, and nothing else lies there."""
    make_set(tmp_path / "source")
    report = stage(str(tmp_path / "source" / name), str(tmp_path / "copy"))

    assert contents(tmp_path / "source") == contents(tmp_path / "copy")
    assert [] == hidden(tmp_path / "copy")
    assert str(tmp_path / "copy" / "in.fastio-set") == report.path
    assert (4, report.size_bytes) == (report.files, report.fetched_bytes)
    with open_store(report.path) as store:
        assert 15 == len(store)


@pytest.mark.parametrize("suffix", [".lmdb", ".h5", ".tar", ".zip"])
def test_single_file(suffix: str, tmp_path: Path) -> None:
    """A store of one file, of any format."""
    path = make_file(tmp_path / f"train{suffix}")
    report = stage(path, str(tmp_path / "copy"))

    assert {f"train{suffix}": Path(path).read_bytes()} == contents(tmp_path / "copy")
    assert str(tmp_path / "copy" / f"train{suffix}") == report.path


def test_a_whole_copy_is_left_alone(tmp_path: Path) -> None:
    """The second call reads nothing but a seal; one file that is gone comes back alone."""
    path = make_set(tmp_path / "source")
    first = stage(path, str(tmp_path / "copy"))
    again = stage(path, str(tmp_path / "copy"))
    (tmp_path / "copy" / "in-000001.tar").unlink()
    third = stage(path, str(tmp_path / "copy"))

    assert (first.size_bytes, 0) == (again.size_bytes, again.fetched_bytes)
    assert 0 < third.fetched_bytes < first.fetched_bytes
    assert contents(tmp_path / "source") == contents(tmp_path / "copy")


@pytest.mark.parametrize("name", ["in-000001.tar", "in.fastio-set"])
def test_a_damaged_copy_is_trusted_until_it_is_checked(tmp_path: Path, name: str) -> None:
    """The report says what was not compared; ``check`` finds the damaged file, and copies that one alone."""
    path = make_set(tmp_path / "source")
    first = stage(path, str(tmp_path / "copy"))
    damaged = tmp_path / "copy" / name
    content = bytearray(damaged.read_bytes())
    content[len(content) // 4] ^= 1
    damaged.write_bytes(content)
    size = first.size_bytes
    again = stage(path, str(tmp_path / "copy"))
    assert size == again.trusted_bytes + again.fetched_bytes
    checked = stage(path, str(tmp_path / "copy"), check=True)
    repeated = stage(path, str(tmp_path / "copy"), check=True)

    assert contents(tmp_path / "source") == contents(tmp_path / "copy")
    assert (0, int(name.endswith(".tar"))) == (checked.trusted_bytes, checked.mended_files)
    assert (0, 0) == (repeated.trusted_bytes, repeated.mended_files)
    assert checked.fetched_bytes < size / 2


def test_an_error_of_a_copy_names_what_mends_it(tmp_path: Path) -> None:
    """Of a copy that is opened as a store of this machine."""
    path = make_set(tmp_path / "source")
    copy = stage(path, str(tmp_path / "copy")).path
    with open_store(copy) as store:
        start = int(store.shards[1].starts["image"][0])
    with (tmp_path / "copy" / "in-000001.tar").open("r+b") as file:
        file.seek(start)
        file.write(b"?")
    with pytest.raises(SampleError, match=f"fastio stage --check {path} {tmp_path / 'copy'} mends this copy"):
        FastDataset(copy)[5]


def test_a_merged_set_comes_together(tmp_path: Path) -> None:
    """Shards that lie elsewhere, two of one name, get names here; samples and order stay."""
    for part in ("a", "b"):
        make_set(tmp_path / part, shards=2, seed=ord(part))
    names = [str(tmp_path / part / f"in-{number:06d}.tar") for part in "ab" for number in range(2)]
    merged = str(tmp_path / "all.fastio-set")
    seal_set(merged, names, FORMATS["tar"], metadata=b"{}")
    report = stage(merged, str(tmp_path / "copy"))
    with open_store(merged) as store:
        expected = store.keys(range(20)), [view.tobytes() for view in store.spans("image", np.arange(20)).views()]
    for part in ("a", "b"):
        shutil.rmtree(tmp_path / part)
    with open_store(report.path) as store:
        got = store.keys(range(20)), [view.tobytes() for view in store.spans("image", np.arange(20)).views()]

    assert expected == got
    assert [] == hidden(tmp_path / "copy")
    assert report.size_bytes == report.fetched_bytes
    assert 0 == stage_again_without(tmp_path, merged)


def stage_again_without(tmp_path: Path, merged: str) -> int:
    """Bytes that a second call fetches though the shards are gone: the set object has not changed."""
    return stage(merged, str(tmp_path / "copy")).fetched_bytes


@pytest.mark.parametrize("seed", range(12))
def test_killed_and_again(seed: int, tmp_path: Path) -> None:
    """Killed at any call to the system, then again until it is done: the same bytes, and no name too early."""
    path = make_set(tmp_path / "source")
    whole = contents(tmp_path / "source")
    draw = random.Random(seed)
    for _ in range(6):
        status = in_fork(partial(stage_and_die, path, tmp_path / "copy", at=draw.randint(1, 90)))
        copied = contents(tmp_path / "copy") if (tmp_path / "copy").exists() else {}

        assert copied.items() <= whole.items()
        assert "in.fastio-set" not in copied or copied == whole
        assert status in (0, -signal.SIGKILL)
        if status == 0:
            break
    stage(path, str(tmp_path / "copy"))

    assert whole == contents(tmp_path / "copy")
    assert [] == hidden(tmp_path / "copy")


def stage_and_die(path: str, copy: Path, at: int) -> None:
    """Stage, and be killed at the given call to the system, if there are so many."""
    with fault(at, kill, calls=(*CALLS, "pread")):
        stage(path, str(copy), jobs=2)


def test_an_interrupted_copy_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that arrived are not fetched again; one that the disk lost is."""
    path = make_file(tmp_path / "train.tar")
    size = Path(path).stat().st_size
    blocks = -(-size // BLOCK)
    fetched: list[int] = []

    def fail_at(limit: int) -> Callable[[str, int, NDArray[np.uint8]], NDArray[np.uint8]]:
        def change(_path: str, start: int, data: NDArray[np.uint8]) -> NDArray[np.uint8]:
            if len(data) == BLOCK:
                fetched.append(start)
                if len(fetched) > limit:
                    raise StoreError("the network is gone")
            return data

        return change

    arriving(monkeypatch, fail_at(3))
    with pytest.raises(StoreError, match="the network is gone"):
        stage(path, str(tmp_path / "copy"), jobs=1)
    assert {} == contents(tmp_path / "copy")
    with (tmp_path / "copy" / ".train.tar.partial").open("r+b") as file:
        file.seek(BLOCK)
        file.write(bytes(BLOCK))
    fetched.clear()
    arriving(monkeypatch, fail_at(99))
    report = stage(path, str(tmp_path / "copy"), jobs=1)

    assert size - 2 * BLOCK == report.fetched_bytes
    assert [BLOCK, *(number * BLOCK for number in range(3, blocks - 1))] == sorted(set(fetched))
    assert {"train.tar": Path(path).read_bytes()} == contents(tmp_path / "copy")


@pytest.mark.parametrize("at", [0, 700, 5000, 15_500, -60, -2000])
def test_flipped_in_transit(at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bit that flips on its way, in a sample, the index or the seal, is noticed, and its block brought once more."""
    path = make_set(tmp_path / "source")
    flipped: list[str] = []

    def change(name: str, start: int, data: NDArray[np.uint8]) -> NDArray[np.uint8]:
        where = at if at >= 0 else Path(name).stat().st_size + at
        if name not in flipped and start <= where < start + len(data) and start % BLOCK == 0 and name.endswith(".tar"):
            flipped.append(name)
            data = data.copy()
            data[where - start] ^= 4
        return data

    arriving(monkeypatch, change)
    stage(path, str(tmp_path / "copy"))

    assert 3 == len(flipped)
    assert contents(tmp_path / "source") == contents(tmp_path / "copy")


def test_a_damaged_source_is_named(tmp_path: Path) -> None:
    """A shard that differs from its CRC-32 where it lies never gets its name."""
    path = make_set(tmp_path / "source")
    shard = tmp_path / "source" / "in-000001.tar"
    raw = bytearray(shard.read_bytes())
    raw[2000] ^= 1
    shard.write_bytes(raw)
    with pytest.raises(StoreCorrupt, match=r"in-000001\.tar: arrived twice with other bytes.*fastio verify"):
        stage(path, str(tmp_path / "copy"), jobs=1)

    assert contents(tmp_path / "copy").keys() <= {"in-000000.tar", "in-000002.tar"}


def test_a_source_replaced_meanwhile_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No mixture of two versions gets a name."""
    path = make_file(tmp_path / "train.tar")
    other = Path(make_file(tmp_path / "other.tar", seed=1))

    def change(_path: str, start: int, data: NDArray[np.uint8]) -> NDArray[np.uint8]:
        if start == 2 * BLOCK and other.exists():
            other.rename(path)
        return data

    arriving(monkeypatch, change)
    with pytest.raises(StoreError, match=r"train\.tar: was replaced or changed"):
        stage(path, str(tmp_path / "copy"), jobs=1)
    assert {} == contents(tmp_path / "copy")
    stage(path, str(tmp_path / "copy"))

    assert {"train.tar": Path(path).read_bytes()} == contents(tmp_path / "copy")


def test_the_next_generation_replaces_the_copy(tmp_path: Path) -> None:
    """What belonged to the old set alone goes once the new one is whole."""
    path = make_set(tmp_path / "source", shards=4)
    stage(path, str(tmp_path / "copy"))
    shutil.rmtree(tmp_path / "source")
    make_set(tmp_path / "source", shards=2, seed=5, generation=2)
    stage(path, str(tmp_path / "copy"))

    assert contents(tmp_path / "source") == contents(tmp_path / "copy")


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    """A name that the user has taken is an error, and nothing changes."""
    path = make_set(tmp_path / "source")
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "in-000001.tar").write_text("mine")
    with pytest.raises(StoreError, match=r"in-000001\.tar: exists, and is not a copy"):
        stage(path, str(tmp_path / "copy"))

    assert {"in-000001.tar": b"mine"} == contents(tmp_path / "copy")


def test_copies_by_other_means_are_taken(tmp_path: Path) -> None:
    """What rsync brought already is kept, if its seal is right."""
    path = make_set(tmp_path / "source")
    shutil.copytree(tmp_path / "source", tmp_path / "copy")
    (tmp_path / "copy" / "in-000002.tar").unlink()
    report = stage(path, str(tmp_path / "copy"))

    assert contents(tmp_path / "source") == contents(tmp_path / "copy")
    assert report.fetched_bytes < report.size_bytes / 2


def test_a_disk_too_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Space is checked before anything is fetched."""
    path = make_set(tmp_path / "source")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=20_000))
    with pytest.raises(StoreError, match=r"needs \d+\.\d kB more, 20\.0 kB are free"):
        stage(path, str(tmp_path / "copy"))

    assert {} == contents(tmp_path / "copy")


def test_two_at_once(tmp_path: Path) -> None:
    """Of four processes one copies; all have the copy when they return."""
    path = make_set(tmp_path / "source")

    def work(number: int) -> None:
        report = stage(path, str(tmp_path / "copy"), on_wait=lambda _: None)
        assert contents(tmp_path / "source") == contents(tmp_path / "copy")
        (tmp_path / f"fetched-{number}").write_text(str(report.fetched_bytes))

    children = [fork(partial(work, number)) for number in range(4)]
    assert [0] * 4 == [status_of(child) for child in children]
    fetched = sorted(int(file.read_text()) for file in tmp_path.glob("fetched-*"))

    assert [0, 0, 0] == fetched[:3]
    assert 0 < fetched[3]


def test_who_waits_is_told_for_whom(tmp_path: Path) -> None:
    """And does not wait for ever for a process that makes no progress."""
    path = make_set(tmp_path / "source")
    (tmp_path / "copy").mkdir()
    told: list[str] = []
    with (
        stage_lock(tmp_path / "copy", "copying it", Waiting(told.append)),
        pytest.raises(StoreError, match=rf"process {os.getpid()} on .*: copying it has made no progress for 0\.1 s"),
    ):
        stage(path, str(tmp_path / "copy"), on_wait=told.append, wait_s=0.1)

    assert 1 == len(told)
    assert f"waiting for process {os.getpid()}" in told[0]


def test_a_dead_process_lets_the_next_one_go_on(tmp_path: Path) -> None:
    """Its lock is free at once."""
    path = make_set(tmp_path / "source")
    reading, writing = os.pipe()

    def hang(_total: int) -> Any:
        os.write(writing, b"!")
        signal.pause()

    child = fork(lambda: stage(path, str(tmp_path / "copy"), meter=hang))
    os.read(reading, 1)
    threading.Timer(0.1, os.kill, (child, signal.SIGKILL)).start()
    stage(path, str(tmp_path / "copy"), on_wait=lambda _: None)
    status_of(child)

    assert contents(tmp_path / "source") == contents(tmp_path / "copy")


@pytest.mark.parametrize("name", ["in-%06d.tar", "in-{000000..000002}.tar", ""])
def test_a_set_of_version_1_gets_a_set_object(name: str, tmp_path: Path) -> None:
    """The same shards, and the object that makes them a set at one instant; the same content as before."""
    make_set(tmp_path / "source")
    make_version_1(tmp_path / "source" / "in-%06d.tar")
    source = str(tmp_path / "source" / name)
    report, again = (stage(source, str(tmp_path / "copy")) for _ in range(2))
    copied = contents(tmp_path / "copy")
    copied.pop("in.fastio-set")

    assert contents(tmp_path / "source") == copied
    assert 0 == again.fetched_bytes
    with open_store(source) as before, open_store(report.path) as after:
        assert before.identity == after.identity
        assert before.keys(range(15)) == after.keys(range(15))


def test_unfinished_and_foreign_sources_are_refused(tmp_path: Path) -> None:
    """Shards without a set object, and files without checksums, say what is missing."""
    path = Path(make_set(tmp_path / "source"))
    path.unlink()
    with pytest.raises(StoreIncomplete, match="no set object"):
        stage(str(tmp_path / "source" / "in-%06d.tar"), str(tmp_path / "copy"))
    (tmp_path / "notes.tar").write_bytes(bytes(10240))
    with pytest.raises(StoreError, match=r"notes\.tar: was not packed by fastio"):
        stage(str(tmp_path / "notes.tar"), str(tmp_path / "copy"))


def test_the_folder_of_the_source(tmp_path: Path) -> None:
    """A store is not copied over itself."""
    with pytest.raises(StoreError, match=r"lies in .* already"):
        stage(make_set(tmp_path / "source"), str(tmp_path / "source"))


def test_staged_path(tmp_path: Path) -> None:
    """What a dataset opens: the copy, or the path itself if nothing is to be copied."""
    path = make_set(tmp_path / "source")

    assert path == staged_path(path, Remote())
    assert str(tmp_path / "copy" / "in.fastio-set") == staged_path(path, Remote(stage=str(tmp_path / "copy")))


def test_progress_adds_up(tmp_path: Path) -> None:
    """The meter is told the bytes to copy, and then of each block."""
    path = make_file(tmp_path / "train.tar")
    totals: list[int] = []
    done: list[int] = []

    @contextmanager
    def meter(total: int) -> Any:
        totals.append(total)
        yield lambda _samples, size_bytes: done.append(size_bytes)

    report = stage(path, str(tmp_path / "copy"), meter=meter)

    assert [report.size_bytes] == totals
    assert report.size_bytes == sum(done)


# Blocks of copies, brought by threads.


class CopyOfOneBlock:
    """A copy whose block is there at once."""

    blocks = ((0, 1),)

    def copy(self, block: int) -> None:
        """Bring it."""


def test_copies_are_finished_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if several are whole at once: one that is slow to finish must not keep back those before it."""
    monkeypatch.setattr(file_copy, "wait", lambda blocks, **_: wait(blocks))
    copies = [cast(FileCopy, CopyOfOneBlock()) for _ in range(32)]
    finished: list[Any] = []
    ThreadMover(jobs=16).move(copies, finished.append, lambda _: None)

    assert copies == finished
