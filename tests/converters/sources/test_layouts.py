"""Datasets as they are downloaded, and lists, masks and files in the layouts that people have."""

from __future__ import annotations

import codecs
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fastio import FastDataset, Unpacked
from fastio.converters.inspect.unpack import unpack
from fastio.store import open_store
from tests.commands import run
from tests.converters.sources import layouts
from tests.converters.sources.in_place_kinds import KINDS
from tests.converters.sources.layouts import pictures
from tests.converters.sources.packed import packed, refused, value
from tests.converters.trees import tree

# Every layout by the one command that packs it: what is typed behind the folder, and what it gives.
COMMANDS: dict[str, tuple[Callable[[Path], Path], list[str], int, set[str]]] = {
    "yolo": (layouts.yolo, [], 7, {"boxes", "classes"}),
    "voc": (layouts.voc, ["--split", "trainval"], 7, {"boxes", "classes", "objects"}),
    "list": (layouts.listed, [], 7, {"label"}),
    "celeba": (layouts.celeba, ["--split", "train"], 5, {"attributes", "landmarks", "identity", "face_box"}),
    "tiny train": (layouts.tiny_imagenet, ["--split", "train"], 8, {"boxes", "label"}),
    "tiny val": (layouts.tiny_imagenet, ["--split", "val"], 4, {"boxes", "label"}),
    "tiny test": (layouts.tiny_imagenet, ["--split", "test"], 4, set()),
    "cub train": (layouts.cub, ["--split", "train"], 5, {"boxes", "label"}),
    "cub test": (layouts.cub, ["--split", "test"], 2, {"boxes", "label"}),
    "cityscapes": (layouts.cityscapes, ["--split", "train"], 8, {"mask"}),
    "ade20k": (layouts.ade20k, ["--split", "validation"], 7, {"mask", "label"}),
    "open images": (layouts.open_images, [], 7, {"boxes", "classes", "objects"}),
    "lvis": (layouts.lvis, [], 7, {"boxes", "classes", "objects"}),
    "files": (layouts.class_files, [], 8, {"label"}),
    "mnist": (layouts.mnist, ["--split", "test"], 7, {"label"}),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_one_command_packs_it(tmp_path: Path, name: str) -> None:
    """It is recognised, packed, verified against its folder, opened and unpacked."""
    make, options, count, fields = COMMANDS[name]
    path = make(tmp_path / "d")
    run("info", path, *options)
    run("pack", path, tmp_path / "o.lmdb", *options)

    assert f"{count} compared" in run("verify", tmp_path / "o.lmdb", "--against", path, "--decode")
    with open_store(tmp_path / "o.lmdb") as store:
        assert count == len(store)
        assert fields <= {each.name for each in store.schema.fields}
        unpack(store, tmp_path / "again")
        keys = store.keys(np.arange(count))
    root = path if path.is_dir() else path.parent
    for key in keys if name not in ("mnist",) else ():
        original = next(each for each in (root / key, *root.glob(f"*/{key}")) if each.is_file())
        assert original.read_bytes() == (tmp_path / "again" / key).read_bytes()
    assert count == len(FastDataset(tmp_path / "o.lmdb", fields=None if name != "files" else ("audio",)))


@pytest.mark.parametrize("name", COMMANDS)
def test_without_a_split_it_asks(tmp_path: Path, name: str) -> None:
    """What has several parts is never packed whole, nor taken for something else."""
    make, options, _, _ = COMMANDS[name]
    path = make(tmp_path / "d")
    if options and name != "voc":  # which has one list here
        said = refused(path)
        assert f"`fastio pack {path} " in said
        assert "choose one, as in" in said


# Lists of pictures.


@pytest.mark.parametrize("between", [" ", "\t", ",", ", "])
def test_names_as_labels(tmp_path: Path, between: str) -> None:
    """Classes are sorted over all lists of the folder, so that parts agree; names of pictures may have blanks."""
    names = ["images/a b.jpg", "images/c.jpg"]
    lines = [f"{name}{between}{kind}\n" for name, kind in zip(names, ("cat", "bee"), strict=True)]
    files = {**pictures(*names), "train.txt": "".join(lines)}
    root = tree(tmp_path / "d", {**files, "val.txt": f"{names[0]}{between}ape\n"})
    _, samples, _ = packed(root, tmp_path / "o.lmdb", split="train")

    assert {names[0]: 2, names[1]: 1} == {key: each["label"] for key, each in samples.items()}
    with open_store(tmp_path / "o.lmdb") as store:
        assert ["ape", "bee", "cat"] == store.metadata["classes"]


def test_numbers_among_names(tmp_path: Path) -> None:
    """They are refused, as in tables: as names, "10" would come before "2"."""
    names = [f"images/{i}.jpg" for i in range(3)]
    lines = "".join(f"{name} {label}\n" for name, label in zip(names, ("10", "2", "cat"), strict=True))
    root = tree(tmp_path / "d", {**pictures(*names), "train.txt": lines})

    assert "labels mix numbers and names: picture 1 has '10', picture 3 has 'cat'; make all" in refused(root)


def test_boxes_in_any_order(tmp_path: Path) -> None:
    """Rows of one picture need not follow each other; classes are sorted by their ids, wherever they come first."""
    path = layouts.open_images(tmp_path / "oi")
    title, *rows = path.read_text().splitlines()
    last = rows[0].replace("/m/02", "/m/00")  # an id before all others, at the end
    path.write_text("\n".join([title, *rows[::2], *rows[:0:-2], last]) + "\n")
    _, samples, _ = packed(path, tmp_path / "o.lmdb")
    classes = [np.frombuffer(sample["classes"], np.int64).tolist() for sample in samples.values()]

    assert [row.partition(",")[0] for row in rows[::2]] == [Path(key).stem for key in samples]
    assert [[2, 1, 0], *[[2, 1]] * 6] == classes
    with open_store(tmp_path / "o.lmdb") as store:
        assert ["/m/00", "Dog", "Cat, big"] == store.metadata["field_classes"]["classes"]


def test_a_byte_order_mark(tmp_path: Path) -> None:
    """What spreadsheets put before a text belongs to no name."""
    mark = codecs.BOM_UTF8
    path = layouts.open_images(tmp_path / "oi")
    for each in (path, path.with_name("class-descriptions-boxable.csv")):
        each.write_bytes(mark + each.read_bytes())
    names = [f"images/{i}.jpg" for i in range(2)]
    tree(tmp_path / "l", {**pictures(*names), "l.txt": mark + f"{names[0]} 1\n{names[1]} 0\n".encode()})
    _, plain, _ = packed(layouts.open_images(tmp_path / "plain"), tmp_path / "plain.lmdb")
    _, samples, _ = packed(path, tmp_path / "oi.lmdb")

    assert plain == samples
    with open_store(tmp_path / "plain.lmdb") as one, open_store(tmp_path / "oi.lmdb") as other:
        assert one.metadata["field_classes"] == other.metadata["field_classes"]
    assert [1, 0] == [each["label"] for each in packed(tmp_path / "l", tmp_path / "l.lmdb")[1].values()]


def test_a_list_anywhere(tmp_path: Path) -> None:
    """--root names the folder of its pictures; several numbers are several labels; no label at all is fine."""
    tree(tmp_path, {**pictures("far/away/a.jpg", "far/away/b.jpg"), "l.txt": "a.jpg 1 0\nb.jpg 0 1\n"})
    assert "which folder holds its images" in refused(tmp_path / "l.txt")
    _, samples, _ = packed(tmp_path / "l.txt", tmp_path / "o.lmdb", root=tmp_path / "far/away")
    assert [[1, 0], [0, 1]] == [each["label"] for each in samples.values()]
    tree(tmp_path, {"l.txt": "b.jpg\na.jpg\n"})
    types, samples, _ = packed(tmp_path / "l.txt", tmp_path / "p.lmdb", root=tmp_path / "far/away")
    assert ({"image": "image"}, ["b.jpg", "a.jpg"]) == (types, list(samples))


LINES = {
    "no label": ("images/1.jpg", "has no label in its line"),
    "two labels": ("images/1.jpg 1 2", "has 2 labels, expected 1"),
    "large": (f"images/1.jpg {2**63}", "has a label beyond 64 bits"),
    "missing": ("images/none.jpg 1", "there is no such file"),
    "above": ("../1.jpg 1", "leads out of the folder"),
    "twice": ("images/0.jpg 2", "comes twice in the list"),
}


@pytest.mark.parametrize("name", LINES)
def test_bad_lines(tmp_path: Path, name: str) -> None:
    """Each is a problem of its picture; the rest is packed."""
    root, (line, sentence) = layouts.listed(tmp_path / "d"), LINES[name]
    lines = (root / "all.txt").read_text().splitlines()
    (root / "all.txt").write_text("\n".join([lines[0], line, *lines[2:]]))
    _, samples, skipped = packed(root, tmp_path / "o.lmdb", skip=True)

    assert 5 <= len(samples) <= 6
    assert any(sentence in each for each in skipped.values()), skipped


def test_a_text_is_no_list(tmp_path: Path) -> None:
    """One line that names no picture makes it a text; the kind can be said."""
    tree(tmp_path, {**pictures("a.jpg"), "t.txt": "a.jpg\na cat on a mat\n"})
    assert "one sample per line" in run("pack", tmp_path / "t.txt", tmp_path / "o.lmdb")
    tree(tmp_path, {"t.txt": "a.jpg 1\n"})
    assert "one sample per line" in run("pack", tmp_path / "t.txt", tmp_path / "p.lmdb", "--source-kind", "lines")


# Downloads.


def test_celeba(tmp_path: Path) -> None:
    """Attributes as 0 and 1, as torchvision has them; landmarks are points; boxes of aligned pictures are no boxes."""
    root = layouts.celeba(tmp_path / "d")
    types, samples, _ = packed(root, tmp_path / "o.lmdb", split="train")

    assert ("points", "int32[4] column", "int8[2] column") == (
        types["landmarks"],
        types["face_box"],
        types["attributes"],
    )
    assert [[0, 0], [1, 1], [0, 1], [1, 0], [0, 1]] == [each["attributes"] for each in samples.values()]
    assert ([3, 2, 10, 11], 103) == (samples["000004.jpg"]["face_box"], samples["000004.jpg"]["identity"])
    assert [3, 5, 6, 7] == value(tmp_path / "o.lmdb", "landmarks", 3, "<f4")
    with open_store(tmp_path / "o.lmdb") as store:
        assert {"attributes": ["Smiling", "Male"]} == store.metadata["field_classes"]
    (root / "img_align_celeba").rename(root / "img_celeba")
    types, _, _ = packed(root, tmp_path / "p.lmdb", split="val")
    assert "xywh" == types["boxes"]


def test_celeba_that_is_not_whole(tmp_path: Path) -> None:
    """A picture that a list lacks is a problem, and so is a line that is none."""
    root = layouts.celeba(tmp_path / "d")
    for name in ("list_attr_celeba.txt", "list_bbox_celeba.txt"):
        lines = (root / name).read_text().splitlines()
        lines[3] = "000002.jpg x"
        (root / name).write_text("\n".join(lines))
    _, samples, skipped = packed(root, tmp_path / "o.lmdb", skip=True, split="train")
    assert (4, {"000002.jpg", "list_attr_celeba.txt:4", "list_bbox_celeba.txt:4"}) == (len(samples), skipped.keys())


def test_celeba_of_no_part(tmp_path: Path) -> None:
    """A picture of another part than the three, or of none, is a problem; so is a list that breaks off."""
    root = layouts.celeba(tmp_path / "d")
    parts = (root / "list_eval_partition.txt").read_text().splitlines()
    (root / "list_eval_partition.txt").write_text("\n".join(["000001.jpg 3", *parts[2:]]))
    points = (root / "list_landmarks_align_celeba.txt").read_text().splitlines()
    (root / "list_landmarks_align_celeba.txt").write_text("\n".join([*points[:-1], points[-1].replace("7", "--7")]))
    (root / "list_bbox_celeba.txt").write_text("\n".join((root / "list_bbox_celeba.txt").read_text().split("\n")[:-2]))
    _, samples, skipped = packed(root, tmp_path / "o.lmdb", skip=True, split="train")

    assert 3 == len(samples)
    assert {"000001.jpg", "000002.jpg", "list_landmarks_align_celeba.txt:9", "list_bbox_celeba.txt"} == skipped.keys()
    assert "says that 7 pictures follow, but 6 do: download it again" == skipped["list_bbox_celeba.txt"]


def test_tiny_imagenet(tmp_path: Path) -> None:
    """Labels of train and val are numbered alike: as ImageFolder numbers the sorted folders of train."""
    root = layouts.tiny_imagenet(tmp_path / "d")
    _, train, _ = packed(root, tmp_path / "o.lmdb", split="train")
    _, val, _ = packed(root, tmp_path / "p.lmdb", split="val")

    assert {"n01": 0, "n02": 1} == {key.split("/")[1]: each["label"] for key, each in train.items()}
    assert {f"val/images/val_{i}.JPEG": (1, 0)[i % 2] for i in range(4)} == {
        k: each["label"] for k, each in val.items()
    }
    assert [0, 1, 7, 5] == value(tmp_path / "p.lmdb", "boxes", 2, "<f4")
    (root / "val/images/val_1.JPEG").unlink()
    tree(root, pictures("val/images/x.JPEG"))
    _, val, skipped = packed(root, tmp_path / "q.lmdb", skip=True, split="val")
    assert (3, {"val/images/val_1.JPEG", "val/images/x.JPEG"}) == (len(val), skipped.keys())


def test_cub(tmp_path: Path) -> None:
    """Labels begin at 0; names and boxes are those of the lists."""
    root = layouts.cub(tmp_path / "d")
    _, samples, _ = packed(root, tmp_path / "o.lmdb", split="test")

    assert {"images/001.Black_footed_Albatross/2.jpg": 0, "images/002.Laysan_Albatross/5.jpg": 1} == {
        key: each["label"] for key, each in samples.items()
    }
    assert [5, 2, 10, 11.5] == value(tmp_path / "o.lmdb", "boxes", 1, "<f4")
    (root / "bounding_boxes.txt").write_text("1 1 2 3 4\n")
    assert 4 == len(packed(root, tmp_path / "p.lmdb", skip=True, split="train")[2])


CUB_LINES = {
    "part": ("train_test_split", "2", "has '2' in train_test_split.txt"),
    "two parts": ("train_test_split", "1 0", "has '1 0' in train_test_split.txt"),
    "one number": ("bounding_boxes", "7", "has no 4 numbers in bounding_boxes.txt: '7'"),
    "fraction": ("image_class_labels", "1.5", "has no 1 number in image_class_labels.txt: '1.5'"),
}


@pytest.mark.parametrize("name", CUB_LINES)
def test_cub_that_is_not_whole(tmp_path: Path, name: str) -> None:
    """A line that says something else is a problem of its picture, whatever the part."""
    root, (file, words, sentence) = layouts.cub(tmp_path / "d"), CUB_LINES[name]
    lines = (root / f"{file}.txt").read_text().splitlines()
    lines[1] = f"2 {words}"
    (root / f"{file}.txt").write_text("\n".join(lines))
    _, samples, skipped = packed(root, tmp_path / "o.lmdb", skip=True, split="train")
    assert (4, {"images/002.Laysan_Albatross/1.jpg": sentence}) == (len(samples), skipped)


def test_classes_with_a_gap(tmp_path: Path) -> None:
    """Names of classes would move to others' labels."""
    root = layouts.cub(tmp_path / "cub")
    (root / "classes.txt").write_text("1 a\n3 c\n")
    assert "expected a line for each class from 1 on, got [1, 3]" in refused(root, split="train")
    root = layouts.tiny_imagenet(tmp_path / "tiny")
    (root / "wnids.txt").write_text("n02\nn01\nn01\n")
    assert "the class 'n01' comes twice" in refused(root, split="val")


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_mnist(tmp_path: Path, suffix: str) -> None:
    """Pixels and labels are those of the files, compressed or not, whole folder or one file, also below raw."""
    for name, content in ((path.name, path.read_bytes()) for path in layouts.mnist(tmp_path / "d").iterdir()):
        tree(tmp_path / "MNIST", {f"raw/{name}{suffix}": gzip.compress(content) if suffix else content})
    pixels, labels = layouts.mnist_arrays(7, seed=1)
    for path, options in (
        (tmp_path / "MNIST", {"split": "t10k"}),
        (tmp_path / f"MNIST/raw/t10k-images-idx3-ubyte{suffix}", {}),
    ):
        types, samples, _ = packed(path, tmp_path / f"{len(options)}.lmdb", **options)
        assert {"image": "uint8[5,4,1]", "label": "int"} == types
        assert [(each.tobytes(), int(label)) for each, label in zip(pixels, labels, strict=True)] == [
            (each["image"], each["label"]) for each in samples.values()
        ]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x",
        b"\0\0\x08\x03",
        b"\0\0\x08\x03\0\0\0\1\0",
        b"\0\0\x08\x03" + b"\xff" * 12,
        b"\0\0\x07\x01\0\0\0\1x",
    ],
)
@pytest.mark.parametrize("file", ["images-idx3", "labels-idx1"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_bad_idx(tmp_path: Path, content: bytes, file: str, suffix: str) -> None:
    """One line that names the file; nothing is allocated for sizes that cannot be."""
    root = layouts.mnist(tmp_path / "d")
    (root / f"train-{file}-ubyte").unlink()
    (root / f"train-{file}-ubyte{suffix}").write_bytes(gzip.compress(content) if suffix else content)

    assert f"train-{file}-ubyte{suffix}: " in refused(root, split="train")


@pytest.mark.parametrize("cut", [1, 20, -1])
def test_truncated_idx(tmp_path: Path, cut: int) -> None:
    """A file that is too short, or too long, is refused."""
    root = layouts.mnist(tmp_path / "d")
    path = root / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-cut] if cut > 0 else path.read_bytes() + b"x")
    assert "but holds" in refused(root, split="train")


