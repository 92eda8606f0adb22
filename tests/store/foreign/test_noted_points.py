"""``jump=True``: start points that are noted when a file in place is first read, and whatever may happen to them."""

from __future__ import annotations

import errno
import logging
import os
import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import DataLoader

from fastio import FastDataset, FastLoader, SampleError, open_store
from fastio.cli import cli
from fastio.converters import open_source, pack
from fastio.store.foreign import noted_points
from fastio.store.write.atomic import PartialFile
from fastio.transforms import RandomHorizontalFlip, RandomResizedCrop
from tests.converters.sources.test_in_place import settle

LARGE = [f"cat/{i}.jpg" for i in range(5)]
BOX = (30, 20, 90, 70)


pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """JPEGs that have start points, and pictures that have none: small, progressive, a PNG."""
    make(tmp_path / "photos")
    settle(tmp_path)
    return tmp_path / "photos"


def make(folder: Path) -> None:
    """Write them."""
    (folder / "cat").mkdir(parents=True)
    (folder / "dog").mkdir()
    for number, name in enumerate(LARGE):
        noise(number).save(folder / name, quality=95)
    noise(10).save(folder / "dog/late.jpg", quality=95, progressive=True)
    noise(11).save(folder / "dog/plain.png")
    noise(12).resize((20, 16)).save(folder / "dog/small.jpg")


def noise(seed: int) -> Image.Image:
    """A picture whose JPEG is large."""
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (96, 128, 3), np.uint8))


def points_of(path: Path) -> Path:
    """Where the start points are noted."""
    return Path(f"{path}.start-points.fastio-index")


def tables(path: Path, *, jump: bool = True) -> dict[str, bytes]:
    """What is noted of each picture that has start points."""
    with open_store(path, jump=jump) as store:
        every = np.arange(len(store))
        noted = store.spans("image", every).intervals
        assert noted is not None
        return {key: view.tobytes() for key, view in zip(store.keys(every), noted.views(), strict=True) if view.size}


def crop(picture: Image.Image) -> torch.Tensor:
    """A transform."""
    box = BOX if picture.width > BOX[2] else (3, 5, 9, 11)
    return torch.from_numpy(np.array(picture.crop(box)))


def check(dataset: FastDataset, root: Path) -> None:
    """Every crop is Pillow's, of what the file holds now."""
    for key, index in zip(dataset.keys, range(len(dataset)), strict=True):
        with Image.open(root / key) as file:
            assert torch.equal(crop(file.convert("RGB")), dataset[index][0]), key


def test_they_are_those_of_fastio_index(photos: Path) -> None:
    """One reading notes them, the next uses them; fastio index has the same, and takes their place."""
    dataset = FastDataset(photos, crop, jump=True)
    assert {} == tables(photos)
    for _ in range(2):
        check(dataset, photos)
        noted = tables(photos)
        assert LARGE == sorted(noted)
    check(pickle.loads(pickle.dumps(dataset)), photos)
    assert CliRunner().invoke(cli, ["index", str(photos)]).exit_code == 0
    assert not points_of(photos).exists()
    assert noted == tables(photos) == tables(photos, jump=False)
    assert not points_of(photos).exists()
    check(dataset, photos)  # which still has the file without a name


def test_nothing_is_noted_unasked(photos: Path, tmp_path: Path) -> None:
    """Without ``jump`` there is no file; a packed store has start points of its own."""
    check(FastDataset(photos, crop), photos)
    assert not points_of(photos).exists()
    pack(open_source(photos), tmp_path / "packed.lmdb")
    check(FastDataset(tmp_path / "packed.lmdb", crop, jump=True), photos)
    with open_store(photos) as store, pytest.raises(ValueError, match="jump= is for a path"):
        FastDataset(store, jump=True)


def test_workers_note_them_for_all(photos: Path) -> None:
    """What one worker notes all others and the script itself use; each sample is read once."""
    dataset = FastDataset(photos, crop, jump=True)
    expected = [sample for sample, _ in FastDataset(photos, crop)]
    found = [sample[0] for sample, _ in DataLoader(dataset, 1, num_workers=2)]
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))
    noted = dataset.store.spans("image", np.arange(len(dataset))).intervals
    assert noted is not None
    assert len(LARGE) == np.count_nonzero(noted.sizes)


