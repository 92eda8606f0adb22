"""COCO's JSON as a source: boxes, classes, key points, captions, and everything else that is said of an object."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from fastio.cli import cli
from fastio.converters import Source, open_source
from fastio.converters.fields.types import parse_choice
from fastio.converters.inspect.unpack import unpack
from fastio.converters.inspect.verify import verify
from fastio.converters.sources.record import recorded_root
from fastio.errors import SourceError
from fastio.store import open_store
from fastio.store.protocol import read_values
from tests.commands import run
from tests.converters.sources.tables.table_files import packed, types
from tests.converters.sources.test_pairs import tree
from tests.converters.trees import files_below, picture

CATEGORIES = [{"id": 1, "name": "bee", "supercategory": "insect"}, {"id": 90, "name": "cat"}]


def content(count: int = 3) -> dict[str, Any]:
    """Images with 0, 1, 2, ... objects, whose annotations are mixed."""
    annotations = [
        {
            "id": 10 * k + i,
            "image_id": 100 + i,
            "category_id": (1, 90)[k % 2],
            "bbox": [k, 1.25, 473.07, 0.1],
            "area": 12.5,
            "segmentation": [[1.5, 2, 3, 4.25]] if k else {"counts": [1, 2], "size": [5, 6]},
            "iscrowd": int(not k),
        }
        for k in range(count)
        for i in range(k + 1, count)
    ]
    images = [{"id": 100 + i, "file_name": f"{i}.png", "width": 6, "height": 5} for i in range(count)]
    return {
        "info": {"year": 2017},
        "licenses": [],
        "images": images,
        "annotations": annotations,
        "categories": CATEGORIES,
    }


def dataset(root: Path, said: object, place: str = "images", count: int = 3) -> Path:
    """Pictures in ``place`` and ``annotations/a.json``; returns the JSON."""
    text = said if isinstance(said, bytes) else json.dumps(said).encode()
    tree(root, {f"{place}/{i}.png": picture(i) for i in range(count)} | {"annotations/a.json": text})
    return root / "annotations/a.json"


def values(store: Any, name: str, index: int, dtype: str) -> list[Any]:
    """One value as a flat list."""
    return read_values(store, name, np.array([index])).view(0).view(dtype).tolist()


def test_annotations_become_fields(tmp_path: Path) -> None:
    """Each image has its boxes, positions of classes, ids and the rest of its objects, in the order of the file."""
    source = open_source(dataset(tmp_path / "set", content()))
    packed(source, tmp_path / "out.lmdb")

    assert types(source) == {
        "image": "image", "boxes": "xywh", "classes": "int64[*] per boxes", "annotation_ids": "int64[*] per boxes",
        "objects": "json", "image_info": "json", "image_id": "int",
    }  # fmt: skip
    assert ("coco", {"classes": ["bee", "cat"]}) == (source.kind, source.metadata["field_classes"])
    with open_store(tmp_path / "out.lmdb") as store:
        assert [[], [0], [0, 1]] == [values(store, "classes", i, "<i8") for i in range(3)]
        assert [[], [1], [2, 12]] == [values(store, "annotation_ids", i, "<i8") for i in range(3)]
        assert np.float32([0, 1.25, 473.07, 0.1, 1, 1.25, 473.07, 0.1]).tolist() == values(store, "boxes", 2, "<f4")
        assert [100, 101, 102] == store.column("image_id").tolist()


@pytest.mark.parametrize("suffix", [".lmdb", ".h5", ".tar", ".zip"])
def test_images_and_json_come_back(tmp_path: Path, suffix: str) -> None:
    """Unpacking gives the same images and an equal JSON."""
    said = content(4)
    place = dataset(tmp_path / "set", said, count=4)
    packed(open_source(place), tmp_path / f"out{suffix}")
    with open_store(tmp_path / f"out{suffix}") as store:
        assert () == tuple(unpack(store, tmp_path / "again").notes)
    files = files_below(tmp_path / "again")
    again = json.loads(files.pop("a.json"))

    assert {f"{i}.png": picture(i) for i in range(4)} == files
    assert sorted(said.pop("annotations"), key=lambda each: each["id"]) == sorted(
        again.pop("annotations"), key=lambda each: each["id"]
    )
    assert said == again
    assert list(said) == [name for name in again if name != "annotations"]


@pytest.mark.parametrize("number", [0.1 + 0.2, 1e-40, 16777217, 1 / 3, 123456.789012])
def test_coordinates_that_float32_changes_stay_exact(tmp_path: Path, number: float) -> None:
    """A box that float32 would round is written again with its own digits."""
    said = content()
    said["annotations"][0]["bbox"] = [number, 0, 1, 1]
    packed(open_source(dataset(tmp_path / "set", said)), tmp_path / "out.lmdb")
    with open_store(tmp_path / "out.lmdb") as store:
        unpack(store, tmp_path / "again")
    again = json.loads((tmp_path / "again/a.json").read_bytes())

    first = said["annotations"][0]["id"]
    assert [number, 0, 1, 1] == next(each for each in again["annotations"] if each["id"] == first)["bbox"]


def test_key_points(tmp_path: Path) -> None:
    """Key points are points of each box, with their visibility beside them."""
    said = content()
    for i, each in enumerate(said["annotations"]):
        each["keypoints"] = [i, 2.5, 2, 0, 0, 0]
    source = open_source(dataset(tmp_path / "set", said))
    packed(source, tmp_path / "out.h5")

    assert ("points[2] per boxes", "int64[*,2] per boxes") == (types(source)["keypoints"], types(source)["visibility"])
    with open_store(tmp_path / "out.h5") as store:
        assert [1, 2.5, 0, 0, 2, 2.5, 0, 0] == values(store, "keypoints", 2, "<f4")
        unpack(store, tmp_path / "again")
    again = json.loads((tmp_path / "again/a.json").read_bytes())
    assert {each["id"]: each["keypoints"] for each in said["annotations"]} == {
        each["id"]: each["keypoints"] for each in again["annotations"]
    }


def written_again(said: object, folder: Path) -> dict[int, dict[str, Any]]:
    """Pack a JSON, unpack the store, and return the annotations of the JSON in it, by id."""
    packed(open_source(dataset(folder / "set", said)), folder / "out.lmdb")
    with open_store(folder / "out.lmdb") as store:
        unpack(store, folder / "again")
    again = json.loads((folder / "again/a.json").read_bytes())
    return {annotation["id"]: annotation for annotation in again["annotations"]}


@pytest.mark.parametrize(
    "points",
    [
        [[1, 2.5, 2], [0, 0, 0, 7, 8, 1], [3, 4, 1]],
        [[1, 2.5, 2], None, [3, 4, 1]],
        [[], [], []],
        [[], None, [0.1, 2, 2]],
        [[1, 2, 0.5], [1, 2, 1], [1, 2, 2]],
    ],
    ids=["other counts", "some without", "all empty", "one that float32 changes", "fractions of visibility"],
)
@pytest.mark.parametrize("has_rest", [True, False])
def test_key_points_that_are_no_field_stay(tmp_path: Path, points: list[Any], has_rest: bool) -> None:
    """Key points that cannot be a field, or not exactly, are kept in ``objects`` and written again."""
    said = content()
    for annotation, numbers in zip(said["annotations"], points, strict=True):
        for name in () if has_rest else ("area", "segmentation", "iscrowd"):
            del annotation[name]
        if numbers is not None:
            annotation["keypoints"] = numbers

    assert {annotation["id"]: annotation for annotation in said["annotations"]} == written_again(said, tmp_path)


def test_a_caption_of_null_stays(tmp_path: Path) -> None:
    """An annotation whose caption is null has it again, beside one without a caption."""
    said = content()
    said["annotations"][0]["caption"] = None
    said["annotations"][1]["caption"] = "a bee"

    assert {annotation["id"]: annotation for annotation in said["annotations"]} == written_again(said, tmp_path)


def test_captions(tmp_path: Path) -> None:
    """Captions are a list of texts for each image."""
    said = content()
    said["annotations"] = [{"image_id": 100 + i, "id": i, "caption": f"a b\u00e9e {i}"} for i in (0, 1, 1)]
    for i, each in enumerate(said["annotations"]):
        each["id"] = i
    del said["categories"]
    source = open_source(dataset(tmp_path / "set", said))
    packed(source, tmp_path / "out.tar")

    assert {"captions": "json", "annotation_ids": "int64[*]"}.items() <= types(source).items()
    with open_store(tmp_path / "out.tar") as store:
        assert ["a b\u00e9e 1", "a b\u00e9e 1"] == json.loads(
            read_values(store, "captions", np.array([1])).view(0).tobytes()
        )
        unpack(store, tmp_path / "again")
    assert said == json.loads((tmp_path / "again/a.json").read_bytes())


@pytest.mark.parametrize("place", ["annotations", "annotations/images", "val2017", "images/val2017", "images", "."])
def test_the_folder_of_the_images_is_found(tmp_path: Path, place: str) -> None:
    """Images lie in the JSON's folder, in it, beside it, or in ``images`` beside it; if not, ``--root`` says where."""
    path = dataset(tmp_path / "set", content(), place)
    if place == ".":
        with pytest.raises(SourceError, match=r"which folder holds its images \(the first is '0.png'\)"):
            open_source(path)
    assert 3 == len(open_source(path, root=tmp_path / "set" if place == "." else None).keys)


