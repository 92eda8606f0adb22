"""Tar shards of other tools as a set: where they lie, with a checksum of every value."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from fastio import FastDataset, FastLoader
from fastio.converters.verify import verify
from fastio.errors import SampleError, StoreError
from fastio.store import open_store
from fastio.store.files.remote_options import RemoteOptions
from fastio.store.folders import folder_of
from fastio.store.foreign_index import index_foreign
from fastio.store.verify import verify_store
from tests.conftest import encode, pictures
from tests.servers.fixtures import Bucket
from tests.store.small_set import write_set

SAMPLES, SHARDS = 30, 3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Shards as webdataset writes them: a picture, a class and JSON a sample."""
    folder = tmp_path / "shards"
    folder.mkdir()
    every = pictures(SAMPLES)
    for shard in range(SHARDS):
        with tarfile.open(folder / f"x-{shard:06d}.tar", "w") as archive:
            for number in range(shard, SAMPLES, SHARDS):
                values = {"png": encode(every[number]), "cls": b"%d" % (number % 5), "json": b'{"n": %d}' % number}
                for extension, value in values.items():
                    member = tarfile.TarInfo(f"{number:04d}.{extension}")
                    member.size = len(value)
                    archive.addfile(member, io.BytesIO(value))
    return folder


@pytest.fixture
def uploaded(bucket: Bucket, folder: Path) -> str:
    """The URL of the folder with the same shards."""
    remote, _ = folder_of(f"{bucket.url}/w/", RemoteOptions(bucket.options))
    for path in folder.iterdir():
        remote.put(path.name, path)
    return f"{bucket.url}/w"


@pytest.mark.parametrize("name", ["x-{000000..000002}.tar", "x-%06d.tar", "x-*.tar", ""])
def test_shards_behind_a_url(bucket: Bucket, uploaded: str, folder: Path, tmp_path: Path, name: str) -> None:
    """The set object lists them by URL; samples, columns and checksums are those of the local files."""
    options = RemoteOptions(bucket.options)
    report = index_foreign(f"{uploaded}/{name}", str(tmp_path / "index"), options=options)
    assert (report.samples, report.shards) == (SAMPLES, SHARDS)
    assert report.path == str(tmp_path / "index" / ("x.fastio-set" if name else "w.fastio-set"))
    with (
        FastDataset(report.path, storage_options=bucket.options) as dataset,
        FastDataset(folder) as local,
        FastLoader(dataset, 7, shuffle=True, seed=1) as loader,
        FastLoader(local, 7, shuffle=True, seed=1) as plain,
    ):
        assert list(dataset.store.shard_paths) == [f"{uploaded}/x-{shard:06d}.tar" for shard in range(SHARDS)]
        assert dataset.keys == local.keys
        for got, expected in zip(loader, plain, strict=True):
            assert torch.equal(got["image"], expected["image"])
            assert torch.equal(got["label"], expected["label"])
            assert got["json"] == expected["json"]
        assert loader.receipt().is_exact
        assert not verify_store(dataset.store)


def test_damage_after_indexing(folder: Path, tmp_path: Path) -> None:
    """A bit that flips later is a SampleError with its key, and verify lists it; without an index nothing notices."""
    report = index_foreign(str(folder / "x-%06d.tar"), str(tmp_path))
    path = folder / "x-000001.tar"
    with tarfile.open(path) as archive:
        member = archive.getmember("0004.png")
    data = bytearray(path.read_bytes())
    data[member.offset_data + member.size // 2] ^= 1
    path.write_bytes(data)
    with FastDataset(report.path) as dataset:
        at = dataset.keys.index("0004")
        with pytest.raises(SampleError, match="0004"):
            dataset[at]["image"].load()
        assert [damage.key for damage in verify_store(dataset.store)] == ["0004"]


def test_a_folder_with_its_index_may_be_moved(folder: Path, tmp_path: Path) -> None:
    """Shards beside their set object are listed by name, as by a merge."""
    name = Path(index_foreign(str(folder / "x-*.tar"), str(folder)).path).name
    moved = folder.rename(tmp_path / "moved")

    with open_store(moved / name) as store:
        assert store.shard_paths[0] == str(moved / "x-000000.tar")


def test_verify_compares_the_checksums_of_the_index(folder: Path, tmp_path: Path) -> None:
    """Its report says that there were checksums, as it does of shards that fastio packed."""
    report = index_foreign(str(folder / "x-*.tar"), str(tmp_path / "index"))
    assert verify(report.path).checksums
    assert not verify(str(folder)).checksums


def test_without_an_index(bucket: Bucket, uploaded: str) -> None:
    """Opening them behind a URL names the command that makes one, and nothing is scanned request by request."""
    for name in ("x-000000.tar", "x-{000000..000002}.tar", "x-*.tar"):
        with pytest.raises(StoreError, match=rf"{uploaded}/x-0.*`fastio index .* --to DIR`"):
            open_store(f"{uploaded}/{name}", remote=RemoteOptions(bucket.options))


def test_what_cannot_be_indexed(folder: Path, tmp_path: Path, png_stores: dict[str, Path]) -> None:
    """Shards and sets of fastio, files that are no tar, and a name that is taken are errors; nothing is written."""
    to = tmp_path / "to"
    own = write_set(tmp_path / "own", ["a", "b"])
    for path in (str(png_stores["tar"]), str(tmp_path / "own" / "x-%06d.tar")):
        with pytest.raises(StoreError, match=r"\.tar: was packed by fastio and has an index: open it"):
            index_foreign(path, str(to))
    with pytest.raises(StoreError, match=r"x\.fastio-set: is a set object"):
        index_foreign(own, str(to))
    (tmp_path / "no.tar").write_bytes(b"x" * 2000)
    with pytest.raises(StoreError, match=r"no.tar"):
        index_foreign(str(tmp_path / "no.tar"), str(to))
    assert not to.exists()
    pattern = str(folder / "x-*.tar")
    first = index_foreign(pattern, str(to))
    before = Path(first.path).read_bytes()
    with pytest.raises(StoreError, match=r"x.fastio-set"):
        index_foreign(pattern, str(to))
    assert before == Path(index_foreign(pattern, str(to), overwrite=True).path).read_bytes()


def test_the_fields_stay(folder: Path, tmp_path: Path) -> None:
    """Text, JSON and labels have the types that the shards have without an index."""
    report = index_foreign(str(folder / "x-*.tar"), str(tmp_path))
    with open_store(report.path) as store, open_store(folder / "x-*.tar") as plain:
        assert plain.schema == store.schema
        assert np.array_equal(plain.column("label"), store.column("label"))
        assert json.dumps(dict(plain.metadata)) == json.dumps(dict(store.metadata))
