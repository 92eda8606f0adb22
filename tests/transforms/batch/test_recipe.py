"""A recipe gives the same pixels wherever a training loop calls for its batches."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
import torch

from fastio.transforms import (
    ColorJitter,
    Grayscale,
    MixUp,
    Normalize,
    RandAugment,
    RandomErasing,
    RandomResizedCrop,
    ToDtype,
)
from fastio.transforms.batch import Recipe

COUNT = 8


def run(transforms: list[Any]) -> torch.Tensor:
    """The images of a batch of random pixels after a recipe."""
    values = np.random.default_rng(0).integers(0, 256, (COUNT, 3, 24, 20), np.uint8)
    parts = [torch.from_numpy(values), torch.arange(COUNT)]
    recipe = Recipe(transforms, seed=3)
    return recipe.run(parts, recipe.draw(parts, np.arange(COUNT), 0))[0]


@pytest.mark.parametrize(
    "around",
    [
        torch.autocast("cpu", torch.bfloat16),
        torch.autocast("cpu", torch.float16),
        torch.no_grad(),
        torch.inference_mode(),
    ],
    ids=["autocast to bfloat16", "autocast to float16", "no_grad", "inference_mode"],
)
@pytest.mark.parametrize(
    "transforms",
    [
        [RandomResizedCrop(12)],
        [ToDtype(torch.float32, scale=True), RandomResizedCrop(12), Grayscale(3)],
        [ColorJitter(0.4, 0.4, 0.4, 0.1)],
        [RandAugment()],
        [RandomErasing(1.0), MixUp(num_classes=COUNT), Normalize((0.5,), (0.25,))],
    ],
    ids=lambda transforms: type(transforms[0]).__name__,
)
def test_pixels_do_not_depend_on_the_loop(around: AbstractContextManager[Any], transforms: list[Any]) -> None:
    """A loop under autocast, as around a whole epoch, gets the pixels that any other gets, in their dtype."""
    expected = run(transforms)
    with around:
        got = run(transforms)

    assert expected.dtype == got.dtype
    assert torch.equal(expected, got)
