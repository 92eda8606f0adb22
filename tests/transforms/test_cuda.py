"""Transforms of batches on a GPU give what they give on the CPU: runs where there is one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fastio import DevicePrefetcher
from fastio.loader.device.nested import map_tensors
from fastio.transforms import (
    ChannelsLast,
    ColorJitter,
    MixUp,
    Normalize,
    NormalizeLayer,
    RandAugment,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomResizedCrop,
    ToDtype,
    TrivialAugmentWide,
)
from fastio.transforms.batch import Recipe
from fastio.transforms.batch.finish import Finish
from fastio.transforms.batch.one_pass import one_pass, plain_pass

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

COUNT = 16
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def pictures(channels: int = 3, side: int = 61) -> torch.Tensor:
    """Sixteen pictures of random pixels."""
    values = np.random.default_rng(0).integers(0, 256, (COUNT, channels, side, side + 2), np.uint8)
    return torch.from_numpy(values)


def on(device: str, transforms: list[Any], images: torch.Tensor) -> torch.Tensor:
    """The images after a recipe that ran on a device."""
    recipe = Recipe(transforms, seed=7)
    drawn = recipe.draw([images], np.arange(COUNT), 0)
    moved = map_tensors(lambda tensor: tensor.to(device), drawn)
    return recipe.run([images.to(device)], moved)[0].cpu()


def assert_close(expected: torch.Tensor, got: torch.Tensor) -> None:
    """Equal but for the last rounding."""
    assert expected.dtype == got.dtype
    torch.testing.assert_close(got, expected, rtol=2 * torch.finfo(got.dtype).eps, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("to_last", [False, True])
def test_one_pass_is_the_plain_one(
    dtype: torch.dtype, channels: int, layout: torch.memory_format, to_last: bool
) -> None:
    """The Triton kernel and torch's operations agree, in values, dtype and layout."""
    images = pictures(channels).to("cuda").contiguous(memory_format=layout)
    scale, bias = tuple(np.linspace(0.01, 0.02, channels)), tuple(np.linspace(-1, 1, channels))
    finish = Finish(dtype, scale, bias, channels_last=to_last)
    expected, got = plain_pass(images, finish), one_pass(images, finish)

    assert_close(expected, got)
    last = torch.channels_last
    assert expected.is_contiguous(memory_format=last) == got.is_contiguous(memory_format=last)


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("padding", [None, 5])
def test_crop_flip_and_normalise(layout: torch.memory_format, padding: int | None) -> None:
    """With plans too, edges included."""
    chain = [
        RandomCrop((50, 47), padding=padding, fill=(9, 100, 200)),
        RandomHorizontalFlip(),
        Normalize(MEAN, STD),
        ToDtype(torch.float16),
    ]
    images = pictures().contiguous(memory_format=layout)

    assert_close(on("cpu", chain, images), on("cuda", chain, images))


def test_resampling() -> None:
    """Resized crops differ by a level at most, where a sum lies between two."""
    images = pictures()
    chain = [RandomResizedCrop(40), RandomHorizontalFlip()]

    assert (on("cpu", chain, images).int() - on("cuda", chain, images).int()).abs().max() <= 1


@pytest.mark.parametrize(
    "transform",
    [
        ColorJitter(0.4, 0.4, 0.4, 0.1),
        RandomErasing(1.0),
        RandAugment(),
        TrivialAugmentWide(),
        MixUp(num_classes=COUNT),
    ],
)
def test_colours_and_mixing(transform: Any) -> None:
    """A level apart at most, but where a pixel's middle or a histogram falls on the other side of a line."""
    images = pictures()
    recipe = Recipe([transform], seed=7)
    labels = torch.arange(COUNT)
    drawn = recipe.draw([images, labels], np.arange(COUNT), 0)
    expected, _ = recipe.run([images, labels], drawn)
    moved = map_tensors(torch.Tensor.cuda, drawn)
    got, _ = recipe.run([images.cuda(), labels.cuda()], moved)

    assert ((expected.int() - got.cpu().int()).abs() > 1).float().mean() < 0.01


def test_a_batch_of_more_than_two_gigabytes() -> None:
    """Places in memory are counted in 64 bits."""
    images = torch.zeros((2300, 3, 576, 576), dtype=torch.uint8, device="cuda")
    images[-1] = 255
    got = one_pass(images, Finish(torch.float16, (1 / 255,), (1.0,)))

    assert images.numel() > 2**31
    assert [1.0, 2.0] == [float(got[0].unique()), float(got[-1].unique())]


def test_more_pictures_than_a_grid_is_high() -> None:
    """A batch may have more pictures than CUDA's second dimension, 65,535, has blocks."""
    count = 70_000
    images = (torch.arange(count, device="cuda") % 251).to(torch.uint8)[:, None, None, None].repeat(1, 3, 4, 4)
    recipe = Recipe([RandomCrop(3), ToDtype(torch.float32)], seed=7)
    drawn = map_tensors(torch.Tensor.cuda, recipe.draw([images], np.arange(count), 0))
    got = recipe.run([images], drawn)[0]

    assert (count, 3, 3, 3) == got.shape
    assert torch.equal(images[:, 0, 0, 0].float(), got.mean((1, 2, 3)))


def test_the_layer() -> None:
    """The first layer of a half network takes uint8 pictures."""
    images = pictures().to("cuda")
    layer = NormalizeLayer(MEAN, STD).cuda().half()

    assert_close(plain_pass(images, Normalize(MEAN, STD).after(Finish(images.dtype))).half(), layer(images))


def test_through_the_prefetcher() -> None:
    """On the side stream, behind the copy, with numbers that went through pinned memory."""
    chain: list[Any] = [RandomCrop(32), RandomHorizontalFlip(), Normalize(MEAN, STD), ChannelsLast()]
    batches = [[pictures().roll(shift, 0), torch.arange(COUNT)] for shift in range(6)]
    expected = list(DevicePrefetcher(batches, "cpu", transforms=chain, seed=3))

    for (wanted, _), (got, labels) in zip(
        expected, DevicePrefetcher(batches, "cuda", transforms=chain, seed=3), strict=True
    ):
        assert_close(wanted, got.cpu())
        assert torch.equal(torch.arange(COUNT), labels.cpu())
