"""ResizeToBucket and KeepCrop: pictures that cover the shape nearest to theirs, and what was cropped away."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from fastio import ShapeBucketSampler
from fastio.transforms import Compose, KeepCrop, RandomHorizontalFlip, RandomResizedCrop, Resize, ResizeToBucket
from fastio.transforms.canvas import CropRule
from fastio.transforms.frames import Frames
from fastio.transforms.plan import Plan
from tests.transforms.reference import execute

SHAPES = [(24, 8), (16, 16), (8, 24)]
SIZE, CROP = CropRule.adds

sizes = st.lists(st.tuples(st.integers(2, 60), st.integers(2, 60)), min_size=1, max_size=4)


def noise(height: int, width: int) -> Image.Image:
    """A picture of random pixels."""
    return Image.fromarray(np.random.default_rng(height).integers(0, 256, (height, width, 3), np.uint8))


@settings(max_examples=150, deadline=None)
@given(sizes, st.sampled_from(["center", "random"]), st.sampled_from(["bilinear", "bicubic", "nearest"]), st.booleans())
def test_one_pass_is_step_by_step(pairs: list[tuple[int, int]], crop: Any, kernel: Any, is_uniform: bool) -> None:
    """Pictures of any sizes by one plan equal the transform applied with Pillow, and have the shape of their bucket."""
    pairs = pairs[:1] * 3 if is_uniform else pairs
    transform = ResizeToBucket(SHAPES, kernel, crop)
    known = np.array(pairs[:1] if is_uniform else pairs)
    numbers = np.random.default_rng(len(pairs)).random((len(pairs), transform.draws))
    plan = Plan(known[:, 0], known[:, 1])
    transform.run(plan, numbers)
    buckets = ShapeBucketSampler(pairs, shapes=SHAPES, batch_size=1).buckets

    for place, row in enumerate(plan.rows(len(pairs))):
        picture, shape = noise(*pairs[place]), SHAPES[buckets[place]]
        expected = np.array(transform.apply(picture, numbers[place]))
        assert (*shape, 3) == expected.shape
        assert np.array_equal(expected, execute(picture, row, shape, kernel=kernel, fill=(0,)))


def test_it_covers_and_crops_from_the_centre() -> None:
    """A picture of 30x90 becomes 8x24 whole; one of 20x90 loses its sides; one of 10x10 is enlarged."""
    transform = ResizeToBucket(SHAPES)

    def expected(size: tuple[int, int], resized: tuple[int, int], box: tuple[int, int, int, int]) -> NDArray[np.uint8]:
        return np.array(noise(*size).resize(resized[::-1], Image.Resampling.BILINEAR).crop(box))

    assert np.array_equal(expected((30, 90), (8, 24), (0, 0, 24, 8)), np.array(transform(noise(30, 90))))
    assert np.array_equal(expected((20, 90), (8, 36), (6, 0, 30, 8)), np.array(transform(noise(20, 90))))
    assert np.array_equal(expected((10, 10), (16, 16), (0, 0, 16, 16)), np.array(transform(noise(10, 10))))


def test_random_crops_reach_both_ends() -> None:
    """All positions are equally likely, the first and the last one included."""
    plan = Plan(np.array([8]), np.array([26]))
    ResizeToBucket(SHAPES, crop="random").run(plan, np.linspace(0, 0.999, 30).repeat(2).reshape(-1, 2))

    assert np.bincount(plan.rows(30)[:, 6]).tolist() == [10, 10, 10]


def added(transforms: list[Any], size: tuple[int, int], numbers: list[float]) -> dict[str, Any]:
    """The fields that one picture gets."""
    frames = Frames(np.array([size[0]]), np.array([size[1]]))
    frames.follow(Compose([*transforms, KeepCrop()]), np.array([numbers]).reshape(1, -1))
    return {name: values.tolist() for name, values in frames.added(1).items()}


def test_the_size_and_the_crop_of_a_picture() -> None:
    """original_size is (height, width) as stored, crop is (top, left) in the resized picture."""
    bucket = ResizeToBucket(SHAPES, crop="random")

    assert added([bucket], (20, 90), [0.0, 0.5]) == {SIZE: [[20, 90]], CROP: [[0, 6]]}
    assert added([bucket], (20, 90), [0.0, 0.999]) == {SIZE: [[20, 90]], CROP: [[0, 12]]}
    assert added([ResizeToBucket(SHAPES)], (90, 20), []) == {SIZE: [[90, 20]], CROP: [[6, 0]]}
    assert added([Resize(10)], (20, 90), []) == {SIZE: [[20, 90]], CROP: [[0, 0]]}


def test_the_crop_of_a_flipped_picture_is_as_one_sees_it() -> None:
    """What is cut off on the right of a picture is cut off on the left of the flipped one."""
    bucket = ResizeToBucket(SHAPES, crop="random")
    left = [added([bucket, RandomHorizontalFlip(p)], (20, 90), [0, 0.25, 0])[CROP] for p in (0.0, 1.0)]

    assert left == [[[0, 3]], [[0, 9]]]
    assert added([RandomHorizontalFlip(1.0), bucket], (20, 90), [0, 0, 0.25])[CROP] == [[0, 3]]


def test_the_crop_before_a_resize_counts_in_pixels_of_the_result() -> None:
    """RandomResizedCrop crops first: what it leaves out is told in the size of what it gives."""
    crop = RandomResizedCrop(16, (0.25, 0.25), (1.0, 1.0))

    assert added([crop], (64, 64), [0.5, 0.999, 0.5, 0.5, *[0.5] * 18])[CROP] == [[8, 16]]


def test_bad_headers_have_zeros() -> None:
    """A picture that is unreadable has neither size nor crop."""
    frames = Frames(np.array([20, 20]), np.array([90, 90]))
    frames.follow(Compose([ResizeToBucket(SHAPES), KeepCrop()]), np.zeros((2, 0)))
    frames.blank(np.array([False, True]))

    assert {SIZE: [[20, 90], [0, 0]], CROP: [[0, 6], [0, 0]]} == {k: v.tolist() for k, v in frames.added(2).items()}


def test_it_takes_a_sampler_and_is_a_value() -> None:
    """Shapes of a sampler are those of its transform, whose repr names them for states."""
    sampler = ShapeBucketSampler([(1, 1)], shapes=SHAPES, batch_size=1)

    assert ResizeToBucket(sampler) == ResizeToBucket(SHAPES)
    assert hash(ResizeToBucket(sampler)) == hash(ResizeToBucket(SHAPES))
    words = "shapes=((24, 8), (16, 16), (8, 24)), interpolation='bilinear', crop='center'"
    assert words in repr(ResizeToBucket(SHAPES))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shapes": 224}, "expected pairs of height and width"),
        ({"shapes": []}, "shapes is empty"),
        ({"shapes": SHAPES, "crop": "top"}, "crop='top': expected one of center, random"),
        ({"shapes": SHAPES, "antialias": False}, "antialias=False"),
    ],
)
def test_nonsense_is_refused(options: dict[str, Any], words: str) -> None:
    """What means nothing is refused when the transform is made."""
    with pytest.raises(ValueError, match=words):
        ResizeToBucket(**options)
