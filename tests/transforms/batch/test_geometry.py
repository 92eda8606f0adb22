"""Crops, resizes, flips and edges of batches: against the plain path, which is Pillow, and against float64 sums."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastio.errors import SchemaError
from fastio.transforms import (
    CenterCrop,
    Compose,
    Grayscale,
    Normalize,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    ToDtype,
)
from fastio.transforms.arguments import KERNELS
from fastio.transforms.batch.geometry import RenderTarget, resample
from fastio.transforms.batch.recipe import Recipe, _stage_seed
from fastio.transforms.fused import uniform
from fastio.transforms.plan import Plan
from tests.transforms.chains import chains, is_fusible

COUNT = 4
INDICES = np.array([3, 11, 5, 8], np.int64)


def pictures(height: int, width: int, channels: int = 3, seed: int = 0) -> torch.Tensor:
    """Four pictures of random pixels."""
    values = np.random.default_rng(seed).integers(0, 256, (COUNT, channels, height, width), np.uint8)
    return torch.from_numpy(values)


def run(transforms: list[Any], images: torch.Tensor, epoch: int = 0) -> torch.Tensor:
    """The images after a recipe."""
    recipe = Recipe(transforms, seed=7)
    return recipe.run([images], recipe.draw([images], INDICES, epoch))[0]


def plain(transforms: list[Any], images: torch.Tensor) -> torch.Tensor:
    """Picture by picture through the plain path, by the numbers of the first stage."""
    compose = Compose(transforms)
    numbers = uniform(INDICES, compose.draws, seed=_stage_seed(7, 0), epoch=0)
    return torch.stack([compose.apply(image, row) for image, row in zip(images, numbers, strict=True)])


@settings(max_examples=60, deadline=None)
@given(chain=chains, height=st.integers(12, 40), width=st.integers(12, 40))
def test_a_batch_is_its_pictures(chain: list[Any], height: int, width: int) -> None:
    """Any chain makes of a batch what Pillow makes of each picture, within the rounding between two passes."""
    kernels = {each.interpolation for each in chain if hasattr(each, "interpolation")}
    if not chain or not is_fusible(chain) or "nearest" in kernels:
        return  # Pillow's nearest adds up rounded steps, which decides where a place lies exactly between two pixels
    images = pictures(height, width) // 2 + 64  # bicubic and Lanczos overshoot: Pillow cuts that off between passes too
    try:
        got = run(chain, images)
    except SchemaError as exc:
        assert "different sizes" in str(exc) or "smaller than the crop" in str(exc)  # noqa: PT017 - either is right
        return
    expected = plain(chain, images)

    assert expected.shape == got.shape
    assert (expected.int() - got.int()).abs().max() <= (2 if kernels else 0)


@pytest.mark.parametrize("kernel", sorted(KERNELS))
@pytest.mark.parametrize(("height", "width"), [(5, 9), (40, 31), (16, 16), (1, 1)])
def test_resampling_against_sums_in_float64(kernel: str, height: int, width: int) -> None:
    """Each pixel is the weighted mean of the pixels under the filter, to a thousandth of a level."""
    images = pictures(23, 17, 2).float()
    plan = Plan(np.array([23]), np.array([17]))
    Resize((height, width), kernel).run(plan, np.empty((COUNT, 0)))
    got = resample(images, torch.from_numpy(plan.rows(COUNT)), RenderTarget(height, width, kernel=kernel))
    across, down = matrix(17, width, kernel), matrix(23, height, kernel)

    assert np.abs(down @ images.double().numpy() @ across.T - got.numpy()).max() < 1e-3


def matrix(size: int, target: int, kernel: str) -> np.ndarray[Any, Any]:
    """Weights by the definition of the filters, row by row, in plain Python."""
    weights = np.zeros((target, size))
    scale = size / target
    for place in range(target):
        centre = (place + 0.5) * scale
        if kernel == "nearest":
            weights[place, math.floor(centre)] = 1
            continue
        support = {"bilinear": 1, "bicubic": 2, "box": 0.5, "hamming": 1, "lanczos": 3}[kernel] * max(scale, 1)
        first, last = max(math.floor(centre - support + 0.5), 0), min(math.floor(centre + support + 0.5), size)
        for pixel in range(first, last):
            weights[place, pixel] = value_of(kernel, (pixel + 0.5 - centre) / max(scale, 1))
        weights[place] /= weights[place].sum()
    return weights


def value_of(kernel: str, x: float) -> float:
    """A filter's value at x."""
    sinc = 1.0 if x == 0 else math.sin(math.pi * x) / (math.pi * x)
    if kernel == "box":
        return float(-0.5 < x <= 0.5)
    x = abs(x)
    if kernel == "bilinear":
        return max(1 - x, 0)
    if kernel == "hamming":
        return sinc * (0.54 + 0.46 * math.cos(math.pi * x)) if x < 1 else 0
    if kernel == "lanczos":
        third = 1.0 if x == 0 else math.sin(math.pi * x / 3) / (math.pi * x / 3)
        return sinc * third if x < 3 else 0
    if x < 1:
        return 1.5 * x**3 - 2.5 * x**2 + 1
    return -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2 if x < 2 else 0


