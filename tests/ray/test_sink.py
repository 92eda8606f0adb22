"""Sink: rows of Ray Data become a set of shards, all of them or none."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fastio.errors import StoreError
from fastio.store import SampleStore, open_store
from fastio.store.protocol import read_values
from tests.ray import sink_jobs
from tests.ray.cluster import Cluster, JobError

pytestmark = pytest.mark.slow


def keys_of(path: Path) -> list[str]:
    """The keys of a store, in order."""
    with open_store(path) as store:
        return store.keys(range(len(store)))


def values(store: SampleStore, field: str) -> list[Any]:
    """The bytes of one field, sample by sample."""
    return list(read_values(store, field, np.arange(len(store))).views())


def names_in(folder: Path) -> list[str]:
    """All files of a folder, hidden ones too."""
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_rows_arrive_in_order(cluster: Cluster, tmp_path: Path, blocks: int) -> None:
    """A shard for each task, and all rows in their order, whatever the number of blocks."""
    report = cluster.run(sink_jobs.write, f"{tmp_path}/out-%06d.tar", 40, blocks)

    assert (40, blocks) == (report["packed"], report["shards"])
    assert [f"k{i:05d}" for i in range(40)] == keys_of(tmp_path / "out.fastio-set")
    assert [*(f"out-{i:06d}.tar" for i in range(blocks)), "out.fastio-set"] == names_in(tmp_path)


def test_the_set_reads_as_what_was_written(cluster: Cluster, tmp_path: Path) -> None:
    """Texts, numbers, arrays, and what the set says of itself."""
    report = cluster.run(sink_jobs.write, f"{tmp_path}/out-%06d.tar", 7, 2, metadata={"made": "here"})

    with open_store(tmp_path / "out.fastio-set") as store:
        assert list(range(7)) == store.column("n").tolist()
        assert [f"text {i}" for i in range(7)] == [bytes(value).decode() for value in values(store, "text")]
        assert np.arange(4, 7).tolist() == np.frombuffer(values(store, "scores")[4], "<f4").tolist()
        assert ("here", "ray", []) == (
            store.metadata["made"],
            store.metadata["source"]["kind"],
            store.metadata["skipped"],
        )
    assert report["text"].startswith(f"{tmp_path}/out-%06d.tar: 7 samples of text, n, scores")


@pytest.mark.parametrize(("options", "expected"), [({}, True), ({"jump": False}, False)])
def test_photos_have_start_points(cluster: Cluster, tmp_path: Path, options: dict[str, Any], expected: bool) -> None:
    """As those of ``fastio.Writer``."""
    pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8).repeat(4, 0).repeat(4, 1)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG")
    cluster.run(sink_jobs.write_photo, f"{tmp_path}/out-%06d.tar", file.getvalue(), **options)

    with open_store(tmp_path / "out.fastio-set") as store:
        assert expected == (store.spans("image", np.arange(1)).intervals is not None)


def test_a_relative_path_is_that_of_the_driver(cluster: Cluster, tmp_path: Path) -> None:
    """Workers have other current folders; the shards lie beside the set."""
    cluster.run(sink_jobs.write_in_folder, str(tmp_path), "out-%06d.tar", 4, 2)

    assert ["out-000000.tar", "out-000001.tar", "out.fastio-set"] == names_in(tmp_path)


def test_a_large_block_becomes_several_shards(cluster: Cluster, tmp_path: Path) -> None:
    """``shard_bytes`` ends a shard; its file is called by task and number, and the set keeps the order."""
    report = cluster.run(sink_jobs.write, f"{tmp_path}/out-%06d.tar", 1200, 2, shard_bytes=1)

    assert (1200, 4) == (report["packed"], report["shards"])
    assert [f"k{i:05d}" for i in range(1200)] == keys_of(tmp_path / "out.fastio-set")
    assert ["out-000000.tar", "out-000001.tar", "out-1000000.tar", "out-1000001.tar", "out.fastio-set"] == names_in(
        tmp_path
    )


def test_types_that_nobody_names_are_inferred(cluster: Cluster, tmp_path: Path) -> None:
    """Without fields, columns are fields by what their values are."""
    cluster.run(sink_jobs.write, f"{tmp_path}/out-%06d.tar", 10, 2, fields=None)

    with open_store(tmp_path / "out.fastio-set") as store:
        assert ["text", "n", "scores"] == [field.name for field in store.schema.fields]


def test_types_that_tasks_infer_differently(cluster: Cluster, tmp_path: Path) -> None:
    """The error names both types, and nothing stays."""
    with pytest.raises(JobError, match=r"task 0 inferred the fields .* task 1 .*: give their types") as caught:
        cluster.run(
            sink_jobs.write, f"{tmp_path}/out-%06d.tar", 10, 2, sink_jobs.only_above, (5,), fields=["n", "text"]
        )

    assert "SchemaError" in caught.value.kinds
    assert [] == names_in(tmp_path)


def test_samples_without_keys_are_called_by_task_and_row(cluster: Cluster, tmp_path: Path) -> None:
    """Names are unique without a key."""
    cluster.run(sink_jobs.write, f"{tmp_path}/out-%06d.tar", 4, 2, key=None)

    assert ["000000-00000000", "000000-00000001", "000001-00000000", "000001-00000001"] == keys_of(
        tmp_path / "out.fastio-set"
    )


def test_a_row_that_does_not_fit_ends_the_write(cluster: Cluster, tmp_path: Path) -> None:
    """SampleError names key and field, and nothing stays: neither a set nor the other tasks' shards."""
    with pytest.raises(JobError, match=r"'k00007' has a field 'n' that is None; expected a whole number") as caught:
        cluster.run(sink_jobs.write, f"{tmp_path}/out-%06d.tar", 10, 2, sink_jobs.without_number, ([7],))

    assert "SampleError" in caught.value.kinds
    assert [] == names_in(tmp_path)


