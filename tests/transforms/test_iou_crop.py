"""RandomIoUCrop: parts that show enough of a box, for samples and for batches of native threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastio import FastDataset, FastLoader, Mixture, SchemaError, _native
from fastio.transforms import (
    Compose,
    KeepBoxes,
    KeepGeometry,
    RandomHorizontalFlip,
    RandomIoUCrop,
    RandomZoomOut,
    Resize,
)
from fastio.transforms.fused import uniform
from fastio.types.field_types import field_of
from tests.dataset.many_fields import write_fields

TYPES = {
    "image": "image",
    "mask": "mask",
    "boxes": "cxcywh",
    "kinds": "int64[*] per boxes",
    "joints": "points[1] per boxes",
    "marks": "points",
    "label": "label",
}
FIELDS = tuple(field_of(name, type_) for name, type_ in TYPES.items())
COUNT = 8


def sample_of(seed: int, height: int = 60, width: int = 80, count: int = 4) -> dict[str, Any]:
    """Noise, whose first channel is the mask, boxes inside, and a point in the centre of each."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(1, 250, (height, width, 3), np.uint8)
    sides = rng.integers(8, 40, (count, 2))
    centres = sides / 2 + rng.random((count, 2)) * ([width, height] - sides)
    return {
        "image": pixels,
        "mask": pixels[:, :, 0].copy(),
        "boxes": np.concatenate((centres, sides), axis=1).astype(np.float32),
        "kinds": np.arange(count),
        "joints": centres[:, None].astype(np.float32),
        "marks": centres[:1].astype(np.float32),
        "label": seed,
    }


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples of different sizes; the second has no boxes."""
    samples = [sample_of(seed, 40 + 3 * seed, 70 - 2 * seed, 0 if seed == 1 else 4) for seed in range(COUNT)]
    return write_fields(tmp_path_factory.mktemp("iou") / "s.lmdb", samples, TYPES)


def corners(boxes: Any) -> Any:
    return np.concatenate((boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2), axis=1)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), option=st.sampled_from([0.0, 0.3, 0.7]))
def test_what_a_part_shows(seed: int, option: float) -> None:
    """Its size and proportions are as asked, boxes have their centre in it, and one has enough in common with it."""
    sample = sample_of(seed)
    transform = RandomIoUCrop(0.2, 0.9, sampler_options=[option, 1.0])
    rules = [KeepGeometry(), KeepBoxes(clip=False, min_size=1e-6, min_area=0)]
    joint = Compose([*rules, transform]).for_fields(FIELDS)
    got = joint.apply({**sample, "image": Image.fromarray(sample["image"])}, np.random.default_rng(seed).random(6))
    width, height = got["image"].size
    left, top = -got["geometry"][:, 2]
    expected = sample["image"][int(top) : int(top) + height, int(left) : int(left) + width]

    assert np.array_equal(expected, np.asarray(got["image"]))
    assert np.array_equal(expected[:, :, 0], got["mask"])
    if (width, height) == (80, 60):
        assert np.array_equal(sample["kinds"], got["kinds"])
        return
    assert (0.2 * 80 - 1 <= width <= 0.9 * 80) & (0.2 * 60 - 1 <= height <= 0.9 * 60)
    assert 0.5 <= width / height <= 2
    x, y = got["joints"][:, 0].T
    assert ((x > 0) & (x < width) & (y > 0) & (y < height)).all()
    centres = sample["joints"][:, 0] - [left, top]
    assert got["kinds"].tolist() == np.flatnonzero(((centres > 0) & (centres < [width, height])).all(axis=1)).tolist()
    box = corners(got["boxes"])
    common = np.clip(np.minimum(box[:, 2:], [width, height]) - np.maximum(box[:, :2], 0), 0, None).prod(axis=1)
    union = got["boxes"][:, 2:].prod(axis=1) + width * height - common
    assert (common / union).max() >= option - 1e-6


STEPS = [RandomZoomOut(9, (1, 1.5), 0.5, 200), RandomIoUCrop(), Resize((24, 32)), RandomHorizontalFlip()]


TWICE = [RandomIoUCrop(0.5), RandomIoUCrop(0.5), Resize((20, 20)), RandomHorizontalFlip()]


@pytest.mark.parametrize("steps", [STEPS, TWICE])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_batches_are_samples_one_by_one(store: Path, steps: list[Any], batch_size: int) -> None:
    """Natively, pictures, masks, boxes and what belongs to them are those of each sample with its numbers."""
    compose = Compose(steps)
    numbers = uniform(np.arange(COUNT), compose.draws, seed=5, epoch=1)
    with FastDataset(store) as dataset, FastLoader(dataset, batch_size, transforms=steps, seed=5, threads=2) as loader:
        loader.set_epoch(1)
        batches = list(loader)
        joint = compose.for_fields(dataset.store.schema[name] for name in TYPES)
        for index in range(COUNT):
            batch, at = batches[index // batch_size], index % batch_size
            expected = joint.apply(dataset[index], numbers[index].copy())
            image = batch["image"][at].permute(1, 2, 0).numpy()
            assert np.array_equal(np.asarray(expected["image"]), image)
            assert np.array_equal(expected["mask"], batch["mask"][at])
            for name in ("boxes", "joints", "marks"):
                assert np.allclose(expected[name], batch[name][at], atol=1e-4)
            assert expected["kinds"].tolist() == batch["kinds"][at].tolist()


def test_the_rest_of_an_epoch(store: Path) -> None:
    """A resumed loader crops as the first one did, in batches of another size, too."""
    with FastLoader(store, 2, shuffle=True, seed=2, transforms=STEPS) as loader:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        expected = torch.cat([batch["image"] for batch in batches])
        assert loader.receipt().is_exact
    with FastLoader(store, 3, shuffle=True, seed=2, transforms=STEPS) as loader:
        loader.load_state_dict(state)
        assert torch.equal(expected, torch.cat([batch["image"] for batch in loader]))


@pytest.mark.parametrize("on_error", ["skip", "zero"])
@pytest.mark.parametrize("name", ["boxes", "image"])
def test_a_damaged_sample(store: Path, tmp_path: Path, name: str, on_error: Any) -> None:
    """Boxes or a picture that cannot be read are a bad sample, and the others are cropped as without it."""
    path = tmp_path / "bad.lmdb"
    data = bytearray(store.read_bytes())
    with FastDataset(store) as dataset:
        span = dataset.store.spans(name, np.array([3]))
        start, size = int(span.starts[0]), int(span.sizes[0])
    data[start : start + min(size, 40)] = bytes(min(size, 40))
    path.write_bytes(data)
    good, bad = (
        {int(batch["label"][0]): batch for batch in FastLoader(each, 1, transforms=STEPS, seed=1, on_error=on_error)}
        for each in (store, path)
    )

    assert (3 in bad) == (on_error == "zero")
    for label in bad.keys() - {3}:
        assert torch.equal(good[label]["image"], bad[label]["image"])
        assert torch.equal(good[label]["boxes"][0], bad[label]["boxes"][0])


def test_what_is_refused(store: Path) -> None:
    """Samples without boxes, lists of members, and a picture alone: in one line."""
    steps = [RandomIoUCrop(), Resize((8, 8))]
    with FastDataset(store, fields=("image", "label")) as dataset:
        with pytest.raises(
            SchemaError, match=r"RandomIoUCrop\(.* looks at boxes, but the samples have only image, label"
        ):
            FastLoader(dataset, 2, transforms=steps)
        with pytest.raises(SchemaError, match=r"RandomIoUCrop.* looks at boxes, but samples have none: drop it"):
            Compose(steps).for_fields(FIELDS[:1])
    with pytest.raises(SchemaError, match=r"RandomIoUCrop.* looks at boxes: call it on whole samples"):
        Compose(steps)(Image.new("RGB", (30, 30)))
    mixture = Mixture({"a": store, "b": FastDataset(store)}, {"a": 1, "b": 1}, transforms={"a": steps})
    with pytest.raises(SchemaError, match=r"RandomIoUCrop.* of member 'a' looks at boxes.*: pass one list"):
        FastLoader(mixture, 2)
    for wrong in ({"min_scale": 0}, {"max_aspect_ratio": 0.1}, {"sampler_options": []}, {"trials": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            RandomIoUCrop(**wrong)  # type: ignore[arg-type] # that is what is tested


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), count=st.integers(1, 6))
def test_torchvision(seed: int, count: int) -> None:
    """With our numbers in place of torch's, torchvision decides alike, and leaves the same boxes."""
    v2 = pytest.importorskip("torchvision.transforms.v2")
    from torchvision import tv_tensors

    sample, numbers = sample_of(seed, count=count), np.random.default_rng(seed).random(6)
    image = Image.fromarray(sample["image"])
    got = Compose([RandomIoUCrop(), KeepBoxes()]).for_fields(FIELDS).apply({**sample, "image": image}, numbers.copy())
    boxes = tv_tensors.BoundingBoxes(torch.from_numpy(sample["boxes"]), format="CXCYWH", canvas_size=(60, 80))
    theirs, rounds = v2.RandomIoUCrop(), _Rounds(numbers)
    with mock.patch.object(torch, "rand", rounds.rand), mock.patch.object(torch, "randint", rounds.randint):
        done = theirs({"image": image, "boxes": boxes})
    kept = v2.SanitizeBoundingBoxes(labels_getter=None)(done)

    assert np.array_equal(np.asarray(done["image"]), np.asarray(got["image"]))
    assert np.allclose(kept["boxes"].numpy(), got["boxes"], atol=1e-3)


class _Rounds:
    """Our numbers as torchvision asks for them: an option, then a size and, if that is allowed, a place."""

    def __init__(self, numbers: Any) -> None:
        first, second = (numbers[:2] * (1 << 32)).astype(np.uint64).tolist()
        self._seed, self._number, self._trial, self._is_sized = first << 32 | second, -1, -1, False
        self._row = np.empty((1, 161))

    def randint(self, low: int, high: int, size: Any) -> Any:
        self._number, self._trial, self._is_sized = self._number + 1, -1, False
        _native.philox(self._seed, 0, np.array([self._number]), self._row)
        return torch.tensor([int(self._row[0, 0] * high)])

    def rand(self, count: int) -> Any:
        is_place = self._is_sized
        self._trial += not is_place
        four = torch.from_numpy(self._row[0, 1 + 4 * self._trial : 5 + 4 * self._trial].copy())
        if is_place:
            self._is_sized = False
            return four[2:]
        width, height = (
            int(side * (0.3 + 0.7 * share)) for side, share in zip((80, 60), four[:2].tolist(), strict=True)
        )
        self._is_sized = 0.5 <= width / height <= 2
        return four[:2]