# Folders that are not what --source-kind says.

WANTED = {
    "coco": "a COCO JSON in it or in its folder annotations",
    "cityscapes": "pictures in leftImg8bit/PART/CITY and annotations in gtFine/PART/CITY or gtCoarse/PART/CITY",
    "masks": "folders of pictures and of masks, such as images/train and masks/train, or train/images and train/masks",
    "tiny-imagenet": "the folder train, val or test",
    "list": "a list with the name of a picture in each line",
    "idx": "a file such as train-images-idx3-ubyte(.gz), or a folder with some",
}


@pytest.mark.parametrize("kind", WANTED)
@pytest.mark.parametrize("split", [None, "train"])
def test_no_part_at_all(tmp_path: Path, kind: str, split: str | None) -> None:
    """The answer is what this kind would have."""
    (tmp_path / "d").mkdir()

    assert f"{tmp_path}/d: expected {WANTED[kind]}, found none" == refused(tmp_path / "d", kind=kind, split=split)


# Masks.


def test_cityscapes(tmp_path: Path) -> None:
    """Each picture has its label ids; the other files of annotations are named by kind; a missing mask is a problem."""
    root = layouts.cityscapes(tmp_path / "d")
    types, samples, _ = packed(root, tmp_path / "o.lmdb", split="train")

    assert {"image": "image", "mask": "mask"} == types
    for key, sample in samples.items():
        mask = key.replace("leftImg8bit/", "gtFine/").replace("_leftImg8bit", "_gtFine_labelIds")
        assert (root / mask).read_bytes() == sample["mask"]
    said = run("info", tmp_path / "o.lmdb")
    assert "is one of 8 ..._polygons.json of this part, which are not label ids" in said
    mask = root / "gtFine/train/bonn/bonn_000001_000019_gtFine_labelIds.png"
    mask.unlink()
    _, _, skipped = packed(root, tmp_path / "p.lmdb", skip=True, split="train")
    assert [f"has no mask: expected {mask.relative_to(root)}"] == list(skipped.values())


