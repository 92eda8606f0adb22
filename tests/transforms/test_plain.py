"""Transforms called on one picture: PIL image or tensor, torch's generator or given numbers; and what is refused."""

from __future__ import annotations

import pickle
from enum import Enum
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastio.transforms import (
    CenterCrop,
    Compose,
    Grayscale,
    KeepBoxes,
    KeepGeometry,
    KeepPoints,
    Letterbox,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResize,
    RandomResizedCrop,
    RandomShortestSize,
    RandomZoomOut,
    Resize,
    ScaleJitter,
    Transform,
)

EVERY = (
    RandomResizedCrop(12),
    Resize((10, 9), "bicubic"),
    Resize(7),
    CenterCrop(20),
    RandomCrop(8, padding=2, fill=3),
    Pad((1, 2, 3, 4), fill=(5, 6, 7)),
    RandomHorizontalFlip(),
    Grayscale(3),
    Grayscale(),
    Letterbox(14, fill=(5, 6, 7), position="top-left", upscale=False),
    KeepBoxes(min_area=4, clip=False),
    KeepPoints("drop"),
    KeepGeometry(),
)


def noise(height: int, width: int, channels: int = 3) -> torch.Tensor:
    """A tensor of random pixels."""
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (channels, height, width), np.uint8))


def as_image(tensor: torch.Tensor) -> Image.Image:
    """The tensor's picture, as torchvision's to_pil_image makes it."""
    pixels = tensor.permute(1, 2, 0).contiguous().numpy()
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


def as_tensor(image: Image.Image) -> torch.Tensor:
    """The picture's tensor."""
    return torch.from_numpy(np.array(image).reshape(image.height, image.width, -1)).permute(2, 0, 1)


@settings(max_examples=60, deadline=None)
@given(transform=st.sampled_from(EVERY), height=st.integers(8, 30), width=st.integers(8, 30), seed=st.integers(0, 99))
def test_a_tensor_is_a_picture(transform: Transform, height: int, width: int, seed: int) -> None:
    """Tensors get the same pixels as PIL images; leading dimensions share one draw."""
    tensor = noise(height, width)
    numbers = np.random.default_rng(seed).random(transform.draws)
    expected = as_tensor(transform.apply(as_image(tensor), numbers))

    assert torch.equal(expected, transform.apply(tensor, numbers))
    stacked = transform.apply(tensor.expand(2, 1, 3, height, width), numbers)
    assert torch.equal(expected.expand(2, 1, *expected.shape), stacked)


def test_torchs_generator_decides() -> None:
    """Called alone, a transform draws from torch's default generator."""
    transform = Compose([RandomResizedCrop(8), RandomHorizontalFlip()])
    image = as_image(noise(40, 40))
    first = []
    for _ in range(2):
        torch.manual_seed(5)
        first.append([np.array(transform(image)) for _ in range(4)])

    assert np.array_equal(first[0], first[1])
    assert len({pixels.tobytes() for pixels in first[0]}) == 4


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_every_mode(channels: int) -> None:
    """Grey, colour and alpha stay what they are."""
    image = as_image(noise(20, 20, channels))
    chain = Compose([RandomResizedCrop(9), RandomHorizontalFlip(1.0), Pad(1, fill=8), CenterCrop(10)])

    assert (image.mode, (10, 10)) == (chain(image).mode, chain(image).size)


def test_grayscale() -> None:
    """Luma as Pillow's, and grey stays grey."""
    image = as_image(noise(5, 6))

    assert np.array_equal(np.array(image.convert("L")), np.array(Grayscale()(image)))
    assert np.array_equal(np.array(image.convert("L").convert("RGB")), np.array(Grayscale(3)(image)))
    grey = noise(5, 6, 1)
    assert torch.equal(grey, Grayscale()(grey))
    assert torch.equal(grey.expand(3, 5, 6), Grayscale(3)(grey))


def test_transforms_are_values() -> None:
    """Equal arguments make equal transforms, whichever way they are written; they travel by pickle."""
    assert RandomResizedCrop(224) == RandomResizedCrop((224, 224), interpolation=Image.Resampling.BILINEAR)
    assert Resize([7], "nearest-exact") == Resize(7, Image.Resampling.NEAREST)
    assert Pad(1) == Pad((1, 1), fill=(0, 0, 0)) != Pad(2)
    for each in EVERY:
        assert each == pickle.loads(pickle.dumps(each))
        assert hash(each) == hash(pickle.loads(pickle.dumps(each)))
        assert eval(repr(each)) == each


def test_torchvisions_enum() -> None:
    """InterpolationMode, whose members carry names, is understood."""

    class InterpolationMode(Enum):
        BICUBIC = "bicubic"

    assert Resize(5, InterpolationMode.BICUBIC) == Resize(5, "bicubic")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Resize(5, "cubic"), "interpolation='cubic': expected one of bilinear"),
        (lambda: Resize(5, antialias=False), "always antialiased"),
        (lambda: Resize(0), "size=0"),
        (lambda: Resize(None), "size=None"),
        (lambda: Resize((5, 6), max_size=9), "only for a size of one number"),
        (lambda: Resize(9, max_size=9), "expected more than the short side"),
        (lambda: CenterCrop((1, 2, 3)), "size="),
        (lambda: RandomResizedCrop(5, scale=(1.0, 0.5)), "scale="),
        (lambda: RandomResizedCrop(5, ratio=(0, 1)), "ratio="),
        (lambda: RandomCrop(5, padding=(1, 2, 3)), "padding="),
        (lambda: RandomCrop(5, padding=-1), "padding=-1"),
        (lambda: RandomCrop(5, padding=1, padding_mode="reflect"), "padding_mode='reflect'"),
        (lambda: Pad(1, fill=256), "fill=256"),
        (lambda: RandomResize(9, 9), "max_size=9: expected more than min_size=9"),
        (lambda: RandomShortestSize([]), r"min_size=\[\]: expected a size"),
        (lambda: RandomShortestSize([0]), "size=0: expected a number of at least 1"),
        (lambda: ScaleJitter(8, (2.0, 1.0)), r"scale_range=\(2.0, 1.0\): expected two numbers of at least 0.0"),
        (lambda: RandomZoomOut(side_range=(0.5, 2)), r"side_range=\(0.5, 2\): expected two numbers of at least 1.0"),
        (lambda: RandomZoomOut(p=2), "p=2: expected a probability"),
        (lambda: Letterbox(5, position="left"), "position='left': expected one of center, top-left"),
        (lambda: RandomHorizontalFlip(1.5), "p=1.5"),
        (lambda: Grayscale(2), "num_output_channels=2"),
        (lambda: Pad(1, fill=(1, 2, 3))(noise(4, 4, 4)), "expected one number, or 4"),
        (lambda: Pad(1)(torch.zeros(3, 4, 4)), "uint8 tensor"),
        (lambda: Pad(1)(Image.new("P", (4, 4))), "mode 'P'"),
    ],
)
def test_nonsense_is_refused(make: Any, words: str) -> None:
    """An argument that cannot be is refused in one line when the transform is made."""
    with pytest.raises(ValueError, match=words):
        make()


def test_other_callables_are_no_transforms() -> None:
    """What is not data cannot become a plan; the message says where it goes."""
    with pytest.raises(TypeError, match=r"write PerSample\(<lambda>\) for a function of one picture"):
        Compose([lambda picture: picture])  # type: ignore[list-item] # this is the mistake
