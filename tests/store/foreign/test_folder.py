"""Folders of files as stores: the index that is kept of them, what is noticed, and loaders over them."""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from torch.utils.data import DataLoader

from fastio import FastDataset, FastLoader, SampleError, Unpacked, open_store
from fastio.cli import cli
from fastio.converters import open_source, pack
from fastio.errors import StoreError
from fastio.store.index.verify import verify_store
from fastio.store.protocol import read_values
from fastio.transforms import RandomHorizontalFlip, RandomResizedCrop
from fastio.types.metrics import Opens, OpensGain
from tests.converters.sources import layouts
from tests.converters.sources.in_place_kinds import tfrecord
from tests.converters.sources.test_in_place import settle
from tests.converters.trees import class_folders, flat, picture, tree
from tests.servers.fixtures import Served

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Class folders of a while ago."""
    class_folders(tmp_path / "photos", 8)
    settle(tmp_path)
    return tmp_path / "photos"


def index_of(path: Path) -> Path:
    """Where the index of a path is kept."""
    return Path(f"{path}.fastio-index")


def listings(caplog: pytest.LogCaptureFixture) -> Iterator[str]:
    """Warnings of openings."""
    return (each.getMessage() for each in caplog.records if each.levelno == logging.WARNING)


def test_it_is_a_folder_of_classes(photos: Path) -> None:
    """Classes, order, labels and pixels are those of the files, by their names."""
    here = FastDataset(photos)
    classes = sorted(each.name for each in photos.iterdir() if each.is_dir())

    assert classes == here.classes
    assert [classes.index(key.partition("/")[0]) for key in here.keys] == here.targets
    for key, (shown, _) in zip(here.keys, here, strict=True):
        with Image.open(photos / key) as file:
            assert file.convert("RGB").tobytes() == shown.tobytes()


@pytest.mark.parametrize("shuffle", [False, True, "full"])
def test_a_loader_gives_what_a_packed_store_gives(photos: Path, tmp_path: Path, shuffle: bool | str) -> None:
    """Batches are equal to the bit, in any order, with random crops, also resumed in the middle."""
    pack(open_source(photos), tmp_path / "packed.lmdb")
    transforms = [RandomResizedCrop(8), RandomHorizontalFlip()]

    def batches(path: Path, skipped: int = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
        with FastLoader(path, 5, shuffle=shuffle, seed=3, transforms=transforms, threads=2) as loader:
            if skipped:
                first = iter(loader)
                for _ in range(skipped):
                    next(first)
                state = loader.state_dict()
                loader.load_state_dict(state)
            return [(images.clone(), labels.clone()) for images, labels in loader]

    for skipped in (0, 2):
        here, there = batches(photos, skipped), batches(tmp_path / "packed.lmdb", skipped)
        assert len(here) == len(there) > 1
        for one, other in zip(here, there, strict=True):
            assert torch.equal(one[0], other[0])
            assert torch.equal(one[1], other[1])


def test_workers_read_it(photos: Path) -> None:
    """DataLoader's workers read the same files, and so does a process that opens it anew."""
    dataset = FastDataset(photos, transform=_size)
    expected = [dataset[index] for index in range(len(dataset))]
    loader = DataLoader(dataset, None, num_workers=2)

    assert expected == [(tuple(size), label) for size, label in loader]
    assert expected[3] == pickle.loads(pickle.dumps(dataset))[3]


def _size(image: object) -> object:
    return getattr(image, "size", None)


def test_ranks_share_it(photos: Path) -> None:
    """Two ranks give every sample once; the receipt claims nothing of checksums, which files have none of."""
    count = len(FastDataset(photos))
    seen = []
    for rank in range(2):
        crop = [RandomResizedCrop(4)]
        with FastLoader(photos, 4, shuffle=True, rank=rank, world_size=2, uneven="drop", transforms=crop) as loader:
            seen += [index for batch in loader.numbered() for index in batch.indices.tolist()]
            assert loader.base.store.receipt() is None
    assert len(set(seen)) == len(seen) == count // 2 * 2


