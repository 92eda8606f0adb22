"""A transform of a whole sample: picture, mask, boxes and points go together, dict or tuple, PIL image or tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastio import FastDataset
from fastio.errors import SchemaError
from fastio.transforms import (
    CenterCrop,
    ColorJitter,
    Compose,
    GaussianBlur,
    Grayscale,
    KeepBoxes,
    KeepGeometry,
    Letterbox,
    Pad,
    RandAugment,
    RandomCrop,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    Transform,
    invert_geometry,
    move_boxes,
)
from fastio.transforms.batch.program import PixelTransform
from fastio.transforms.joint import JointTransform
from fastio.transforms.program import paint
from fastio.types.field_types import field_of
from tests.dataset.many_fields import TYPES, make_samples, write_fields
from tests.transforms.chains import chains

TYPES_OF_FIELDS = {"image": "image", "mask": "mask", "boxes": "xyxy", "kinds": "int64[*] per boxes", "note": "text"}
FIELDS = tuple(field_of(name, type_) for name, type_ in TYPES_OF_FIELDS.items())


def sample_of(height: int, width: int, *, seed: int = 0) -> dict[str, Any]:
    """A picture whose first channel is its mask, and boxes around single pixels of it."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (height, width, 3), np.uint8)
    x, y = rng.integers(0, width, 5), rng.integers(0, height, 5)
    return {
        "image": Image.fromarray(pixels),
        "mask": Image.fromarray(pixels[:, :, 0].copy()),
        "boxes": np.stack([x, y, x + 1, y + 1], 1).astype(np.float32),
        "kinds": pixels[y, x, 0].astype(np.int64),
        "note": "unchanged",
    }


@settings(max_examples=100, deadline=None)
@given(
    chain=chains.filter(lambda chain: not any(hasattr(each, "interpolation") for each in chain)),
    height=st.integers(4, 48),
    width=st.integers(4, 48),
    seed=st.integers(0, 99),
)
def test_everything_stays_together(chain: list[Transform], height: int, width: int, seed: int) -> None:
    """Without resampling, the mask stays the picture's first channel, and each box stays on the pixel of its kind."""
    sample = sample_of(height, width, seed=seed)
    transform = JointTransform(Compose(chain), FIELDS)
    numbers = np.random.default_rng(seed).random(transform.transform.draws)
    got = transform.apply(sample, numbers)
    mask = np.asarray(got["mask"])
    x, y = got["boxes"][:, :2].astype(int).T

    assert np.array_equal(got["image"], Compose(chain).apply(sample["image"], numbers))
    inside = ~(np.asarray(got["image"]) == (9, 200, 77)).all(axis=2)  # edges
    assert np.array_equal(np.asarray(got["image"])[inside, 0], mask[inside])
    assert mask[y, x].tolist() == got["kinds"].tolist()
    assert "unchanged" == got["note"]


def test_one_draw_for_all() -> None:
    """Called, it draws as often as for one picture; the sample that came stays as it was."""
    transform = Compose([RandomCrop(8), RandomHorizontalFlip()])
    sample = sample_of(30, 40)
    before = [np.array(value) for value in sample.values()]
    torch.manual_seed(3)
    expected = np.array(transform(sample["image"]))
    torch.manual_seed(3)
    got = transform.for_fields(FIELDS)(sample)

    assert np.array_equal(expected, got["image"])
    assert np.array_equal(expected[:, :, 0], got["mask"])
    assert all(np.array_equal(old, new) for old, new in zip(before, sample.values(), strict=True))


def test_tuples_keep_their_order() -> None:
    """Values of a tuple are known by the order of the fields."""
    chosen = (FIELDS[2], FIELDS[1])
    sample = sample_of(20, 20)
    boxes, mask = Resize(10).for_fields(chosen)((sample["boxes"], sample["mask"]))

    assert (10, 10) == mask.size
    assert np.array_equal(np.asarray(sample["mask"])[::2, ::2], mask)
    assert len(boxes) == 0  # each is half a pixel wide


@pytest.mark.parametrize("mode", ["L", "P", "1", "I;16", "RGB"])
def test_modes_of_masks(mode: str) -> None:
    """A mask keeps mode, palette and numbers; its nearest pixels are torch's, and its edges 0."""
    numbers = np.random.default_rng(0).integers(1, 200, (17, 23, 3) if mode == "RGB" else (17, 23))
    dtype = {"1": np.bool_, "I;16": np.uint16}.get(mode, np.uint8)
    mask = Image.fromarray((numbers % 2 if mode == "1" else numbers).astype(dtype))
    if mode == "P":
        mask.putpalette(list(range(256)) * 3)
    transform = Compose([Resize((10, 9)), Pad((1, 0, 0, 0), fill=7), Grayscale()])
    got = transform.for_fields(FIELDS[1:2])({"mask": mask})["mask"]

    tensor = torch.from_numpy(np.asarray(mask).astype(np.int32)).reshape(17, 23, -1).permute(2, 0, 1)[None]
    expected = torch.nn.functional.interpolate(tensor.float(), (10, 9), mode="nearest")[0].permute(1, 2, 0).numpy()
    assert (mode, (10, 10)) == (got.mode, got.size)
    assert mask.getpalette() == got.getpalette()
    assert np.array_equal(expected, np.asarray(got)[:, 1:].reshape(expected.shape))
    assert not np.asarray(got)[:, 0].any()


