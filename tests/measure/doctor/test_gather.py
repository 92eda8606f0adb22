"""What the doctor sees of a store's pictures: how large they are, and whether start points would help."""

from __future__ import annotations

import io
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fastio import FastDataset, FastLoader, Unpacked
from fastio.converters import open_source, pack
from fastio.measure.doctor.cautions import files_in_place
from fastio.measure.doctor.facts import Facts, LoaderFacts
from fastio.measure.doctor.gather import _opens, facts_of, look_at_pictures
from fastio.measure.doctor.session import ObservationPlan, observe
from fastio.measure.doctor.watch import Watcher
from fastio.store.foreign.index import index_store
from fastio.transforms import Normalize, RandomCrop, RandomResizedCrop, Resize
from fastio.types.metrics import OpensGain
from tests.converters.sources.test_in_place import settle


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """JPEGs of two sizes."""
    folder = tmp_path_factory.mktemp("photos")
    for number, side in enumerate((300, 300, 320)):
        pixels = np.random.default_rng(number).integers(0, 255, (20, side // 10, 3), np.uint8)
        large = np.kron(pixels, np.ones((20, 10, 1), np.uint8)).astype(np.uint8)
        Image.fromarray(large).save(folder / f"{number}.jpg")
    return folder


def test_photos_packed_as_they_are(photos: Path, tmp_path: Path) -> None:
    """The short side, and by how much jump tables would make the store larger."""
    pack(open_source(photos), tmp_path / "a.lmdb", jump=False)
    side, jump_percent = look_at_pictures(tmp_path / "a.lmdb")

    assert side == 300
    assert jump_percent is not None
    assert 0 < jump_percent < 10


def test_photos_packed_with_jump(photos: Path, tmp_path: Path) -> None:
    """What is there is not advised again."""
    pack(open_source(photos), tmp_path / "a.lmdb")

    assert (300, None) == look_at_pictures(tmp_path / "a.lmdb")


@pytest.mark.parametrize(
    ("transforms", "is_advised"),
    [
        ([RandomResizedCrop(64)], True),
        ([Resize((64, 64))], False),
        ([RandomCrop(64), Normalize([0.5] * 3, [0.5] * 3)], True),
        (RandomCrop(64), True),
    ],
)
def test_only_crops_gain(photos: Path, tmp_path: Path, transforms: Any, is_advised: bool) -> None:
    """A loader that needs whole pictures is not told of start points."""
    pack(open_source(photos), tmp_path / "a.lmdb", jump=False)

    def training(watcher: Watcher) -> None:
        del watcher
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)])
        with FastLoader(tmp_path / "a.lmdb", 1, transforms=transforms, threads=1, device="cpu") as loader:
            for _ in loader:
                optimizer.step()

    facts = observe(training, ObservationPlan(seconds=0.1, profiled=0), facts_of)

    assert facts.loader is not None
    assert facts.loader.picture_side == 300
    assert (facts.loader.jump_percent is not None) == is_advised


def test_a_store_that_does_not_open(tmp_path: Path) -> None:
    """A store that went away meanwhile has no advice; nothing is raised."""
    assert (None, None) == look_at_pictures(tmp_path / "gone.lmdb")


def test_sizes_that_a_store_does_not_know(tmp_path: Path) -> None:
    """Shards of other tools tell no sizes: nothing is said of the side, rather than 0."""
    with tarfile.open(tmp_path / "a.tar", "w") as shard:
        for number in range(3):
            picture = io.BytesIO()
            Image.new("RGB", (600, 700)).save(picture, "JPEG")
            member = tarfile.TarInfo(f"{number}.jpg")
            member.size = picture.tell()
            picture.seek(0)
            shard.addfile(member, picture)

    assert look_at_pictures(tmp_path / "a.tar")[0] is None


def test_photos_in_place(photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They are opened as they were, with sizes from their headers; once their index has start points, none are told."""
    shutil.copytree(photos, tmp_path / "photos")
    rows = "".join(f"{number}.jpg,{number}\n" for number in range(3))
    (tmp_path / "labels.csv").write_text(f"file,label\n{rows}")
    settle(tmp_path)
    options = Unpacked(tmp_path / "labels.csv")

    def training(watcher: Watcher) -> None:
        del watcher
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)])
        dataset = FastDataset(tmp_path / "photos", unpacked=options)
        with FastLoader(dataset, 1, transforms=[RandomCrop(64)], threads=1, device="cpu") as loader:
            for _ in loader:
                optimizer.step()

    for is_advised in (True, False):
        (loader,) = (observe(training, ObservationPlan(seconds=0.1, profiled=0), facts_of).loader,)
        assert loader is not None
        assert ("--labels", str(tmp_path / "labels.csv")) == loader.unpacked
        assert loader.picture_side == 300
        assert (loader.jump_percent is not None) == is_advised
        index_store(str(tmp_path / "photos"), unpacked=options)
    assert f"`fastio index {tmp_path / 'photos'} --labels {tmp_path / 'labels.csv'}` adds them" in caplog.text


def test_files_in_place_are_counted(photos: Path) -> None:
    """How many files a second were opened, and could be; nothing of the kind for a packed store."""
    with FastLoader(photos, 2, transforms=[RandomCrop(64)]) as loader:
        list(loader)
        opens = _opens(loader)

    assert opens is not None
    assert 0 < opens.needed_per_s
    assert 0 < opens.possible_per_s
    assert 0 <= opens.share <= 1


@pytest.mark.parametrize(("share", "count"), [(0.3, 1), (0.01, 0)])
def test_what_packing_would_save(share: float, count: int) -> None:
    """A caution with the figures and the command, if the loader waits for files."""
    gain = OpensGain(possible_per_s=900, needed_per_s=850, share=share)
    words = ("--split", "train")
    loader = LoaderFacts(kind="FastLoader", name="FastLoader", data_path="photos", opens=gain, unpacked=words)
    cautions = list(files_in_place(Facts(loader=loader)))

    assert count == len(cautions)
    for caution in cautions:
        assert "opened and read at up to 900/s here, and 850/s were; 30% of the time" in caution.title
        assert "`fastio pack photos photos" in caution.reason
        assert caution.reason.endswith(".lmdb --split train`")
