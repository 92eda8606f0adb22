"""Colours, erasing and policies: natively the pixels of torchvision, on a device nearly so."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastio.errors import SchemaError
from fastio.transforms import (
    AugMix,
    AutoAugment,
    ColorJitter,
    GaussianBlur,
    GaussianNoise,
    MixUp,
    OneOf,
    RandAugment,
    RandomAdjustSharpness,
    RandomAffine,
    RandomApply,
    RandomAutocontrast,
    RandomChannelPermutation,
    RandomEqualize,
    RandomErasing,
    RandomGrayscale,
    RandomInvert,
    RandomPerspective,
    RandomPhotometricDistort,
    RandomPosterize,
    RandomRotation,
    RandomSolarize,
    RandomVerticalFlip,
    Resize,
    Transform,
    TrivialAugmentWide,
)
from fastio.transforms.batch import Pictures
from fastio.transforms.batch import policy as policies
from fastio.transforms.batch.program import PixelTransform, grouped, program_for, run_program
from fastio.transforms.program import Program, Step, paint
from tests.transforms.batch.colour_cases import (
    CASES,
    GOLDEN,
    POLICIES,
    SHARES,
    WARPS,
    by_fastio,
    by_torchvision,
    checksum,
    policy_by_fastio,
    policy_by_torchvision,
    warps_by_fastio,
    warps_by_torchvision,
)
from tests.transforms.batch.colour_cases import pictures as samples

COUNT = 6
AnyPixels = PixelTransform | Transform
EVERY: list[AnyPixels] = [
    ColorJitter(0.4, 0.3, (0.5, 1.8), 0.1),
    RandomGrayscale(0.5),
    RandomInvert(),
    RandomSolarize(100),
    RandomPosterize(3),
    RandomAutocontrast(),
    RandomEqualize(),
    RandomAdjustSharpness(2.0),
    GaussianBlur((5, 3)),
    RandomErasing(0.7, value=(1, 2, 3)),
    RandomPhotometricDistort(),
    RandomChannelPermutation(),
    GaussianNoise(0.02),
    RandAugment(3, 15),
    TrivialAugmentWide(),
    AutoAugment("svhn", fill=9),
    AugMix(),
    RandomVerticalFlip(),
    RandomRotation(30),
    RandomAffine(10, (0.1, 0.2), (0.8, 1.1), 5, "bilinear"),
    RandomPerspective(p=0.8),
    RandomApply([ColorJitter(0.4), GaussianBlur(3)], 0.6),
    OneOf([RandomInvert(1.0), AugMix(chain_depth=1)], [1, 2]),
]


def golden(name: str) -> int:
    """The checksum of what torchvision 0.29.1 made."""
    values: dict[str, int] = json.loads(GOLDEN.read_text())
    return values[name]


def pictures(channels: int = 3, height: int = 9, width: int = 12, seed: int = 0) -> torch.Tensor:
    """Pictures of random pixels, one of a single value, one nearly so."""
    images = np.random.default_rng(seed).integers(0, 256, (COUNT, channels, height, width), np.uint8)
    images[0] = 130
    images[1] = images[1] // 16 + 60
    return torch.from_numpy(images)


def numbers_for(transform: AnyPixels, count: int = COUNT, seed: int = 1) -> NDArray[np.float64]:
    return np.random.default_rng(seed).random((count, transform.draws))


def natively(transform: AnyPixels, images: torch.Tensor, numbers: NDArray[np.float64]) -> torch.Tensor:
    height, width = images.shape[2:]
    if isinstance(transform, PixelTransform):
        return transform.run(Pictures(images), transform.parameters(numbers, (height, width))).images
    return run_program(images, grouped(program_for(transform, numbers, (height, width))))


def by_torch(transform: AnyPixels, images: torch.Tensor, numbers: NDArray[np.float64]) -> torch.Tensor:
    """As on a device: floating pictures take torch's road wherever they are; these hold whole numbers / 255."""
    height, width = images.shape[2:]
    return run_program(images.float() / 255, grouped(program_for(transform, numbers, (height, width))))