def test_two_folders_of_images_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If two folders hold all images, a root decides, and verify finds it again."""
    path = dataset(tmp_path / "set", content(), "a")
    dataset(tmp_path / "set", content(), "b")
    with pytest.raises(SourceError, match="hold them equally: name it with --root"):
        open_source(path)
    monkeypatch.chdir(tmp_path)
    packed(open_source(Path("set/annotations/a.json"), root="set/b"), tmp_path / "out.lmdb")
    with open_store(tmp_path / "out.lmdb") as store:
        record = store.metadata["source"]
    monkeypatch.chdir("/")
    again = open_source(path, root=recorded_root(record, str(path)))
    assert not verify(tmp_path / "out.lmdb", against=again).problems


def changed(**changes: Any) -> dict[str, Any]:
    """``content`` whose first annotation, of image 101, has other values; None removes one."""
    said = content()
    first = said["annotations"][0]
    first |= changes
    said["annotations"][0] = {name: value for name, value in first.items() if value is not None}
    return said


def with_image(**changes: Any) -> dict[str, Any]:
    """``content`` whose second image has other values."""
    said = content()
    said["images"][1] |= changes
    return said


# What the JSON says, the key of the problem, and a part of its sentence.
BAD: dict[str, tuple[Any, str, str]] = {
    "unknown image": (changed(image_id=7), "a.json:annotation 1", "belongs to image 7, which is not among"),
    "image id as text": (changed(image_id="101"), "a.json:line 1", "image_id '101'"),
    "image id true": (changed(image_id=True), "a.json:line 1", "image_id True"),
    "image id too large": (changed(image_id=2**63), "a.json:line 1", "image_id"),
    "unknown category": (changed(category_id=5), "1.png", "of category 5, which is not among"),
    "no category": (changed(category_id=None), "1.png", "without category_id"),
    "category as text": (changed(category_id="1"), "1.png", "the category_id '1'"),
    "no id": (changed(id=None), "1.png", "the id None"),
    "huge id": (changed(id=10**30), "1.png", "the id"),
    "no box": (changed(bbox=None), "1.png", "without bbox"),
    "box of three": (changed(bbox=[1, 2, 3]), "1.png", "bbox [1, 2, 3]"),
    "box as text": (changed(bbox="1 2 3 4"), "1.png", "expected x, y, width and height"),
    "negative box": (changed(bbox=[1, 2, -3, 4]), "1.png", "expected x, y, width and height"),
    "huge box": (changed(bbox=[1e300, 0, 1, 1]), "1.png", "expected x, y, width and height"),
    "larger box": (changed(bbox=[10**400, 0, 1, 1]), "1.png", "expected x, y, width and height"),
    "box of truth": (changed(bbox=[True, 0, 1, 1]), "1.png", "expected x, y, width and height"),
    "key points of four": (changed(keypoints=[1, 2, 3, 4]), "1.png", "expected x, y and visibility"),
    "huge visibility": (changed(keypoints=[1, 2, 1e30]), "1.png", "expected x, y and visibility"),
    "caption that is a number": (changed(caption=5), "1.png", "the caption 5, expected text"),
    "half a character": (changed(note="\ud800"), "1.png", "cannot be kept as JSON"),
    "NaN area": (changed(area=float("nan")), "1.png", "cannot be kept as JSON"),
    "annotation that is a list": ({**content(), "annotations": [[1]]}, "a.json:line 1", "annotation is no object"),
    "image that is text": ({**content(), "images": [*content()["images"], "x"]}, "a.json:line 1", "image is no object"),
    "no such file": (with_image(file_name="none.png"), "none.png", "there is no such file"),
    "no name": (with_image(file_name=None), "a.json:image 101", "is missing"),
    "name that is a number": (with_image(file_name=5), "a.json:image 101", "expected the name of a file"),
    "parent": (with_image(file_name="../images/1.png"), "a.json:image 101", "leads out of the folder"),
    "absolute": (with_image(file_name="/etc/passwd"), "a.json:image 101", "is a path elsewhere"),
    "surrogate": (with_image(file_name="\udcff.png"), "a.json:image 101", "is not UTF-8"),
    "NUL": (with_image(file_name="1\0.png"), "a.json:image 101", "holds a NUL"),
    "repeated name": (with_image(file_name="0.png"), "0.png", "comes twice: image 100 and image 101"),
    "repeated id": (with_image(id=100), "1.png", "comes twice"),
    "id as text": (with_image(id="101"), "a.json:line 1", "image has the id '101'"),
    "folder": (with_image(file_name="in"), "in", "which is a folder"),
    "pipe": (with_image(file_name="pipe.png"), "pipe.png", "not a regular file"),
    "no picture": (with_image(file_name="text.png"), "text.png", "not an image"),
    "other size": (with_image(width=12, height=5), "1.png", "is 6 x 5 pixels, but a.json says 12 x 5 (width x height)"),
    "turned": (with_image(width=5, height=6), "1.png", "is 6 x 5 pixels, but a.json says 5 x 6"),
    "huge": (with_image(width=10**30), "1.png", "is 6 x 5 pixels, but a.json says 1000000"),
    "size as text": (with_image(width="6"), "1.png", "is 6 x 5 pixels, but a.json says '6' x 5"),
    "NaN of an image": (with_image(date=float("inf")), "1.png", "cannot be kept as JSON"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_bad_is_a_problem(tmp_path: Path, name: str) -> None:
    """A bad annotation is a problem of its image, one without an image its own; all others are packed."""
    said, key, sentence = BAD[name]
    path = dataset(tmp_path / "set", said)
    tree(tmp_path / "set/images", {"text.png": b"no picture", "in/x": b"1"})
    os.mkfifo(tmp_path / "set/images/pipe.png")
    report = packed(open_source(path, root=tmp_path / "set/images"), tmp_path / "out.lmdb")

    assert any(each.key == key and sentence in each.problem for each in report.skipped), report.skipped
    assert report.packed >= 1


@pytest.mark.parametrize(("key", "bad"), [("image_id", "1.png"), ("file_name", "0.png")])
def test_names_that_come_twice(tmp_path: Path, key: str, bad: str) -> None:
    """Nobody knows which of two values counts; readers of JSON take the last."""
    path = dataset(tmp_path / "set", content())
    text = path.read_text()
    path.write_text(text.replace(f'"{key}"', f'"note": 1, "note": 2, "{key}"', 1))
    report = packed(open_source(path, root=tmp_path / "set/images"), tmp_path / "out.lmdb")

    assert [bad] == [each.key for each in report.skipped]
    assert "the name 'note' twice in an object" in report.skipped[0].problem


OBJECT = {"id": 1, "image_id": 0, "category_id": 1, "bbox": [0, 0, 2, 1]}


@pytest.mark.parametrize(
    ("count", "annotations", "bad"), [(3, [], []), (3, [{**OBJECT, "category_id": 5}], ["0.png"]), (600, [OBJECT], [])]
)
def test_most_images_without_objects(
    tmp_path: Path, suffix: str, count: int, annotations: list[Any], bad: list[str]
) -> None:
    """Images without annotations are packed and described, also if a whole piece of them has no box at all."""
    images = [{"id": i, "file_name": f"{i}.png"} for i in range(count)]
    said = {"images": images, "annotations": annotations, "categories": CATEGORIES}
    path = dataset(tmp_path / "set", said, count=count)
    described = CliRunner().invoke(cli, ["info", str(path)])
    report = packed(open_source(path), tmp_path / f"out.{suffix}")

    assert 0 == described.exit_code, described.output
    assert (count - len(bad), bad) == (report.packed, [each.key for each in report.skipped])


@pytest.mark.parametrize("sizes", [{}, {"width": None, "height": 0}, {"width": 6.0}, {"width": 6, "height": 5}])
def test_sizes_that_are_not_given_are_not_compared(tmp_path: Path, sizes: dict[str, Any]) -> None:
    """An image whose width or height is missing, null or 0 in the JSON is packed, as one of equal size is."""
    said = content()
    del said["images"][1]["width"], said["images"][1]["height"]
    said["images"][1] |= sizes

    assert 3 == packed(open_source(dataset(tmp_path / "set", said)), tmp_path / "out.lmdb").packed


def test_captions_fit_pictures_of_any_size(tmp_path: Path) -> None:
    """Captions may belong to pictures of another size than the JSON says: they name no place in them."""
    said = with_image(width=60, height=50)
    said["annotations"] = [{"image_id": 101, "id": 1, "caption": "a bee"}]

    assert 3 == packed(open_source(dataset(tmp_path / "set", said)), tmp_path / "out.lmdb").packed


def test_shuffled_sizes(tmp_path: Path) -> None:
    """The size of each image is compared with its own picture in any order."""
    said = content(12)
    for i, image in enumerate(said["images"]):
        image["width"] = i + 1
    path = dataset(tmp_path / "set", said, count=12)
    tree(tmp_path / "set/images", {f"{i}.png": picture(i, size=(i + 1, 5)) for i in range(12)})

    assert 12 == packed(open_source(path).shuffled(3), tmp_path / "out.lmdb").packed


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b'{"images": [], "annotations": []}', "has no images"),
        (b'{"images": [{"id": 1}', "is the file truncated"),
        (b'{"images": [{"id": 1}]', "is the file truncated"),
        (b'{"images": [{"id": 1', "no JSON"),
        (b'{"images": [{"id": 1}], "images": [], "annotations": []}', "'images' comes twice"),
        (b'{"images": [{"id": 1}]}', "has no list 'annotations'"),
        (b'{"images": [{"id": 1}], "annotations": {}}', "'annotations' is an object, expected a list"),
        (b'{"images": [{"id": 1}], "annotations": []} x', "follows the end"),
        (b'{"images": [{"id": 1} {"id": 2}], "annotations": []}', "expected ',' or"),
        (b'{"images": [{"id": 1}], 5: 6, "annotations": []}', "expected a name in quotes"),
        (b'{"images": [\xff], "annotations": []}', "not UTF-8"),
        (b'{"images": [' + b"[" * 100_000, "no JSON"),
        (json.dumps({**content(), "categories": [{"id": 1}]}).encode(), "categories: expected"),
        (json.dumps({**content(), "categories": 5}).encode(), "categories: expected"),
        (json.dumps({**content(), "categories": [CATEGORIES[0], CATEGORIES[0]]}).encode(), "different ids"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: bytes, sentence: str) -> None:
    """A JSON that is broken, or not COCO's, is an error that names the line."""
    with pytest.raises(SourceError, match=sentence):
        open_source(dataset(tmp_path / "set", text), kind="coco")


