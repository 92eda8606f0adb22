"""Normalize, ToDtype and ChannelsLast against plain float64 arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastio.errors import SchemaError
from fastio.transforms import ChannelsLast, Normalize, NormalizeLayer, ToDtype
from fastio.transforms.batch.recipe import Recipe

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FLOATING = [torch.float16, torch.bfloat16, torch.float32]


def pictures(channels: int = 3, seed: int = 0) -> torch.Tensor:
    """Five pictures 7x6 of random pixels."""
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (5, channels, 7, 6), np.uint8))


def run(transforms: list[Any], images: torch.Tensor) -> torch.Tensor:
    """The images of a batch after a recipe."""
    recipe = Recipe(transforms, seed=0)
    return recipe.run([images], recipe.draw([images], np.arange(len(images)), 0))[0]


def expected(images: torch.Tensor, mean: Any = MEAN, std: Any = STD) -> torch.Tensor:
    """As written in a textbook, in float64."""
    column = [torch.tensor(values, dtype=torch.float64).reshape(1, -1, 1, 1) for values in (mean, std)]
    return (images.double() / 255 - column[0]) / column[1]


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize(
    "form",
    [
        lambda mean, std, dtype: [ToDtype(dtype, scale=True), Normalize(mean, std)],
        lambda mean, std, dtype: [Normalize(mean, std), ToDtype(dtype)],
        lambda mean, std, dtype: [Normalize(mean, std), ChannelsLast(), ToDtype(dtype, scale=True)],
    ],
)
def test_normalised_values(form: Any, channels: int, dtype: torch.dtype) -> None:
    """Within half a unit in the last place of the exact value, whatever the order of the transforms."""
    images = pictures(channels)
    mean, std = (0.485, 0.456, 0.406, 0.5)[:channels], (0.229, 0.224, 0.225, 0.25)[:channels]
    got = run(form(mean, std, dtype), images)
    exact = expected(images, mean, std)

    assert got.dtype == dtype
    unit = torch.finfo(dtype).eps * exact.abs().clamp(min=torch.finfo(torch.float16).tiny)
    assert ((got.double() - exact).abs() <= 0.51 * unit + 4e-7).all()


@settings(max_examples=30, deadline=None)
@given(
    steps=st.lists(
        st.sampled_from(
            [Normalize((0.5,), (0.25,)), Normalize(MEAN, STD), ToDtype(torch.float32, True), ChannelsLast()]
        ),
        max_size=5,
    )
)
def test_one_pass_is_the_steps(steps: list[Any]) -> None:
    """Transforms done together give what they give one after the other."""
    images = pictures()
    single = images
    for each in steps:
        single = run([each], single)
    together = run(steps, images)

    assert single.dtype == together.dtype
    assert torch.allclose(single.double(), together.double(), rtol=1e-5, atol=1e-4)
    if ChannelsLast() in steps:
        assert together.is_contiguous(memory_format=torch.channels_last)


def test_values_alone() -> None:
    """ToDtype without scale keeps the numbers; with scale, 255 is 1; what is floating is not scaled again."""
    images = pictures()

    assert torch.equal(images.float(), run([ToDtype(torch.float32)], images))
    assert torch.equal(
        run([ToDtype(torch.float32, scale=True)], images), run([ToDtype(torch.float32, True)] * 2, images)
    )
    assert 1 == run([ToDtype(torch.float16, scale=True)], torch.full((1, 3, 2, 2), 255, dtype=torch.uint8)).unique()


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_the_layout_stays(layout: torch.memory_format) -> None:
    """Without ChannelsLast the memory format is that of the batch."""
    images = pictures().contiguous(memory_format=layout)

    assert run([Normalize(MEAN, STD)], images).is_contiguous(memory_format=layout)


def test_numbers_for_other_channels() -> None:
    """Three means do not fit a grey picture; that is said, not broadcast."""
    with pytest.raises(SchemaError, match="3 channels, but pictures have 1"):
        run([Normalize(MEAN, STD)], pictures(1))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Normalize((), ()),
        lambda: Normalize((0.5, 0.5), (0.5,)),
        lambda: Normalize((0.5,), (0.0,)),
        lambda: ToDtype(torch.uint8),
    ],
)
def test_arguments(wrong: Any) -> None:
    """What makes no sense is refused when it is written."""
    with pytest.raises(ValueError, match="expected"):
        wrong()


def test_the_layer() -> None:
    """As first layer of a network: the same values, in the network's dtype, and nothing to save."""
    images = pictures()
    network = torch.nn.Sequential(NormalizeLayer(MEAN, STD), torch.nn.Flatten())

    assert torch.equal(run([Normalize(MEAN, STD)], images).flatten(1), network(images))
    assert network.state_dict() == {}
    assert torch.equal(
        run([Normalize(MEAN, STD), ToDtype(torch.bfloat16)], images).flatten(1), network.bfloat16()(images)
    )
    assert "0.485" in repr(network)
