"""What URLs name: set objects, patterns, ranges, folders and single files, by the requests that this takes."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import numpy as np
import pytest

from fastio import FastDataset, Remote
from fastio.errors import StoreError, StoreNotFound
from fastio.store import FORMATS, create_shard, open_store
from fastio.store.files import KINDS
from fastio.store.remote_folder import RemoteFolder
from fastio.store.sets.seal import seal_set
from fastio.store.store_folder import FolderEntry
from tests.store.build import LABELLED, make_batch, make_samples, write
from tests.store.files.toy import SCHEME, Bucket
from tests.store.version_1 import make_version_1

SHARDS = 40
FOLDER = f"{SCHEME}bucket/set"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """Objects under ``toy://``, whose folders can be listed; listings count as reads of a folder."""
    bucket = Bucket()

    def entries(folder: RemoteFolder) -> Mapping[str, FolderEntry]:
        prefix = f"{folder.path}/"
        bucket.reads.append((prefix, 0, 0))
        names = sorted(path.removeprefix(prefix) for path in bucket.objects if path.startswith(prefix))
        return {name: FolderEntry(name, 1) for name in names if "/" not in name}

    monkeypatch.setitem(KINDS, "toy", bucket.kind())
    monkeypatch.setattr(RemoteFolder, "entries", entries)
    monkeypatch.setattr(
        "fastio.store.files.remote.remote_source.RemoteSource.known",
        lambda path, options, **_: KINDS["toy"].open(path, options),
    )
    return bucket


def _upload(bucket: Bucket, folder: Path, to: str = FOLDER) -> None:
    for path in sorted(folder.iterdir()):
        bucket.put(f"{to}/{path.name}", path.read_bytes())


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """A set of many shards."""
    for number in range(SHARDS):
        with create_shard(tmp_path / f"in-{number:06d}.tar", LABELLED, plan=1, number=number) as writer:
            writer.append(make_batch([f"{number}/a.png"], [b"value %d" % number]))
    names = [f"in-{number:06d}.tar" for number in range(SHARDS)]
    seal_set(str(tmp_path / "in.fastio-set"), names, FORMATS["tar"], metadata=b"{}")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "listings"),
    [("in.fastio-set", 0), ("in-%06d.tar", 0), ("in-*.tar", 0), ("in-{000000..000039}.tar", 0), ("", 1)],
)
def test_a_set_opens_by_its_object_alone(bucket: Bucket, local: Path, name: str, listings: int) -> None:
    """The end of the set object and its arrays, whatever names it and however many shards it has."""
    _upload(bucket, local)
    with open_store(f"{FOLDER}/{name}") as store, open_store(local / "in.fastio-set") as expected:
        reads = [path for path, start, stop in bucket.reads if stop]
        assert [f"{FOLDER}/in.fastio-set"] == sorted(set(reads))
        assert listings == len(bucket.reads) - len(reads)
        assert expected.keys(np.arange(SHARDS)) == store.keys(np.arange(SHARDS))
        assert expected.identity == store.identity == pickle.loads(pickle.dumps(store)).identity
        assert expected.size_bytes == store.size_bytes
        spans, _ = store.files.fetch(store.spans("image", np.array([37]))).wait()
        assert b"value 37" == spans.view(0).tobytes()


def test_a_folder_without_a_slash(bucket: Bucket, local: Path) -> None:
    """A name without the suffix of a format is a folder."""
    _upload(bucket, local)
    with FastDataset(FOLDER, mode=None) as dataset:
        assert len(dataset) == SHARDS


def test_several_sets_in_a_folder(bucket: Bucket, local: Path) -> None:
    """The message names them."""
    _upload(bucket, local)
    bucket.put(f"{FOLDER}/other.fastio-set", b"")
    with pytest.raises(
        StoreError, match=r"toy://bucket/set: holds 2 sets: name one of in.fastio-set, other.fastio-set"
    ):
        open_store(FOLDER)


