"""A new transform is one file: FastLoader plans it, or runs it on the device, though it is registered nowhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from fastio import FastDataset, FastLoader
from fastio.transforms import CenterCrop, Transform
from fastio.transforms.batch import BatchTransform
from fastio.transforms.batch.batch_transform import Parameters, Pictures
from fastio.transforms.canvas import Canvas
from tests.conftest import encode, pictures, write_store


@dataclass(frozen=True)
class RandomBorder(Transform):
    """A border of 0 to ``most`` pixels painted over: cropped away, and padded again."""

    most: int

    @property
    def draws(self) -> int:
        """Draws one number: the width of the border."""
        return 1

    def run(self, canvas: Canvas, numbers: NDArray[np.float64]) -> None:
        """Crop all four sides, then pad them."""
        border = (numbers[:, 0] * (self.most + 1)).astype(np.int64)
        height, width = canvas.height, canvas.width
        canvas.crop(border, border, width=width - 2 * border, height=height - 2 * border)
        canvas.pad(border, border, border, border, fill=(9, 9, 9))


@dataclass(frozen=True)
class RandomInvert:
    """Each picture inverted with probability ``p``."""

    p: float

    @property
    def draws(self) -> int:
        """Draws one number: whether to invert."""
        return 1

    def parameters(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Parameters:
        """Which pictures of the batch are inverted."""
        return {"mask": torch.from_numpy(numbers[:, 0] < self.p)}

    def run(self, given: Pictures, parameters: Parameters) -> Pictures:
        """Inverts those."""
        inverted = torch.where(parameters["mask"][:, None, None, None], 255 - given.images, given.images)
        return Pictures(inverted, given.labels)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Twelve pictures of 20x24 pixels, with labels."""
    values = [encode(pixels) for pixels in pictures(12, (20, 24, 3))]
    return write_store(tmp_path / "x.lmdb", values, np.arange(12, dtype=np.int64))


def one_batch(store: Path, *transforms: Transform | BatchTransform) -> torch.Tensor:
    """All pictures in order."""
    with FastLoader(FastDataset(store), 12, transforms=list(transforms)) as loader:
        images, _ = next(iter(loader))
    return images


def test_a_transform_of_one_file_runs_in_the_decoders(store: Path) -> None:
    """Each row equals the picture called by itself, with some border of 0 to 4 pixels; not all have the same."""
    images = one_batch(store, RandomBorder(4))
    borders = []
    for image, pixels in zip(images, pictures(12, (20, 24, 3)), strict=True):
        plain = [
            np.asarray(RandomBorder(4).apply(Image.fromarray(pixels), np.array([border / 5]))) for border in range(5)
        ]
        borders.append([np.array_equal(image.permute(1, 2, 0).numpy(), each) for each in plain].index(True))

    assert len(set(borders)) > 1


def test_a_transform_of_batches_of_one_file_runs_behind_it(store: Path) -> None:
    """Pictures are inverted whole or not at all, and both occur; before it, decoders crop."""
    cropped, images = one_batch(store, CenterCrop(8)), one_batch(store, CenterCrop(8), RandomInvert(0.5))
    whole = [torch.equal(image, other) for image, other in zip(images, cropped, strict=True)]
    inverted = [torch.equal(image, 255 - other) for image, other in zip(images, cropped, strict=True)]

    assert [True] * 12 == [a != b for a, b in zip(whole, inverted, strict=True)]
    assert {True, False} == set(whole)