def test_a_loader_notes_them(photos: Path) -> None:
    """Batches of FastLoader are those without, in the first epoch and in the next."""
    transforms = [RandomResizedCrop(32), RandomHorizontalFlip()]
    loaders = [
        FastLoader(FastDataset(photos, jump=jump), 3, shuffle=True, seed=5, transforms=transforms, threads=2)
        for jump in (False, True)
    ]
    for _ in range(2):
        for one, other in zip(*loaders, strict=True):
            assert torch.equal(one[0], other[0])
            assert torch.equal(one[1], other[1])
        assert LARGE == sorted(tables(photos))
    for loader in loaders:
        loader.close()


def test_a_folder_beside_which_nothing_can_be_kept(photos: Path, cache: Path) -> None:
    """They go where the index goes."""
    Path(f"{photos}.fastio-index").mkdir()
    check(FastDataset(photos, crop, jump=True), photos)
    assert not points_of(photos).exists()
    assert [*cache.rglob("*.start-points.fastio-index")]
    assert LARGE == sorted(tables(photos))


def test_a_full_disk_is_told_once(
    photos: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Samples are as they were; a file that cannot be made leaves the folder without."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    dataset = FastDataset(photos, crop, jump=True)
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
        patched.setattr(noted_points, "pwrite_all", full)
        check(dataset, photos)
        assert ["no more start points are noted: No space left"] == [
            each.split(": ", 1)[1][:45] for each in said(caplog)
        ]
    assert {} == tables(photos)
    points_of(photos).unlink()
    caplog.clear()
    monkeypatch.setattr(PartialFile, "write", full)
    check(FastDataset(photos, crop, jump=True), photos)
    assert ["no start points are noted: "] == [each.split(": ", 1)[1][:27] for each in said(caplog)]


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Warnings about start points."""
    return [each.getMessage() for each in caplog.records if "start points are noted" in each.getMessage()]


def test_a_changed_file_has_none(photos: Path) -> None:
    """Those of the file before are of no use; all are noted anew for the new list of files."""
    check(FastDataset(photos, crop, jump=True), photos)
    dataset = FastDataset(photos, crop, jump=True)
    before = tables(photos)
    noise(20).save(photos / LARGE[2], quality=95)
    os.utime(photos / LARGE[2], ns=(10**18 + 5, 10**18 + 5))
    with pytest.raises(SampleError, match="was changed since it was indexed"):
        dataset[2]
    dataset = FastDataset(photos, crop, jump=True)
    assert {} == tables(photos)
    check(dataset, photos)
    assert {LARGE[2]} == {key for key, table in tables(photos).items() if before[key] != table}


def test_a_file_of_the_same_size_and_time(photos: Path) -> None:
    """A table is no other file's, even where nothing tells that the file is another."""
    one, other = photos / LARGE[0], photos / LARGE[1]
    size = max(one.stat().st_size, other.stat().st_size) + 64
    for path in (one, other):  # a comment fills each to this size
        data = path.read_bytes()
        length = size - len(data) - 2
        path.write_bytes(data[:2] + b"\xff\xfe" + length.to_bytes(2) + bytes(length - 2) + data[2:])
    settle(photos.parent)
    check(FastDataset(photos, crop, jump=True), photos)
    dataset, before = FastDataset(photos, crop, jump=True), tables(photos)
    swapped = one.read_bytes(), other.read_bytes()
    one.write_bytes(swapped[1])
    other.write_bytes(swapped[0])
    settle(photos.parent)
    assert before == tables(photos)
    check(dataset, photos)


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_damage_changes_no_pixel(data: st.DataObject) -> None:
    """Bytes that flip anywhere in the file, or an end that is cut off, change no sample, at most the time it takes."""
    with tempfile.TemporaryDirectory() as scratch:
        photos = Path(scratch, "photos")
        make(photos)
        settle(Path(scratch))
        check(FastDataset(photos, crop, jump=True), photos)
        whole = np.frombuffer(points_of(photos).read_bytes(), np.uint8).copy()
        used = np.flatnonzero(whole)
        for place in data.draw(st.lists(st.sampled_from(used.tolist()), min_size=1, max_size=40)):
            whole[place] ^= data.draw(st.integers(1, 255))
        size = data.draw(st.sampled_from([len(whole), len(whole), len(whole) // 2, 3, 0]))
        points_of(photos).write_bytes(whole[:size].tobytes())
        dataset = FastDataset(photos, crop, jump=True)
        for _ in range(2):
            check(dataset, photos)
