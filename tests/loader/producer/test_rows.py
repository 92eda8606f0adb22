"""FastLoader moves pictures, masks, boxes and points of a sample as the same transforms called on it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastio import FastDataset, FastLoader, SampleError, SchemaError
from fastio.dataset.record_collate import FieldCollate
from fastio.store import SampleBatch, create_store
from fastio.transforms import (
    CenterCrop,
    Compose,
    KeepBoxes,
    KeepGeometry,
    KeepPoints,
    Letterbox,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomPerspective,
    RandomResizedCrop,
    Resize,
    Transform,
)
from fastio.transforms.fused import uniform
from fastio.types.field_types import field_of
from fastio.types.schema import Schema
from tests.codec.conformance import spans_of
from tests.conftest import encode
from tests.dataset.many_fields import write_fields
from tests.transforms.chains import behind_warps, flips_last, warped

TYPES = {
    "image": "image",
    "mask": "mask",
    "depth": "mask16",
    "boxes": "cxcywh",
    "joints": "points[2] per boxes",
    "kinds": "int64[*] per boxes",
    "marks": "points",
    "label": "label",
}
COUNT = 6
FIELDS = (None, ("mask", "image"), ("boxes", "joints", "kinds", "marks", "image"), ("depth", "mask"))
RULES = (KeepBoxes(drop=False), KeepBoxes(min_visible=0.3, clip=False), KeepPoints("drop"), KeepGeometry())


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples of many sizes; the first has no boxes."""
    rng = np.random.default_rng(0)
    samples = []
    for index in range(COUNT):
        height, width = (int(side) for side in rng.integers(20, 48, 2))
        samples.append(
            {
                "image": rng.integers(0, 256, (height, width, 3), np.uint8),
                "mask": rng.integers(0, 20, (height, width), np.uint8),
                "depth": rng.integers(0, 65536, (height, width), np.uint16),
                "boxes": (rng.random((index, 4)) * [width, height, 20, 20]).astype(np.float32),
                "joints": (rng.random((index, 2, 2)) * 48).astype(np.float32),
                "kinds": np.arange(index),
                "marks": (rng.random((5 - index, 2)) * 48).astype(np.float32),
                "label": index,
            }
        )
    return write_fields(tmp_path_factory.mktemp("joint") / "s.lmdb", samples, TYPES)


def plain(dataset: FastDataset, chain: list[Transform], *, seed: int, epoch: int) -> list[Any]:
    """Each sample transformed by itself, with its own numbers, in a batch of one."""
    transform = Compose(chain)
    joint = transform.for_fields(dataset.store.schema[name] for name in dataset.form.names)
    numbers = uniform(np.arange(COUNT), transform.draws, seed=seed, epoch=epoch)
    collate = FieldCollate(FastDataset(dataset.store, transform, fields=dataset.fields))
    return [collate([joint.apply(dataset[index], numbers[index])]) for index in range(COUNT)]


def assert_same(expected: Any, got: Any) -> None:
    """Equal tensors, lists of them, or numbers; coordinates to 1e-4."""
    if isinstance(expected, torch.Tensor):
        assert (expected.dtype, expected.shape) == (got.dtype, got.shape)
        assert torch.allclose(expected, got, rtol=0, atol=1e-4 if expected.is_floating_point() else 0)
    else:
        assert type(expected) is type(got)
        for one, other in zip(expected, got, strict=True):
            assert_same(one, other)


def bends(chain: Any) -> bool:
    """Whether some transform, also within another, is a perspective."""
    return any(isinstance(each, RandomPerspective) or bends(getattr(each, "transforms", ())) for each in chain)


@settings(max_examples=60, deadline=None)
@given(
    chain=st.one_of(warped, behind_warps).filter(lambda chain: bool(chain) and flips_last(chain)),
    rules=st.lists(
        st.sampled_from(
            [KeepBoxes(drop=False), KeepBoxes(min_visible=0.3, clip=False), KeepPoints("drop"), KeepGeometry()]
        ),
        unique=True,
    ),
    fields=st.sampled_from(
        [None, ("mask", "image"), ("boxes", "joints", "kinds", "marks", "image"), ("depth", "mask")]
    ),
    seed=st.integers(0, 99),
)
def test_batches_are_samples_transformed_one_by_one(
    store: Path, chain: list[Transform], rules: list[Transform], fields: Any, seed: int
) -> None:
    """For any chain, any rules and any choice of fields, in a dict or a tuple."""
    if bends(chain):  # which has no matrix
        rules = [rule for rule in rules if not isinstance(rule, KeepGeometry)]
    steps = [*rules, *chain]
    with FastDataset(store, fields=fields) as dataset:
        with FastLoader(dataset, 1, transforms=steps, seed=seed, threads=2, pin_memory=False) as loader:
            loader.set_epoch(2)
            batches = list(loader)
        for expected, got in zip(plain(dataset, steps, seed=seed, epoch=2), batches, strict=True):
            if fields is None:
                assert list(expected) == list(got)
                expected, got = list(expected.values()), list(got.values())
            assert_same(expected, got)


