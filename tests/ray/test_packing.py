"""fastio.ray.pack: the set that one process packs, made by tasks that may die."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fastio import compute, computed_source
from fastio.converters import Part, open_source, pack
from fastio.errors import StoreError
from fastio.store import open_store
from tests.conftest import encode, pictures
from tests.ray import pack_jobs
from tests.ray.cluster import Cluster, JobError

pytestmark = pytest.mark.slow

SHARD_BYTES = 60_000


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two classes."""
    folder = tmp_path_factory.mktemp("source") / "photos"
    for number, pixels in enumerate(pictures(300, (10, 10, 3))):
        path = folder / f"class{number % 2}" / f"{number:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(pixels))
    return folder


@pytest.fixture(scope="module")
def alone(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process packs of them."""
    folder = tmp_path_factory.mktemp("alone")
    pack(open_source(photos), folder / "out-%06d.tar", shard_bytes=SHARD_BYTES)
    return folder


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, hidden ones too."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("concurrency", [None, 1])
def test_tasks_make_what_one_process_makes(
    cluster: Cluster, photos: Path, alone: Path, tmp_path: Path, concurrency: int | None
) -> None:
    """Every shard and the set object, to the bit; report and progress count all samples."""
    report = cluster.run(
        pack_jobs.run, str(photos), f"{tmp_path}/out-%06d.tar", shard_bytes=SHARD_BYTES, concurrency=concurrency
    )

    assert bytes_of(alone) == bytes_of(tmp_path)
    assert (300, [], len(bytes_of(alone)) - 1) == (report["packed"], report["skipped"], report["shards"])
    assert [300, report["payload_bytes"]] == report["told"]


def test_tasks_compute_what_one_process_computes(cluster: Cluster, photos: Path, tmp_path: Path) -> None:
    """Every shard and the set object, to the bit, although two of the tasks die."""
    store, deaths = tmp_path / "photos.lmdb", tmp_path / "deaths"
    for folder in (deaths, tmp_path / "alone", tmp_path / "out"):
        folder.mkdir()
    pack(open_source(photos), store)
    options: dict[str, Any] = {"read": "image", "batch_size": 4}
    compute(store, tmp_path / "alone" / "out-%06d.tar", pack_jobs.means_of, shard_bytes=SHARD_BYTES, **options)
    for number in range(2):
        (deaths / f"{number}-1").touch()

    report = cluster.run(
        pack_jobs.run,
        partial(computed_source, str(store), pack_jobs.means_of, **options),
        f"{tmp_path}/out/out-%06d.tar",
        shard_bytes=SHARD_BYTES,
        deaths=str(deaths),
    )

    assert bytes_of(tmp_path / "alone") == bytes_of(tmp_path / "out")
    assert len(bytes_of(tmp_path / "out")) > 3
    assert 300 == report["packed"]
    assert [] == list(deaths.iterdir())


TEXT_BYTES = 4_000  # of a shard of text


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text of 40,000 lines in several pieces."""
    path = tmp_path_factory.mktemp("text") / "lines.txt"
    path.write_text("".join(f"line {number} {'x' * (number % 40)}\n" for number in range(40_000)))
    return path


@pytest.fixture(scope="module")
def text_alone(lines: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes pack of it, one after the other."""
    folder = tmp_path_factory.mktemp("text_alone")
    for part in (Part(0, 2), Part(1, 2)):
        pack(pack_jobs.text_of(str(lines)), folder / "out-%06d.tar", shard_bytes=TEXT_BYTES, part=part)
    return folder


@pytest.mark.parametrize("concurrency", [None, 1, 5])
def test_tasks_pack_text_as_parts_do(
    cluster: Cluster, lines: Path, text_alone: Path, tmp_path: Path, concurrency: int | None
) -> None:
    """Every shard and the set object, to the bit, by any number of tasks; all documents are counted."""
    report = cluster.run(
        pack_jobs.run_text, str(lines), f"{tmp_path}/out-%06d.tar", shard_bytes=TEXT_BYTES, concurrency=concurrency
    )

    assert bytes_of(text_alone) == bytes_of(tmp_path)
    assert len(bytes_of(text_alone)) > 4
    assert (40_000, len(bytes_of(text_alone)) - 1) == (report["packed"], report["shards"])
    assert [40_000, report["payload_bytes"]] == report["told"]


def test_killed_workers_pack_text_once(cluster: Cluster, lines: Path, text_alone: Path, tmp_path: Path) -> None:
    """The part of a killed worker goes on with the shards that it has finished."""
    deaths, out = tmp_path / "deaths", tmp_path / "out"
    deaths.mkdir()
    out.mkdir()
    for number, pieces in enumerate((1, 3)):
        (deaths / f"{number}-{pieces}").touch()

    cluster.run(
        pack_jobs.run_text,
        str(lines),
        f"{out}/out-%06d.tar",
        shard_bytes=TEXT_BYTES,
        deaths=str(deaths),
        concurrency=2,
    )

    assert [] == list(deaths.iterdir())
    assert bytes_of(text_alone) == bytes_of(out)


def test_text_goes_on_or_starts_anew(cluster: Cluster, lines: Path, text_alone: Path, tmp_path: Path) -> None:
    """Whole shards stay with resume; with overwrite all are made again, behind those that the set lists."""
    first, second, *_ = names = sorted(bytes_of(text_alone))
    (tmp_path / first).write_bytes((text_alone / first).read_bytes())
    (tmp_path / second).write_bytes((text_alone / second).read_bytes()[:-1])
    out, inode = f"{tmp_path}/out-%06d.tar", (tmp_path / first).stat().st_ino
    with pytest.raises(JobError, match=r"resume"):
        cluster.run(pack_jobs.run_text, str(lines), out, shard_bytes=TEXT_BYTES)

    cluster.run(pack_jobs.run_text, str(lines), out, shard_bytes=TEXT_BYTES, resume=True)

    assert bytes_of(text_alone) == bytes_of(tmp_path)
    assert inode == (tmp_path / first).stat().st_ino
    report = cluster.run(pack_jobs.run_text, str(lines), out, shard_bytes=TEXT_BYTES, overwrite=True)
    assert (40_000, len(names) - 1) == (report["packed"], report["shards"])


def test_parts_that_are_forgotten_or_differ(cluster: Cluster, lines: Path, tmp_path: Path) -> None:
    """No set is made: the error names what is missing, or that nodes see different texts."""
    out, other = tmp_path / "out", tmp_path / "other.txt"
    out.mkdir()
    other.write_text("another\n")
    with pytest.raises(
        JobError, match=r"shards are missing although all parts have ended, e.g. out-000001.tar"
    ) as caught:
        cluster.run(pack_jobs.run_text, str(lines), f"{out}/out-%06d.tar", shard_bytes=TEXT_BYTES, forgets=1)
    assert "StoreError" == caught.value.kinds[0]
    assert not (out / "out.fastio-set").exists()
    with pytest.raises(JobError, match=r"another node sees another source .*stream differ"):
        cluster.run(
            pack_jobs.run_text, str(lines), f"{tmp_path}/b-%06d.tar", shard_bytes=TEXT_BYTES, others_see=str(other)
        )


def test_a_bad_document_ends_the_pack(cluster: Cluster, tmp_path: Path) -> None:
    """Nothing stays; or it is listed."""
    source, out = tmp_path / "a.txt", tmp_path / "out"
    out.mkdir()
    source.write_bytes(b"".join(b"line %d\n" % number for number in range(900)) + b"\xff\n")
    with pytest.raises(JobError, match=r"a.txt:901") as caught:
        cluster.run(pack_jobs.run_text, str(source), f"{out}/out-%06d.tar", shard_bytes=TEXT_BYTES)
    assert "SourceError" == caught.value.kinds[0]
    assert {} == bytes_of(out)

    report = cluster.run(
        pack_jobs.run_text, str(source), f"{out}/out-%06d.tar", shard_bytes=TEXT_BYTES, on_error="skip"
    )

    assert (900, 1) == (report["packed"], len(report["skipped"]))


def test_killed_workers_leave_nothing_twice(cluster: Cluster, photos: Path, alone: Path, tmp_path: Path) -> None:
    """Ray starts their tasks again, and the set is the same to the bit."""
    deaths, out = tmp_path / "deaths", tmp_path / "out"
    deaths.mkdir()
    out.mkdir()
    for number, pieces in enumerate((1, 3)):
        (deaths / f"{number}-{pieces}").touch()

    cluster.run(
        pack_jobs.run, str(photos), f"{out}/out-%06d.tar", shard_bytes=SHARD_BYTES, deaths=str(deaths), concurrency=2
    )

    assert [] == list(deaths.iterdir())
    assert bytes_of(alone) == bytes_of(out)


def test_resume_makes_what_is_missing(cluster: Cluster, photos: Path, alone: Path, tmp_path: Path) -> None:
    """After a killed driver, a run with resume keeps whole shards and makes the others."""
    kept = sorted(bytes_of(alone))[:3]
    for name in kept:
        (tmp_path / name).write_bytes((alone / name).read_bytes())
    (tmp_path / kept[1]).write_bytes((alone / kept[1]).read_bytes()[:-1])
    inodes = [(tmp_path / name).stat().st_ino for name in kept]
    with pytest.raises(JobError, match=r"resume"):
        cluster.run(pack_jobs.run, str(photos), f"{tmp_path}/out-%06d.tar", shard_bytes=SHARD_BYTES)

    report = cluster.run(pack_jobs.run, str(photos), f"{tmp_path}/out-%06d.tar", shard_bytes=SHARD_BYTES, resume=True)

    assert bytes_of(alone) == bytes_of(tmp_path)
    assert 300 == report["packed"]
    assert [True, False, True] == [
        (tmp_path / name).stat().st_ino == inode for name, inode in zip(kept, inodes, strict=True)
    ]


def test_a_bad_sample_ends_the_pack(cluster: Cluster, photos: Path, tmp_path: Path) -> None:
    """SourceError names it as ``fastio pack`` does, and nothing stays; or it is listed."""
    source, out = tmp_path / "photos", tmp_path / "out"
    out.mkdir()
    for path in photos.rglob("*.png"):
        copy = source / path.relative_to(photos)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(b"no picture" * 9 if path.name == "0123.png" else path.read_bytes())
    with pytest.raises(JobError, match=r"class1/0123.png") as caught:
        cluster.run(pack_jobs.run, str(source), f"{out}/out-%06d.tar", shard_bytes=SHARD_BYTES)
    assert "SourceError" == caught.value.kinds[0]
    assert {} == bytes_of(out)

    report = cluster.run(pack_jobs.run, str(source), f"{out}/out-%06d.tar", shard_bytes=SHARD_BYTES, on_error="skip")

    assert (299, ["class1/0123.png"]) == (report["packed"], report["skipped"])
    with open_store(out / "out.fastio-set") as store:
        assert ["class1/0123.png"] == [entry["key"] for entry in store.metadata["skipped"]]


def test_nodes_that_see_another_source(cluster: Cluster, photos: Path, tmp_path: Path) -> None:
    """The digest of the plan tells: nothing is packed from the wrong one."""
    other, out = tmp_path / "photos", tmp_path / "out"
    out.mkdir()
    for number in range(2):
        (other / f"class{number}").mkdir(parents=True)
        (other / f"class{number}" / "0.png").write_bytes(encode(pictures(1)[0]))

    with pytest.raises(JobError, match=r"another node sees another source .*keys.* differ") as caught:
        cluster.run(pack_jobs.run, str(photos), f"{out}/out-%06d.tar", shard_bytes=SHARD_BYTES, others_see=str(other))

    assert "SourceError" == caught.value.kinds[0]
    assert {} == bytes_of(out)


def test_workers_that_always_die(cluster: Cluster, photos: Path, alone: Path, tmp_path: Path) -> None:
    """An error names the shard; finished ones stay, and resume goes on."""
    deaths, out = tmp_path / "deaths", tmp_path / "out"
    deaths.mkdir()
    out.mkdir()
    for number in range(2):
        (deaths / f"{number}-1").touch()
    options = {"shard_bytes": SHARD_BYTES, "deaths": str(deaths), "concurrency": 1}
    with pytest.raises(JobError, match=r"out-000000.tar: its task was started 2 times, and its worker died") as caught:
        cluster.run(pack_jobs.run, str(photos), f"{out}/out-%06d.tar", retries=1, **options)
    assert "StoreError" == caught.value.kinds[0]

    cluster.run(pack_jobs.run, str(photos), f"{out}/out-%06d.tar", resume=True, **options)

    assert bytes_of(alone) == bytes_of(out)


def test_options_are_checked(tmp_path: Path) -> None:
    """Wrong options are errors before anything runs."""
    from fastio.ray import pack

    with pytest.raises(ValueError, match=r"concurrency=0: expected at least 1"):
        pack("photos", tmp_path / "out-%06d.tar", concurrency=0)
    with pytest.raises(StoreError, match=r"Ray writes shards: name them like train-%06d.tar"):
        pack("photos", tmp_path / "out.tar")