@pytest.mark.parametrize("name", list(CASES))
def test_steps_are_torchvisions(name: str) -> None:
    """Each step gives the bytes that torchvision gave for the same pictures."""
    assert golden(name) == checksum(by_fastio(name))


@pytest.mark.parametrize("name", POLICIES)
def test_operations_of_policies_are_torchvisions(name: str) -> None:
    """So does each operation of a policy, at its least and greatest strength and one between."""
    assert golden(name) == checksum(policy_by_fastio(name))


@pytest.mark.parametrize("name", WARPS)
def test_warps_are_torchvisions(name: str) -> None:
    """So do rotations, affine maps and perspectives with the amounts that a sample's numbers stand for."""
    assert golden(name) == checksum(warps_by_fastio(name))


@pytest.mark.parametrize("name", [*CASES, *POLICIES, *WARPS])
def test_the_installed_torchvision(name: str) -> None:
    """The checksums are still those of the installed torchvision."""
    pytest.importorskip("torchvision")
    ours, theirs = (by_fastio, by_torchvision) if name in CASES else (policy_by_fastio, policy_by_torchvision)
    if name in WARPS:
        ours, theirs = warps_by_fastio, warps_by_torchvision
    levels = CASES[name].levels if name in CASES else 0
    for expected, got in zip(theirs(name), ours(name), strict=True):
        assert np.abs(expected.astype(int) - got.astype(int)).max() <= levels


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(list(CASES)),
    sides=st.tuples(st.integers(9, 80), st.integers(9, 80)),
    grey=st.booleans(),
    share=st.floats(0, 0.999),
    seed=st.integers(0, 1000),
)
def test_any_picture(name: str, sides: tuple[int, int], grey: bool, share: float, seed: int) -> None:
    """Whatever the size and the amounts, each step is that of the installed torchvision."""
    pytest.importorskip("torchvision")
    from torchvision.transforms.v2 import functional

    from tests.transforms.batch.colour_cases import run

    picture = np.random.default_rng(seed).integers(0, 256, (1 if grey else 3, *sides), np.uint8)
    expected = CASES[name].theirs(functional, torch.from_numpy(picture), share).numpy().astype(int)
    got = run(picture, CASES[name].program(picture, share))

    assert np.abs(expected - got).max() <= max(CASES[name].levels, int("bilinear" in name or "filled" in name))


class _Fixed(PixelTransform):
    """A program as a transform."""

    draws = 0

    def __init__(self, program: Program) -> None:
        self._program = program

    def program(self, numbers: NDArray[np.float64], size: tuple[int, int]) -> Program:
        return np.repeat(self._program, len(numbers), axis=0)


def test_noise_is_normal() -> None:
    """Of flat pictures, levels come as often as normal noise cut to whole levels has them; neighbours know nothing."""
    flat = torch.full((2, 3, 200, 300), 128, dtype=torch.uint8)
    transform = GaussianNoise(0.01, 0.04)
    noisy = natively(transform, flat, numbers_for(transform, 2)).numpy().astype(int) - 128
    mean, sigma = 255 * 0.01, 255 * 0.04

    def below(level: float) -> float:
        return 0.5 * (1 + math.erf((level - mean) / sigma / math.sqrt(2)))

    levels = range(-25, 31)  # each expected some hundred times
    chances = [below(k + (k >= 0)) - below(k - (k <= 0)) for k in levels]  # cut towards 0
    counts = np.array([(noisy == k).sum() for k in levels])
    expected = noisy.size * np.array(chances)
    assert ((counts - expected) ** 2 / expected).sum() < 2 * len(levels)  # chi squared, whose mean is their number
    assert abs(noisy.mean() - noisy[:, 0].mean()) < 0.2
    for one, other in (
        (noisy[0], noisy[1]),
        (noisy[:, 0], noisy[:, 1]),
        (noisy[..., 1:], noisy[..., :-1]),
        (noisy[:, :, 1:], noisy[:, :, :-1]),
    ):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.01