def test_tensors_stay_tensors() -> None:
    """Tensors of pictures, masks and boxes give what images and arrays give."""
    sample = sample_of(30, 40)
    tensors = {
        "image": torch.from_numpy(np.array(sample["image"])).permute(2, 0, 1),
        "mask": torch.from_numpy(np.array(sample["mask"])),
        "boxes": torch.from_numpy(sample["boxes"]),
        "kinds": torch.from_numpy(sample["kinds"]),
    }
    transform = Compose([RandomResizedCrop(60), RandomHorizontalFlip(), KeepBoxes(min_size=0)]).for_fields(FIELDS)
    numbers = np.random.default_rng(0).random(transform.transform.draws)
    expected, got = transform.apply(sample, numbers), transform.apply(tensors, numbers)

    assert {"image", "mask", "boxes", "kinds"} == set(got)
    assert np.array_equal(expected["image"], got["image"].permute(1, 2, 0))
    assert all(np.array_equal(expected[name], got[name].numpy()) for name in ("mask", "boxes", "kinds"))


def test_what_does_not_fit_together() -> None:
    """Sizes that differ, and samples without a size, are errors in words."""
    sample = sample_of(20, 30)
    with pytest.raises(ValueError, match=r"'mask' is 20x29, but 'image' 20x30 \(height x width\)"):
        Resize(8).for_fields(FIELDS)({**sample, "mask": sample["mask"].crop((0, 0, 29, 20))})
    with pytest.raises(ValueError, match="has a field 'geometry', which the transforms would replace"):
        KeepGeometry().for_fields(FIELDS)({**sample, "geometry": 1})
    with pytest.raises(ValueError, match="no picture and no mask"):
        Resize(8).for_fields(FIELDS)({"boxes": sample["boxes"]})


def test_fast_dataset_says_what_fields_are(tmp_path: Path) -> None:
    """Given to a dataset of many fields, a transform gets dicts or tuples whose boxes it knows."""
    samples = make_samples(3)
    names = ("image", "mask", "boxes", "points", "kinds", "label")
    path = write_fields(tmp_path / "s.lmdb", samples, {name: TYPES[name] for name in names})
    transform = Compose([CenterCrop(50), KeepBoxes(drop=False)])
    whole = FastDataset(path, transform)[2]
    boxes, image = FastDataset(path, transform, fields=("boxes", "image"))[2]

    expected = (samples[2]["boxes"] - [10, 21, 10, 21]).clip(0, 50)
    assert [*names] == list(whole)
    assert (50, 50) == whole["image"].size == whole["mask"].size == image.size
    assert np.allclose(expected, whole["boxes"])
    assert np.array_equal(whole["boxes"], boxes)
    assert np.allclose(samples[2]["points"] - [10, 21], whole["points"])
    assert 2 == whole["label"]
    assert (50, 50) == FastDataset(path, transform, fields="image")[2].size


def test_the_geometry_leads_back() -> None:
    """KeepGeometry adds the matrix, last; its inverse takes boxes back to the stored picture."""
    sample = sample_of(30, 40)
    transform = Compose([KeepGeometry(), Letterbox(64, fill=114), RandomHorizontalFlip(1.0)]).for_fields(FIELDS)
    got = transform(sample)
    values = transform(tuple(sample[field.name] for field in FIELDS))
    back = move_boxes(torch.from_numpy(got["boxes"]), invert_geometry(torch.from_numpy(got["geometry"])))

    assert [*sample, "geometry"] == list(got)
    assert np.array_equal(got["geometry"], values[-1])
    assert np.allclose([[-1.6, 0, 64], [0, 1.6, 8]], got["geometry"])
    assert np.allclose(sample["boxes"], back, atol=1e-4)


def test_colours_of_one_sample() -> None:
    """Compose changes colours as native threads do, of PIL images and tensors; masks stay."""
    steps = [RandomCrop(8), ColorJitter(0.4, 0.4, 0.4, 0.1), RandomGrayscale(0.5), GaussianBlur(3)]
    transform, (number, *_) = Compose(steps), [np.random.default_rng(3).random(Compose(steps).draws)]
    pixels = np.random.default_rng(0).integers(0, 256, (20, 20, 3), np.uint8)
    expected = np.array(Compose(steps[:1]).apply(Image.fromarray(pixels), number[: steps[0].draws]))
    first = steps[0].draws
    for step in steps[1:]:
        assert isinstance(step, PixelTransform)
        paint(expected[None], step.program(number[None, first : first + step.draws], (8, 8)))
        first += step.draws

    np.testing.assert_array_equal(expected, np.array(transform.apply(Image.fromarray(pixels), number)))
    tensor = transform.apply(torch.from_numpy(pixels).permute(2, 0, 1), number)
    np.testing.assert_array_equal(expected, tensor.permute(1, 2, 0))


def test_policies_beside_masks_are_refused() -> None:
    """Their moves, which a mask could not follow, end in one line."""
    with pytest.raises(SchemaError, match=r"^RandAugment.* without mask, .*cannot follow"):
        Compose([RandAugment()]).for_fields(FIELDS)
