"""Datasets of YOLO as sources."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fastio.converters import Source, open_source
from fastio.converters.sources.coco.samples import exif_orientation
from fastio.converters.sources.layouts.yolo import _Config, _object
from fastio.store import open_store
from fastio.store.protocol import read_values
from tests.commands import run
from tests.converters.sources import layouts
from tests.converters.sources.conformance import SourceConformance
from tests.converters.sources.packed import packed, refused
from tests.converters.trees import picture, tree

WIDTH, HEIGHT = 40, 20
YAML = "path: .\ntrain: images/train\nval: images/val\nnames:\n  0: cat\n  1: dog\n"


def pictures(folder: str, *names: str) -> dict[str, str | bytes]:
    """PNGs of one size."""
    return {f"{folder}/{name}.png": picture(i, size=(WIDTH, HEIGHT)) for i, name in enumerate(names)}


def detection(folder: Path, *, config: str | None = YAML) -> Path:
    """Three pictures to train, one to validate: of none, one and two objects."""
    texts: dict[str, str | bytes] = {
        "labels/train/a.txt": "",
        "labels/train/b.txt": "1 0.5 0.5 0.25 0.5\n",
        "labels/train/c.txt": "0 0.25 0.5 0.5 1.0\n1 0.5 0.25 0.1 0.2\n",
        "labels/val/d.txt": "0 0.5 0.5 1 1\n",
    }
    more = {} if config is None else {"data.yaml": config}
    return tree(folder, {**pictures("images/train", "a", "b", "c"), **pictures("images/val", "d"), **texts, **more})


def value(store: Any, name: str, index: int, dtype: str) -> list[Any]:
    """One value as a flat list."""
    return list(read_values(store, name, np.array([index])).view(0).view(dtype).tolist())


class TestConformance(SourceConformance):
    """The contract of all sources."""

    @pytest.fixture
    def source(self, tmp_path: Path) -> Source:
        """Seven pictures of images and labels without parts."""
        names = [str(i) for i in range(7)]
        texts: dict[str, str | bytes] = {f"labels/{name}.txt": f"{name} 0.5 0.5 0.1 0.1\n" for name in names}
        return open_source(tree(tmp_path / "d", {**pictures("images", *names), **texts}))


@pytest.mark.parametrize("where", ["", "data.yaml"])
def test_boxes_are_pixels(tmp_path: Path, where: str) -> None:
    """A root, or its yaml: boxes are xywh in pixels, classes positions among the names; an empty file has none."""
    root = detection(tmp_path / "d") / where
    types, samples, _ = packed(root, tmp_path / "o.lmdb", split="train")

    assert "xywh" == types["boxes"]
    assert ["images/train/a.png", "images/train/b.png", "images/train/c.png"] == list(samples)
    with open_store(tmp_path / "o.lmdb") as store:
        assert [[], [15, 5, 10, 10], [0, 0, 20, 20, 18, 3, 4, 4]] == [
            np.round(value(store, "boxes", i, "<f4"), 4).tolist() for i in range(3)
        ]
        assert [[], [1], [0, 1]] == [value(store, "classes", i, "<i8") for i in range(3)]
        assert {"classes": ["cat", "dog"]} == store.metadata["field_classes"]
    assert "has 2 parts, 'train', 'val': choose one" in refused(root)


def test_what_stays_out_is_counted(tmp_path: Path) -> None:
    """The other part, and whatever else lies in the root."""
    root = tree(detection(tmp_path / "d"), {"README.md": "x", "runs/best.pt": "x"})
    (root / "images/all").symlink_to(root / "images")  # a circle
    said = run("pack", root, tmp_path / "o.lmdb", "--split", "val")

    assert "images/train/ (is not of this part: 3 files (3 .png))" in said
    assert "runs/ (is not of this part: 1 file (1 .pt))" in said
    assert "README.md (is a note about the data)" in said


def test_folders_of_parts_as_roboflow_exports_them(tmp_path: Path) -> None:
    """train/images and train/labels, with a yaml whose paths lead out of the folder, and without."""
    files: dict[str, str | bytes] = {}
    for part, name in (("train", "a"), ("valid", "b")):
        files |= {**pictures(f"{part}/images", name), f"{part}/labels/{name}.txt": "0 0.5 0.5 1 1\n"}
    root = tree(tmp_path / "d", files)
    expected = ["train/images/a.png"]

    assert expected == list(packed(root, tmp_path / "o.lmdb", split="train")[1])
    tree(root, {"data.yaml": "train: ../train/images\nval: ../valid/images\nnc: 1\nnames: ['ball']\n"})
    assert expected == list(packed(root, tmp_path / "p.lmdb", split="train")[1])
    with open_store(tmp_path / "p.lmdb") as store:
        assert {"classes": ["ball"]} == store.metadata["field_classes"]


def test_lists_of_pictures(tmp_path: Path) -> None:
    """A yaml may name a file with a picture a line."""
    root = detection(tmp_path / "d", config="train: some.txt\nval: images/val\nnames: [cat, dog]\n")
    tree(root, {"some.txt": "./images/train/c.png\nimages/val/d.png\n\n"})

    assert ["images/train/c.png", "images/val/d.png"] == list(packed(root, tmp_path / "o.lmdb", split="train")[1])


def test_two_pictures_of_one_label_file(tmp_path: Path) -> None:
    """Both have its objects: the label file of a picture goes by the stem alone."""
    root = detection(tmp_path / "d")
    tree(root, {"images/train/b.PNG": picture(7, size=(WIDTH, HEIGHT))})
    _, samples, _ = packed(root, tmp_path / "o.lmdb", split="train")

    assert 4 == len(samples)
    assert samples["images/train/b.png"]["boxes"] == samples["images/train/b.PNG"]["boxes"] != b""


def test_names_of_classes(tmp_path: Path) -> None:
    """A blank line would move the names behind it; what YAML takes for true or false is no name; a BOM is none."""
    root = detection(tmp_path / "d", config=None)
    tree(root, {"classes.txt": "\ufeffcat\r\n\r\ndog\r\n"})
    assert "classes.txt: line 2 is blank: expected the name of class 1" in refused(root, split="train")
    tree(root, {"classes.txt": "\ufeffcat\r\ndog\r\n\r\n", "labels/train/b.txt": "\ufeff1 0.5 0.5 0.25 0.5\n"})
    packed(root, tmp_path / "o.lmdb", split="train")
    with open_store(tmp_path / "o.lmdb") as store:
        assert {"classes": ["cat", "dog"]} == store.metadata["field_classes"]
    root = detection(tmp_path / "e", config="train: images/train\nnames: [se, no]\n")
    assert "names: class 1 is a truth value to YAML" in refused(root, split="train")


def test_polygons(tmp_path: Path) -> None:
    """A polygon stays in objects, in pixels; its box is the smallest around it, as ultralytics makes it."""
    root = tree(
        tmp_path / "d", {**pictures("images", "a"), "labels/a.txt": "0 0.1 0.5 0.5 0.25 0.25 1\n", "classes.txt": "cat"}
    )
    types, _, _ = packed(root, tmp_path / "o.lmdb")

    assert "json" == types["objects"]
    with open_store(tmp_path / "o.lmdb") as store:
        assert [4, 5, 16, 15] == np.round(value(store, "boxes", 0, "<f4"), 4).tolist()
        (found,) = json.loads(read_values(store, "objects", np.array([0])).view(0).tobytes())
        assert {"segmentation": [[4.0, 10.0, 20.0, 5.0, 10.0, 20.0]]} == found


def test_key_points(tmp_path: Path) -> None:
    """With kpt_shape, they follow the box; without a third value, all can be seen."""
    config = "train: images\nval: images\nkpt_shape: [2, 3]\nnames: [face]\n"
    line = "0 0.5 0.5 0.5 0.5 0.25 0.5 2 0.75 0.5 0\n"
    root = tree(tmp_path / "d", {**pictures("images", "a"), "labels/a.txt": line, "data.yaml": config})
    packed(root, tmp_path / "o.lmdb", split="train")
    with open_store(tmp_path / "o.lmdb") as store:
        assert [10, 10, 30, 10] == value(store, "keypoints", 0, "<f4")
        assert [2, 0] == value(store, "visibility", 0, "<i8")


def test_a_missing_label_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is a picture without objects, which a warning counts; if all are missing, the folder is another."""
    root = detection(tmp_path / "d")
    (root / "labels/train/a.txt").unlink()
    _, samples, _ = packed(root, tmp_path / "o.lmdb", split="train")

    assert b"" == samples["images/train/a.png"]["boxes"]
    assert "1 picture without a label file, such as images/train/a.png: taken to have no objects" in caplog.text
    (root / "labels/val/d.txt").unlink()
    assert "no picture of 'val' has a label file: expected labels/val/d.txt" in refused(root, split="val")


