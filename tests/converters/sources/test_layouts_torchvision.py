"""Layouts that torchvision reads, too: the same pictures, boxes and labels."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fastio import FastDataset
from fastio.converters import open_source, pack
from fastio.store import open_store
from fastio.store.protocol import read_values
from tests.converters.sources import layouts
from tests.converters.trees import tree

datasets = pytest.importorskip("torchvision.datasets")


def test_voc(tmp_path: Path) -> None:
    """Objects of VOCDetection, in its order."""
    root = layouts.voc(tmp_path / "VOCdevkit" / "VOC2012", {"train": (4, 0, 2), "val": (1,)})
    pack(open_source(root, split="train"), tmp_path / "o.lmdb")
    theirs = datasets.VOCDetection(tmp_path, year="2012", image_set="train")

    with open_store(tmp_path / "o.lmdb") as store:
        assert len(theirs) == len(store)
        names = store.metadata["field_classes"]["classes"]
        for i, (picture, target) in enumerate(theirs):
            (found,) = target["annotation"]["object"]
            box = {side: float(number) for side, number in found["bndbox"].items()}
            x, y, width, height = read_values(store, "boxes", np.array([i])).view(0).view("<f4").tolist()
            assert box == {"xmin": x, "ymin": y, "xmax": x + width, "ymax": y + height}
            (number,) = read_values(store, "classes", np.array([i])).view(0).view("<i8")
            assert found["name"] == names[number]
            assert np.array_equal(picture, FastDataset(tmp_path / "o.lmdb", fields=("image",))[i][0])


@pytest.mark.parametrize("part", ["train", "test"])
def test_mnist(tmp_path: Path, part: str) -> None:
    """Pixels and labels of MNIST, from its own folder."""
    for path in layouts.mnist(tmp_path / "files", 30).iterdir():
        tree(tmp_path / "MNIST/raw", {path.name: path.read_bytes()})
        tree(tmp_path / "MNIST/raw", {f"{path.name}.gz": gzip.compress(path.read_bytes())})
    theirs = datasets.MNIST(tmp_path, train=part == "train")
    pack(open_source(tmp_path / "MNIST", split=part), tmp_path / "o.h5")
    ours = FastDataset(tmp_path / "o.h5", mode=None)

    assert len(theirs) == len(ours) == 30
    for i in range(30):
        pixels, label = ours[i]
        assert np.array_equal(theirs.data[i].numpy(), np.asarray(pixels).reshape(5, 4))
        assert int(theirs.targets[i]) == int(label)


def test_cityscapes(tmp_path: Path) -> None:
    """Pictures and label ids of Cityscapes."""
    root = layouts.cityscapes(tmp_path / "d")
    pack(open_source(root, split="val"), tmp_path / "o.lmdb")
    theirs = datasets.Cityscapes(root, split="val", mode="fine", target_type="semantic")
    ours = {key: i for i, key in enumerate(open_store(tmp_path / "o.lmdb").keys(np.arange(len(theirs))))}

    with open_store(tmp_path / "o.lmdb") as store:
        for i, path in enumerate(theirs.images):
            _, mask = theirs[i]
            stored = read_values(store, "mask", np.array([ours[str(Path(path).relative_to(root))]])).view(0)
            assert Path(theirs.targets[i][0]).read_bytes() == stored.tobytes()
            assert np.array_equal(mask, Image.open(theirs.targets[i][0]))


def test_tiny_imagenet_is_numbered_as_an_image_folder(tmp_path: Path) -> None:
    """Labels of train are those of ImageFolder over its class folders."""
    root = layouts.tiny_imagenet(tmp_path / "d")
    pack(open_source(root, split="train"), tmp_path / "o.lmdb")
    theirs = datasets.ImageFolder(root / "train")

    with open_store(tmp_path / "o.lmdb") as store:
        labels = dict(zip(store.keys(np.arange(len(store))), store.column("label").tolist(), strict=True))
    assert {str(Path(path).relative_to(root)): label for path, label in theirs.samples} == labels
