"""MDS, LitData and TFRecord in an object store: samples, the index that is kept, and what is noticed."""

from __future__ import annotations

import pickle
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fastio import FastDataset, FastLoader, Remote, SampleError, Unpacked
from fastio.errors import StoreError
from fastio.store import open_store
from fastio.store.folders import folder_of
from fastio.store.foreign.index import index_store
from fastio.store.index.verify import verify_store
from fastio.store.kinds.unpacked import AS_IT_IS
from fastio.store.remote_folder import RemoteFolder
from fastio.store.store_folder import FolderEntry
from fastio.transforms import RandomResizedCrop
from tests.converters.sources.in_place_kinds import KINDS
from tests.converters.sources.shard_files import write_mds
from tests.converters.sources.test_in_place import same
from tests.converters.trees import picture
from tests.servers.fault_server import Fault, FaultServer
from tests.servers.fixtures import Bucket

COUNT = 12
BEHIND_URLS = pytest.mark.parametrize("kind", ["mds", "litdata", "litdata-tables", "tfrecord"])


pytestmark = pytest.mark.usefixtures("cache")


def uploaded(bucket: Bucket, folder: Path, name: str = "set") -> str:
    """The URL of a folder with the same files."""
    remote, _ = folder_of(f"{bucket.url}/{name}/", Remote(bucket.options))
    for path in folder.iterdir():
        remote.put(path.name, path, replace=True)
    return f"{bucket.url}/{name}"


