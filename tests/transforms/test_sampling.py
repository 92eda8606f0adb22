"""Sampling rules: those that torchvision documents, and the distributions that follow from them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastio import SchemaError
from fastio.transforms import CenterCrop, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, Resize
from fastio.transforms.fused import uniform
from fastio.transforms.plan import COLUMNS, Plan
from tests.transforms.reference import center_crop, random_resized_crop, resized

COUNT = 20_000


def boxes(height: int, width: int, transform: RandomResizedCrop, count: int = COUNT) -> np.ndarray:
    """``(count, 4)`` left, top, width, height, for the indices from 0 on."""
    plan = Plan(np.array([height]), np.array([width]))
    transform.run(plan, uniform(np.arange(count), transform.draws, seed=3, epoch=1))
    return plan.rows(count)[:, :4]


@settings(max_examples=300, deadline=None)
@given(
    height=st.integers(1, 600),
    width=st.integers(1, 600),
    scale=st.sampled_from([(0.08, 1.0), (0.5, 2.0), (1.0, 1.0), (1e-6, 1e-3), (2.0, 3.0)]),
    ratio=st.sampled_from([(3 / 4, 4 / 3), (1.0, 1.0), (0.1, 0.2), (4.0, 9.0)]),
    seed=st.integers(0, 1 << 32),
)
def test_random_resized_crop_is_the_documented_rule(
    height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float], seed: int
) -> None:
    """Each of a batch of crops is what the rule, written down in plain Python, gives for its numbers."""
    transform = RandomResizedCrop(9, scale, ratio)
    numbers = np.random.default_rng(seed).random((5, transform.draws))
    plan = Plan(np.full(5, height), np.full(5, width))
    transform.run(plan, numbers)

    for row, each in zip(plan.rows(5).tolist(), numbers.tolist(), strict=True):
        left, top, wide, tall = random_resized_crop(height, width, each, scale=scale, ratio=ratio)
        assert [left, top, wide, tall] == row[:4]
        assert [9, 9, 0, 0, 9, 9, 0, 0, 0] == row[4:]


def test_areas_and_proportions() -> None:
    """From a large square every try fits: areas are uniform, proportions log-uniform, places uniform."""
    transform = RandomResizedCrop(1, scale=(0.1, 0.7))
    left, top, width, height = boxes(4000, 4000, transform).T.astype(np.float64)
    area = width * height / 4000**2
    aspect = np.log(width / height)
    place = left / (4000 - width + 1)
    other = top / (4000 - height + 1)

    levels = [0.1, 0.25, 0.5, 0.75, 0.9]
    assert np.allclose(np.quantile(area, levels), 0.1 + 0.6 * np.array(levels), atol=0.01)
    spread = np.log(4 / 3)
    assert np.allclose(np.quantile(aspect, levels), spread * (2 * np.array(levels) - 1), atol=0.01)
    assert np.allclose(np.quantile(place, levels), levels, atol=0.015)
    assert np.allclose(np.quantile(other, levels), levels, atol=0.015)
    assert np.abs(np.corrcoef([area, aspect, place, other]) - np.eye(4)).max() < 0.03


def test_a_narrow_picture_falls_back_to_its_centre() -> None:
    """Where no try fits, it is the largest central part with allowed proportions."""
    assert {(0, 433, 100, 133)} == {tuple(row) for row in boxes(1000, 100, RandomResizedCrop(9, (1, 1)), 50).tolist()}
    assert {(433, 0, 133, 100)} == {tuple(row) for row in boxes(100, 1000, RandomResizedCrop(9, (1, 1)), 50).tolist()}


def test_random_crop_is_uniform() -> None:
    """All nine by nine places of a 32 crop in a padded 32 picture are equally likely."""
    plan = Plan(np.array([32]), np.array([32]))
    transform = RandomCrop(32, padding=4)
    transform.run(plan, uniform(np.arange(COUNT * 4), 2, seed=0, epoch=0))
    rows = dict(zip(COLUMNS, plan.rows(COUNT * 4).T, strict=True))
    left = 4 + rows["window_x"] - rows["place_x"]
    top = 4 + rows["window_y"] - rows["place_y"]
    counts = np.bincount(left * 9 + top, minlength=81)

    assert len(counts) == 81
    expected = COUNT * 4 / 81
    assert ((counts - expected) ** 2 / expected).sum() < 125  # chi-squared, 80 degrees of freedom: p = 0.001


def test_flips_with_their_probability() -> None:
    """p is the share of pictures that are flipped."""
    for p in (0.0, 0.3, 1.0):
        plan = Plan(np.array([8]), np.array([8]))
        RandomHorizontalFlip(p).run(plan, uniform(np.arange(COUNT), 1, seed=0, epoch=0))
        assert abs(plan.rows(COUNT)[:, -1].mean() - p) < 0.01


@given(
    height=st.integers(1, 3000),
    width=st.integers(1, 3000),
    size=st.none() | st.integers(1, 500),
    max_size=st.none() | st.integers(501, 900),
)
def test_resize_by_one_side(height: int, width: int, size: int | None, max_size: int | None) -> None:
    """The short side gets its size, the long one is cut to whole pixels, max_size holds."""
    if size is None and max_size is None:
        return
    plan = Plan(np.array([height]), np.array([width]))
    Resize(size, max_size=max_size).run(plan, np.zeros((1, 0)))

    assert resized(height, width, size, max_size) == (plan.height.item(), plan.width.item())


@given(sides=st.tuples(*[st.integers(1, 20)] * 4), seed=st.integers(0, 9))
def test_center_crop(sides: tuple[int, int, int, int], seed: int) -> None:
    """The middle, rounded as torchvision rounds, with black edges where the picture is smaller."""
    height, width, tall, wide = sides
    image = Image.fromarray(np.random.default_rng(seed).integers(1, 256, (height, width, 3), np.uint8))

    assert np.array_equal(np.array(center_crop(image, tall, wide)), np.array(CenterCrop((tall, wide))(image)))


def test_a_picture_that_is_too_small() -> None:
    """RandomCrop says what is smaller than what, and adds edges where it is told to."""
    image = Image.new("RGB", (30, 40), (1, 2, 3))
    with pytest.raises(SchemaError, match=r"40x30 .* smaller than the crop: pass pad_if_needed"):
        RandomCrop(32)(image)

    padded = RandomCrop(32, pad_if_needed=True, fill=5).apply(image, np.array([0.0, 0.0]))
    assert (32, 32) == padded.size
    assert (5, 5, 5) == padded.getpixel((1, 0))
    assert (1, 2, 3) == padded.getpixel((2, 0))


def test_numbers_belong_to_samples() -> None:
    """A number depends on seed, epoch, index and column: not on the batch, nor on how many columns are drawn."""
    every = uniform(np.arange(100), 5, seed=1, epoch=2)

    assert np.array_equal(every[[7, 93]], uniform(np.array([7, 93]), 5, seed=1, epoch=2))
    assert np.array_equal(every[:, :3], uniform(np.arange(100), 3, seed=1, epoch=2))
    assert len(np.unique(every)) == every.size
    for other in (uniform(np.arange(100), 5, seed=2, epoch=2), uniform(np.arange(100), 5, seed=1, epoch=3)):
        assert not np.isin(other, every).any()
    assert (every >= 0).all()
    assert (every < 1).all()
