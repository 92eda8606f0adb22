"""Datasets in the form of Pascal VOC as sources."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fastio.converters import open_source
from fastio.converters.inspect.unpack import unpack
from fastio.converters.sources.layouts.voc import parse_xml
from fastio.store import open_store
from tests.commands import run
from tests.converters.sources.layouts import pictures, voc, voc_xml
from tests.converters.sources.packed import packed, refused, value
from tests.converters.trees import tree

PARTS = {"train": (0, 1, 2), "val": (4, 3)}


def test_a_part(tmp_path: Path) -> None:
    """Its list orders the pictures; boxes keep the numbers of the XML; classes are those of all parts."""
    root = voc(tmp_path / "VOC2012", {"train": (0, 2), "val": (1, 3)})
    types, samples, _ = packed(root, tmp_path / "o.lmdb", split="train")

    assert "xywh" == types["boxes"]
    assert ["JPEGImages/2007_000000.jpg", "JPEGImages/2007_000002.jpg"] == list(samples)
    assert [1, 2, 12, 10] == value(tmp_path / "o.lmdb", "boxes", 1, "<f4")
    assert [1] == value(tmp_path / "o.lmdb", "classes", 1, "<i8")
    assert [{"difficult": 0}] == json.loads(bytes(value(tmp_path / "o.lmdb", "objects", 0)))
    with open_store(tmp_path / "o.lmdb") as store:
        assert {"classes": ["cat", "dog"]} == store.metadata["field_classes"]  # no cat is to train
    assert "has 2 parts, 'train', 'val': choose one" in refused(root)


def test_what_stays_out_is_counted(tmp_path: Path) -> None:
    """Masks, other parts, and lists of single classes, which are no parts."""
    root = voc(tmp_path / "v", PARTS)
    tree(root, {**pictures("SegmentationClass/2007_000000.png"), "ImageSets/Main/cat_train.txt": "2007_000000 -1\n"})
    said = run("pack", root, tmp_path / "o.lmdb", "--split", "val")

    assert "SegmentationClass/ (is not of this part: 1 file (1 .png))" in said
    assert "(nothing names it; in its folder, that is true of 5 .jpg)" in said
    assert "ImageSets/Main/cat_train.txt" in said


def test_segmentation(tmp_path: Path) -> None:
    """The parts of ImageSets/Segmentation have masks; those of Main of the same name stay what they are."""
    root = voc(tmp_path / "v", PARTS)
    names = ["2007_000002", "2007_000005"]
    masks = pictures(*(f"SegmentationClass/{name}.png" for name in names), mode="P")
    lists = {"ImageSets/Segmentation/train.txt": "\n".join(names), "ImageSets/Segmentation/val.txt": names[0]}
    tree(root, {**masks, **lists})
    types, samples, _ = packed(root, tmp_path / "o.lmdb", split="Segmentation/train")

    assert ("mask", "xywh") == (types["mask"], types["boxes"])
    assert {f"JPEGImages/{name}.jpg": masks[f"SegmentationClass/{name}.png"] for name in names} == {
        key: each["mask"] for key, each in samples.items()
    }
    assert 3 == len(packed(root, tmp_path / "p.lmdb", split="train")[1])
    with open_store(tmp_path / "o.lmdb") as store:
        unpack(store, tmp_path / "again")
    assert (
        masks["SegmentationClass/2007_000005.png"]
        == (tmp_path / "again/SegmentationClass/2007_000005.png").read_bytes()
    )
    (root / "SegmentationClass/2007_000005.png").unlink()
    _, _, skipped = packed(root, tmp_path / "q.lmdb", skip=True, split="Segmentation/train")
    assert ["JPEGImages/2007_000005.jpg"] == list(skipped)
    source = open_source(root, split="Segmentation/train")
    assert source.files_opened == len(list(source.files()))


@pytest.mark.parametrize("inside", ["VOCdevkit", ""])
def test_without_lists(tmp_path: Path, inside: str) -> None:
    """All XMLs are samples, also one folder further down; a picture without an XML is a problem."""
    root = voc(tmp_path / inside / "VOC2007", {})
    for path in (root / "ImageSets/Main").iterdir():
        path.unlink()
    assert 7 == len(packed(tmp_path / inside if inside else root, tmp_path / "o.lmdb")[1])
    tree(root, pictures("JPEGImages/more.jpg"))
    _, _, skipped = packed(root, tmp_path / "p.lmdb", skip=True)
    assert {"JPEGImages/more.jpg": "has no XML that annotates it"} == skipped


def test_other_names(tmp_path: Path) -> None:
    """images/ beside annotations/xmls, as of Oxford's pets."""
    files = {**pictures("images/a.jpg"), "annotations/xmls/a.xml": voc_xml(("cat", (1, 1, 5.5, "6.25")))}
    packed(tree(tmp_path / "pets", files), tmp_path / "o.lmdb")

    assert [1, 1, 4.5, 5.25] == value(tmp_path / "o.lmdb", "boxes", 0, "<f4")


