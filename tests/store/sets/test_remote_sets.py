"""Shards and sets in an object store: uploads, also refused and interrupted ones, merging and mending."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastio.errors import StoreError
from fastio.store import FORMATS, open_store
from fastio.store.files.remote import obstore_client
from fastio.store.files.remote_options import Remote
from fastio.store.folders import folder_of
from fastio.store.sets.merge import merge_stores
from fastio.store.sets.repair import Copies, repair_set
from fastio.store.sets.seal import read_member, seal_set
from fastio.store.sets.set_object import read_set
from fastio.store.store_folder import StoreFolder
from fastio.store.write.destination import ShardDestination
from tests.servers.fault_server import Fault, FaultServer
from tests.servers.fixtures import Bucket
from tests.store.build import LABELLED, make_batch
from tests.store.small_set import PLAN, write_set

LARGE = bytes(range(256)) * 8192  # goes in parts, in these tests


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A TMPDIR that is empty again after the test; small parts."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(obstore_client, "_ONE_REQUEST", 1 << 20)
    monkeypatch.setattr(obstore_client, "_PART_BYTES", 5 << 20)  # the least that S3 takes
    yield
    assert list((tmp_path / "tmp").iterdir()) == []


def _folder(url: str, options: dict[str, Any]) -> StoreFolder:
    return folder_of(f"{url}/x.tar", Remote(options, download_retry=2, download_timeout=5))[0]


def _upload(folder: StoreFolder, contents: list[bytes], *, overwrite: bool = False) -> list[str]:
    names = [f"x-{number:06d}.tar" for number in range(len(contents))]
    with ShardDestination(folder) as out:
        for number, content in enumerate(contents):
            with out.writer(names[number], LABELLED, plan=PLAN, number=number, overwrite=overwrite) as writer:
                writer.append(make_batch([f"{number}"], [content]))
    return names


def _all_names(bucket: Bucket) -> list[str]:
    """Of the objects and parts, hidden ones too."""
    import obstore

    store = obstore.store.from_url(bucket.url, client_options={"allow_http": True}, **bucket.options)
    return sorted(entry["path"] for entry in obstore.list(store).collect())


@pytest.mark.parametrize("content", [b"small", LARGE], ids=["small", "parts"])
def test_upload(bucket: Bucket, content: bytes) -> None:
    """Shards of any size arrive, become a set and are read; making them again changes nothing."""
    folder = _folder(bucket.url, bucket.options)
    names = _upload(folder, [content, b"other"])
    etags = [folder.etag(name) for name in names]
    assert _upload(folder, [content, b"other"]) == names
    assert etags == [folder.etag(name) for name in names]
    assert _all_names(bucket) == names
    remote = Remote(bucket.options)
    seal_set(f"{bucket.url}/x.fastio-set", names, FORMATS["tar"], metadata=b"{}", options=remote)
    with open_store(f"{bucket.url}/x-%06d.tar", remote=remote) as store:
        spans, status = store.files.fetch(store.spans("image", np.arange(2))).wait()
        assert status is None
        assert [view.tobytes() for view in spans.views()] == [content, b"other"]


@pytest.mark.parametrize("content", [b"small", LARGE], ids=["small", "parts"])
def test_taken(bucket: Bucket, content: bytes) -> None:
    """Another shard of this name stays, and nothing hidden is left; --overwrite replaces it."""
    folder = _folder(bucket.url, bucket.options)
    names = _upload(folder, [b"first"])
    with pytest.raises(StoreError, match=r"x-000000\.tar: exists"):
        _upload(folder, [content])
    assert read_member(folder, names[0], FORMATS["tar"])[1].size < 20_000
    assert _all_names(bucket) == names
    _upload(folder, [content], overwrite=True)
    assert read_member(folder, names[0], FORMATS["tar"])[1].size > len(content)


def test_put_over_a_version(bucket: Bucket, tmp_path: Path) -> None:
    """A file takes the place of one version only."""
    folder = _folder(bucket.url, bucket.options)
    for number, content in enumerate([b"first", b"second", b"third"]):
        write_set(tmp_path / str(number), [content.decode()])
    files = [tmp_path / str(number) / "x-000000.tar" for number in range(3)]
    folder.put("a.tar", files[0])
    etag = folder.etag("a.tar")
    folder.put("a.tar", files[1], etag=etag)
    folder.put("a.tar", files[1], etag=etag)  # as if the first answer had been lost
    with pytest.raises(StoreError, match="replaced by another process"):
        folder.put("a.tar", files[2], etag=etag)
    assert folder.etag("b.tar") is None


@pytest.mark.parametrize("content", [b"small", LARGE], ids=["small", "parts"])
@pytest.mark.parametrize(
    "fault",
    [
        Fault(kind="status", method="PUT", status=403),
        Fault(kind="status", method="PUT", status=503),
        Fault(kind="status", method="PUT", status=507),
        Fault(kind="drop", method="PUT"),
        Fault(kind="status", method="POST", status=403),
    ],
    ids=["403", "503", "507", "drop", "403 of parts"],
)
def test_refused_uploads(bucket: Bucket, faults: FaultServer, fault: Fault, content: bytes) -> None:
    """A refused upload is an error of one line that names the shard, and no object has its name."""
    if fault.method == "POST" and content == b"small":
        return  # takes no such request
    folder = _folder(bucket.url, {**bucket.options, "endpoint": faults.url})
    faults.set_faults(fault)
    with pytest.raises(StoreError, match=r"x-000000\.tar") as caught:
        _upload(folder, [content])
    assert "\n" not in str(caught.value)
    assert _all_names(bucket) == []


@pytest.mark.parametrize("content", [b"small", LARGE], ids=["small", "parts"])
@pytest.mark.parametrize("kind", ["lost", "drop"])
def test_passing_faults(bucket: Bucket, faults: FaultServer, kind: Any, content: bytes) -> None:
    """Answers that get lost and connections that end are tried again, and the shard is there once."""
    folder = _folder(bucket.url, {**bucket.options, "endpoint": faults.url})
    faults.set_faults(Fault(kind=kind, method="PUT", count=1))
    names = _upload(folder, [content])
    assert _all_names(bucket) == names
    assert read_member(folder, names[0], FORMATS["tar"])[1].size > len(content)


def test_merge(bucket: Bucket, tmp_path: Path) -> None:
    """Sets in an object store become one there, and one on this machine lists them by their URLs."""
    remote = Remote(bucket.options)
    for name in "ab":
        write_set(tmp_path / name, [f"{name}0", f"{name}1"])
        for file in (tmp_path / name).iterdir():
            _folder(f"{bucket.url}/{name}", bucket.options).put(file.name, file)
    paths = [f"{bucket.url}/a/x-%06d.tar", f"{bucket.url}/b"]
    for out in (f"{bucket.url}/all.fastio-set", f"{bucket.url}/a/all.fastio-set", str(tmp_path / "all.fastio-set")):
        merge_stores(paths if "/a/" not in out else [f"{bucket.url}/a/x.fastio-set", paths[1]], out, remote=remote)
        with open_store(out, remote=remote) as store:
            assert store.keys(range(4)) == ["a0", "a1", "b0", "b1"]
            spans, status = store.files.fetch(store.spans("image", np.arange(4))).wait()
            assert status is None
            assert [view.tobytes() for view in spans.views()] == [b"a0", b"a1", b"b0", b"b1"]
    with pytest.raises(StoreError, match="exists"):
        merge_stores(paths, f"{bucket.url}/all.fastio-set", remote=remote)


def test_a_missing_shard(bucket: Bucket, tmp_path: Path) -> None:
    """A shard that its set lists and that was never seen is missing, and the error says who brings it back."""
    write_set(tmp_path / "a", ["a", "b"])
    folder = _folder(bucket.url, bucket.options)
    for file in (tmp_path / "a").iterdir():
        if file.name != "x-000001.tar":
            folder.put(file.name, file)
    with open_store(f"{bucket.url}/x.fastio-set", remote=Remote(bucket.options)) as store:
        assert store.keys([1]) == ["b"]
        with pytest.raises(StoreError, match=r"x-000001\.tar: is missing, but its set lists it: fastio repair"):
            store.files.fetch(store.spans("image", np.array([1]))).wait()


def test_repair(bucket: Bucket, tmp_path: Path) -> None:
    """A set in an object store is mended from a copy on this machine, and the other way round."""
    remote = Remote(bucket.options)
    write_set(tmp_path / "set", ["a", "b", "c"])
    folder = _folder(bucket.url, bucket.options)
    for file in (tmp_path / "set").iterdir():
        folder.put(file.name, file)
    whole = (tmp_path / "set/x-000001.tar").read_bytes()
    damaged = tmp_path / "damaged"
    damaged.write_bytes(whole.replace(b"b", b"B"))
    folder.put("x-000001.tar", damaged, replace=True)
    folder.remove("x-000002.tar")
    there = read_set(folder.open("x.fastio-set"))
    report = repair_set(there, [Copies(str(tmp_path / "set"), there)], remote=remote)
    assert [shard.path for shard in report.repaired] == [f"{bucket.url}/x-00000{n}.tar" for n in (1, 2)]
    assert report.left == ()
    (tmp_path / "set/x-000001.tar").unlink()
    here = read_set(_folder(str(tmp_path / "set"), {}).open("x.fastio-set"))
    assert len(repair_set(here, [Copies(bucket.url, here, remote=remote)], remote=remote).repaired) == 1
    assert (tmp_path / "set/x-000001.tar").read_bytes() == whole


def test_refused_requests_are_no_damage(bucket: Bucket, faults: FaultServer, tmp_path: Path) -> None:
    """A shard that cannot be read because requests are refused is not written again."""
    write_set(tmp_path / "set", ["a"])
    options = {**bucket.options, "endpoint": faults.url}
    folder = _folder(bucket.url, options)
    for file in (tmp_path / "set").iterdir():
        folder.put(file.name, file)
    there = read_set(folder.open("x.fastio-set"))
    faults.set_faults(Fault(kind="status", method="GET", path="x-000000.tar", status=403))
    with pytest.raises(StoreError, match=r"x-000000\.tar"):
        repair_set(there, [Copies(str(tmp_path / "set"), there)], remote=Remote(options))
    assert all(request.method == "GET" for request in faults.requests() if request.fault)