def test_noise_on_a_device_is_that_of_native_threads() -> None:
    """Of bytes to a level, in any memory format; of floats, without cutting to levels."""
    transform, images = GaussianNoise(-0.1, 0.3), pictures()
    numbers = numbers_for(transform)
    here = natively(transform, images, numbers)
    last = natively(transform, images.contiguous(memory_format=torch.channels_last), numbers)

    assert torch.equal(here, last)
    assert (on_device(transform, images, numbers) - here.int()).abs().max() <= 1
    assert (by_torch(transform, images, numbers) * 255 - here).abs().max() <= 1.01
    assert {0, 255} <= set(here.unique().tolist())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: GaussianNoise(clip=False), "clip=False: expected True"),
        (lambda: GaussianNoise(sigma=-1), "sigma=-1: expected a finite number of at least 0"),
        (lambda: GaussianNoise(mean=math.nan), "mean=nan: expected a finite number"),
        (lambda: RandomPhotometricDistort(hue=(-1, 1)), r"hue=\(-1, 1\): expected"),
        (lambda: RandomPhotometricDistort(p=2), "p=2: expected a probability"),
    ],
)
def test_numbers_that_mean_nothing(make: Any, words: str) -> None:
    """Noise and distortions say so when they are built."""
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("name", list(CASES))
def test_steps_in_torch(name: str) -> None:
    """On a device, a step gives the same to a level, but for pixels read between two."""
    for picture in samples()[::2]:
        for share in SHARES[1::2]:
            step = _Fixed(CASES[name].program(picture, share))
            images, none = torch.from_numpy(picture)[None], np.zeros((1, 0))
            floating = by_torch(step, images, none)
            assert floating.dtype == torch.float32
            assert floating.min() >= 0
            assert floating.max() <= 1
            difference = (on_device(step, images, none) - natively(step, images, none).int()).abs()
            assert (difference > 1).float().mean() < 0.01


def on_device(step: AnyPixels, images: torch.Tensor, numbers: NDArray[np.float64]) -> torch.Tensor:
    """uint8 through the road of devices, as int32."""
    from fastio.transforms.batch.program import _run_torch

    height, width = images.shape[2:]
    return _run_torch(images, grouped(program_for(step, numbers, (height, width)))["steps"]).int()


@pytest.mark.parametrize("transform", EVERY, ids=lambda transform: type(transform).__name__)
def test_native_and_device(transform: AnyPixels) -> None:
    """All transforms give nearly the same on both roads; a level may be lost or won at each step."""
    images, numbers = torch.cat([pictures(3, 24, 31, seed) for seed in range(5)]), numbers_for(transform, 5 * COUNT)
    difference = (natively(transform, images, numbers).int() - on_device(transform, images, numbers)).abs()

    assert (difference > 1).float().mean() < 0.02
    assert (difference > 0).float().mean() < 0.1


@pytest.mark.parametrize("transform", EVERY, ids=lambda transform: type(transform).__name__)
def test_a_sample_does_not_depend_on_its_batch(transform: AnyPixels) -> None:
    """Alone, in either memory format, with or without threads, a picture becomes what it becomes in a batch."""
    images, numbers = pictures(3, 24, 31), numbers_for(transform)
    together = natively(transform, images, numbers)
    last = natively(transform, images.contiguous(memory_format=torch.channels_last), numbers)

    assert torch.equal(pictures(3, 24, 31), images)
    assert torch.equal(together, last)
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert not torch.equal(images, together)
    for place in range(COUNT):
        part = slice(place, place + 1)
        assert torch.equal(natively(transform, images[part], numbers[part]), together[part])


