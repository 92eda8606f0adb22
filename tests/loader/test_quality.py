"""FastLoader(quality="fast"): JPEGs shrunk while they are decoded, close to Pillow's pixels; all else exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fastio import FastDataset, FastLoader
from fastio.transforms import CenterCrop, RandomHorizontalFlip, RandomResizedCrop, Resize, Transform
from tests.conftest import encode, write_store

COUNT = 12
CHAINS: dict[str, list[Transform]] = {
    "train": [RandomResizedCrop(24, scale=(0.3, 1.0)), RandomHorizontalFlip()],
    "val": [Resize(28, "bicubic"), CenterCrop(24)],
}


def photo(index: int) -> np.ndarray:
    """Pixels as of a photo: structures of some 40 pixels, and grain."""
    random = np.random.default_rng(index)
    height, width = ((300, 400), (400, 300), (333, 501))[index % 3]
    coarse = Image.fromarray(random.integers(0, 256, (height // 40, width // 40, 3), np.uint8))
    pixels = np.array(coarse.resize((width, height), Image.Resampling.BICUBIC)).astype(np.int64)
    return np.clip(pixels + random.integers(-9, 10, pixels.shape), 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same photos as JPEG and as PNG."""
    folder = tmp_path_factory.mktemp("quality")
    return {
        kind: write_store(folder / f"{kind}.h5", [encode(photo(i), kind) for i in range(COUNT)], np.arange(COUNT))
        for kind in ("JPEG", "PNG")
    }


def pictures(store: Path, chain: list[Transform], **options: Any) -> torch.Tensor:
    """One epoch, in order."""
    with FastLoader(store, 5, transforms=chain, **options) as loader:
        return torch.cat([images.clone() for images, _ in loader])


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_the_error_is_small(stores: dict[str, Path], chain: list[Transform]) -> None:
    """Photos made four to sixteen times smaller: mean error below a level, few pixels off by more than three."""
    exact = pictures(stores["JPEG"], chain).int()
    error = (exact - pictures(stores["JPEG"], chain, quality="fast").int()).abs()

    assert 0 < error.float().mean() < 1
    assert error.float().quantile(0.99) <= 3
    assert error.max() <= 12
    assert torch.equal(exact, pictures(stores["JPEG"], chain, quality="exact").int())


def test_below_four_times_nothing_changes(stores: dict[str, Path]) -> None:
    """A crop that is made less than four times smaller on one side is exact."""
    for chain in ([Resize((101, 60))], [Resize((60, 126))], [RandomResizedCrop(126)]):
        assert torch.equal(pictures(stores["JPEG"], chain), pictures(stores["JPEG"], chain, quality="fast"))


def test_other_pictures_stay_exact(stores: dict[str, Path]) -> None:
    """PNGs are never shrunk, nor JPEGs without transforms or of which pixels are picked."""
    for chain in CHAINS.values():
        assert torch.equal(pictures(stores["PNG"], chain), pictures(stores["PNG"], chain, quality="fast"))
    for chain in ([Resize((20, 20), "nearest")], [CenterCrop(200)]):
        assert torch.equal(pictures(stores["JPEG"], chain), pictures(stores["JPEG"], chain, quality="fast"))


def test_threads_change_nothing(stores: dict[str, Path]) -> None:
    """Fast is other pixels, but always the same ones."""
    one = pictures(stores["JPEG"], CHAINS["train"], quality="fast", threads=1)

    assert torch.equal(one, pictures(stores["JPEG"], CHAINS["train"], quality="fast", threads=3))


def test_a_state_names_the_quality(stores: dict[str, Path]) -> None:
    """A resume with another quality would give other pixels without a word: it is refused."""
    with FastLoader(stores["JPEG"], 4, transforms=CHAINS["val"], quality="fast") as loader:
        state = loader.state_dict()
        loader.load_state_dict(state)
    words = "quality is 'fast' in the state and 'exact' here"
    with FastLoader(stores["JPEG"], 4, transforms=CHAINS["val"]) as other, pytest.raises(ValueError, match=words):
        other.load_state_dict(state)


def test_what_cannot_be_is_said(stores: dict[str, Path]) -> None:
    """Another word, and the plain path, which has no fast mode."""
    with pytest.raises(ValueError, match="quality='best': expected one of 'exact', 'fast'"):
        FastLoader(stores["JPEG"], 4, quality="best")  # type: ignore[arg-type] # this is the mistake
    plain = FastDataset(stores["JPEG"], lambda picture: picture)
    with pytest.raises(ValueError, match="quality='fast' is for pictures that native threads decode"):
        FastLoader(plain, 4, quality="fast")