BAD = {
    "words": ("cat 0.5 0.5 1 1", "line 1 ('cat 0.5 0.5 1 1') is not numbers alone"),
    "too few": ("0 0.5 0.5 1", "has 4 numbers, expected 5 numbers"),
    "score": ("0 0.5 0.5 1 1 0.9", "has 6 numbers, expected 5 numbers"),
    "unknown class": ("2 0.5 0.5 1 1", "is of class 2, but there are 2"),
    "no class": ("-1 0.5 0.5 1 1", "begins with -1, expected the number of a class"),
    "fraction": ("0.5 0.5 0.5 1 1", "begins with 0.5"),
    "pixels": ("0 320 240 12 10", "has coordinates that are no fractions of the picture"),
    "nan": ("0 nan 0.5 1 1", "has coordinates that are no fractions"),
    "negative": ("0 0.5 0.5 -1 1", "has a negative size"),
    "second line": ("0 0.5 0.5 1 1\n0 1", "line 2 ('0 1') has 2 numbers"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_is_a_problem_of_its_picture(tmp_path: Path, name: str) -> None:
    """The others are packed; file and line are named."""
    root, (line, sentence) = detection(tmp_path / "d"), BAD[name]
    tree(root, {"labels/train/b.txt": line})
    _, samples, skipped = packed(root, tmp_path / "o.lmdb", skip=True, split="train")

    assert ["images/train/a.png", "images/train/c.png"] == list(samples)
    assert sentence in skipped["images/train/b.png"]
    assert "labels/train/b.txt" in skipped["images/train/b.png"]


def test_labels_of_no_picture(tmp_path: Path) -> None:
    """A label file too many is a problem; a damaged picture is one, too."""
    root = tree(detection(tmp_path / "d"), {"labels/train/x.txt": "", "images/train/b.png": b"no picture"})
    _, samples, skipped = packed(root, tmp_path / "o.lmdb", skip=True, split="train")

    assert ["images/train/a.png", "images/train/c.png"] == list(samples)
    assert {"images/train/b.png", "labels/train/x.txt"} == skipped.keys()


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ("names: 3\ntrain: images/train\n", "names: expected a list of names"),
        ("names: {0: a, 2: b}\ntrain: images/train\n", "names: expected a list of names"),
        ("names: [a]\ntrain: 5\n", "train: expected a folder of pictures"),
        ("names: [a]\ntrain: images/none\n", "images/none: the folder of pictures is not there"),
        ("names: [a]\ntrain: images/train\nkpt_shape: 5\n", "kpt_shape: expected"),
        ("names: [a\ntrain: x\n", "cannot be read as YAML"),
        ("names: !!python/object/apply:os.system ['false']\ntrain: x\n", "cannot be read as YAML"),
    ],
)
def test_a_bad_yaml(tmp_path: Path, config: str, sentence: str) -> None:
    """One line that names the file; nothing in it is run."""
    assert sentence in refused(detection(tmp_path / "d", config=config), split="train")