@BEHIND_URLS
def test_samples_are_those_of_the_files(
    kind: str, bucket: Bucket, tmp_path: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Fields, keys, labels and bytes are those in place here; all is read once, and one line says so."""
    KINDS[kind](tmp_path / "set", COUNT)
    url, remote = uploaded(bucket, tmp_path / "set"), Remote(bucket.options)
    with open_store(tmp_path / "set") as here:
        for _ in range(2):
            with open_store(url, remote=remote) as there:
                same(here, there)
                assert not verify_store(there)
                assert there.path == url
            assert ["once, to find the samples" in each.message for each in caplog.records] == [True]
    assert [".fastio-index"] == [path.suffix for path in (cache / "fastio").iterdir()]


@BEHIND_URLS
def test_batches_are_those_of_the_files(kind: str, bucket: Bucket, tmp_path: Path) -> None:
    """Fully shuffled and resumed in the middle, by a process that opens it anew, with start points: the same."""
    KINDS[kind](tmp_path / "set", COUNT)
    url, remote = uploaded(bucket, tmp_path / "set"), Remote(bucket.options, cache_dir=tmp_path / "ranges")
    assert COUNT == index_store(url, options=remote).samples
    batches = []
    for dataset in (FastDataset(url, remote=remote), FastDataset(tmp_path / "set")):
        again = pickle.loads(pickle.dumps(dataset))
        assert again.keys == dataset.keys
        with FastLoader(dataset, 5, shuffle="full", seed=2, transforms=[RandomResizedCrop(8)], threads=2) as loader:
            numbered = [next(iter(loader.numbered()))]
            loader.load_state_dict(loader.state_dict())
            numbered += loader.numbered()
            batches.append([(each.indices.tolist(), each.batch) for each in numbered])
    for (numbers, there), (others, here) in zip(*batches, strict=True):
        assert numbers == others
        assert there.keys() == here.keys()
        for name, value in here.items():
            assert str(value) == str(there[name])


def test_names_of_classes_are_joined(bucket: Bucket, tmp_path: Path) -> None:
    """Shards with other names of classes have one list of them; fields are those of the first shard."""
    names = ["dog", "cat", "bee", "ant"]
    samples = [{"x": picture(i), "label": names[i // 4 % 4].encode()} for i in range(16)]
    write_mds(tmp_path / "set", {"x": "png", "label": "str"}, samples)
    with open_store(uploaded(bucket, tmp_path / "set"), remote=Remote(bucket.options)) as there:
        assert sorted(names) == there.metadata["classes"]
        assert [sorted(names).index(names[i // 4 % 4]) for i in range(16)] == there.column("label").tolist()


def test_others_are_noticed(bucket: Bucket, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Another list of shards is read anew; a shard that was damaged since is an error of its samples."""
    KINDS["mds"](tmp_path / "set", 8)
    url, remote = uploaded(bucket, tmp_path / "set"), Remote(bucket.options)
    assert 8 == len(FastDataset(url, remote=remote))
    KINDS["mds"](tmp_path / "more", COUNT)
    uploaded(bucket, tmp_path / "more")
    caplog.clear()
    dataset = FastDataset(url, remote=remote)
    assert COUNT == len(dataset)
    assert "once, to find the samples" in caplog.text

    shard = tmp_path / "more" / "shard.00000.mds"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    uploaded(bucket, tmp_path / "more")
    again = FastDataset(url, remote=remote)
    with pytest.raises(SampleError, match=r"shard\.00000"):
        [again[i] for i in range(4)]
    assert ["shard.00000/3"] == [each.key for each in verify_store(again.store)]


@pytest.mark.parametrize("kind", ["mds", "litdata", "litdata-tables"])
def test_a_shard_that_is_not_listed(
    kind: str, bucket: Bucket, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each opening names it, as on a disk, as long as it is there; a server without listings tells nothing."""
    KINDS[kind](tmp_path / "set", COUNT)
    url, remote = uploaded(bucket, tmp_path / "set"), Remote(bucket.options)
    assert [] == open_store(url, remote=remote).metadata["skipped"]
    first = min(path for path in (tmp_path / "set").iterdir() if path.suffix in (".mds", ".bin"))
    extra = first.with_stem(first.stem.replace("0", "7"))
    shutil.copy(first, extra)
    uploaded(bucket, tmp_path / "set")
    caplog.clear()
    with open_store(url, remote=remote) as there, open_store(tmp_path / "set") as here:
        same(here, there)
        assert here.metadata["skipped"] == there.metadata["skipped"]
        assert [extra.name] == [each["key"] for each in there.metadata["skipped"]]
    words = f"samples: {COUNT}; not among them: 1, e.g. '{extra.name}' is a shard that index.json does not list"
    assert [words in each.message for each in caplog.records] == [True, True]
    caplog.clear()
    assert COUNT == index_store(url, options=remote).samples
    assert [words in each.message for each in caplog.records] == [False, True]  # the first: all is read

    def refuse(_: RemoteFolder) -> Any:
        raise StoreError("lists nothing")

    monkeypatch.setattr(RemoteFolder, "entries", refuse)
    with open_store(url, remote=remote) as there:
        assert [] == there.metadata["skipped"]


def test_a_shard_that_differs_from_its_list(bucket: Bucket, tmp_path: Path) -> None:
    """It is named by its URL, and no index is kept."""
    KINDS["mds"](tmp_path / "set", 8)
    shard = tmp_path / "set" / "shard.00001.mds"
    shard.write_bytes(shard.read_bytes()[:-1])
    url, remote = uploaded(bucket, tmp_path / "set"), Remote(bucket.options)
    with pytest.raises(StoreError, match=rf"{url}.*shard\.00001\.mds: has .* bytes"):
        FastDataset(url, remote=remote)


@pytest.mark.parametrize("kind", ["mds", "tfrecord"])
def test_splits_in_folders(kind: str, bucket: Bucket, tmp_path: Path) -> None:
    """A part is chosen by the words that choose it here, the only one by none; the lines of refusals are the same."""
    remote = Remote(bucket.options)
    (tmp_path / "set").mkdir()
    KINDS[kind](tmp_path / "set" / "train", COUNT)
    uploaded(bucket, tmp_path / "set" / "train", "set/train")
    with open_store(f"{bucket.url}/set", remote=remote) as there, open_store(tmp_path / "set") as here:
        same(here, there)
    KINDS[kind](tmp_path / "set" / "val", 8)
    uploaded(bucket, tmp_path / "set" / "val", "set/val")
    lines = []
    for path in (f"{bucket.url}/set", str(tmp_path / "set")):
        for unpacked, count in ((Unpacked(split="train"), COUNT), (Unpacked(split="val"), 8)):
            assert count == len(FastDataset(path, remote=remote, unpacked=unpacked))
        for unpacked in (AS_IT_IS, Unpacked(split="dev")):
            with pytest.raises(StoreError) as caught:
                FastDataset(path, remote=remote, unpacked=unpacked)
            lines.append(str(caught.value).removeprefix(path))
    assert lines[1] == lines[3]
    assert ": holds several splits, train, val: choose one with --split" == lines[0]
    assert kind != "mds" or lines[0] == lines[2]
    assert 8 == index_store(f"{bucket.url}/set", options=remote, unpacked=Unpacked(split="val")).samples


def test_more_folders_than_are_looked_into(bucket: Bucket, tmp_path: Path) -> None:
    """The only folder that has some may have others behind it that nobody looked into: --split has to choose."""
    remote = Remote(bucket.options)
    KINDS["mds"](tmp_path / "train", 8)
    KINDS["mds"](tmp_path / "val", COUNT)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "notes.txt").write_text("nothing")
    uploaded(bucket, tmp_path / "train", "set/a-train")
    for number in range(15):
        uploaded(bucket, tmp_path / "notes", f"set/b-{number:02d}")
    assert 8 == len(FastDataset(f"{bucket.url}/set", remote=remote))
    uploaded(bucket, tmp_path / "val", "set/z-val")
    with pytest.raises(StoreError, match=r"has 17 folders, of which 16 were looked into: choose one with --split"):
        FastDataset(f"{bucket.url}/set", remote=remote)
    assert COUNT == len(FastDataset(f"{bucket.url}/set", remote=remote, unpacked=Unpacked(split="z-val")))


def test_a_split_that_cannot_be_listed(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one is not read as if it were all."""
    remote = Remote(bucket.options)
    for name in ("train", "val"):
        KINDS["tfrecord"](tmp_path / name, 8)
        uploaded(bucket, tmp_path / name, f"set/{name}")
    entries = RemoteFolder.entries

    def failing(folder: RemoteFolder) -> Mapping[str, FolderEntry]:
        if folder.path.endswith("/val"):
            raise StoreError(f"{folder.path}: refused")
        return entries(folder)

    monkeypatch.setattr(RemoteFolder, "entries", failing)
    with pytest.raises(
        StoreError, match=r"its folder 'val' may be a split, but cannot be listed \(.*set/val: refused\)"
    ):
        FastDataset(f"{bucket.url}/set", remote=remote)
    assert 8 == len(FastDataset(f"{bucket.url}/set", remote=remote, unpacked=Unpacked(split="train")))


def test_splits_in_names(bucket: Bucket, tmp_path: Path) -> None:
    """TFRecord files of several splits are not mixed; one is chosen by its name, or by a pattern."""
    remote = Remote(bucket.options)
    KINDS["tfrecord"](tmp_path / "set", COUNT)
    for path in list((tmp_path / "set").iterdir()):
        shutil.copy(path, path.with_name(path.name.replace("train", "validation")))
    url = uploaded(bucket, tmp_path / "set")
    for folder in (url, str(tmp_path / "set")):
        expected = re.escape(f"{folder}: holds several splits, train (2 files), validation (2 files): choose one with")
        with pytest.raises(StoreError, match=expected):
            FastDataset(folder, remote=remote)
        chosen = FastDataset(folder, remote=remote, unpacked=Unpacked(split="validation"))
        assert ["validation-00000-of-00002/0", COUNT] == [chosen.keys[0], len(chosen)]
        assert chosen.keys == FastDataset(f"{folder}/validation-*", remote=remote).keys


def test_one_process_reads_for_all(
    bucket: Bucket, tmp_path: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Those that open it meanwhile wait, and use its index; if it is killed, one of them reads."""
    KINDS["mds"](tmp_path / "set", COUNT)
    url, remote = uploaded(bucket, tmp_path / "set"), Remote(bucket.options)
    with open_store(url, remote=remote):
        (place,) = (cache / "fastio").glob("*.fastio-index")
    place.unlink()
    held = f"import sys, time; from fastio.store.write.locks import turn; t = turn({str(place)!r})"
    holder = subprocess.Popen(
        [sys.executable, "-c", f"{held}; t.__enter__(); print(); sys.stdout.flush(); time.sleep(600)"],
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    caplog.clear()
    with ThreadPoolExecutor(3) as threads:
        opened = [threads.submit(FastDataset, url, remote=remote) for _ in range(3)]
        while caplog.text.count("waiting until it is there") < 3:
            time.sleep(0.01)
        assert not place.exists()
        holder.kill()
        holder.wait()
        holder.stdout.close()
        assert [COUNT] * 3 == [len(each.result()) for each in opened]
    assert 1 == caplog.text.count("once, to find the samples")
    assert [place] == [*(cache / "fastio").iterdir()]


def test_what_is_no_container(bucket: Bucket, tmp_path: Path) -> None:
    """The error is that of a store that is not there; a stage is refused."""
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "index.json").write_text("{}")
    url = uploaded(bucket, tmp_path / "set")
    with pytest.raises(StoreError, match=url):
        open_store(url, remote=Remote(bucket.options))
    KINDS["litdata"](tmp_path / "b", 4)
    uploaded(bucket, tmp_path / "b")
    with pytest.raises(StoreError, match="drop stage="):
        open_store(url, remote=Remote(bucket.options, stage=tmp_path / "stage"))


def test_an_index_that_cannot_be_read(bucket: Bucket, faults: FaultServer, tmp_path: Path) -> None:
    """What the server answers is said, not that nothing is there."""
    KINDS["mds"](tmp_path / "set", COUNT)
    url = uploaded(bucket, tmp_path / "set")
    faults.set_faults(Fault(kind="status", status=403, path="index.json"))
    with pytest.raises(StoreError, match=r"set/index\.json: .*403"):
        open_store(url, remote=Remote({**bucket.options, "endpoint": faults.url}))
