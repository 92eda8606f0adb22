"""``fastio index`` of stores that exist: start points beside them, used from then on, and nothing changed."""

from __future__ import annotations

import io
import json
import logging
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from fastio import FastDataset, FastLoader
from fastio.cli import cli
from fastio.converters import open_source, pack
from fastio.converters.inspect.verify import verify
from fastio.errors import SampleError, StoreCorrupt, StoreError
from fastio.loader.producer import decoding
from fastio.store import open_store
from fastio.store.files.remote_options import Remote
from fastio.store.folders import folder_of
from fastio.store.foreign.index import index_foreign, index_store
from fastio.store.index.verify import verify_store
from fastio.store.protocol import read_values
from fastio.store.write.locks import claimed
from fastio.transforms import RandomResizedCrop, Resize
from tests.commands import run
from tests.conftest import encode, pictures
from tests.servers.fixtures import Bucket
from tests.store.small_set import write_set
from tests.store.version_1 import make_version_1

TAG = 0xFFFF_FF01  # of the first word of a jump table


def jpeg(seed: int, **options: object) -> bytes:
    """A photo of noise, 400x320, of more than 8 KiB."""
    pixels = np.random.default_rng(seed).integers(0, 256, (80, 100, 3), np.uint8).repeat(4, 0).repeat(4, 1)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", **options)
    return file.getvalue()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two baseline JPEGs, a progressive one and a damaged one."""
    folder = tmp_path_factory.mktemp("photos")
    (folder / "one.jpg").write_bytes(jpeg(0))
    (folder / "two.jpg").write_bytes(jpeg(1, progressive=True))
    (folder / "three.jpg").write_bytes(jpeg(2)[:-200] + b"\xff\xd9")
    (folder / "four.jpg").write_bytes(jpeg(3))
    return folder


def first_words(path: Path) -> dict[str, int]:
    """The first word of each sample's start points; 0 without any."""
    with open_store(path) as store:
        every = np.arange(len(store))
        intervals = store.spans("image", every).intervals
        if intervals is None:
            return dict.fromkeys(store.keys(every), 0)
        words = [int(view.view("<u4")[0]) if len(view) else 0 for view in intervals.views()]
        return dict(zip(store.keys(every), words, strict=True))


EXPECTED = {"four.jpg": TAG, "one.jpg": TAG, "three.jpg": 0, "two.jpg": 0}


@pytest.mark.parametrize("name", ["s.lmdb", "s.h5", "s.zip", "s.tar"])
def test_a_file_gets_a_sidecar(tmp_path: Path, source: Path, name: str) -> None:
    """The file is not changed; what is known of it, crops of it and its identity are the same."""
    store = tmp_path / name
    pack(open_source(source), store, jump=False)
    before = store.read_bytes()
    with open_store(store) as opened:
        identity = opened.identity
    said = run("index", store)

    assert before == store.read_bytes()
    assert sorted([name, f"{name}.fastio-index"]) == sorted(each.name for each in tmp_path.iterdir())
    assert EXPECTED == first_words(store)
    assert "start points within 2 pictures" in said
    assert "1 damaged JPEG, which stays as packed, without start points: three.jpg" in said
    assert f"of the index (in {name}.fastio-index beside it)" in run("info", store)
    assert "all good" in run("verify", store)
    with open_store(store) as opened:
        assert identity == opened.identity


def test_a_set_gets_its_next_set_object(tmp_path: Path, source: Path) -> None:
    """Its shards are not changed, and an append keeps the start points."""
    pack(open_source(source), tmp_path / "s-%d.tar", shard_bytes=60_000, jump=False)
    before = {file.name: file.read_bytes() for file in tmp_path.glob("*.tar")}
    run("index", tmp_path / "s-%d.tar")

    assert len(before) > 1
    assert before == {file.name: file.read_bytes() for file in tmp_path.glob("*.tar")}
    assert EXPECTED == first_words(tmp_path / "s.fastio-set")
    more = tmp_path / "more"
    more.mkdir(parents=True)
    (more / "new.jpg").write_bytes(jpeg(7))
    pack(open_source(more), tmp_path / "s-%d.tar", append=True)
    assert {**EXPECTED, "new.jpg": TAG} == first_words(tmp_path / "s.fastio-set")
    assert "all good" in run("verify", tmp_path / "s.fastio-set")