def test_no_objects_and_many(tmp_path: Path) -> None:
    """An XML without objects is a picture without boxes; parts and tags of any name stay in objects."""
    more = "<part><name>head</name></part><part><name>hand</name></part><id>7</id><pose>Left</pose>"
    files = {
        **pictures("JPEGImages/a.jpg", "JPEGImages/b.jpg"),
        "Annotations/a.xml": voc_xml(),
        "Annotations/b.xml": voc_xml(("cat", (1, 2, 3, 4)), ("cat", (5, 6, 7, 8)), more=more),
    }
    packed(tree(tmp_path / "v", files), tmp_path / "o.lmdb")

    assert [] == value(tmp_path / "o.lmdb", "boxes", 0, "<f4")
    expected = {"part": [{"name": "head"}, {"name": "hand"}], "object_id": 7, "pose": "Left"}
    assert [expected, expected] == json.loads(bytes(value(tmp_path / "o.lmdb", "objects", 1)))


def test_a_name_that_comes_twice(tmp_path: Path) -> None:
    """It is one sample, and the line that says it again is named."""
    root = voc(tmp_path / "v", {"train": (0, 1, 0)})
    _, samples, _ = packed(root, tmp_path / "o.lmdb")

    assert ["JPEGImages/2007_000000.jpg", "JPEGImages/2007_000001.jpg"] == list(samples)
    left_out = {each.key: each.problem for each in open_source(root).left_out}
    assert "names 2007_000000 again, after line 1: it is one sample" == left_out["train.txt:3"]


BOMB = "<!DOCTYPE a [<!ENTITY b 'x'>]><annotation><object><name>&b;</name></object></annotation>"
BAD = {
    "bomb": (BOMB, "it has a document type, which is not read"),
    "external": ("<!DOCTYPE a SYSTEM 'file:///etc/passwd'><annotation></annotation>", "it has a document type"),
    "cut": (voc_xml(("cat", (1, 2, 3, 4)))[:-20], "is no XML of VOC: "),
    "empty": ("", "is no XML of VOC: "),
    "deep": ("<a>" * 40 + "</a>" * 40, "nested more than 32 deep"),
    "text": ("<annotation>x</annotation>", "it holds no elements"),
    "no name": ("<annotation><object><pose>x</pose></object></annotation>", "has an object without a name"),
    "no box": (voc_xml(("cat", (1, 2, 3, "x"))), "without the numbers xmin, ymin, xmax and ymax"),
    "turned": (voc_xml(("cat", (5, 2, 3, 4))), "whose box ends before it begins"),
    "infinite": (voc_xml(("cat", (1, 2, "inf", 4))), "has the bbox"),
    "other size": (voc_xml(("cat", (1, 2, 3, 4)), size=(20, 40)), "40 x 20 pixels"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_xml_is_a_problem_of_its_picture(tmp_path: Path, name: str) -> None:
    """The others are packed. Nothing in an XML expands or is fetched."""
    root, (content, sentence) = voc(tmp_path / "v", PARTS), BAD[name]
    tree(root, {"Annotations/2007_000001.xml": content})
    _, samples, skipped = packed(root, tmp_path / "o.lmdb", skip=True, split="train")

    assert ["JPEGImages/2007_000000.jpg", "JPEGImages/2007_000002.jpg"] == list(samples)
    assert sentence in skipped["JPEGImages/2007_000001.jpg"]


def test_names_without_files(tmp_path: Path) -> None:
    """A listed picture that is not there, and one without its XML, are problems."""
    root = voc(tmp_path / "v", PARTS)
    (root / "Annotations/2007_000001.xml").unlink()
    (root / "JPEGImages/2007_000002.jpg").unlink()
    problems = {each.key: each.problem for each in open_source(root, split="train").problems}

    assert "is listed as a picture that" in problems["2007_000002"] or "names a picture that" in problems["2007_000002"]
    assert "has no Annotations/2007_000001.xml" == problems["JPEGImages/2007_000001.jpg"]


def test_two_xmls_of_one_picture(tmp_path: Path) -> None:
    """Neither is taken: a.xml and a.XML may say different things."""
    root = voc(tmp_path / "v", PARTS)
    tree(root, {"Annotations/2007_000001.XML": voc_xml(("zebra", (1, 1, 5, 6)))})
    (problem,) = open_source(root, split="train").problems

    assert "JPEGImages/2007_000001.jpg" == problem.key
    assert "that stands beside another of its name" in problem.problem
    (root / "Annotations/2007_000001.xml").unlink()
    assert 3 == len(packed(root, tmp_path / "o.lmdb", split="train")[1])


def test_xml_as_a_dict() -> None:
    """Elements of one name are a list; attributes are passed over."""
    assert {"a": ["1", "2"], "b": {"c": ""}} == parse_xml(b"<x><a>1</a><a k='v'> 2 </a><b><c/></b></x>")
