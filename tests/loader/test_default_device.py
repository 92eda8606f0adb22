"""Loops under ``torch.set_default_device`` and ``set_default_dtype`` get the same batches, in the same memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fastio import ChunkCollate, FastDataset, FastLoader, PackCollate, PadCollate
from fastio.transforms import (
    ColorJitter,
    CutMix,
    MixUp,
    Normalize,
    RandAugment,
    RandomCrop,
    RandomErasing,
    RandomResizedCrop,
    ToDtype,
)
from tests.conftest import encode, pictures, write_store

COUNT = 12


@contextmanager
def floats_of(dtype: torch.dtype) -> Iterator[None]:
    """Another dtype for what names none."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


# Tensors on "meta" have no values: whoever makes one by accident cannot hide it. A user's device is "cuda".
AROUND: list[Callable[[], AbstractContextManager[Any]]] = [
    lambda: torch.device("meta"),
    lambda: floats_of(torch.float64),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve pictures of three classes."""
    return write_store(
        tmp_path_factory.mktemp("store") / "s.lmdb",
        [encode(picture) for picture in pictures(COUNT, (16, 16, 3))],
        np.arange(COUNT) % 3,
    )


def assert_same(expected: Any, got: Any) -> None:
    """Equal tensors of one dtype on one device, and equal numbers."""
    for one, other in zip(expected, got, strict=True):
        if not isinstance(one, torch.Tensor):
            assert one == other
            continue
        assert (one.device, one.dtype) == (other.device, other.dtype)
        assert torch.equal(one, other)


@pytest.mark.parametrize("around", AROUND, ids=["device", "dtype"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"cache": "ram"},
        {"transforms": [RandomCrop(16, padding=2)]},
        {"device": "cpu", "transforms": [ColorJitter(0.4, 0.4, 0.4, 0.1), RandomResizedCrop(8), MixUp(num_classes=3)]},
        {
            "device": "cpu",
            "cache": "device",
            "transforms": [RandAugment(), RandomErasing(1.0), CutMix(num_classes=3)],
        },
        {"device": "cpu", "transforms": [Normalize((0.5,), (0.25,)), ToDtype(torch.float16)]},
    ],
    ids=lambda options: "-".join(options) or "plain",
)
def test_batches_of_pictures(store: Path, around: Callable[[], Any], options: dict[str, Any]) -> None:
    """Values, dtypes and devices are those without it."""
    expected = next(iter(FastLoader(store, COUNT, shuffle=True, **options)))
    with around():
        got = next(iter(FastLoader(store, COUNT, shuffle=True, **options)))

    assert_same(expected, got)


@pytest.mark.parametrize("around", AROUND, ids=["device", "dtype"])
def test_samples(store: Path, around: Callable[[], Any]) -> None:
    """A dataset's own samples, with a transform that draws at random and pads."""
    transform = RandomCrop(16, padding=4)
    with around():
        picture, label = FastDataset(store, transform)[0]

    assert (16, 16) == picture.size
    assert label == 0


@pytest.mark.parametrize("around", AROUND, ids=["device", "dtype"])
@pytest.mark.parametrize("collate", [PadCollate(), PackCollate(), PackCollate(16), ChunkCollate(4)])
def test_batches_of_tokens(around: Callable[[], Any], collate: Any) -> None:
    """The plain functions work where the tokens are."""
    samples = [torch.arange(length, device="cpu") for length in (3, 1, 5)]
    expected = collate(samples)
    with around():
        got = collate(samples)

    assert expected.keys() == got.keys()
    assert_same(expected.values(), got.values())