def test_jitter() -> None:
    """Each sample gets its own four changes in its own order."""
    jitter = ColorJitter(0.4, 0.3, (0.5, 1.8), 0.1)
    numbers = numbers_for(jitter)
    ranges = {"BRIGHTNESS": (0.6, 1.4), "CONTRAST": (0.7, 1.3), "SATURATION": (0.5, 1.8), "HUE": (-0.1, 0.1)}
    for row, steps in zip(numbers, jitter.program(numbers, (9, 12)), strict=True):
        names = [list(ranges)[place] for place in np.argsort(row[:4])]
        assert names == [Step(int(step[0])).name for step in steps]
        for name, step in zip(names, steps, strict=True):
            low, high = ranges[name]
            assert step[1] == pytest.approx(low + (high - low) * row[4 + list(ranges).index(name)])


def test_jitter_of_nothing() -> None:
    """What is 0 is left out."""
    assert not ColorJitter().program(np.zeros((COUNT, 8)), (9, 12)).any()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("value", [0, (1, 2, 3)])
def test_erasing(value: Any, dtype: torch.dtype) -> None:
    """A rectangle by the documented rule, and nothing else, is painted over; whole pictures are never."""
    erasing = RandomErasing(0.7, (0.1, 0.6), (0.5, 2.0), value)
    images = pictures(3, 20, 30).to(dtype)
    numbers = numbers_for(erasing, seed=2)
    got = natively(erasing, images, numbers)
    for image, result, row in zip(images, got, numbers, strict=True):
        expected = image.clone()
        for attempt in range(10 if row[0] < 0.7 else 0):
            area = 600 * (0.1 + 0.5 * row[3 + 2 * attempt])
            ratio = math.exp(math.log(0.5) + (math.log(2) - math.log(0.5)) * row[4 + 2 * attempt])
            height, width = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if height < 20 and width < 30:
                top, left = int(row[1] * (21 - height)), int(row[2] * (31 - width))
                colour = torch.tensor([value] * 3 if value == 0 else value, dtype=dtype)
                expected[:, top : top + height, left : left + width] = colour[:, None, None]
                break
        assert torch.equal(expected, result)
    assert torch.equal(pictures(3, 20, 30).to(dtype), images)


def test_what_is_erased_natively() -> None:
    """The program erases the same rectangles."""
    erasing, images = RandomErasing(0.8, value=7), pictures(3, 20, 30)
    numbers = numbers_for(erasing)
    pixels = images.permute(0, 2, 3, 1).contiguous().numpy()
    paint(pixels, erasing.program(numbers, (20, 30)))

    np.testing.assert_array_equal(pixels, natively(erasing, images, numbers).permute(0, 2, 3, 1))


@pytest.mark.parametrize("augment", [RandAugment(3, 15), TrivialAugmentWide(), AutoAugment(), AugMix()])
def test_every_operation_comes_up(augment: PixelTransform) -> None:
    """Policies draw all of their operations."""
    program = augment.program(numbers_for(augment, 2000), (24, 24))
    kinds = {Step(int(kind)).name.lower() for kind in np.unique(program[:, :, 0])}
    wanted = {"none", "affine", "brightness", "saturation", "contrast", "sharpness"}
    wanted |= {"posterize", "solarize", "autocontrast", "equalize"}
    if isinstance(augment, AutoAugment):
        wanted = wanted - {"brightness", "affine"} | {"affine", "invert"}
    if isinstance(augment, AugMix):
        wanted |= {"begin_mix", "begin_chain", "add_to_mix", "end_mix"}

    assert wanted == kinds


def amount(augment: Any, operation: int, sign: float = 0.0, strength: float = 0.999) -> dict[str, list[float]]:
    """The only step of an augmenter for pictures of 331 x 662."""
    numbers = np.array([[(operation + 0.5) / 14, sign, strength]])[:, : augment.draws]
    ((step,),) = augment.program(numbers, (331, 662))
    return {Step(int(step[0])).name.lower(): step[1:].tolist()}


