"""The shards of a large set are opened when they are first read, and few stay open: here three of twenty."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastio import FastDataset, FastLoader
from fastio.errors import StoreError, StoreIncomplete
from fastio.loader.producer import chunks
from fastio.store import FORMATS, create_store, open_store
from fastio.store.files import late, mapped, pread
from fastio.store.files.byte_source import ByteSource, Read
from fastio.store.files.late import LateSource, Openings
from fastio.store.folders import LocalFolder
from fastio.store.index.store import SealedStore
from fastio.store.index.verify import verify_store
from fastio.store.sets import members, seal, set_object
from fastio.store.sets.merge import merge_stores
from fastio.store.sets.seal import SealedShards, seal_set
from fastio.types.spans import Spans
from tests.forking import in_fork
from tests.store.build import LABELLED, make_batch, read_all
from tests.store.small_set import write_set

COUNT, MOST = 20, 3
KEYS = [f"key {number:02d}" for number in range(COUNT)]
ALL = {key: key.encode() for key in KEYS}
READS: list[Any] = ["map", "pread"]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets of more than two shards are large, and three files are open at a time."""
    monkeypatch.setattr(members, "_AT_ONCE", 2)
    monkeypatch.setattr(members, "most_open", lambda kind: MOST)
    monkeypatch.setattr(pread, "_KEPT_OPEN", MOST)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A set of twenty shards of a sample each."""
    return write_set(tmp_path / "set", KEYS)


def openings_of(store: SealedStore) -> Openings:
    """What has the open files of a store."""
    source = store.sources[0]
    assert isinstance(source, LateSource)
    return source._openings


def open_here(folder: str) -> int:
    """How many descriptors of this process are files of a folder."""
    names = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            names.append(str(entry.readlink()))
        except OSError:
            continue
    return sum(name.startswith(folder) and name.endswith(".tar") for name in names)


@pytest.mark.parametrize("read", READS)
def test_files_are_opened_when_they_are_read(path: str, read: Read) -> None:
    """Nothing of a shard is opened before; afterwards at most three are open, and none after close."""
    with open_store(path, read=read) as store:
        openings = openings_of(store)
        assert store.keys(range(COUNT)) == KEYS
        assert store.size_bytes > 0
        assert len(openings) == open_here(str(Path(path).parent)) == 0
        spans = store.files.fetch(store.spans("image", np.array([5, 7, 5]))).wait()[0]
        assert [view.tobytes() for view in spans.views()] == [ALL[KEYS[i]] for i in (5, 7, 5)]
        assert len(openings) == 2
        assert read_all(store) == ALL
        assert len(openings) == MOST
        assert open_here(str(Path(path).parent)) <= MOST
    assert len(openings) == 0
    assert spans.view(0).tobytes() == ALL[KEYS[5]]  # whoever has bytes keeps them


@pytest.mark.parametrize("read", READS)
def test_an_epoch_is_exact(path: str, read: Read) -> None:
    """Every sample comes once, in any order, and again in a process that unpickles the store."""
    dataset = pickle.loads(pickle.dumps(FastDataset(path, read=read, mode=None)))
    with FastLoader(dataset, 4, shuffle=True, on_error="skip") as loader:
        list(loader)  # whose samples are no pictures
        assert len(loader.skipped) == COUNT
    with open_store(path, read=read) as store:
        order = np.random.default_rng(0).permutation(COUNT)
        spans, status = store.files.fetch(store.spans("image", order)).wait()
        assert status is None
        assert [view.tobytes() for view in spans.views()] == [ALL[KEYS[i]] for i in order]
        assert verify_store(store) == []


@pytest.mark.parametrize("read", READS)
def test_a_missing_or_cut_shard_is_named_at_once(path: str, read: Read) -> None:
    """Hours later would be too late."""
    shard = Path(path).parent / "x-000017.tar"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-512])
    with pytest.raises(StoreIncomplete, match=rf"x-000017\.tar: expected {len(whole)} bytes"):
        open_store(path, read=read)
    shard.unlink()
    with pytest.raises(StoreIncomplete, match=r"x-000017\.tar: is missing"):
        open_store(path, read=read)


@pytest.mark.parametrize("read", READS)
def test_another_shard_is_named_when_it_is_read(path: str, tmp_path: Path, read: Read) -> None:
    """One of the same size, but of another content, is refused by its seal; the others are read."""
    other = write_set(tmp_path / "other", [f"yek {number:02d}" for number in range(COUNT)])
    shard = Path(path).parent / "x-000004.tar"
    shard.write_bytes((Path(other).parent / shard.name).read_bytes())
    with open_store(path, read=read) as store:
        store.files.fetch(store.spans("image", np.array([3, 5]))).wait()
        with pytest.raises(StoreIncomplete, match=r"x-000004\.tar: is another shard"):
            store.files.fetch(store.spans("image", np.array([3, 4]))).wait()
        (damage,) = verify_store(store)
        assert damage.shard == str(shard)
        shard.unlink()
        with pytest.raises(StoreError, match=r"x-000004\.tar: is missing"):
            store.files.fetch(store.spans("image", np.array([4]))).wait()


def test_damage_of_a_sample_is_found(path: str) -> None:
    """As in a small set."""
    with open_store(path) as store:
        spans = store.spans("image", np.array([9]))
        at = int(spans.starts[0])
    shard = Path(path).parent / "x-000009.tar"
    data = bytearray(shard.read_bytes())
    data[at] ^= 1
    shard.write_bytes(data)
    with open_store(path) as store:
        (damage,) = verify_store(store)
    assert (damage.shard, damage.key) == (str(shard), KEYS[9])


@pytest.mark.parametrize("read", READS)
def test_a_fork_while_a_thread_opens_a_shard(path: str, read: Read) -> None:
    """The child, which has no such thread, waits for nobody: neither in the midst of a change, nor behind it."""
    parent, is_changing, may_go_on = os.getpid(), threading.Event(), threading.Event()

    class Changing(OrderedDict[int, ByteSource]):
        def popitem(self, last: bool = True) -> tuple[int, ByteSource]:
            if os.getpid() == parent and not is_changing.is_set():
                is_changing.set()
                assert may_go_on.wait(60)
            return super().popitem(last)

    def read_some(numbers: Sequence[int]) -> None:
        spans = store.files.fetch(store.spans("image", np.array(numbers))).wait()[0]
        assert [view.tobytes() for view in spans.views()] == [ALL[KEYS[i]] for i in numbers]

    def read_in_time() -> None:
        signal.alarm(20)  # ends the child
        read_some([1, 9, 12, 1, 15])
        store.close()

    with open_store(path, read=read) as store, ThreadPoolExecutor(1) as thread:
        openings = openings_of(store)
        openings._open = Changing()
        reading = thread.submit(read_some, [1, 2, 3, 4])
        try:
            assert is_changing.wait(60)
            status = in_fork(read_in_time)
        finally:
            may_go_on.set()
        reading.result()
        assert status == 0


def test_threads_share_the_open_files(path: str) -> None:
    """As many as are read at once, whatever is let go of meanwhile."""
    with open_store(path, read="pread") as store, ThreadPoolExecutor(8) as threads:
        openings = openings_of(store)
        order = np.random.default_rng(1).integers(0, COUNT, 2000).tolist()
        assert list(threads.map(lambda number: openings.opened(number).path, order)) == [
            store.sources[number].path for number in order
        ]
        assert len(openings) <= MOST


class _File:
    """A file that says when nobody has it any more."""

    def __init__(self, ended: Callable[[], object]) -> None:
        self._ended = ended

    def release(self) -> None:
        """As that of a file."""

    def __del__(self) -> None:
        self._ended()


def test_a_file_that_two_threads_open_at_once() -> None:
    """Another thread may read where one of both files ends; played here in one thread, step by step."""
    begun: list[int] = []

    def open_file(number: int) -> Any:
        begun.append(number)
        if begun == [0]:
            openings.opened(0)  # by another thread
        return _File((lambda: openings.opened(1)) if begun == [0, 0] else int)

    openings = Openings(open_file, 1)
    for number in range(4):
        openings.opened(number)
    assert len(openings) == 1


@pytest.mark.parametrize("shuffle", [True, "full"])
def test_few_files_are_mapped_at_a_time(path: str, monkeypatch: pytest.MonkeyPatch, shuffle: Any) -> None:
    """A window or a chunk of tiny samples may have them in more files than a process may map."""
    monkeypatch.setattr(mapped, "_FILES_AHEAD", MOST)
    monkeypatch.setattr(chunks, "_MOST_FILES", MOST)
    at_once: list[int] = []
    map_files = mapped.LateMappedFiles._mapped

    def counting(files: mapped.LateMappedFiles, spans: Spans) -> Spans:
        at_once.append(len(np.unique(spans.shard)))
        return map_files(files, spans)

    monkeypatch.setattr(mapped.LateMappedFiles, "_mapped", counting)
    with FastLoader(FastDataset(path, mode=None), 2, shuffle=shuffle, on_error="skip") as loader:
        list(loader)  # whose samples are no pictures
        assert len(loader.skipped) == COUNT
    assert max(at_once) <= MOST


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("is_merged", [False, True])
def test_opening_makes_nothing_for_each_shard(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Read, is_merged: bool
) -> None:
    """Of a set of hundreds of thousands, few are looked at; whether they lie beside their set object or elsewhere."""
    keys, contents = KEYS, ALL
    if is_merged:
        more = [f"more {number:02d}" for number in range(COUNT)]
        keys, contents = [*KEYS, *more], {**ALL, **{key: key.encode() for key in more}}
        path, first = str(tmp_path / "both.fastio-set"), path
        merge_stores([first, write_set(tmp_path / "more", more)], path)
    made: list[object] = []

    def counted(make: Any) -> Any:
        def made_one(*arguments: Any) -> Any:
            made.append(arguments)
            return make(*arguments)

        return made_one

    monkeypatch.setattr(late, "LateSource", counted(late.LateSource))
    monkeypatch.setattr(set_object, "SetMember", counted(set_object.SetMember))
    with FastDataset(path, read=read, mode=None) as dataset:
        store = dataset.store
        assert (len(made), len(store.shard_paths)) == (0, len(keys))
        assert [str(store.shard_paths[5]), store.shard_paths[-1]] == [store.sources[5].path, store.shards[-1].path]
        assert store.size_bytes == Path(path).stat().st_size + sum(
            Path(name).stat().st_size for name in store.shard_paths
        )
        del made[:]
        store.files.fetch(store.spans("image", np.array([5, 7]))).wait()
        assert 0 < len(made) <= 4  # a file and its entry in the set, for each of two
        assert read_all(store) == contents


def test_how_many_stay_open() -> None:
    """An eighth of the mappings that the kernel allows, and few descriptors."""
    allowed = int(Path("/proc/sys/vm/max_map_count").read_text())
    assert late.most_open("map") == max(1, allowed // 8)
    assert late.most_open("pread") <= 64
    assert "tar" in FORMATS


def test_a_set_of_more_shards_than_may_be_mapped(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With few shards open at a time the set object is the same, and a shard that was replaced meanwhile is named."""
    folder, form = LocalFolder(str(Path(path).parent)), FORMATS["tar"]
    with open_store(path) as store:
        assert store.set_object is not None
        names = [member.name for member in store.set_object.members]
    written = []
    for most in (COUNT, MOST):
        Path(path).unlink()
        monkeypatch.setattr(seal, "most_open", lambda kind, most=most: most)
        seal_set(path, names, form, metadata=b"{}")
        written.append(Path(path).read_bytes())
    assert written[0] == written[1]

    shards = SealedShards.named(folder, names, form)
    assert [shard.path for shard in shards] == [folder.full(name) for name in names]
    assert shards[0] is shards[0]
    assert shards[COUNT - 1] is not shards[COUNT - 1]
    assert [shard.data.memory is None for shard in shards] == [False] * MOST + [True] * (COUNT - MOST)
    Path(folder.full(names[0])).replace(folder.full(names[COUNT - 1]))
    with pytest.raises(StoreError, match=rf"{names[COUNT - 1]}: was replaced"):
        shards[COUNT - 1]


def test_a_set_is_written_of_more_shards_than_may_be_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From front to back, as ``create_store`` does; a shard that is replaced before the set is complete is named."""

    def written(name: str, *, replaced: bool = False) -> bytes:
        (tmp_path / name).mkdir()
        with create_store(tmp_path / name / "x-%06d.tar", LABELLED, shard_bytes=1) as writer:
            for key in KEYS:
                writer.append(make_batch([key], [key.encode()], [0]))
            if replaced:
                shutil.copy(tmp_path / name / "x-000000.tar", tmp_path / name / "x-000018.tar")
        with open_store(tmp_path / name / "x.fastio-set") as store:
            assert read_all(store) == ALL
        return (tmp_path / name / "x.fastio-set").read_bytes()

    expected = written("expected")
    monkeypatch.setattr(seal, "most_open", lambda kind: MOST)
    assert written("few") == expected
    with pytest.raises(StoreError, match=r"x-000018\.tar: was replaced"):
        written("replaced", replaced=True)
    assert list((tmp_path / "replaced").iterdir()) == []
