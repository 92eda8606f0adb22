"""Transforms of batches beside masks and boxes: they change pictures and the label, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fastio import FastDataset, FastLoader, SchemaError
from fastio.transforms import (
    ColorJitter,
    Compose,
    KeepBoxes,
    KeepGeometry,
    MixUp,
    Normalize,
    OneOf,
    RandAugment,
    RandomApply,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomRotation,
    ToDtype,
    Transform,
)
from fastio.transforms.batch import BatchTransform
from tests.dataset.many_fields import write_fields

COUNT = 4
TYPES = {
    "colours": "mask",
    "boxes": "xyxy",
    "left": "image",
    "right": "image",
    "number": "int",
    "vector": "float32[3]",
    "label": "label",
}
COLOURS = [ColorJitter(0.4, 0.4, 0.4), RandomErasing(0.5)]
NORMAL = [Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pictures a sample, behind fields that look like pictures and labels."""
    rng = np.random.default_rng(0)
    samples = [
        {
            "colours": rng.integers(0, 9, (24, 20), np.uint8),
            "boxes": (rng.random((index, 4)) * 20).astype(np.float32),
            "left": rng.integers(0, 256, (24, 20, 3), np.uint8),
            "right": rng.integers(0, 256, (24, 20, 3), np.uint8),
            "number": 9 - index,
            "vector": rng.random(3).astype(np.float32),
            "label": index,
        }
        for index in range(COUNT)
    ]
    return write_fields(tmp_path_factory.mktemp("fields") / "s.lmdb", samples, TYPES)


def one_batch(store: Path, steps: list[Any], fields: Any = None, **options: Any) -> Any:
    """All samples, in order."""
    with (
        FastDataset(store, fields=fields) as dataset,
        FastLoader(dataset, COUNT, transforms=steps, **options) as loader,
    ):
        return next(iter(loader))


def test_pictures_alone_change(store: Path) -> None:
    """Each picture becomes what it is without the other fields; these stay as the decoders made them."""
    native: list[Any] = [RandomCrop(16), RandomHorizontalFlip()]
    before, after = one_batch(store, native), one_batch(store, [*native, *COLOURS, *NORMAL])

    assert list(before) == list(after)
    for name, value in before.items():
        if name in ("left", "right"):
            assert torch.equal(one_batch(store, [*native, *COLOURS, *NORMAL], name), after[name])
        elif isinstance(value, list):
            assert all(torch.equal(old, new) for old, new in zip(value, after[name], strict=True))
        else:
            assert torch.equal(value, after[name])
    parts = one_batch(store, [*native, *COLOURS, *NORMAL], ("boxes", "colours", "right"))
    assert torch.equal(after["right"], parts[2])
    assert torch.equal(after["colours"], parts[1])


def test_mixup_mixes_the_label(store: Path) -> None:
    """Not the first column of whole numbers, nor the vectors before it."""
    fields = ("number", "vector", "right", "left", "label")
    number, vector, right, left, label = one_batch(store, [MixUp(num_classes=COUNT)], fields)
    pair = one_batch(store, [MixUp(num_classes=COUNT)], ("left", "label"))

    assert [9, 8, 7, 6] == number.tolist()
    assert (COUNT, 3) == vector.shape
    assert torch.equal(pair[0], left)
    assert torch.equal(pair[1], label)
    assert not torch.equal(left, right)


def test_rules_may_stand_behind(store: Path) -> None:
    """Behind transforms of batches, rules for boxes still hold, and batches have the geometry."""
    native: list[Any] = [RandomCrop(16)]
    rules: list[Any] = [KeepBoxes(drop=False), KeepGeometry()]
    first, last = one_batch(store, [*rules, *native, *NORMAL]), one_batch(store, [*native, *NORMAL, *rules])

    assert {*TYPES, "geometry"} == set(last)
    assert list(first) == list(last)
    assert list(range(COUNT)) == [len(boxes) for boxes in last["boxes"]]
    assert all(torch.equal(one, other) for one, other in zip(first["boxes"], last["boxes"], strict=True))
    assert torch.equal(first["geometry"], last["geometry"])


def test_rules_without_boxes_do_nothing(store: Path) -> None:
    """A recipe for boxes works on pictures alone, also from a cache."""
    pair = ("left", "label")
    expected, _ = one_batch(store, [RandomCrop(16)], pair)
    for options in ({}, {"cache": "ram"}, {"cache": "device", "device": "cpu"}):
        steps = [KeepBoxes(), RandomCrop(16), ToDtype(torch.float32), KeepBoxes()]
        got, _ = one_batch(store, steps, pair, **options)
        assert torch.equal(expected.float(), got) or "device" in options  # which has random numbers of its own
        assert expected.shape == got.shape
    with pytest.raises(SchemaError, match="transforms add geometry, but samples are a pair"):
        one_batch(store, [RandomCrop(16), KeepGeometry()], pair, cache="device", device="cpu")


@pytest.mark.parametrize(
    ("moving", "words"),
    [
        (RandomCrop(8), r"RandomCrop.* without colours, boxes: put it before Normalize, where they move together"),
        (RandAugment(), r"RandAugment.* without colours, boxes: drop it, or leave colours and boxes out by fields="),
        (RandomRotation(9), r"RandomRotation.* without colours, boxes: put it before Normalize, where they move tog"),
        (RandomApply([OneOf([RandAugment()])]), r"RandomApply.* without colours, boxes: drop it, or leave"),
        (MixUp(num_classes=4), r"MixUp.* without colours, boxes: drop it"),
    ],
)
def test_geometry_on_the_device_is_refused(store: Path, moving: Transform | BatchTransform, words: str) -> None:
    """Beside masks and boxes, which would not follow; without them it works."""
    steps = [RandomCrop(16), *NORMAL, moving]
    with pytest.raises(SchemaError, match=words):
        one_batch(store, steps)

    assert torch.is_tensor(one_batch(store, steps, ("left", "label"))[0])


def test_samples_without_pictures(store: Path) -> None:
    """Normalize has nothing to do with numbers alone."""
    with pytest.raises(SchemaError, match=r"Normalize.* is for pictures, but the samples have only number, vector"):
        one_batch(store, NORMAL, ("number", "vector"))


def test_behind_a_transform_of_the_dataset(store: Path) -> None:
    """What a transform on the plain path left in its place is known there, too."""
    dataset = FastDataset(store, Compose([RandomResizedCrop(16)]))
    with dataset, FastLoader(dataset, COUNT, transforms=NORMAL) as loader:
        batch = next(iter(loader))

    assert (torch.float32, torch.float32) == (batch["left"].dtype, batch["right"].dtype)
    assert (COUNT, 16, 16) == batch["colours"].shape