def test_the_index_is_kept_beside(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is written into the folder; the second opening reads the index alone."""
    before = sorted(photos.rglob("*"))
    with open_store(photos) as store:
        assert len(store) == len(FastDataset(photos))
    assert index_of(photos).is_file()
    assert sorted(photos.rglob("*")) == before
    times = [each.stat().st_mtime_ns for each in (photos, *before)]
    assert {10**18} == set(times)
    written = index_of(photos).stat().st_mtime_ns
    open_store(photos).close()

    assert index_of(photos).stat().st_mtime_ns == written
    assert [] == list(listings(caplog))


def test_the_index_goes_into_the_cache(photos: Path, cache: Path) -> None:
    """Where it cannot be written beside the folder; without a place for it, the folder is listed each time."""
    index_of(photos).mkdir()  # nothing can take that name
    with open_store(photos) as store:
        count = len(store)
    (kept,) = (cache / "fastio").iterdir()
    assert kept.name.startswith("photos-")
    written = kept.stat().st_mtime_ns
    with open_store(photos) as store:
        assert len(store) == count
    assert kept.stat().st_mtime_ns == written
    shutil.rmtree(cache)
    cache.write_bytes(b"no folder")
    with open_store(photos) as store:
        assert len(store) == count


def test_other_options_have_another_index(photos: Path, tmp_path: Path) -> None:
    """A label file and its options belong to the index."""
    labels = flat(tmp_path / "flat")
    (tmp_path / "labels.csv").write_text("".join(f"{name},{label}\n" for name, label in labels.items()))
    settle(tmp_path)
    unpacked = Unpacked(tmp_path / "labels.csv")
    assert "label" not in FastDataset(tmp_path / "flat").store.schema
    assert list(labels.values()) == FastDataset(tmp_path / "flat", unpacked=unpacked).targets
    assert "label" not in FastDataset(tmp_path / "flat").store.schema
    (tmp_path / "labels.csv").write_text("".join(f"{name},{label + 1}\n" for name, label in labels.items()))

    assert [label + 1 for label in labels.values()] == FastDataset(tmp_path / "flat", unpacked=unpacked).targets


def test_what_changed_is_named(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Files that were added and removed are noticed at opening, in a folder that was empty of samples too."""
    (photos / "later/deep").mkdir(parents=True)
    settle(photos.parent)
    with open_store(photos) as store:
        first, count = store.keys([0])[0], len(store)
        identity = store.identity
    caplog.clear()
    (photos / first).unlink()
    (photos / "later/deep/new.png").write_bytes(picture(1))
    (photos / "later/deep/newer.png").write_bytes(picture(2))
    os.utime(photos / "later/deep", ns=(10**18 + 1, 10**18 + 1))
    os.utime((photos / first).parent, ns=(10**18 + 1, 10**18 + 1))
    with open_store(photos) as store:
        assert len(store) == count + 1
        assert store.identity != identity
    said = f"{photos}: since it was indexed: 2 files added ('later/deep/new.png'), 1 file removed ({first!r})"
    assert [said] == list(listings(caplog))
    caplog.clear()
    open_store(photos).close()

    assert [] == list(listings(caplog))


def test_a_recent_folder_is_listed_again(tmp_path: Path) -> None:
    """A file that is added within the same tick of a clock does not change a time: no index is kept then."""
    class_folders(tmp_path / "photos")
    with open_store(tmp_path / "photos") as store:
        count = len(store)
    assert not index_of(tmp_path / "photos").exists()
    folder = next(each for each in sorted((tmp_path / "photos").iterdir()) if each.is_dir())
    status = folder.stat()
    (folder / "zzz.png").write_bytes(picture(1))
    os.utime(folder, ns=(status.st_atime_ns, status.st_mtime_ns))
    with open_store(tmp_path / "photos") as store:
        assert len(store) == count + 1


def test_a_file_written_in_place(photos: Path) -> None:
    """Its sample is an error that names it, on_error decides, others come; the next opening lists the folder again."""
    dataset = FastDataset(photos)
    key = dataset.keys[2]
    (photos / key).write_bytes(picture(99, size=(40, 40)))
    with pytest.raises(SampleError, match=rf"\[2\] \({key!r}\), field 'image': .*{key!r} was changed since it was"):
        dataset[2]
    assert not index_of(photos).exists()
    with FastLoader(dataset, 4, on_error="skip", transforms=[RandomResizedCrop(4)]) as loader:
        assert len(dataset) - 1 == sum(len(labels) for _, labels in loader)
        assert [2] == [error.index for error in loader.skipped]

    assert (40, 40) == FastDataset(photos)[2][0].size


def test_a_file_that_is_gone(photos: Path) -> None:
    """The error says so, and what to do."""
    dataset = FastDataset(photos)
    key = dataset.keys[0]
    (photos / key).unlink()
    with pytest.raises(SampleError, match=r"no longer as it was indexed \(No such file or directory\): open .* again"):
        dataset[0]
    with pytest.raises(StoreError, match="was changed since it was indexed"):
        dataset.store.shards[0].data.check()

    assert key not in FastDataset(photos).keys


def test_a_damaged_index_is_made_again(photos: Path) -> None:
    """Any byte of it that is another, or an end that is missing, is noticed."""
    expected = FastDataset(photos).keys
    whole = index_of(photos).read_bytes()
    for damaged in (whole[:-1], whole[: len(whole) // 2], b"", b"x" * len(whole), whole[:70] + b"\xff" + whole[71:]):
        index_of(photos).write_bytes(damaged)
        assert expected == FastDataset(photos).keys
        assert whole == index_of(photos).read_bytes()


def test_a_copy_has_its_index(photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Folder and index that are moved together stay together: names begin at the folder."""
    identity = FastDataset(photos).store.identity
    (tmp_path / "elsewhere").mkdir()
    photos.rename(tmp_path / "elsewhere/photos")
    index_of(photos).rename(tmp_path / "elsewhere/photos.fastio-index")
    written = (tmp_path / "elsewhere/photos.fastio-index").stat().st_mtime_ns
    moved = FastDataset(tmp_path / "elsewhere/photos")

    assert identity == moved.store.identity
    assert (tmp_path / "elsewhere/photos.fastio-index").stat().st_mtime_ns == written
    moved[0][0].load()


def test_a_folder_of_shards_is_a_store(photos: Path) -> None:
    """Shards that were packed into a folder that had an index are what is opened."""
    count = len(FastDataset(photos))
    pack(open_source(photos), photos.parent / "out-%06d.tar")
    for each in sorted(photos.parent.glob("out*")):
        shutil.move(each, photos / each.name)
    with open_store(photos) as store:
        assert ("tar", count) == (store.format, len(store))


def test_verify_finds_nothing_in_a_good_folder(photos: Path) -> None:
    """Without checksums, only that files are those that were listed can be checked."""
    assert "nothing was compared (--decode decodes" in CliRunner().invoke(cli, ["verify", str(photos)]).output
    assert "decoded; " in (said := CliRunner().invoke(cli, ["verify", str(photos), "--decode"]).output)
    assert "all good" in said
    with open_store(photos) as store:
        assert [] == verify_store(store)
        key = store.keys([1])[0]
        (photos / key).write_bytes(picture(5, size=(9, 9)))
        (damage,) = verify_store(store)
    assert damage.key is None
    assert f"{key!r} was changed since it was indexed" in str(damage)


def test_fastio_index_adds_what_reading_tells(photos: Path, tmp_path: Path) -> None:
    """Checksums, sizes of pictures and start points are those of a packed store, and so is the receipt."""
    noise = np.random.default_rng(0).integers(0, 256, (96, 128, 3), np.uint8)
    Image.fromarray(noise).save(photos / "dog/large.jpg", quality=95)
    settle(photos.parent)
    pack(open_source(photos), tmp_path / "packed.lmdb")
    before = FastDataset(photos).store.identity
    result = CliRunner().invoke(cli, ["index", str(photos)])
    assert result.exit_code == 0, result.output
    assert "start points within 1 picture" in result.output
    with open_store(photos) as here, open_store(tmp_path / "packed.lmdb") as there:
        every = np.arange(len(there))
        assert here.receipt() == there.receipt() is not None
        assert np.array_equal(here.shapes("image"), there.shapes("image"))
        ours, theirs = (store.spans("image", every).intervals for store in (here, there))
        assert ours is not None
        assert theirs is not None
        assert [view.tobytes() for view in theirs.views()] == [view.tobytes() for view in ours.views()]
        assert before == here.identity
        assert [] == verify_store(here)
    with FastLoader(photos, 5, transforms=[RandomResizedCrop(8)]) as loader:
        list(loader)
        assert loader.receipt().is_complete


def test_a_flipped_bit_is_found_by_its_checksum(photos: Path) -> None:
    """Size and time of the file are as they were, but its bytes are not."""
    assert CliRunner().invoke(cli, ["index", str(photos), "--no-jump"]).exit_code == 0
    dataset = FastDataset(photos)
    key = dataset.keys[4]
    data = bytearray((photos / key).read_bytes())
    data[len(data) // 2] ^= 1
    (photos / key).write_bytes(data)
    os.utime(photos / key, ns=(10**18, 10**18))
    with pytest.raises(SampleError, match="differ from the checksum"):
        dataset[4][0].load()


def test_what_was_added_goes_with_a_change(photos: Path) -> None:
    """What is known of content belongs to the files that were read."""
    assert CliRunner().invoke(cli, ["index", str(photos)]).exit_code == 0
    with open_store(photos) as store:
        assert store.receipt() is not None
    (photos / "dog/new.png").write_bytes(picture(1))
    settle(photos.parent)
    os.utime(photos / "dog", ns=(10**18 + 5, 10**18 + 5))
    with open_store(photos) as store:
        assert store.receipt() is None


def tables(path: Path) -> dict[str, bytes]:
    """The start points within each picture of a folder in place, by its key."""
    with open_store(path) as store:
        every = np.arange(len(store))
        noted = store.spans("image", every).intervals
        views = [b""] * len(store) if noted is None else [view.tobytes() for view in noted.views()]
        return dict(zip(store.keys(every), views, strict=True))


def test_a_file_that_changes_loses_its_start_points_alone(photos: Path) -> None:
    """Those of files that are as they were stay, though others come and go before them; every crop is Pillow's."""
    random = np.random.default_rng(0)

    def write(name: str) -> None:
        noise = random.integers(0, 256, (96, 128, 3), np.uint8)
        Image.fromarray(noise).save(photos / name, quality=95)

    for name in ("dog/a.jpg", "dog/b.jpg", "dog/c.jpg", "dog/stays.jpg"):
        (photos / name).parent.mkdir(exist_ok=True)
        write(name)
    settle(photos.parent)
    result = CliRunner().invoke(cli, ["index", str(photos)])
    assert result.exit_code == 0, result.output
    before = tables(photos)
    assert all(before[name] for name in ("dog/a.jpg", "dog/b.jpg", "dog/c.jpg", "dog/stays.jpg"))

    (photos / "dog/a.jpg").unlink()
    write("dog/A.jpg")
    write("dog/c.jpg")
    settle(photos.parent)
    os.utime(photos / "dog", ns=(10**18 + 5, 10**18 + 5))
    os.utime(photos / "dog/c.jpg", ns=(10**18 + 5, 10**18 + 5))
    for _ in range(2):  # listed, and by the index that is kept
        assert {name for name, table in tables(photos).items() if table} == {"dog/b.jpg", "dog/stays.jpg"}
        assert {name: before.get(name) for name in ("dog/b.jpg", "dog/stays.jpg")}.items() <= tables(photos).items()
    for key, (shown, _) in zip((dataset := FastDataset(photos)).keys, dataset, strict=True):
        with Image.open(photos / key) as file:
            box = (1, 1, file.width - 1, file.height - 1)
            assert file.convert("RGB").crop(box).tobytes() == shown.crop(box).tobytes()

    assert CliRunner().invoke(cli, ["index", str(photos)]).exit_code == 0
    after = tables(photos)
    assert all(after[name] for name in ("dog/A.jpg", "dog/b.jpg", "dog/c.jpg", "dog/stays.jpg"))
    assert after["dog/c.jpg"] != before["dog/c.jpg"]
    with open_store(photos) as store:
        assert store.receipt() is not None
        assert [] == verify_store(store)


def test_what_was_added_stays_with_the_same_files(photos: Path) -> None:
    """What is no sample may come into the folder: what is known of the samples' files is still true."""
    assert CliRunner().invoke(cli, ["index", str(photos)]).exit_code == 0
    with open_store(photos) as store:
        receipt = store.receipt()
    (photos / "dog/.DS_Store").write_bytes(b"x")
    os.utime(photos / "dog", ns=(10**18 + 5, 10**18 + 5))
    for _ in range(2):
        with open_store(photos) as store:
            assert store.receipt() == receipt is not None
            assert [] == verify_store(store)


def test_a_table_of_the_same_size_and_time(tmp_path: Path) -> None:
    """Labels that are written anew are read anew, whatever time their file is given."""
    names = list(flat(tmp_path / "set"))
    options = Unpacked(tmp_path / "labels.csv", label_columns=["label"])

    def labels(word: str) -> list[str]:
        rows = "".join(f"{name},{word if i == 2 else 'cat'}\n" for i, name in enumerate(names))
        (tmp_path / "labels.csv").write_text(f"file_name,label\n{rows}")
        settle(tmp_path)
        dataset = FastDataset(tmp_path / "set", unpacked=options)
        return [dataset.classes[target] for target in dataset.targets]

    assert "dog" == labels("dog")[2]
    assert [*tmp_path.glob("*.fastio-index")]
    assert "emu" == labels("emu")[2]


def test_a_container_of_the_same_size_and_time(tmp_path: Path) -> None:
    """What the index keeps of a container is read again once it was written to, whatever time it is given."""
    tfrecord(tmp_path / "set", 4)
    settle(tmp_path)
    assert FastDataset(tmp_path / "set", fields="caption")[1] == "é 1"
    assert index_of(tmp_path / "set").exists()
    shard = tmp_path / "set/train-00000-of-00002"
    shard.write_bytes(shard.read_bytes().replace("é 1".encode(), "é 7".encode()))
    settle(tmp_path)
    assert FastDataset(tmp_path / "set", fields="caption")[1] == "é 7"


def test_fastio_index_names_what_is_damaged(photos: Path) -> None:
    """Small JPEGs whose codes are damaged, what breaks off, and what is no picture; the count is of files."""
    noise = np.random.default_rng(0).integers(0, 256, (48, 48, 3), np.uint8)
    for name in ("codes", "large"):
        Image.fromarray(noise).resize((48, 48) if name == "codes" else (300, 200)).save(photos / f"dog/{name}.jpg")
        data = bytearray((photos / f"dog/{name}.jpg").read_bytes())
        middle = len(data) * 2 // 3
        data[middle : middle + 40] = bytes([255, 217] * 20)  # the mark of the end
        (photos / f"dog/{name}.jpg").write_bytes(data)
    assert (photos / "dog/codes.jpg").stat().st_size < 8192 < (photos / "dog/large.jpg").stat().st_size
    (photos / "dog/no.png").write_bytes(b"no picture at all")
    (photos / "dog/short.png").write_bytes(picture(1, size=(30, 30))[:-100])
    settle(photos.parent)
    result = CliRunner().invoke(cli, ["index", str(photos)])
    assert result.exit_code == 0, result.output
    count = len(FastDataset(photos))

    assert f"{count} samples in {count} files, " in result.output
    assert "4 damaged samples, which stay: reading gives a SampleError: " in result.output
    assert "dog/no.png is not an image: its first bytes are those of no known kind" in result.output
    assert "dog/short.png cannot be decoded: its data end too early" in result.output
    assert "dog/codes.jpg cannot be decoded: its data" in result.output
    assert "dog/large.jpg has damaged data" in result.output
    decoded = CliRunner().invoke(cli, ["verify", str(photos), "--decode"]).output
    assert all(f"dog/{name}" in decoded for name in ("codes.jpg", "large.jpg", "no.png", "short.png"))


@pytest.mark.parametrize(("share", "level"), [(0.5, logging.WARNING), (0.0, logging.INFO)])
def test_one_line_on_what_packing_saves(
    photos: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, share: float, level: int
) -> None:
    """After the first epoch, with measured figures, and the command if it is worth its while."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("fastio.loader.iteration._MANY_FILES", 1)
    monkeypatch.setattr(Opens, "gain", lambda opens, elapsed_s: OpensGain(900.0, 800.0 + opens.files, share))
    with FastLoader(photos, 5, transforms=[RandomResizedCrop(8)]) as loader:
        for _ in range(2):
            list(loader)
        count = len(loader.dataset)
    (line,) = (each for each in caplog.records if "opened and read at up to 900/s" in each.getMessage())
    said = line.getMessage()

    assert level == line.levelno
    assert f"and {800 + count}/s were; {share:.0%} of the time was spent waiting for them" in said
    assert ("packed, it would not: fastio pack" in said) == (share > 0)


def test_bench_reads_a_folder_in_place(photos: Path) -> None:
    """``--in-place`` takes FastLoader, and counts the files opened."""
    words = ["bench", "io", str(photos), "--in-place", "--crop", "8", "--epochs", "1", "--json"]
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 0, result.output
    report = json.loads(result.output[result.output.index("{") :])

    assert "in place" == report["kind"]
    assert report["opens_per_s"] == report["samples_per_s"] > 0


@pytest.mark.parametrize("command", [["verify", "--decode"], ["ls"], ["show", "-o", "sheet.png"]])
def test_commands_read_it(photos: Path, tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What reads stores reads folders in place."""
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, [command[0], str(photos), *command[1:]])

    assert result.exit_code == 0, result.output


def _labelled(folder: Path) -> list[str]:
    """A flat folder with a table of labels beside it; what commands are told of them: five rows of two classes."""
    names = list(flat(folder / "flat"))
    rows = "".join(f"{name},k{i % 2},{'train' if i < 5 else 'val'}\n" for i, name in enumerate(names))
    (folder / "labels.csv").write_text(f"file,kind,part\n{rows}")
    settle(folder)
    return ["--labels", str(folder / "labels.csv"), "--label-column", "kind", "--filter", "part=train"]


SAYS = {
    "ls": "0004.png",
    "show -o sheet.png": "sheet.png: ",
    "info": "5 samples",
    "index --no-jump": "5 samples in 5 files",
    "verify --decode": "5 images decoded",
    "bench io --epochs 1 --batch-size 4": "samples             5",
    "bench both --step-ms 0 --seconds 0.1 --batch-size 4": "samples",
}


@pytest.mark.parametrize("command", SAYS)
def test_commands_are_told_what_it_is(tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The options of pack that say what files are mean the same to whatever opens them where they lie."""
    options = _labelled(tmp_path)
    monkeypatch.chdir(tmp_path)
    name, *further = command.split(" -", 1)
    words = [*name.split(), "flat", *[f"-{each}" for each in "".join(further).split(" -") if each]]
    words = [part for word in words for part in word.split()]
    result = CliRunner().invoke(cli, [*words, *options, "--without", "*"])

    assert result.exit_code == 0, result.output
    assert SAYS[command] in result.output
    assert [*tmp_path.glob("flat.*.fastio-index")] or name == "info"


def test_parts_are_named_to_commands(tmp_path: Path) -> None:
    """``--split`` and ``--source-kind`` go to the source; without the part, the error says what to type."""
    root = layouts.voc(tmp_path / "v", {"train": (0, 1, 2), "val": (4, 3)})
    settle(tmp_path)
    run = CliRunner()

    assert run.invoke(cli, ["ls", str(root), "--split", "val"]).output.count("JPEGImages/") == 2
    assert run.invoke(cli, ["ls", str(root), "--split", "val", "--source-kind", "voc"]).output.count("JPEGImages/") == 2
    said = run.invoke(cli, ["ls", str(root)]).output
    assert f"where it lies: FastDataset({str(root)!r}, unpacked=Unpacked(split='train'))" in said
    others = ["--filter", "a=b", "--no-header", "--split", "val", "--key-column", "a", "--without", "b"]
    said = run.invoke(cli, ["verify", str(root), "--against", str(root), *others]).output
    assert "--labels and --source-kind describe SRC; all else, the store knows: drop --split" in said
    packed = tmp_path / "p.lmdb"
    pack(open_source(root, split="val"), packed)
    said = run.invoke(cli, ["index", str(packed), "--split", "val"]).output
    assert f"{packed}: is packed, and says itself what is in it: drop --split val" in said


def test_bench_takes_options_beside_a_store(tmp_path: Path) -> None:
    """They are about what is not packed; a function of the user's has no use for them."""
    options = _labelled(tmp_path)
    pack(open_source(tmp_path / "flat"), tmp_path / "s.lmdb")
    words = ["bench", "io", str(tmp_path / "flat"), str(tmp_path / "s.lmdb"), "--epochs", "1", "--batch-size", "4"]
    result = CliRunner().invoke(cli, [*words, "--json", *options, "--without", "part"])
    report = json.loads(result.output[result.output.index("{") :])

    assert ("in place", 5) == (report["kind"], report["samples"])
    assert ("store", 7) == (report["beside"][0]["kind"], report["beside"][0]["samples"])
    said = CliRunner().invoke(cli, ["bench", "io", "os:getcwd", *options]).output
    assert "os:getcwd: --labels has no effect, because a function builds its own loader" in said


def test_index_waits_for_what_was_changed_a_moment_ago(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It does not ask the user to do so, and says once what is no sample."""
    class_folders(tmp_path / "photos")
    (tmp_path / "photos/cat/empty.png").touch()
    waited = []

    def settled(seconds: float) -> None:
        waited.append(seconds)
        settle(tmp_path)

    monkeypatch.setattr("fastio.store.foreign.index.time.sleep", settled)
    assert CliRunner().invoke(cli, ["index", str(tmp_path / "photos"), "--no-jump"]).exit_code == 0
    assert [2] == waited
    assert ["cat/empty.png is empty (0 bytes)"] == [
        each.partition("e.g. ")[2].replace("'", "") for each in listings(caplog)
    ]
    with open_store(tmp_path / "photos") as store:
        assert store.receipt() is not None


def test_info_says_that_it_is_read_in_place(photos: Path) -> None:
    """Beside the command that packs it."""
    said = CliRunner().invoke(cli, ["info", str(photos)]).output

    assert "it can be read where it lies: FastDataset and FastLoader take the path\n" in said
    assert "pack it: fastio pack" in said


def test_a_link_to_a_folder(photos: Path, tmp_path: Path) -> None:
    """It is the folder: the index lies beside that, and messages have the user's name."""
    (tmp_path / "links").mkdir()
    (tmp_path / "links/set").symlink_to(photos)
    dataset = FastDataset(tmp_path / "links/set")

    assert index_of(photos).is_file()
    assert str(tmp_path / "links/set") == dataset.store.path
    assert dataset.keys == FastDataset(photos).keys


def test_relative_names_are_of_their_directory(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same options mean another label file from another working directory: that of the first is not taken."""
    labels = flat(tmp_path / "flat")
    for i, name in enumerate(("one", "two")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "l.csv").write_text("".join(f"{key},{label + i}\n" for key, label in labels.items()))
    settle(tmp_path)
    for i, name in enumerate(("one", "two", "one")):
        monkeypatch.chdir(tmp_path / name)
        expected = [label + i % 2 for label in labels.values()]
        assert expected == FastDataset(tmp_path / "flat", unpacked=Unpacked("l.csv")).targets


def test_files_that_come_later(tmp_path: Path) -> None:
    """What a table or a list names and is not there yet, in folders that are not there either, is read once it is."""
    lines = "file,label\na.png,x\ne/b.png,y\nf/g/c.png,y\n"
    for name in ("table.csv", "list.txt"):
        folder = tmp_path / name.partition(".")[0]
        (folder / "e").mkdir(parents=True)
        (folder / "a.png").write_bytes(picture(1))
        (folder / name).write_text(lines if name == "table.csv" else lines.partition("\n")[2])
        settle(tmp_path)
        counts = [len(FastDataset(folder / name))]
        for i, late in enumerate(("e/b.png", "f/g/c.png")):
            (folder / late).parent.mkdir(parents=True, exist_ok=True)
            (folder / late).write_bytes(picture(2 + i))
            settle(tmp_path)
            counts.append(len(FastDataset(folder / name)))
        assert counts == [1, 2, 3]


def test_lists_are_numbered_alike(tmp_path: Path) -> None:
    """A class that comes to one list of a folder moves those of the others, also of one whose index is kept."""
    for name in "abcd":
        (tmp_path / "l/i").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"l/i/{name}.png").write_bytes(picture(1))
    (tmp_path / "l/train.txt").write_text("i/a.png x\ni/b.png z\n")
    (tmp_path / "l/val.txt").write_text("i/c.png x\ni/d.png z\n")
    settle(tmp_path)
    train = Unpacked(split="train")
    assert FastDataset(tmp_path / "l", unpacked=train).targets == [0, 1]
    (tmp_path / "l/val.txt").write_text("i/c.png x\ni/d.png y\n")

    assert FastDataset(tmp_path / "l", unpacked=Unpacked(split="val")).targets == [0, 1]
    assert FastDataset(tmp_path / "l", unpacked=train).targets == [0, 2]


def test_labels_behind_a_url_are_asked_for_anew(served: Served, tmp_path: Path) -> None:
    """Nothing tells when they change, so no index is kept."""
    labels = flat(tmp_path / "flat")
    settle(tmp_path / "flat")
    for more in (0, 1):
        served.root.joinpath("l.csv").write_text("".join(f"{key},{label + more}\n" for key, label in labels.items()))
        found = FastDataset(tmp_path / "flat", unpacked=Unpacked(f"{served.url}/l.csv")).targets
        assert [label + more for label in labels.values()] == found


def test_a_link_that_leads_elsewhere(tmp_path: Path) -> None:
    """A label file, a root, or the folder beside a list: where a link leads to by now is what is read."""
    for i, version in enumerate(("v1", "v2")):
        for name in "ab":
            (tmp_path / "of" / version).mkdir(parents=True, exist_ok=True)
            (tmp_path / "of" / version / f"{name}.png").write_bytes(picture(10 * i + ord(name)))
        (tmp_path / f"{version}.csv").write_text(f"file,label\nc.png,{i}\nd.png,{1 - i}\n")
    (tmp_path / "pngs").mkdir()
    for name in "cd":
        (tmp_path / "pngs" / f"{name}.png").write_bytes(picture(1))
    (tmp_path / "t").mkdir()
    (tmp_path / "t/table.csv").write_text("file,label\na.png,0\nb.png,1\n")
    (tmp_path / "t/list.txt").write_text("a.png 0\nb.png 1\n")
    settle(tmp_path)
    os.utime(tmp_path / "of/v2", ns=(10**18 + 1, 10**18 + 1))
    for version in ("v1", "v2", "v1"):
        for link, target in (("l.csv", f"{version}.csv"), ("root", f"of/{version}"), ("images", f"of/{version}")):
            (tmp_path / link).unlink(missing_ok=True)
            (tmp_path / link).symlink_to(tmp_path / target)
        labelled = FastDataset(tmp_path / "pngs", unpacked=Unpacked(tmp_path / "l.csv"))
        rooted = FastDataset(tmp_path / "t/table.csv", unpacked=Unpacked(root=tmp_path / "root"))
        beside = FastDataset(tmp_path / "t/list.txt")
        expected = (tmp_path / "of" / version / "a.png").read_bytes()

        assert labelled.targets == ([0, 1] if version == "v1" else [1, 0])
        for each in (rooted, beside):
            assert expected == read_values(each.store, "image", np.array([0])).view(0).tobytes()


def test_what_was_no_sample_becomes_one(photos: Path) -> None:
    """A file that was empty is filled, and a link leads somewhere: the time of their folder stays as it was."""
    folder = next(each for each in photos.iterdir() if each.is_dir())
    (folder / "empty.png").write_bytes(b"")
    (folder / "link.png").symlink_to(photos.parent / "far.png")
    for each in (folder / "empty.png", folder, photos, photos.parent):
        os.utime(each, ns=(10**18, 10**18))
    counts = [len(FastDataset(photos))]
    (folder / "empty.png").write_bytes(picture(1))
    counts.append(len(FastDataset(photos)))
    (photos.parent / "far.png").write_bytes(picture(2))
    counts.append(len(FastDataset(photos)))

    assert [count - counts[0] for count in counts] == [0, 1, 2]


def test_a_city_that_comes_later(tmp_path: Path) -> None:
    """A folder that comes to one of folders alone is noticed."""
    root = layouts.cityscapes(tmp_path / "d")
    settle(tmp_path)
    train = Unpacked(split="train")
    count = len(FastDataset(root, unpacked=train))
    for kind, end in (("leftImg8bit", "leftImg8bit"), ("gtFine", "gtFine_labelIds")):
        mode = "RGB" if kind == "leftImg8bit" else "L"
        tree(root, layouts.pictures(f"{kind}/train/zurich/zurich_0_{end}.png", mode=mode))

    assert len(FastDataset(root, unpacked=train)) == count + 1


def test_classes_of_another_part(tmp_path: Path) -> None:
    """An XML of VOC that is written to in place moves the classes of the other parts as well."""
    root = layouts.voc(tmp_path / "v", {"train": (0, 1, 2), "val": (4, 3)})
    settle(tmp_path)
    train = Unpacked(split="train")
    before = FastDataset(root, unpacked=train).store.metadata
    (root / "Annotations/2007_000004.xml").write_text(layouts.voc_xml(("aardvark", (1, 1, 5, 6))))

    assert FastDataset(root, unpacked=train).store.metadata != before