@pytest.mark.parametrize("channels", [1, 3])
def test_grayscale(channels: int) -> None:
    """Luma of a colour batch, equal to Pillow's to the bit."""
    images = pictures(9, 12)
    chain = [RandomCrop(8), Grayscale(channels)]

    assert torch.equal(plain(chain, images), run(chain, images))


def test_crop_flip_and_normalise_are_one_stage() -> None:
    """The values are those of the steps, edges are normalised too, and the memory is channels_last."""
    images = pictures(10, 10)
    geometry = [RandomCrop(10, padding=3, fill=(1, 2, 3)), RandomHorizontalFlip()]
    ending = [Normalize((0.5,) * 3, (0.25,) * 3), ToDtype(torch.float16)]
    together = run([*geometry, *ending], images)

    assert len(Recipe([*geometry, *ending], seed=0)._stages) == 1
    assert torch.equal(run(ending, plain(geometry, images)), together)
    assert together.is_contiguous(memory_format=torch.channels_last)


def test_floating_pictures() -> None:
    """Geometry behind ToDtype works on values from 0 to 1."""
    images = pictures(20, 20)
    behind = run([ToDtype(torch.float32, scale=True), CenterCrop(11)], images)

    assert torch.equal(run([CenterCrop(11), ToDtype(torch.float32, scale=True)], images), behind)


def test_random_numbers_belong_to_the_sample() -> None:
    """A sample's crop is the same in any batch; another epoch has another one, and so has another stage."""
    images = pictures(30, 30)
    recipe = Recipe([RandomResizedCrop(8)], seed=7)
    whole = recipe.run([images], recipe.draw([images], INDICES, 0))[0]
    for place in range(COUNT):
        part = [images[place : place + 1]]
        assert torch.equal(
            whole[place : place + 1], recipe.run(part, recipe.draw(part, INDICES[place : place + 1], 0))[0]
        )

    assert not torch.equal(whole, recipe.run([images], recipe.draw([images], INDICES, 1))[0])


def test_what_does_not_fit() -> None:
    """Pictures of different sizes are no batch; two resamplings are named; own callables come last."""
    images = pictures(20, 30)
    with pytest.raises(SchemaError, match="resampled twice"):
        run([Resize(10), RandomResizedCrop(8)], images)
    with pytest.raises(SchemaError, match="no pictures in the batch"):
        run([RandomCrop(8)], images[:, 0])
    with pytest.raises(SchemaError, match="4 pictures in a batch of 3 samples"):
        Recipe([RandomCrop(8)], seed=0).draw([images], INDICES[:3], 0)
    with pytest.raises(SchemaError, match="Grayscale before resampling"):
        run([Grayscale(), Resize(8)], images)
    with pytest.raises(TypeError, match=r"comes last: write PerSample\(function\)"):
        Recipe([len, RandomCrop(8)], seed=0)
    with pytest.raises(TypeError, match=r"expected one of fastio\.transforms"):
        Recipe([7], seed=0)  # type: ignore[list-item]
