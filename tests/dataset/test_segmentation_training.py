"""A segmentation network trained from a store learns exactly what it learns from files."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from fastio import FastDataset, Writer
from fastio.store import FORMATS
from tests.conftest import pictures

_CROP, _CLASSES = 24, 5


def crop(sample: Sequence[Image.Image]) -> tuple[torch.Tensor, torch.Tensor]:
    """RandomCrop and flip of picture and mask alike, as people write it with Pillow."""
    picture, mask = sample
    left, top = random.randint(0, picture.width - _CROP), random.randint(0, picture.height - _CROP)
    parts = [part.crop((left, top, left + _CROP, top + _CROP)) for part in (picture, mask)]
    if random.random() < 0.5:
        parts = [part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) for part in parts]
    pixels, classes = (torch.from_numpy(np.array(part)) for part in parts)
    return pixels.permute(2, 0, 1).float() / 255, classes.long()


class Files(torch.utils.data.Dataset[Any]):
    """Pictures and masks in two folders."""

    def __init__(self, root: Path, names: Sequence[str]) -> None:
        self.pairs = [(root / "images" / name, root / "masks" / name) for name in names]

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        with Image.open(self.pairs[index][0]) as picture, Image.open(self.pairs[index][1]) as mask:
            return crop((picture.convert("RGB"), mask))


def losses(dataset: Any) -> list[float]:
    """The loss of each step of two epochs, from fixed seeds."""
    random.seed(0)
    torch.manual_seed(0)
    network = torch.nn.Conv2d(3, _CLASSES, 3, padding=1)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    curve = []
    for _ in range(2):
        for images, masks in DataLoader(dataset, 3, shuffle=True, generator=torch.Generator().manual_seed(1)):
            loss = torch.nn.functional.cross_entropy(network(images), masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            curve.append(loss.item())
    return curve


@pytest.mark.parametrize("suffix", [form.suffixes[0] for form in FORMATS.values()])
def test_the_losses_are_those_of_files(suffix: str, tmp_path: Path) -> None:
    """Picture and palette mask, the same crops: every loss is equal in every digit."""
    rng = np.random.default_rng(0)
    names = [f"{number}.png" for number in range(9)]
    for folder in ("images", "masks"):
        (tmp_path / folder).mkdir()
    with Writer(tmp_path / f"scenes{suffix}", {"image": "image", "mask": "mask"}) as out:
        for name, pixels in zip(names, pictures(len(names), (40, 50, 3)), strict=True):
            mask = Image.fromarray(rng.integers(0, _CLASSES, (40, 50), np.uint8))
            mask.putpalette(rng.integers(0, 256, 3 * _CLASSES, np.uint8).tobytes())
            Image.fromarray(pixels).save(tmp_path / "images" / name)
            mask.save(tmp_path / "masks" / name)
            out.write({"image": tmp_path / "images" / name, "mask": tmp_path / "masks" / name}, key=name)

    with FastDataset(tmp_path / f"scenes{suffix}", crop, fields=("image", "mask")) as dataset:
        assert losses(Files(tmp_path, names)) == losses(dataset)