def test_the_strength_of_augmenters() -> None:
    """Magnitudes are those of the tables: the strongest of each, and the ninth of 31."""
    ninth, strongest, wide = RandAugment(1, 9), RandAugment(1, 30), TrivialAugmentWide()

    assert amount(ninth, 0)["none"][0] == 0
    assert amount(strongest, 1)["affine"][:6] == pytest.approx([1, 0.3, 0.3 * 331 / 2, 0, 1, 0])
    assert amount(strongest, 3, 0.9)["affine"][:6] == pytest.approx([1, 0, 300, 0, 1, 0])
    assert amount(strongest, 4)["affine"][:6] == pytest.approx([1, 0, 0, 0, 1, -150])
    assert amount(ninth, 6)["brightness"][0] == pytest.approx(1.27)
    assert amount(strongest, 10)["posterize"][0] == 4
    assert amount(ninth, 11)["solarize"][0] == pytest.approx(178.5)
    assert amount(wide, 10)["posterize"][0] == 2
    assert amount(wide, 9, 0.9)["sharpness"][0] == pytest.approx(0.01)
    assert amount(wide, 4)["affine"][:6] == pytest.approx([1, 0, 0, 0, 1, -32])


@pytest.mark.parametrize("policy", ["imagenet", "cifar10", "svhn"])
def test_pairs_of_auto_augment(policy: Any) -> None:
    """A policy has 25 pairs; each operation comes with its probability and strength."""
    table = policies._table(policy)
    augment = AutoAugment(policy)
    for pair in range(25):
        for place in range(2):
            numbers = np.full((2, 5), 0.25)
            numbers[:, 0] = (pair + 0.5) / 25
            numbers[:, 1 + 2 * place] = table.p[pair, place] + np.array([-1e-9, 1e-9])
            before, after = augment.program(numbers, (24, 24))[:, place, 0]
            if 0 < table.p[pair, place] < 1:
                assert before != 0 == after
    assert table.p.shape == (25, 2)


def test_the_table_of_torchvision() -> None:
    """The pairs are those of the installed torchvision."""
    v2 = pytest.importorskip("torchvision.transforms.v2")
    from torchvision.transforms.autoaugment import AutoAugmentPolicy

    for name in ("imagenet", "cifar10", "svhn"):
        theirs = v2.AutoAugment(AutoAugmentPolicy(name))
        table = policies._table(name)  # type: ignore[arg-type] # one of the three
        for pair, (p, strength) in zip(theirs._policies, zip(table.p, table.strength, strict=True), strict=True):
            assert [each[1] for each in pair] == p.tolist()
            assert [each[2] or 0 for each in pair] == strength.tolist()


def test_mixes() -> None:
    """AugMix adds up the picture and its chains by their shares, and truncates."""
    mix, images = AugMix(chain_depth=1, mixture_width=2, all_ops=False), pictures(3, 24, 31)
    numbers = numbers_for(mix)
    program = mix.program(numbers, (24, 31))
    expected = images.numpy().transpose(0, 2, 3, 1) * program[:, 0, 1].astype(np.float32)[:, None, None, None]
    for operation in (2, 5):
        chain = images.permute(0, 2, 3, 1).contiguous().numpy()
        paint(chain, program[:, [operation]])
        expected = expected + chain * program[:, operation + 1, 1].astype(np.float32)[:, None, None, None]

    got = natively(mix, images, numbers).permute(0, 2, 3, 1).numpy()
    np.testing.assert_array_equal(expected.astype(np.uint8), got)
    assert program[:, [0, 3, 6], 1].sum(axis=1) == pytest.approx(np.ones(COUNT))