@pytest.mark.parametrize("shape", ["{kind}/{part}", "{part}/{kind}"])
def test_masks_by_part(tmp_path: Path, shape: str) -> None:
    """Folders of pictures and of masks with a folder for each part, or the other way round."""
    files = {}
    for part in ("train", "val"):
        for kind, mode in (("images", "RGB"), ("masks", "L")):
            folder = shape.format(kind=kind, part=part)
            files |= pictures(*(f"{folder}/{part}{i}.png" for i in range(3)), mode=mode)
    root = tree(tmp_path / "d", files)
    _, samples, _ = packed(root, tmp_path / "o.lmdb", split="val")
    pictures_of, masks_of = (shape.format(kind=kind, part="val") for kind in ("images", "masks"))

    assert {f"{pictures_of}/val{i}.png" for i in range(3)} == samples.keys()
    assert (root / masks_of / "val1.png").read_bytes() == samples[f"{pictures_of}/val1.png"]["mask"]
    (root / masks_of / "val1.png").rename(root / masks_of / "other.png")
    _, _, skipped = packed(root, tmp_path / "p.lmdb", skip=True, split="val")
    assert {f"{pictures_of}/val1.png", f"{masks_of}/other.png"} == skipped.keys()


def test_ade20k(tmp_path: Path) -> None:
    """The scene of a picture is its label; one without is a problem."""
    root = layouts.ade20k(tmp_path / "d")
    _, samples, _ = packed(root, tmp_path / "o.lmdb", split="train")
    assert [1, 0, 1, 0, 1, 0, 1] == [each["label"] for each in samples.values()]
    with open_store(tmp_path / "o.lmdb") as store:
        assert ["bedroom", "street"] == store.metadata["classes"]
    scenes = (root / "sceneCategories.txt").read_text().splitlines()
    (root / "sceneCategories.txt").write_text("\n".join(scenes[1:]))
    _, _, skipped = packed(root, tmp_path / "p.lmdb", skip=True, split="train")
    assert {"images/training/ADE_train_00000000.jpg": "has no scene in sceneCategories.txt"} == skipped


