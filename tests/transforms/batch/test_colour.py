"""Colours, erasing and the augmenters against plain rules, one picture at a time, in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from fastio.errors import SchemaError
from fastio.transforms import ColorJitter, RandAugment, RandomErasing, TrivialAugmentWide
from fastio.transforms.batch import Pictures
from fastio.transforms.batch.colour import COLOURS, matrices, warp
from tests.transforms.batch.plain_changes import PLAIN

COUNT = 6
AMOUNTS = {
    "hue": [-0.5, -0.2, 0.0, 0.1, 0.3, 0.5],
    "posterize": [1, 2, 4, 5, 7, 8],
    "solarize": [0.0, 0.1, 0.5, 0.9, 1.0, 0.3],
}


def pictures(channels: int = 3, height: int = 9, width: int = 12, seed: int = 0) -> torch.Tensor:
    """Pictures of random pixels, one of a single value, one nearly so."""
    images = np.random.default_rng(seed).integers(0, 256, (COUNT, channels, height, width), np.uint8)
    images[0] = 130
    images[1] = images[1] // 16 + 60
    return torch.from_numpy(images)


def assert_within_a_level(expected: Any, got: torch.Tensor) -> None:
    """float32 may fall on the other side of a whole number, but rarely."""
    difference = np.abs(np.asarray(expected, np.int64) - got.numpy().astype(np.int64))
    assert difference.max(initial=0) <= 1
    assert (difference > 0).mean() < 0.02


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", list(COLOURS))
def test_changes(name: str, channels: int) -> None:
    """Each change of a batch is the plain change of its pictures, to a level."""
    images = pictures(channels)
    amounts = AMOUNTS.get(name, [0.0, 0.4, 1.0, 1.3, 1.9, 0.7])
    got = COLOURS[name](images, torch.tensor(amounts))

    assert_within_a_level([PLAIN[name](*each) for each in zip(images.numpy(), amounts, strict=True)], got)


@pytest.mark.parametrize("name", list(COLOURS))
def test_floating_pictures(name: str) -> None:
    """Pictures from 0 to 1 change as their 255-fold does."""
    images = pictures()
    amounts = torch.tensor(AMOUNTS.get(name, [0.0, 0.4, 1.0, 1.3, 1.9, 0.7]))
    expected = COLOURS[name](images, amounts).float() / 255
    got = COLOURS[name](images.float() / 255, amounts)

    assert got.dtype == torch.float32
    assert got.min() >= 0
    assert got.max() <= 1
    if name == "posterize":
        return  # of floating pictures the levels are kept, not their bits
    near = (expected - got).abs() < 0.02
    assert near.float().mean() > 0.99


@pytest.mark.parametrize("kind", ["shear_x", "shear_y", "translate_x", "translate_y", "rotate"])
@pytest.mark.parametrize("amount", [-0.7, 0.3, 3.9, 90.0])
def test_warps(kind: str, amount: float) -> None:
    """Each pixel of the result is the one that lies where its middle comes from."""
    images = pictures(3, 11, 7)[2:3]
    got = warp(images, torch.from_numpy(matrices(kind, np.array([amount]), (11, 7))).float())[0].numpy()
    angle = math.radians(amount)
    expected = np.zeros_like(got)
    for i in range(11):
        for j in range(7):
            x, y = j + 0.5, i + 0.5
            if kind == "shear_x":
                x += amount * y
            elif kind == "shear_y":
                y += amount * x
            elif kind == "translate_x":
                x -= int(amount)
            elif kind == "translate_y":
                y -= int(amount)
            else:
                dx, dy = x - 3.5, y - 5.5
                x, y = (
                    3.5 + math.cos(angle) * dx - math.sin(angle) * dy,
                    5.5 + math.sin(angle) * dx + math.cos(angle) * dy,
                )
            column, row = math.floor(x + 1e-6), math.floor(y + 1e-6)
            if 0 <= column < 7 and 0 <= row < 11:
                expected[:, i, j] = images[0, :, row, column]

    assert (expected != got).any(0).sum() <= 2  # where a middle falls on the line between two pixels


def test_rotation_is_against_the_clock() -> None:
    """By a quarter turn the right side comes to the top."""
    image = torch.zeros((1, 1, 3, 3), dtype=torch.uint8)
    image[0, 0, 1, 2] = 200
    turned = warp(image, torch.from_numpy(matrices("rotate", np.array([90.0]), (3, 3))).float())

    assert turned[0, 0, 0, 1] == 200


def test_jitter() -> None:
    """Each sample gets its own four changes in its own order."""
    jitter = ColorJitter(0.4, 0.3, (0.5, 1.8), 0.1)
    images = pictures()
    numbers = np.random.default_rng(1).random((COUNT, jitter.draws))
    got = jitter.run(Pictures(images), jitter.parameters(numbers, (9, 12))).images
    ranges = {"brightness": (0.6, 1.4), "contrast": (0.7, 1.3), "saturation": (0.5, 1.8), "hue": (-0.1, 0.1)}
    expected = []
    for image, row in zip(images.numpy(), numbers, strict=True):
        for place in np.argsort(row[:4]):
            name = list(ranges)[place]
            low, high = ranges[name]
            image = PLAIN[name](image, low + (high - low) * row[4 + place])
        expected.append(image)
    difference = np.abs(np.array(expected, np.int64) - got.numpy().astype(np.int64))

    assert (difference > 1).mean() < 0.02  # a level may be lost or won at each step
    assert torch.equal(pictures(), images)


def test_jitter_of_nothing() -> None:
    """What is 0 is left out."""
    images = pictures()
    jitter = ColorJitter()

    assert jitter.run(Pictures(images), jitter.parameters(np.zeros((COUNT, 8)), (9, 12))).images is images


@pytest.mark.parametrize("value", [0, (1, 2, 3)])
def test_erasing(value: Any) -> None:
    """A rectangle by the documented rule, and nothing else, is painted over; whole pictures are never."""
    erasing = RandomErasing(0.7, (0.1, 0.6), (0.5, 2.0), value)
    images = pictures(3, 20, 30)
    numbers = np.random.default_rng(2).random((COUNT, erasing.draws))
    got = erasing.run(Pictures(images), erasing.parameters(numbers, (20, 30))).images
    for image, result, row in zip(images, got, numbers, strict=True):
        expected = image.clone()
        for attempt in range(10 if row[0] < 0.7 else 0):
            area = 600 * (0.1 + 0.5 * row[3 + 2 * attempt])
            ratio = math.exp(math.log(0.5) + (math.log(2) - math.log(0.5)) * row[4 + 2 * attempt])
            height, width = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if height < 20 and width < 30:
                top, left = int(row[1] * (21 - height)), int(row[2] * (31 - width))
                colour = torch.tensor([value] * 3 if value == 0 else value, dtype=torch.uint8)
                expected[:, top : top + height, left : left + width] = colour[:, None, None]
                break
        assert torch.equal(expected, result)
    assert torch.equal(pictures(3, 20, 30), images)


@pytest.mark.parametrize("augment", [RandAugment(3, 15), TrivialAugmentWide()])
def test_augmenters(augment: Any) -> None:
    """A sample is changed the same way alone and in a batch, and every operation comes up."""
    images = torch.cat([pictures(3, 24, 24, seed) for seed in range(20)])
    numbers = np.random.default_rng(3).random((len(images), augment.draws))
    parameters = augment.parameters(numbers, (24, 24))
    got = augment.run(Pictures(images), parameters).images
    for place in range(0, len(images), 9):
        part = slice(place, place + 1)
        alone = augment.run(Pictures(images[part]), augment.parameters(numbers[part], (24, 24))).images
        assert torch.equal(alone, got[part])

    kinds = set().union(*parameters["steps"])
    assert {*COLOURS, "warp"} - {"hue"} == kinds
    assert (got == images).flatten(1).all(1).float().mean() < 0.35


def test_the_strength_of_augmenters() -> None:
    """Magnitudes are those of the tables: the strongest of each, and the ninth of 31."""
    ninth, strongest = RandAugment(1, 9), RandAugment(1, 30)

    def amount(augment: Any, operation: int, sign: float = 0.0, strength: float = 0.999) -> Any:
        numbers = np.array([[(operation + 0.5) / 14, sign, strength]])[:, : augment.draws]
        (groups,) = augment.parameters(numbers, (331, 662))["steps"]
        return {name: group["amount"].flatten().tolist() for name, group in groups.items()}

    assert amount(ninth, 0) == {}
    assert amount(strongest, 1)["warp"] == pytest.approx([1, 0.3, 0, 0, 1, 0])
    assert amount(strongest, 3, 0.9)["warp"] == pytest.approx([1, 0, 300, 0, 1, 0])
    assert amount(strongest, 4)["warp"] == pytest.approx([1, 0, 0, 0, 1, -150])
    assert amount(ninth, 6)["brightness"] == pytest.approx([1.27])
    assert amount(strongest, 10)["posterize"] == [4]
    assert amount(ninth, 11)["solarize"] == pytest.approx([0.7])
    assert amount(TrivialAugmentWide(), 10)["posterize"] == [2]
    assert amount(TrivialAugmentWide(), 9, 0.9)["sharpness"] == pytest.approx([0.01])
    assert amount(TrivialAugmentWide(), 4)["warp"] == pytest.approx([1, 0, 0, 0, 1, -32])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: ColorJitter(brightness=-1),
        lambda: ColorJitter(hue=0.6),
        lambda: ColorJitter(contrast=(2, 1)),
        lambda: RandomErasing(2),
        lambda: RandomErasing(scale=(0.5, 0.1)),
        lambda: RandomErasing(value="random"),
        lambda: RandAugment(0),
        lambda: RandAugment(magnitude=31),
        lambda: TrivialAugmentWide(1),
    ],
)
def test_arguments(wrong: Any) -> None:
    """What makes no sense is refused when it is written."""
    with pytest.raises(ValueError, match="expected"):
        wrong()


def test_channels() -> None:
    """Colours of pictures with alpha are not defined."""
    with pytest.raises(SchemaError, match="1 or 3 channels, got 4"):
        ColorJitter(0.1).run(Pictures(pictures(4)), {"steps": []})
    with pytest.raises(SchemaError, match="one value, or 1 "):
        RandomErasing(value=(1, 2, 3)).run(Pictures(pictures(1)), {"box": torch.zeros((4, COUNT))})
