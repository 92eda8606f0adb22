"""Sets packed straight into an object store."""

from __future__ import annotations

import tempfile

import pytest

from fastio.converters import pack
from fastio.errors import StoreError
from fastio.store import create_store, open_store
from fastio.store.files.remote_options import RemoteOptions
from fastio.store.folders import folder_of
from tests.converters.planned.packing import PATTERN, SHARD_BYTES, files, packed, source_in
from tests.store.build import LABELLED


def test_packed_to_a_bucket(bucket, tmp_path, monkeypatch):
    """Shards and set object are those of a local pack, byte for byte; nothing is left in TMPDIR."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    expected = files(packed(tmp_path, "here", source_in(tmp_path)))
    remote, out = RemoteOptions(bucket.options), f"{bucket.url}/x/{PATTERN}"
    report = pack(source_in(tmp_path), out, shard_bytes=SHARD_BYTES, remote=remote)
    folder, _ = folder_of(out, remote)

    assert report.packed == 18
    assert {
        name: folder.open(name).read(0, entry.size).tobytes() for name, entry in folder.entries().items()
    } == expected
    assert list((tmp_path / "tmp").iterdir()) == []
    with pytest.raises(StoreError, match="exists"):
        pack(source_in(tmp_path), out, shard_bytes=SHARD_BYTES, remote=remote)
    lost = sorted(expected)[1]
    folder.remove(lost)
    report = pack(source_in(tmp_path), out, shard_bytes=SHARD_BYTES, remote=remote, resume=True)
    assert (report.shards - report.kept_shards, lost in folder.entries()) == (1, True)
    pack(source_in(tmp_path), out, shard_bytes=SHARD_BYTES, remote=remote, overwrite=True)
    with open_store(out, remote=remote) as store:
        assert len(store) == 18


def test_what_is_not_packed_to_a_bucket():
    """Single files and streams are refused before a request is sent."""
    with pytest.raises(StoreError, match="what is streamed"):
        create_store("s3://bucket/x-%06d.tar", LABELLED)
    with pytest.raises(StoreError, match="what is streamed"):
        create_store("s3://bucket/x.lmdb", LABELLED)