# Boxes of tables and JSONs.


def test_open_images(tmp_path: Path) -> None:
    """Boxes are pixels, classes sorted by their ids, further columns stay; a picture that is not there is a problem."""
    path = layouts.open_images(tmp_path / "d")
    packed(path, tmp_path / "o.lmdb")

    assert [4, 5, 16, 10] * 2 == np.round(value(tmp_path / "o.lmdb", "boxes", 0, "<f4"), 4).tolist()
    assert [1, 0] == value(tmp_path / "o.lmdb", "classes", 0, "<i8")
    assert [2, 1] == [each["IsOccluded"] for each in json.loads(bytes(value(tmp_path / "o.lmdb", "objects", 0)))]
    with open_store(tmp_path / "o.lmdb") as store:
        assert {"classes": ["Dog", "Cat, big"]} == store.metadata["field_classes"]
    with path.open("a") as file:
        file.write("ffff,xclick,/m/01,1,0,1,0,1,0,0,0,0,0\n0000000000000000,xclick,/m/01,1,0.5,0.4,0,1,0,0,0,0,0\n")
    _, samples, skipped = packed(path, tmp_path / "p.lmdb", skip=True, root=tmp_path / "d/validation")
    assert (7, {"ffff", "validation-annotations-bbox.csv:17"}) == (len(samples), skipped.keys())


