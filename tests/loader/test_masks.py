"""FastLoader of masks: those that native code decodes and those of Pillow, through the plan of their pictures."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fastio import FastDataset, FastLoader, SampleError
from fastio.store import SampleBatch, create_store
from fastio.transforms import Compose, Pad, RandomHorizontalFlip, RandomResizedCrop
from fastio.transforms.random import uniform
from fastio.types.field_types import field_of
from fastio.types.schema import Schema
from tests.codec.conformance import spans_of
from tests.conftest import encode

KINDS = ("PNG", "P", "BMP", "TIFF", "I;16", "JPEG")
SHAPE = (20, 26)
TRANSFORMS = [RandomResizedCrop(15), RandomHorizontalFlip(), Pad(2)]


def mask(kind: str, seed: int, shape: tuple[int, int] = SHAPE) -> bytes:
    """The file of a mask."""
    numbers, file = np.random.default_rng(seed).integers(0, 200, shape, np.uint8), io.BytesIO()
    image = Image.fromarray(numbers)
    if kind == "P":
        image = Image.fromarray(numbers).convert("P")
    elif kind == "I;16":
        image = Image.fromarray(numbers.astype(np.uint16) * 300)
    image.save(file, kind if kind in ("BMP", "TIFF", "JPEG") else "PNG")
    return file.getvalue()


def store_of(path: Path, masks: list[bytes], type_: str) -> Path:
    """A store of a picture beside each mask."""
    pixels = np.random.default_rng(0).integers(0, 256, (len(masks), *SHAPE, 3), np.uint8)
    with create_store(path, Schema((field_of("image", "image"), field_of("mask", type_)))) as writer:
        spans = {"image": spans_of([encode(each) for each in pixels]), "mask": spans_of(masks)}
        writer.append(SampleBatch([f"{i}.png" for i in range(len(masks))], spans, {}))
    return path


def test_every_kind_follows_its_picture(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A batch is what the transforms give for single samples; one warning names the masks that Pillow decodes."""
    path = store_of(tmp_path / "s.lmdb", [mask(kind, i) for i, kind in enumerate(KINDS)], "mask16")
    dataset = FastDataset(path)
    joint = Compose(TRANSFORMS).for_fields(tuple(dataset.store.schema.fields))

    with FastLoader(path, len(KINDS), transforms=TRANSFORMS, seed=5) as loader:
        (batch,) = loader

    numbers = uniform(np.arange(len(KINDS)), joint.transform.draws, seed=5, epoch=0)
    expected = [joint.apply(dataset[i], numbers[i]) for i in range(len(KINDS))]
    np.testing.assert_array_equal([np.asarray(sample["mask"]).astype(np.int32) for sample in expected], batch["mask"])
    np.testing.assert_array_equal([np.moveaxis(np.asarray(each["image"]), 2, 0) for each in expected], batch["image"])
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "2 of the first 12 pictures (1 BMP mask, 1 TIFF mask)" in warning
    assert "save masks as PNGs before packing" in warning


@pytest.mark.parametrize("kind", ["PNG", "BMP"])
def test_a_mask_of_another_size_is_a_bad_sample(tmp_path: Path, kind: str) -> None:
    """The error names both sizes; skipped, the sample is missing from all fields."""
    masks = [mask(kind, i, (20, 26 + (i == 1))) for i in range(3)]
    path = store_of(tmp_path / "s.lmdb", masks, "mask")

    with (
        FastLoader(path, 3, transforms=TRANSFORMS) as loader,
        pytest.raises(SampleError, match="field 'mask': it is 20x27, but its picture 20x26"),
    ):
        next(iter(loader))
    with FastLoader(path, 3, transforms=TRANSFORMS, on_error="skip") as loader:
        batch = next(iter(loader))
    assert [2, 2] == [len(values) for values in batch.values()]
