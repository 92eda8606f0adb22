"""tv_tensors=True: torchvision's transforms v2 run unchanged on samples of many fields."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fastio import FastDataset, FieldCollate, SchemaError
from tests.dataset.many_fields import TYPES, make_samples, write_fields


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples of all field types; sample 1 has no boxes."""
    return write_fields(tmp_path_factory.mktemp("tv") / "s.tar", make_samples())


def test_without_torchvision(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking for it is one clear line; not asking needs no torchvision."""
    monkeypatch.setitem(sys.modules, "torchvision", None)

    assert isinstance(FastDataset(store)[0]["image"], Image.Image)
    with pytest.raises(ImportError, match=r"needs torchvision 0\.16 or later, which cannot be imported: pip install"):
        FastDataset(store, tv_tensors=True)


def test_each_value_has_its_type(store: Path) -> None:
    """Pictures, masks, boxes and points by their types and sizes; rows of boxes as tensors; the rest as ever."""
    tv_tensors = pytest.importorskip("torchvision.tv_tensors")
    plain = make_samples()
    for index in (1, 3):
        sample, expected = FastDataset(store, tv_tensors=True)[index], plain[index]
        size = expected["image"].shape[:2]

        assert type(sample["image"]) is tv_tensors.Image
        assert np.array_equal(expected["image"].transpose(2, 0, 1), sample["image"])
        assert [(type(sample[name]), sample[name].dtype) for name in ("mask", "depth")] == [
            (tv_tensors.Mask, torch.uint8),
            (tv_tensors.Mask, torch.int32),
        ]
        assert np.array_equal(expected["mask"], sample["mask"])
        assert np.array_equal(expected["depth"], sample["depth"])
        assert np.array_equal(expected["boxes"], sample["boxes"])
        assert (sample["boxes"].format, sample["boxes"].canvas_size) == (tv_tensors.BoundingBoxFormat.XYXY, size)
        assert np.array_equal(expected["points"], sample["points"])
        assert (type(sample["points"]), sample["points"].canvas_size) == (tv_tensors.KeyPoints, size)
        assert type(sample["kinds"]) is torch.Tensor
        for name in ("caption", "objects", "sound", "label", "is_day", "city"):
            assert sample[name] == expected[name]
        assert type(sample["thumbnail"]) is tv_tensors.Image


NAMES = ("image", "mask", "boxes", "points", "kinds")


@pytest.mark.parametrize("fields", [None, NAMES], ids=["dict", "tuple"])
def test_transforms_v2(tmp_path: Path, fields: Any) -> None:
    """A crop and a flip move all fields of a dict or tuple; no boxes stay an array (0, 4)."""
    v2 = pytest.importorskip("torchvision.transforms.v2")
    steps = v2.Compose([v2.RandomCrop((40, 30)), v2.RandomHorizontalFlip(1.0)])
    path = write_fields(tmp_path / "s.lmdb", make_samples(), {name: TYPES[name] for name in NAMES})
    dataset = pickle.loads(pickle.dumps(FastDataset(path, steps, fields=fields, tv_tensors=True)))
    torch.manual_seed(3)
    samples = [dataset[index] for index in range(5)]

    torch.manual_seed(3)
    for expected, sample in zip(make_samples(), samples, strict=True):
        image, mask, boxes, _, kinds = sample.values() if fields is None else sample
        top, left = _drawn(v2, expected["image"])
        crop = (slice(top, top + 40), slice(left, left + 30))
        assert np.array_equal(expected["image"][crop][:, ::-1].transpose(2, 0, 1), image)
        assert np.array_equal(expected["mask"][crop][:, ::-1], mask)
        assert boxes.shape == expected["boxes"].shape
        assert kinds.tolist() == expected["kinds"].tolist()
    batch = FieldCollate(dataset, "pad")(samples)
    images, masks, boxes = (batch[name] for name in NAMES[:3]) if fields is None else (*batch[:2], batch[2][0])
    assert (images.shape, masks.shape, boxes.shape) == ((5, 3, 40, 30), (5, 40, 30), (5, 4, 4))
    assert type(images) is torch.Tensor


def _drawn(v2: Any, image: Any) -> tuple[int, int]:
    """The corner that RandomCrop draws next; the flip draws too."""
    probe = torch.arange(image.shape[0] * image.shape[1]).reshape(1, *image.shape[:2])
    corner = int(v2.RandomCrop((40, 30))(probe)[0, 0, 0])
    torch.rand(1)
    return divmod(corner, image.shape[1])


def test_boxes_need_a_picture(store: Path) -> None:
    """Without one, nobody knows the canvas; a mask will do."""
    pytest.importorskip("torchvision")
    with pytest.raises(SchemaError, match="gives 'boxes' the size of the picture, but there is none among boxes, la"):
        FastDataset(store, fields=("boxes", "label"), tv_tensors=True)

    boxes, _ = FastDataset(store, fields=("boxes", "mask"), tv_tensors=True)[2]
    assert boxes.canvas_size == (92, 70)
