"""Sets mended from their source, as they were packed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastio.converters import Transcode, open_source, pack
from fastio.converters.packing.repair import repair
from fastio.errors import StoreError
from fastio.store import open_store
from tests.converters.packing.sources import PATTERN, files, packed, source_in
from tests.store.small_set import write_set


def _damage(folder: Path) -> dict[str, bytes]:
    """Remove a shard and flip a bit of another. Returns all files as they were."""
    whole = files(folder)
    (folder / (PATTERN % 1)).unlink()
    damaged = bytearray(whole[PATTERN % 2])
    damaged[1500] ^= 8
    (folder / (PATTERN % 2)).write_bytes(damaged)
    return whole


@pytest.mark.parametrize(
    "pictures", [None, Transcode(restart=8), Transcode(short_side=16)], ids=["bytes", "restart", "smaller"]
)
def test_packed_again(tmp_path, pictures):
    """Shards come back to the same bytes, with the options and the order that they were packed with."""
    folder = packed(tmp_path, "out", source_in(tmp_path).shuffled(5), pictures=pictures)
    whole = _damage(folder)
    report = repair(str(folder / "out.fastio-set"), source_in(tmp_path).path)
    assert [Path(shard.path).name for shard in report.repaired] == [PATTERN % 1, PATTERN % 2]
    assert files(folder) == whole


def test_store_as_source(tmp_path):
    """A set that was packed from a store is mended from that store."""
    pack(source_in(tmp_path), tmp_path / "all.lmdb")
    folder = packed(tmp_path, "out", open_source(tmp_path / "all.lmdb"))
    whole = _damage(folder)
    assert len(repair(str(folder), str(tmp_path / "all.lmdb")).repaired) == 2
    assert files(folder) == whole


def test_changed_source(tmp_path):
    """A source that is not what it was mends nothing, and is named with what differs."""
    folder = packed(tmp_path, "out", source_in(tmp_path))
    _damage(folder)
    before = files(folder)
    first = sorted((tmp_path / "classes").glob("*/*"))[0]
    first.rename(first.with_name(f"other_{first.name}"))
    report = repair(str(folder), str(tmp_path / "classes"))
    assert report.repaired == ()
    assert all("the first key that differs" in str(shard.reason) for shard in report.left)
    assert files(folder) == before


def test_other_content(tmp_path):
    """A file of the same name and size, but with other bytes, gives no shard."""
    folder = packed(tmp_path, "out", source_in(tmp_path))
    _damage(folder)
    with open_store(packed(tmp_path, "copy", source_in(tmp_path))) as store:
        first = store.shards[0].count
        key = store.keys([first])[0]
    file = tmp_path / "classes" / key
    content = bytearray(file.read_bytes())
    content[-20] ^= 1
    file.write_bytes(content)
    report = repair(str(folder), str(tmp_path / "classes"))
    assert [Path(shard.path).name for shard in report.left] == [PATTERN % 1]
    assert [Path(shard.path).name for shard in report.repaired] == [PATTERN % 2]


def test_without_plan(tmp_path):
    """A set that was written as a stream is mended from copies alone."""
    pack(source_in(tmp_path), tmp_path / "x.lmdb")
    write_set(tmp_path / "set", ["a", "b"], plan=0)
    (tmp_path / "set/x-000001.tar").unlink()
    report = repair(str(tmp_path / "set"), str(tmp_path / "classes"))
    assert "without a plan" in str(report.left[0].reason)


def test_no_set_object(tmp_path):
    """Without a set object nobody knows what the shards must be."""
    folder = packed(tmp_path, "out", source_in(tmp_path))
    (folder / "out.fastio-set").unlink()
    with pytest.raises(StoreError, match="fastio seal"):
        repair(str(folder / PATTERN), str(tmp_path / "classes"))