@pytest.mark.parametrize("name", ["s.lmdb", "s.h5", "s.zip", "s.tar", "s-%d.tar"])
def test_another_folder_may_have_the_index(tmp_path: Path, source: Path, name: str) -> None:
    """A set object there lists the files where they lie; it opens, and is copied, like the store."""
    pack(open_source(source), tmp_path / name, jump=False)
    before = sorted(each.name for each in tmp_path.iterdir())
    with open_store(tmp_path / name) as opened:
        identity = opened.identity
    run("index", tmp_path / name, "--to", tmp_path / "i")

    assert sorted([*before, "i"]) == sorted(each.name for each in tmp_path.iterdir())
    assert EXPECTED == first_words(tmp_path / "i" / "s.fastio-set")
    with open_store(tmp_path / "i" / "s.fastio-set") as opened:
        assert identity == opened.identity
    assert "all good" in run("verify", tmp_path / "i" / "s.fastio-set", "--against", source)
    pack(open_source(tmp_path / "i" / "s.fastio-set"), tmp_path / "copy.h5", jump=False)
    assert EXPECTED == first_words(tmp_path / "copy.h5")
    with pytest.raises(StoreError, match="exists"):
        index_store(str(tmp_path / name), str(tmp_path / "i"))
    index_store(str(tmp_path / name), str(tmp_path / "i"), overwrite=True)


def test_a_tar_of_another_tool_gets_them_into_its_index(tmp_path: Path, source: Path) -> None:
    """The index that is kept beside it has them from then on."""
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for file in sorted(source.iterdir()):
            tar.add(file, file.name)
    before = (tmp_path / "x.tar").read_bytes()

    assert dict.fromkeys(EXPECTED, 0) == first_words(tmp_path / "x.tar")
    assert "start points within 2 pictures" in run("index", tmp_path / "x.tar")
    assert before == (tmp_path / "x.tar").read_bytes()
    assert EXPECTED == first_words(tmp_path / "x.tar")


@pytest.mark.parametrize("name", ["s.lmdb", "s-%d.tar"])
def test_what_is_there_is_not_written_again(tmp_path: Path, source: Path, name: str) -> None:
    """A second call leaves every file as it is."""
    pack(open_source(source), tmp_path / name, jump=False)
    run("index", tmp_path / name)
    before = {file.name: file.stat().st_ino for file in tmp_path.iterdir()}

    assert "start points within 2 pictures" in run("index", tmp_path / name)
    assert before == {file.name: file.stat().st_ino for file in tmp_path.iterdir()}


def test_shards_of_an_old_set_get_a_sidecar_each(tmp_path: Path, source: Path) -> None:
    """Those that were packed before there were set objects."""
    pack(open_source(source), tmp_path / "s-%d.tar", shard_bytes=60_000, jump=False)
    assert len(make_version_1(tmp_path / "s-%d.tar")) > 1
    run("index", tmp_path / "s-%d.tar")

    assert list(tmp_path.glob("*.tar.fastio-index"))
    assert EXPECTED == first_words(tmp_path / "s-%d.tar")
    run("index", tmp_path / "s-%d.tar", "--to", tmp_path / "i")
    assert EXPECTED == first_words(tmp_path / "i" / "s.fastio-set")


def test_merged_sets_keep_them(tmp_path: Path, source: Path) -> None:
    """Also beside a set without."""
    more = tmp_path / "more"
    more.mkdir(parents=True)
    (more / "new.jpg").write_bytes(jpeg(7))
    pack(open_source(source), tmp_path / "s-%d.tar", jump=False)
    pack(open_source(more), tmp_path / "t-%d.tar", jump=False)
    index_store(str(tmp_path / "s-%d.tar"))
    run("merge", tmp_path / "s.fastio-set", tmp_path / "t.fastio-set", "--out", tmp_path / "u.fastio-set")

    assert {**EXPECTED, "new.jpg": 0} == first_words(tmp_path / "u.fastio-set")


def test_a_set_behind_a_url_gets_an_index_here(bucket: Bucket, tmp_path: Path, source: Path) -> None:
    """Its shards are read once; crops of what is then fetched use the start points."""
    remote = Remote(storage_options=bucket.options)
    pack(open_source(source), f"{bucket.url}/s-%d.tar", jump=False, remote=remote, on_error="skip")
    with pytest.raises(StoreError, match="nothing can be kept beside it: name a folder of this machine"):
        index_store(f"{bucket.url}/s.fastio-set", options=remote)
    report = index_store(f"{bucket.url}/s.fastio-set", str(tmp_path), options=remote)

    assert (2, ["three.jpg"]) == (report.start_points, report.damaged)
    with open_store(tmp_path / "s.fastio-set", remote=remote) as store:
        intervals = store.spans("image", np.arange(4)).intervals
        assert intervals is not None
        assert 2 == np.count_nonzero(intervals.sizes)
        assert read_values(store, "image", np.arange(4)).view(1).tobytes() == (source / "one.jpg").read_bytes()


