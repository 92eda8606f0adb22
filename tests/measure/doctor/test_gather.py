"""What the doctor sees of a store's pictures: how large they are, and whether start points would help."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fastio import FastLoader
from fastio.converters import open_source, pack
from fastio.measure.doctor.gather import facts_of, look_at_pictures
from fastio.measure.doctor.session import ObservationPlan, observe
from fastio.measure.doctor.watch import Watcher
from fastio.transforms import Normalize, RandomCrop, RandomResizedCrop, Resize


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