def test_captions_beside_pictures_are_not_yolo(tmp_path: Path) -> None:
    """Texts in labels/ that are no objects stay texts; --field takes any folder."""
    root = tree(tmp_path / "d", {**pictures("images", "a"), "labels/a.txt": "a dog and a cat"})
    assert "images/" in refused(root)
    _, samples, _ = packed(root, tmp_path / "o.lmdb", "image=images", "text=labels:text")

    assert b"a dog and a cat" == samples["images/a.png"]["text"]


@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_turned_pictures(tmp_path: Path, orientation: int) -> None:
    """Boxes of a picture that its EXIF data turn belong to no pixels; without objects, nothing is wrong with it."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    Image.new("RGB", (WIDTH, HEIGHT)).save(file, "JPEG", exif=exif)
    assert orientation == exif_orientation(file.getvalue())
    files: dict[str, str | bytes] = {f"images/{name}.jpg": file.getvalue() for name in "ab"}
    root = tree(tmp_path / "d", {**files, "labels/a.txt": "0 0.5 0.5 0.1 0.1\n", "labels/b.txt": ""})
    if orientation == 1:
        packed(root, tmp_path / "o.lmdb")
        return
    _, samples, skipped = packed(root, tmp_path / "o.lmdb", skip=True)
    assert (["images/b.jpg"], ["images/a.jpg"]) == (list(samples), list(skipped))
    assert f"is turned by its EXIF orientation {orientation}" in skipped["images/a.jpg"]


@given(st.binary(max_size=60), st.sampled_from([b"II*\0", b"MM\0*"]))
def test_broken_exif_data_say_nothing(data: bytes, order: bytes) -> None:
    """Whatever stands there, the answer is an orientation."""
    assert 1 <= exif_orientation(b"\xff\xd8\xff\xe1\0\x40Exif\0\0" + order + data) <= 8


@given(st.lists(st.tuples(*[st.floats(0.01, 0.99)] * 4), min_size=1, max_size=5))
def test_lines_are_read_as_they_are_written(boxes: list[tuple[float, ...]]) -> None:
    """Centre and size give the same box back."""
    config = _Config("", {}, ["a"])
    for x, y, width, height in boxes:
        found = _object(["0", repr(x), repr(y), repr(width), repr(height)], config)
        assert isinstance(found, dict)
        left, top, wide, high = found["bbox"]
        assert np.allclose([left + wide / 2, top + high / 2, wide, high], [x, y, width, height])


def test_capital_letters(tmp_path: Path) -> None:
    """``.TXT`` is a label file; beside ``.txt`` of the same name it labels nothing."""
    root = layouts.yolo(tmp_path / "y")
    expected = packed(root, tmp_path / "o.lmdb")[1]
    for each in sorted((root / "labels").iterdir())[1:]:
        each.rename(each.with_suffix(".TXT"))

    assert expected == packed(root, tmp_path / "p.lmdb")[1]
    (root / "labels/0.TXT").write_text("0 0.5 0.5 0.1 0.1\n")
    assert "labels/0.TXT: is a label file without a picture" in refused(root)