def test_an_index_of_other_tools_shards_gets_them_too(tmp_path: Path, source: Path) -> None:
    """One that was made without is followed by one with start points."""
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for file in sorted(source.iterdir()):
            tar.add(file, file.name)
    run("index", tmp_path / "x.tar", "--to", tmp_path / "i", "--no-jump")

    assert dict.fromkeys(EXPECTED, 0) == first_words(tmp_path / "i" / "x.fastio-set")
    run("index", tmp_path / "i" / "x.fastio-set")
    assert EXPECTED == first_words(tmp_path / "i" / "x.fastio-set")


def test_a_set_that_is_being_packed_is_left_alone(tmp_path: Path, source: Path) -> None:
    """One process writes a set at a time."""
    pack(open_source(source), tmp_path / "s-%d.tar", jump=False)
    with claimed(str(tmp_path / "s.fastio-set")), pytest.raises(StoreError, match="another process is packing"):
        index_store(str(tmp_path / "s-%d.tar"))


def cut(file: Path) -> None:
    """Leave half of it."""
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flip(file: Path) -> None:
    """Change a byte of its counts, which come first."""
    data = bytearray(file.read_bytes())
    data[1] ^= 1
    file.write_bytes(data)


def newer(file: Path) -> None:
    """Say that a newer fastio sealed it."""
    data = bytearray(file.read_bytes())
    data[-128 + 8] = 9
    file.write_bytes(data)


@pytest.mark.parametrize("harm", [cut, flip, newer, lambda file: file.write_bytes(b"")])
def test_a_sidecar_that_cannot_be_used_is_left_aside(
    tmp_path: Path, source: Path, caplog: pytest.LogCaptureFixture, harm
) -> None:
    """One warning says so and names what makes it anew; the store opens without."""
    store = tmp_path / "s.lmdb"
    pack(open_source(source), store, jump=False)
    index_store(str(store))
    harm(tmp_path / "s.lmdb.fastio-index")

    assert dict.fromkeys(EXPECTED, 0) == first_words(store)
    (record,) = caplog.records
    assert f"make them anew (fastio index {store}), or remove the file" in record.getMessage()
    index_store(str(store))
    assert EXPECTED == first_words(store)