def test_it_is_recognised(tmp_path: Path) -> None:
    """A JSON with COCO's lists is COCO's; another one is a table."""
    source: Source = open_source(dataset(tmp_path / "set", content()))
    (tmp_path / "rows.json").write_text('[{"a": "x"}]')

    assert ("coco", "table") == (source.kind, open_source(tmp_path / "rows.json").kind)


def test_fields_do_not_make_it_a_table(tmp_path: Path) -> None:
    """--field of a COCO file is an error that names the kinds that take it, and not one sample of a table."""
    path = dataset(tmp_path / "set", content())

    with pytest.raises(SourceError, match="is COCO annotations, which takes no --field; it is for"):
        open_source(path, fields=[parse_choice("ann=annotations")])


def root_of(folder: Path, *names: str) -> Path:
    """Folders of these parts with pictures, and a JSON of each in ``annotations``."""
    for name in names:
        said = content()
        for image in said["images"]:
            image["file_name"] = f"{name}-{image['file_name']}"
        tree(folder, {f"{name}/{name}-{i}.png": picture(i) for i in range(4)})
        tree(folder, {f"annotations/instances_{name}.json": json.dumps(said).encode()})
    return folder


@pytest.mark.parametrize("split", ["train", "train2017", "instances_train2017"])
def test_a_root_is_recognised(tmp_path: Path, split: str) -> None:
    """The folder above train2017/ and annotations/ is COCO; --split takes one JSON; what stays out is counted."""
    root = root_of(tmp_path / "coco", "train2017", "val2017")
    said = run("pack", root, tmp_path / "o.lmdb", code=1)
    assert "has 2 COCO JSONs, 'instances_train2017', 'instances_val2017': choose one" in said
    said = run("pack", root, tmp_path / "o.lmdb", "--split", split)

    assert "train2017/train2017-3.png (nothing names it; in its folder, that is true of 1 .png)" in said
    assert "val2017/ (is not of this part: 4 files (4 .png))" in said
    assert "3 compared" in run("verify", tmp_path / "o.lmdb", "--against", root)
    with open_store(tmp_path / "o.lmdb") as store:
        assert [f"train2017-{i}.png" for i in range(3)] == store.keys(np.arange(3))
        assert [[], [0], [0, 1]] == [values(store, "classes", i, "<i8") for i in range(3)]