@pytest.mark.parametrize("folder", ["val2017", "elsewhere"])
def test_lvis(tmp_path: Path, folder: str) -> None:
    """Names come from addresses, with their folder or, where that is called otherwise, without; the JSON comes back."""
    path = layouts.lvis(tmp_path / "d")
    (tmp_path / "d/val2017").rename(tmp_path / "d" / folder)
    _, samples, _ = packed(path, tmp_path / "o.lmdb")
    prefix = "val2017/" if folder == "val2017" else ""

    assert {f"{prefix}{i:012d}.jpg" for i in range(7)} == samples.keys()
    with open_store(tmp_path / "o.lmdb") as store:
        unpack(store, tmp_path / "again")
    assert json.loads(path.read_bytes()) == json.loads((tmp_path / "again/lvis_v1_val.json").read_bytes())


# Files that are no pictures.


@pytest.mark.parametrize(("suffix", "name"), [(".mp4", "video"), (".wav", "audio"), (".bin", "content")])
def test_class_folders_of_bytes(tmp_path: Path, suffix: str, name: str) -> None:
    """Each file is bytes as they are, under its own name; other files beside it are problems."""
    root = layouts.class_files(tmp_path / "d", suffix)
    types, samples, _ = packed(root, tmp_path / "o.lmdb")

    assert {name: "bytes", "label": "int"} == types
    assert [f"{each}/{i}{suffix}" for each in "ab" for i in range(4)] == list(samples)
    assert {key: (root / key).read_bytes() for key in samples} == {key: each[name] for key, each in samples.items()}
    data, label = FastDataset(tmp_path / "o.lmdb", fields=(name, "label"))[5]
    assert (b"b1b1", 1) == (bytes(data), int(label))
    (root / "a/x.txt").write_text("x")
    (root / "a/y.json").write_text("{}")
    (root / "c").mkdir()
    _, samples, skipped = packed(root, tmp_path / "p.lmdb", skip=True)
    assert (8, {"a/y.json"}) == (len(samples), skipped.keys())
    with open_store(tmp_path / "p.lmdb") as store:
        assert ["a", "b", "c"] == store.metadata["classes"]