def test_those_of_another_store_are_left_aside(tmp_path: Path, source: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By the seal of the file that they were made for, even if that has as many samples."""
    pack(open_source(source), tmp_path / "s.lmdb", jump=False)
    index_store(str(tmp_path / "s.lmdb"))
    pack(open_source(source).shuffled(1), tmp_path / "t.lmdb", jump=False)
    shutil.move(tmp_path / "t.lmdb", tmp_path / "s.lmdb")

    assert dict.fromkeys(EXPECTED, 0) == first_words(tmp_path / "s.lmdb")
    assert "they are those of another file, which had this name before" in caplog.text


def test_a_store_that_is_replaced_takes_them_away(tmp_path: Path, source: Path) -> None:
    """``--overwrite`` removes the sidecar of the old one."""
    pack(open_source(source), tmp_path / "s.lmdb", jump=False)
    index_store(str(tmp_path / "s.lmdb"))
    pack(open_source(source), tmp_path / "s.lmdb", jump=False, overwrite=True)

    assert ["s.lmdb"] == [each.name for each in tmp_path.iterdir()]


def test_damage_in_a_sidecar_is_found_and_mended(tmp_path: Path, source: Path) -> None:
    """
    ``verify`` compares all of its bytes, and names the command that makes it anew; crops with a damaged table are
    right by the table's own checksum.
    """
    store = tmp_path / "s.lmdb"
    pack(open_source(source), store, jump=False)
    index_store(str(store))
    sidecar = tmp_path / "s.lmdb.fastio-index"
    sound = sidecar.read_bytes()
    data = bytearray(sound)
    data[120] ^= 4  # within the tables: 64 bytes of counts come first
    sidecar.write_bytes(data)

    result = CliRunner().invoke(cli, ["verify", str(store)])
    assert 1 == result.exit_code
    assert "s.lmdb.fastio-index" in result.output
    with open_store(store) as opened:
        assert [True] == [
            each.problem.endswith(f"; make it anew: fastio index {store}") for each in verify_store(opened)
        ]
    assert "start points within 2 pictures" in run("index", store)
    assert sound == sidecar.read_bytes()


def test_bytes_that_were_damaged_after_packing_get_none(tmp_path: Path, source: Path) -> None:
    """Values are compared with their checksums first: the error names the sample, and nothing is written."""
    store = tmp_path / "s.lmdb"
    pack(open_source(source), store, jump=False)
    data = bytearray(store.read_bytes())
    data[data.index((source / "one.jpg").read_bytes()) + 9000] ^= 1
    store.write_bytes(data)

    with pytest.raises(StoreCorrupt, match=r"s\.lmdb\[1\] \('one.jpg'\), field 'image': differs from its checksum"):
        index_store(str(store))
    assert ["s.lmdb"] == [each.name for each in tmp_path.iterdir()]


def test_what_has_nothing_to_add_says_so(tmp_path: Path) -> None:
    """Small pictures leave no file; stores without pictures, and --no-jump, are refused."""
    with io.BytesIO() as file:
        Image.fromarray(np.zeros((32, 32, 3), np.uint8)).save(file, "JPEG")
        small = file.getvalue()
    (tmp_path / "in").mkdir(parents=True)
    (tmp_path / "in" / "small.jpg").write_bytes(small)
    pack(open_source(tmp_path / "in"), tmp_path / "s.lmdb")
    (tmp_path / "t.txt").write_text("one line\n")
    run("pack", tmp_path / "t.txt", tmp_path / "t.lmdb")

    assert "start points within 0 pictures: they are small" in run("index", tmp_path / "s.lmdb")
    assert not (tmp_path / "s.lmdb.fastio-index").exists()
    with pytest.raises(StoreError, match="holds no encoded pictures"):
        index_store(str(tmp_path / "t.lmdb"))
    with pytest.raises(StoreError, match="nothing to add"):
        index_store(str(tmp_path / "s.lmdb"), jump=False)


@pytest.mark.parametrize(
    ("transforms", "jump", "is_told"),
    [
        ([RandomResizedCrop(64)], False, True),
        ([RandomResizedCrop(64)], True, False),
        ([Resize((64, 64))], False, False),
    ],
)
def test_crops_of_photos_without_are_told_once(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    transforms: list[object],
    jump: bool,
    is_told: bool,
) -> None:
    """The loader names the command; its crops are the same before and after."""
    (tmp_path / "in").mkdir(parents=True)
    for number in range(4):
        (tmp_path / "in" / f"{number}.jpg").write_bytes(jpeg(number))
    store = tmp_path / "s.lmdb"
    pack(open_source(tmp_path / "in"), store, jump=jump)

    def epoch() -> bytes:
        with FastLoader(FastDataset(store), 2, transforms=transforms, threads=1) as loader:
            return b"".join(images.numpy().tobytes() for images, _ in loader)

    decoding._looked_at.clear()
    with caplog.at_level(logging.WARNING):
        first, _ = epoch(), epoch()
    told = [each.getMessage() for each in caplog.records if "start points" in each.getMessage()]
    assert int(is_told) == len(told)
    assert all(f"`fastio index {store}` adds them" in line for line in told)
    index_store(str(store))
    assert first == epoch()


# Tar shards of other tools as a set: where they lie, with a checksum of every value.

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
    remote, _ = folder_of(f"{bucket.url}/w/", Remote(bucket.options))
    for path in folder.iterdir():
        remote.put(path.name, path)
    return f"{bucket.url}/w"


@pytest.mark.parametrize("name", ["x-{000000..000002}.tar", "x-%06d.tar", "x-*.tar", ""])
def test_shards_behind_a_url(bucket: Bucket, uploaded: str, folder: Path, tmp_path: Path, name: str) -> None:
    """The set object lists them by URL; samples, columns and checksums are those of the local files."""
    options = Remote(bucket.options)
    report = index_foreign(f"{uploaded}/{name}", str(tmp_path / "index"), options=options)
    assert (report.samples, report.shards) == (SAMPLES, SHARDS)
    assert report.path == str(tmp_path / "index" / ("x.fastio-set" if name else "w.fastio-set"))
    with (
        FastDataset(report.path, remote=Remote(bucket.options)) as dataset,
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
            open_store(f"{uploaded}/{name}", remote=Remote(bucket.options))


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
