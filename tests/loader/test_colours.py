"""Colours in the threads that decode give what transforms of whole batches give, and follow samples like any other."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fastio import DevicePrefetcher, FastDataset, FastLoader
from fastio.errors import SampleError, SchemaError
from fastio.transforms import (
    AugMix,
    ColorJitter,
    Compose,
    GaussianBlur,
    Normalize,
    RandAugment,
    RandomApply,
    RandomCrop,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomRotation,
)
from tests.conftest import pictures, write_store

COUNT = 20
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
RECIPES: list[list[Any]] = [
    [ColorJitter(0.4, 0.4, 0.4, 0.1), RandomGrayscale(0.3)],
    [RandomApply([ColorJitter(0.4), GaussianBlur(5)], 0.7), RandomHorizontalFlip(), RandAugment()],
    [AugMix(), RandomHorizontalFlip(), Normalize(MEAN, STD), RandomErasing(1.0)],
    [RandomGrayscale(0.5), RandomCrop(12), RandomErasing(1.0, value=7)],
]


def as_bytes(pixels: Any, kind: str) -> bytes:
    file = io.BytesIO()
    image = Image.fromarray(pixels)
    (image.convert("CMYK") if kind == "TIFF" else image).save(file, kind)
    return file.getvalue()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """JPEGs, PNGs, and TIFFs that Pillow decodes."""
    path = tmp_path_factory.mktemp("colours") / "store.lmdb"
    kinds = ("JPEG", "PNG", "TIFF")
    values = [as_bytes(pixels, kinds[place % 3]) for place, pixels in enumerate(pictures(COUNT, (30, 26, 3)))]
    write_store(path, values)
    return path


def epoch(store: Path, transforms: list[Any], **options: Any) -> list[torch.Tensor]:
    options = {"batch_size": 6, "seed": 3, "shuffle": True, "threads": 2, **options}
    loader = FastLoader(FastDataset(store, mode="RGB"), transforms=[RandomCrop(16), *transforms], **options)
    with loader:
        return [batch[0] if isinstance(batch, list) else batch for batch in loader]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: type(recipe[0]).__name__)
def test_the_same_as_on_whole_batches(store: Path, recipe: list[Any]) -> None:
    """Threads that decode give the bytes that the same transforms give behind the loader."""
    loader = FastLoader(FastDataset(store, mode="RGB"), 6, seed=3, shuffle=True, transforms=[RandomCrop(16)])
    behind = list(DevicePrefetcher(loader, "cpu", transforms=recipe, seed=3))
    got = epoch(store, recipe)

    assert len(behind) == len(got)
    for expected, batch in zip(behind, got, strict=True):
        torch.testing.assert_close(batch, expected[0] if isinstance(expected, list) else expected, rtol=0, atol=0)


@pytest.mark.parametrize("behind", [[], [ColorJitter(0.4, 0.4)]])
def test_pictures_that_pillow_decodes_are_warped_once(tmp_path: Path, behind: list[Any]) -> None:
    """Their pixels are those of the same pictures as PNGs, with colours behind the warp or without."""
    some, recipe = list(pictures(6, (30, 26, 3))), [RandomRotation(40), *behind]
    for name, kind in (("native", "PNG"), ("pillow", "TIFF")):
        write_store(tmp_path / f"{name}.lmdb", [as_bytes(pixels, kind) for pixels in some])
    expected, got = (epoch(tmp_path / f"{name}.lmdb", recipe) for name in ("native", "pillow"))

    assert torch.equal(torch.cat(expected), torch.cat(got))


def test_neither_threads_nor_batches_nor_layout_matter(store: Path) -> None:
    """A sample's colours depend on seed, epoch and index alone."""
    recipe = [ColorJitter(0.4, 0.4, 0.4, 0.1), AugMix(), RandomErasing()]
    expected = torch.cat(epoch(store, recipe))
    for options in ({"threads": 1}, {"batch_size": 3}, {"layout": "contiguous"}, {"cache": "ram"}):
        assert torch.equal(expected, torch.cat(epoch(store, recipe, **options)))
    assert not torch.equal(expected, torch.cat(epoch(store, recipe, seed=4)))


def test_a_resumed_epoch_goes_on_with_the_same_colours(store: Path) -> None:
    """What a state leaves is what the whole epoch had."""
    transforms = [RandomCrop(16), ColorJitter(0.4), GaussianBlur(3)]
    with FastLoader(FastDataset(store, mode="RGB"), 4, seed=1, shuffle=True, transforms=transforms) as loader:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        expected = list(batches)
    with FastLoader(FastDataset(store, mode="RGB"), 4, seed=1, shuffle=True, transforms=transforms) as loader:
        loader.load_state_dict(state)
        for before, after in zip(expected, list(loader), strict=True):
            assert torch.equal(before, after)


def test_damaged_samples_are_skipped(tmp_path: Path) -> None:
    """A batch with a bad sample has the others, with their colours."""
    values = [as_bytes(pixels, "PNG") for pixels in pictures(8, (20, 20, 3))]
    write_store(tmp_path / "good.lmdb", values)
    write_store(tmp_path / "bad.lmdb", [*values[:3], values[3][:60], *values[4:]])
    recipe = [ColorJitter(0.4, 0.4), RandomErasing()]
    good = torch.cat(epoch(tmp_path / "good.lmdb", recipe, shuffle=False))
    bad = torch.cat(epoch(tmp_path / "bad.lmdb", recipe, shuffle=False, on_error="skip", verify=False))

    assert torch.equal(good[[0, 1, 2, 4, 5, 6, 7]], bad)


def test_pictures_with_alpha_are_refused(tmp_path: Path) -> None:
    """In one line that names the transform."""
    write_store(tmp_path / "alpha.lmdb", [as_bytes(pixels, "PNG") for pixels in pictures(3, (9, 9, 4))])
    with pytest.raises(SchemaError, match=r"^ColorJitter.*: expected pictures of 1 or 3 channels, got 4$"):
        list(FastLoader(FastDataset(tmp_path / "alpha.lmdb", mode="RGBA"), 3, transforms=[ColorJitter(0.1)]))


def test_a_kernel_larger_than_the_picture_is_refused(store: Path) -> None:
    """It is a bad sample, named with the transform."""
    with pytest.raises(SampleError, match=r"'image': GaussianBlur\(kernel_size=\(33, 33\).*too large for the picture"):
        epoch(store, [GaussianBlur(33)])


def test_a_compose_of_colours_is_for_datasets(store: Path) -> None:
    """In a loader's list it would draw other numbers than its list does."""
    with pytest.raises(SchemaError, match=r"is for FastDataset: pass its list, transforms=\[...\]"):
        epoch(store, [Compose([RandomGrayscale()])])
    data = FastDataset(store, mode="RGB", transform=Compose([RandomCrop(16), RandomGrayscale(1.0)]))
    pixels = np.array(data[0])
    assert (pixels == pixels[..., :1]).all()
