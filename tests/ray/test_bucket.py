"""Shards that tasks upload: the same set, whichever of them are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastio.converters import open_source, pack
from tests.conftest import encode, pictures
from tests.ray import bucket_jobs
from tests.ray.cluster import Cluster
from tests.servers.object_server import why_no_seaweedfs

pytestmark = [pytest.mark.slow, pytest.mark.skipif(why_no_seaweedfs() != "", reason=why_no_seaweedfs() or "is there")]


def test_tasks_pack_into_an_object_store(cluster: Cluster, tmp_path: Path) -> None:
    """The objects are the files that one process packs, to the bit."""
    photos, deaths, alone = tmp_path / "photos", tmp_path / "deaths", tmp_path / "alone"
    for number, pixels in enumerate(pictures(120, (10, 10, 3))):
        path = photos / f"class{number % 2}" / f"{number:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(pixels))
    alone.mkdir()
    pack(open_source(photos), alone / "out-%06d.tar", shard_bytes=60_000)
    deaths.mkdir()
    (deaths / "0-2").touch()

    objects = cluster.run(bucket_jobs.pack_into_bucket, str(photos), deaths=str(deaths), shard_bytes=60_000)

    assert [] == list(deaths.iterdir())
    assert {path.name: path.read_bytes() for path in alone.iterdir()} == objects


def test_rows_go_into_an_object_store(cluster: Cluster, tmp_path: Path) -> None:
    """The set replaces another one; nothing of that, and of the killed tasks, stays."""
    keys, names = cluster.run(bucket_jobs.write_into_bucket, str(tmp_path))

    assert [f"k{i:05d}" for i in range(2000)] == keys
    assert ["died-1999", "died-700"] == sorted(path.name for path in tmp_path.iterdir())
    assert "out.fastio-set" == names[-1]