def test_captions_beside_instances_are_asked_about(tmp_path: Path) -> None:
    """Two JSONs of one split are two datasets."""
    root = root_of(tmp_path / "coco", "val2017")
    (root / "annotations/captions_val2017.json").write_bytes((root / "annotations/instances_val2017.json").read_bytes())
    with pytest.raises(SourceError, match="2 COCO JSONs of 'val', 'captions_val2017', 'instances_val2017': choose"):
        open_source(root, split="val")
    (root / "extra").mkdir()
    with pytest.raises(SourceError, match=r"only 'captions_val2017', .* packs that folder alone"):
        open_source(root, split="extra")


def test_a_json_among_its_pictures(tmp_path: Path) -> None:
    """A folder of pictures with the one JSON that annotates them, as Roboflow exports it; parts are folders."""
    for part in ("train", "valid"):
        tree(tmp_path / "d", {f"{part}/{i}.png": picture(i) for i in range(4)})
        (tmp_path / f"d/{part}/_annotations.coco.json").write_text(json.dumps(content()))
    said = run("pack", tmp_path / "d", tmp_path / "o.lmdb", "--split", "train")

    assert "COCO annotations; image, boxes" in said
    assert "left out: 3.png (is not of this part)" in said
    assert "3 compared" in run("verify", tmp_path / "o.lmdb", "--against", tmp_path / "d/train")