def test_class_folders_of_arrays(tmp_path: Path) -> None:
    """Arrays of one shape are a field of that shape."""
    for i in range(4):
        folder = tmp_path / "d" / "ab"[i % 2]
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / f"{i}.npy", np.full((2, 3), i, np.float32))
    types, samples, _ = packed(tmp_path / "d", tmp_path / "o.lmdb")

    assert {"array": "float32[2,3]", "label": "int"} == types
    assert {f"{'ab'[i % 2]}/{i}.npy": (np.full(6, i, np.float32).tobytes(), i % 2) for i in range(4)} == {
        key: (each["array"], each["label"]) for key, each in samples.items()
    }


def test_folders_of_two_kinds_of_files(tmp_path: Path) -> None:
    """What is meant, nobody can tell."""
    root = layouts.class_files(tmp_path / "d", ".mp4")
    tree(root, {"a/0.wav": "x"})
    assert "is of no kind that fastio packs: found 9 files" in refused(root)


# What lies behind many other folders or files: 20 or 40 of them, as some layouts look at the first 16 or 32 of others.


def others(count: int = 40) -> layouts.Files:
    """Folders with a note each, which come before the dataset's own."""
    return {f"a{i:02d}/note.md": "a note" for i in range(count)}


def two_fields(*parts: str) -> layouts.Files:
    """Pictures and masks, of each part in folders of its own."""
    return pictures(*(f"{part}/{field}/{i}.png" for part in parts for field in ("images", "masks") for i in range(2)))