def test_apply_and_one_of() -> None:
    """All or none; one of several, by weights."""
    invert, grey = RandomInvert(1.0), RandomGrayscale(1.0)
    numbers = np.zeros((4, 3))
    numbers[:, 0] = [0.1, 0.4, 0.6, 0.9]
    both = RandomApply([invert, grey], 0.5).program(numbers, (9, 12))[:, :, 0]
    one = OneOf([invert, grey], [1, 3]).program(numbers, (9, 12))[:, :, 0]

    assert both.tolist() == [[Step.INVERT, Step.GREY]] * 2 + [[0, 0]] * 2
    assert one.tolist() == [[Step.INVERT]] + [[Step.GREY]] * 3


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
        lambda: RandAugment(interpolation="bicubic"),
        lambda: TrivialAugmentWide(1),
        lambda: AutoAugment("mnist"),  # type: ignore[arg-type]
        lambda: AugMix(severity=0),
        lambda: AugMix(alpha=0),
        lambda: RandomGrayscale(1.5),
        lambda: RandomSolarize(300),
        lambda: RandomPosterize(9),
        lambda: RandomAdjustSharpness(-1),
        lambda: GaussianBlur(4),
        lambda: GaussianBlur(5, (2, 1)),
        lambda: OneOf([RandomInvert()], [0]),
        lambda: RandomRotation(-3),
        lambda: RandomRotation(3, expand=True),
        lambda: RandomAffine(3, (0.1, 2)),
        lambda: RandomAffine(3, scale=(0, 2)),
        lambda: RandomAffine(3, shear=(1, 2, 3)),
        lambda: RandomAffine(3, interpolation="lanczos"),
        lambda: RandomPerspective(2),
        lambda: RandomVerticalFlip(2),
    ],
)
def test_arguments(wrong: Any) -> None:
    """What makes no sense is refused when it is written."""
    with pytest.raises(ValueError, match="expected"):
        wrong()


@pytest.mark.parametrize("wrong", [[], [Resize(3)], [MixUp()], RandomInvert()])
def test_what_may_be_applied(wrong: Any) -> None:
    """RandomApply and OneOf take transforms of colours."""
    with pytest.raises(TypeError, match=r"RandomApply: .*(expected a list|it takes ColorJitter)"):
        RandomApply(wrong)


def test_pictures_that_do_not_fit() -> None:
    """Colours of pictures with alpha are not defined; a kernel has to fit the picture."""
    with pytest.raises(SchemaError, match="1 or 3 channels, got 4"):
        natively(ColorJitter(0.1), pictures(4), np.zeros((COUNT, 8)))
    with pytest.raises(SchemaError, match="one value, or 1 "):
        natively(RandomErasing(value=(1, 2, 3)), pictures(1), np.zeros((COUNT, 23)))
    with pytest.raises(SchemaError, match="too large for pictures of 9x12"):
        natively(GaussianBlur(19), pictures(), np.zeros((COUNT, 1)))


def test_erasing_keeps_alpha_pictures() -> None:
    """A rectangle of pictures with alpha may be painted over."""
    erasing, images = RandomErasing(1.0), pictures(4, 20, 30)
    numbers = numbers_for(erasing)
    pixels = images.permute(0, 2, 3, 1).contiguous().numpy()
    paint(pixels, erasing.program(numbers, (20, 30)))

    np.testing.assert_array_equal(pixels, natively(erasing, images, numbers).permute(0, 2, 3, 1))
    assert (pixels == 0).any()


def test_a_name_without_defaults() -> None:
    """States of earlier releases name a policy without the options that it had not yet."""
    assert repr(RandAugment()) == "RandAugment(num_ops=2, magnitude=9, num_magnitude_bins=31)"
    assert repr(TrivialAugmentWide(fill=3)) == "TrivialAugmentWide(num_magnitude_bins=31, fill=3)"


@pytest.mark.parametrize("transform", EVERY, ids=lambda transform: type(transform).__name__)
def test_another_default_device(transform: AnyPixels) -> None:
    """Where torch makes tensors by default does not matter."""
    images, numbers = pictures(3, 24, 31), numbers_for(transform)
    expected = natively(transform, images, numbers), by_torch(transform, images, numbers)
    policies._strengths.cache_clear()
    with torch.device("meta"):
        got = natively(transform, images, numbers), by_torch(transform, images, numbers)

    assert torch.equal(expected[0], got[0])
    assert torch.equal(expected[1], got[1])