def test_geometry_in_batches(store: Path) -> None:
    """A matrix a sample, last in dicts and tuples, and only where there is a place for it."""
    steps = [RandomResizedCrop(16), KeepGeometry()]
    with FastLoader(store, COUNT, transforms=steps) as loader:
        batch = next(iter(loader))
    with FastDataset(store, fields=("label", "image")) as dataset, FastLoader(dataset, 4, transforms=steps) as loader:
        _, images, geometry = next(iter(loader))

    assert [*TYPES, "geometry"] == list(batch)
    assert ((COUNT, 2, 3), torch.float32) == (batch["geometry"].shape, batch["geometry"].dtype)
    assert torch.equal(batch["geometry"][:4], geometry)
    assert torch.equal(batch["image"][:4], images)
    for fields in ("image", ("image", "label")):
        with (
            FastDataset(store, fields=fields) as dataset,
            pytest.raises(SchemaError, match="transforms add geometry, but samples are a"),
        ):
            FastLoader(dataset, 4, transforms=steps)


def test_geometry_of_plain_pairs(tmp_path: Path) -> None:
    """A store of pictures and labels says how to ask for a tuple, which works."""
    path = write_fields(
        tmp_path / "p.lmdb",
        [{"image": np.zeros((20, 30, 3), np.uint8), "label": 1}] * 2,
        {"image": "image", "label": "label"},
    )
    with pytest.raises(SchemaError, match=r"a pair of image, label, .*fields=\('label', 'image'\)\): in this order"):
        FastLoader(path, 2, transforms=[Letterbox(60), KeepGeometry()])
    dataset = FastDataset(path, fields=("label", "image"))
    with dataset, FastLoader(dataset, 2, transforms=[Letterbox(60), KeepGeometry()]) as loader:
        assert [[[2, 0, 0], [0, 2, 10]]] * 2 == next(iter(loader))[2].tolist()


def test_masks_are_not_resampled_after_a_flip(store: Path) -> None:
    """The error comes when the loader is built, and names both transforms."""
    steps = [RandomHorizontalFlip(), Resize((9, 9))]
    with pytest.raises(SchemaError, match=r"RandomHorizontalFlip.* and then Resize.* put the flip last"):
        FastLoader(store, 2, transforms=steps)
    with FastDataset(store, fields=("image", "boxes")) as dataset, FastLoader(dataset, 2, transforms=steps) as loader:
        assert (2, 3, 9, 9) == next(iter(loader))[0].shape


def test_edges_of_masks_have_a_number_of_their_own(store: Path) -> None:
    """Masks of 8 and 16 bits get it in every transform with edges, pictures their colour."""
    for transform in (
        CenterCrop(60, fill=7, mask_fill=255),
        RandomCrop(60, pad_if_needed=True, fill=7, mask_fill=255),
        Letterbox((48, 200), fill=7, mask_fill=255),
        Pad((3, 60), fill=7, mask_fill=255),
    ):
        with FastDataset(store, fields=("image", "mask", "depth")) as dataset:
            for image, mask, depth in FastLoader(dataset, 1, transforms=[transform], pin_memory=False):
                edges = (image == 7).all(1) & (mask == 255)
                assert (255 == depth[edges]).all()
                assert edges.float().mean() > 0.05
                assert (mask[~edges] < 20).all()


def test_a_mask_fill_that_does_not_fit(store: Path) -> None:
    """The loader names transform, number and dtype before it starts; a picture alone has no such edges."""
    steps = [Pad(2, mask_fill=256)]
    with pytest.raises(SchemaError, match=r"^Pad\(.*mask_fill=256: masks of uint8 hold numbers from 0 to 255$"):
        FastLoader(store, 2, transforms=steps)
    with pytest.raises(SchemaError, match=r"^Pad\(.*masks of uint8 hold numbers from 0 to 255$"):
        Compose(steps).for_fields((field_of("mask", "mask"),))((np.zeros((9, 9), np.uint8),))
    with FastDataset(store, fields=("image", "depth")) as dataset:
        assert 256 == next(iter(FastLoader(dataset, 1, transforms=steps)))[1][0, 0, 0]


# FastLoader of masks: those that native code decodes and those of Pillow, through the plan of their pictures.

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