@pytest.mark.parametrize("kind", ["list", "table", "ids"])
def test_pictures_behind_many_folders(tmp_path: Path, kind: str) -> None:
    """Labels are those of the list or table, whose pictures lie in one of 41 folders."""
    names = ["7a", "7b", "7c"]
    suffix = ".jpg" if kind != "ids" else ""
    lines = [f"{name}{suffix},{i + 4}" for i, name in enumerate(names)]
    file = {"all.txt" if kind == "list" else "all.csv": "\n".join(["image,label"] * (kind != "list") + lines)}
    tree(tmp_path / "d", {**others(), **pictures(*(f"z/{name}.jpg" for name in names)), **file})
    _, samples, _ = packed(tmp_path / "d", tmp_path / "o.lmdb")

    assert [4, 5, 6] == [each["label"] for each in samples.values()]
    with open_store(tmp_path / "d") as store:
        assert [4, 5, 6] == store.column("label").tolist()


@pytest.mark.parametrize("kind", ["list", "table"])
def test_many_lists_and_tables(tmp_path: Path, kind: str) -> None:
    """Each of 20 is a part."""
    suffix, title = (".txt", "") if kind == "list" else (".csv", "image,label\n")
    files = {f"part{i:02d}{suffix}": f"{title}p/0.png,{i}\n" for i in range(20)}
    tree(tmp_path / "d", {**pictures("p/0.png", "p/1.png"), **files})

    assert f"has 20 {kind}s, " in refused(tmp_path / "d")
    _, samples, _ = packed(tmp_path / "d", tmp_path / "o.lmdb", split="part18")
    assert [18] == [each["label"] for each in samples.values()]