def test_a_range_of_other_shards(bucket: Bucket, local: Path) -> None:
    """A range that is not the whole set is refused, not completed silently."""
    _upload(bucket, local)
    with pytest.raises(StoreError, match=r"names 30 shards, of which 30 are among the 40 of the set .*in.fastio-set"):
        open_store(f"{FOLDER}/in-{{000000..000029}}.tar")


def test_another_format(bucket: Bucket, local: Path) -> None:
    """A pattern of another format does not open the set beside it."""
    _upload(bucket, local)
    with pytest.raises(StoreError, match=r"in-%06d.lmdb: .*in.fastio-set is a set of tar shards: open it by that name"):
        open_store(f"{FOLDER}/in-%06d.lmdb")


def _version_1(folder: Path) -> Iterator[str]:
    write(folder / "x-%d.tar", make_samples(60), shard_bytes=40_000)
    yield from sorted(path.name for path in make_version_1(folder / "x-%d.tar"))


@pytest.mark.parametrize("name", ["x-%d.tar", "x-*.tar", "x-{0..LAST}.tar", ""])
def test_a_set_of_version_1(bucket: Bucket, tmp_path: Path, name: str) -> None:
    """Shards whose seals know the set are found by listing or range."""
    last = len(list(_version_1(tmp_path))) - 1
    _upload(bucket, tmp_path)
    with open_store(f"{FOLDER}/{name.replace('LAST', str(last))}") as store, open_store(tmp_path / "x-%d.tar") as local:
        assert last + 1 == len(store.shard_paths) > 1
        assert local.identity == store.identity


def test_single_files(bucket: Bucket, tmp_path: Path, suffix: str) -> None:
    """A file of any format opens by its URL, with three reads at most, and keeps its URL."""
    path = Path(write(tmp_path / f"x.{suffix}", make_samples(700)))
    _upload(bucket, tmp_path)
    with open_store(f"{FOLDER}/{path.name}") as store:
        assert f"{FOLDER}/{path.name}" == store.path == store.shard_paths[0]
        assert path.stat().st_size == store.size_bytes
        assert 700 == len(store)


def test_nothing_there(bucket: Bucket) -> None:
    """Missing objects are StoreNotFound, which names what was asked for."""
    for name in ("x.lmdb", "x-%06d.tar", "x-*.tar", "x.fastio-set", "", "x-{0..3}.tar"):
        with pytest.raises(StoreNotFound, match=r"toy://bucket/set"):
            open_store(f"{FOLDER}/{name}")


def test_the_web_cannot_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern on a web server without a set object is an error that says what to name."""

    def missing(path: str, *_: object, **__: object) -> None:
        raise StoreNotFound(f"{path}: no such object")

    for module in ("fastio.store.remote_folder", "fastio.converters.sources.behind_url"):
        monkeypatch.setattr(f"{module}.open_file", missing)
    for name in ("x-%06d.tar", "x-*.tar", ""):
        with pytest.raises(StoreError, match=r"https://host/a/.*: a web server does not list its files: name the set"):
            open_store(f"https://host/a/{name}")


def test_paths_of_pathlib() -> None:
    """A URL in a Path has lost a slash: the message says so."""
    with pytest.raises(StoreError, match=r"s3:/bucket/x.lmdb: pathlib drops a slash of a URL: pass it as a str"):
        open_store(PurePosixPath("s3://bucket/x.lmdb"))


def test_options_are_for_paths(local: Path) -> None:
    """Options of requests with an open store would be ignored: a ValueError says where they go."""
    with open_store(local / "in.fastio-set") as store, pytest.raises(ValueError, match="remote= is for a path"):
        FastDataset(store, remote=Remote(download_retry=3))


def test_a_lone_shard_is_no_set(bucket: Bucket, local: Path) -> None:
    """One shard of a set says that it is not the whole."""
    _upload(bucket, local)
    with pytest.raises(StoreError, match=r"in-000001.tar"):
        open_store(f"{FOLDER}/in-000001.tar")