def test_rows_that_do_not_fit_are_listed(cluster: Cluster, tmp_path: Path) -> None:
    """With on_error="skip", the set lists them in order, and holds all others."""
    report = cluster.run(
        sink_jobs.write, f"{tmp_path}/out-%06d.tar", 10, 2, sink_jobs.without_number, ([1, 7],), on_error="skip"
    )

    assert 8 == report["packed"]
    with open_store(tmp_path / "out.fastio-set") as store:
        assert ["k00001", "k00007"] == [entry["key"] for entry in store.metadata["skipped"]]
        assert 8 == len(store)


def test_a_task_whose_rows_are_all_skipped(cluster: Cluster, tmp_path: Path) -> None:
    """Writes no shard; its rows are listed."""
    report = cluster.run(
        sink_jobs.write, f"{tmp_path}/out-%06d.tar", 4, 2, sink_jobs.without_number, ([0, 1],), on_error="skip"
    )

    assert (2, 1, 2) == (report["packed"], report["shards"], len(report["skipped"]))


def test_keys_that_come_twice(cluster: Cluster, tmp_path: Path) -> None:
    """Found when the set is made, however far apart they were; nothing stays."""
    with pytest.raises(JobError, match="k00000") as caught:
        cluster.run(sink_jobs.write, f"{tmp_path}/out-%06d.tar", 10, 2, sink_jobs.same_name, (9,))

    assert "FastioError" in caught.value.kinds
    assert [] == names_in(tmp_path)


def test_no_rows_at_all(cluster: Cluster, tmp_path: Path) -> None:
    """An empty dataset is no store."""
    with pytest.raises(JobError, match="nothing was kept, the dataset has no rows"):
        cluster.run(sink_jobs.write, f"{tmp_path}/out-%06d.tar", 0, 1)

    assert [] == names_in(tmp_path)


def test_killed_workers_write_nothing_twice(cluster: Cluster, tmp_path: Path) -> None:
    """Ray starts their tasks again; the set is that of an undisturbed write, and nothing else is left."""
    deaths, out = tmp_path / "deaths", tmp_path / "out"
    deaths.mkdir()
    out.mkdir()
    report = cluster.run(
        sink_jobs.write, f"{out}/out-%06d.tar", 2000, 4, sink_jobs.dying, (str(deaths), [700, 1999]), shard_bytes=1
    )

    assert ["died-1999", "died-700"] == names_in(deaths)
    assert 2000 == report["packed"]
    assert [f"k{i:05d}" for i in range(2000)] == keys_of(out / "out.fastio-set")
    with open_store(out / "out.fastio-set") as store:
        listed = {Path(path).name for path in store.shard_paths}
    assert sorted([*listed, "out.fastio-set"]) == names_in(out)


def test_a_task_that_always_fails(cluster: Cluster, tmp_path: Path) -> None:
    """The write ends with its error, without a set or a shard."""
    with pytest.raises(JobError, match="cannot be computed"):
        cluster.run(sink_jobs.write, f"{tmp_path}/out-%06d.tar", 2000, 4, sink_jobs.failing, (1999,), shard_bytes=1)

    assert [] == names_in(tmp_path)


def test_a_set_that_exists(cluster: Cluster, tmp_path: Path) -> None:
    """It stays as it is, unless it is to be replaced: then as another generation, under other names."""
    cluster.run(sink_jobs.write, f"{tmp_path}/out-%06d.tar", 4, 2)
    with pytest.raises(JobError, match=r"out.fastio-set: exists"):
        cluster.run(sink_jobs.write, f"{tmp_path}/out-%06d.tar", 6, 2)
    assert 4 == len(keys_of(tmp_path / "out.fastio-set"))

    cluster.run(sink_jobs.write, f"{tmp_path}/out-%06d.tar", 6, 2, overwrite=True)

    assert 6 == len(keys_of(tmp_path / "out.fastio-set"))
    assert ["out-000002.tar", "out-000003.tar", "out.fastio-set"] == names_in(tmp_path)


def test_shards_of_a_killed_driver_are_named(cluster: Cluster, tmp_path: Path) -> None:
    """Shards without a set object are no store; the next write names them, or replaces them."""
    cluster.run(sink_jobs.write, f"{tmp_path}/out-%06d.tar", 4, 2)
    (tmp_path / "out.fastio-set").unlink()
    with pytest.raises(JobError, match=r"2 shards without a set object"):
        cluster.run(sink_jobs.write, f"{tmp_path}/out-%06d.tar", 6, 2)

    cluster.run(sink_jobs.write, f"{tmp_path}/out-%06d.tar", 6, 2, overwrite=True)

    assert 6 == len(keys_of(tmp_path / "out.fastio-set"))


def test_one_file_is_no_target(tmp_path: Path) -> None:
    """Tasks write files of their own: the path must be one of shards."""
    from fastio.ray import Sink

    with pytest.raises(StoreError, match=r"Ray writes shards: name them like train-%06d.tar"):
        Sink(tmp_path / "out.tar", {"text": "text"})


def test_options_are_checked(tmp_path: Path) -> None:
    """Wrong options are errors before anything runs."""
    from fastio.ray import Sink

    with pytest.raises(ValueError, match="on_error='ignore'"):
        Sink(tmp_path / "out-%06d.tar", on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="shard_bytes=0"):
        Sink(tmp_path / "out-%06d.tar", shard_bytes=0)
    with pytest.raises(StoreError, match=r"call Dataset.write_datasink first"):
        _ = Sink(tmp_path / "out-%06d.tar", {"text": "text"}).report