def test_many_parts_of_masks(tmp_path: Path) -> None:
    """Of 20 parts none is taken for all, and one behind 40 other folders is found."""
    tree(tmp_path / "many", two_fields(*(f"scene{i:02d}" for i in range(20))))
    assert "has 20 parts, " in refused(tmp_path / "many")
    assert 2 == len(packed(tmp_path / "many", tmp_path / "o.lmdb", split="scene18")[1])
    tree(tmp_path / "late", {**others(15), **two_fields("train", "val")})
    assert "has 2 parts, 'train', 'val'" in refused(tmp_path / "late")
    tree(tmp_path / "one", {**others(), **two_fields("train")})
    types, samples, _ = packed(tmp_path / "one", tmp_path / "p.lmdb")
    assert {"image", "mask"} == types.keys()
    assert 2 == len(samples)


@pytest.mark.parametrize("kind", ["mds", "litdata"])
def test_many_folders_beside_shards(tmp_path: Path, kind: str) -> None:
    """A split behind 40 other folders counts as much as one before them."""
    tree(tmp_path / "d", others())
    KINDS[kind](tmp_path / "d" / "train", 8)
    assert 8 == len(open_store(tmp_path / "d"))
    KINDS[kind](tmp_path / "d" / "a", 8)
    assert ": holds several splits, a, train: choose one" in refused(tmp_path / "d")


def test_years_of_voc(tmp_path: Path) -> None:
    """They are no classes: one is to be named, as a folder or as the split."""
    for year in ("VOC2007", "VOC2012"):
        layouts.voc(tmp_path / "VOCdevkit" / year)
    command = f"fastio pack {tmp_path}/VOCdevkit/VOC2012 VOC2012.lmdb --split trainval"

    for split in (None, "trainval"):
        expected = f"several years, 'VOC2007', 'VOC2012': name one, as in `{command}`"
        assert expected in refused(tmp_path / "VOCdevkit", split=split)
    assert 7 == len(packed(tmp_path / "VOCdevkit", tmp_path / "o.lmdb", split="VOC2007")[1])
    assert 7 == len(open_store(tmp_path / "VOCdevkit", unpacked=Unpacked(split="VOC2007")))


@pytest.mark.parametrize("shape", ["{part}/{field}", "{field}/{part}"])
def test_parts_of_yolo_without_objects(tmp_path: Path, shape: str) -> None:
    """One whose label files are all empty is a part like the other; names of classes beside labels are no labels."""
    files = dict[str, str | bytes]()
    for part in ("train", "val"):
        images, labels = (shape.format(part=part, field=field) for field in ("images", "labels"))
        files |= pictures(*(f"{images}/{i}.png" for i in range(2)))
        files |= {f"{labels}/{i}.txt": "0 .5 .5 .1 .1\n" * (part == "train") for i in range(2)}
        files[f"{labels}/classes.txt"] = "dog\n"
    tree(tmp_path / "d", files)

    assert "has 2 parts, 'train', 'val'" in refused(tmp_path / "d")
    assert 2 == len(packed(tmp_path / "d", tmp_path / "o.lmdb", split="val")[1])


def test_ids_in_two_folders(tmp_path: Path) -> None:
    """Which folder is meant is asked, however many lie between them."""
    table = layouts.open_images(tmp_path / "d")
    tree(tmp_path / "d", {**{f"w{i:02d}/note.md": "a note" for i in range(40)}, **pictures("z/0000000000000000.jpg")})

    assert "both do: name it with --root" in refused(table)
