"""Tables that name pictures without their extensions, and tables beside the folders of their pictures."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from fastio.cli import cli
from fastio.converters import open_source
from fastio.converters.inspect.unpack import unpack
from fastio.errors import SourceError
from fastio.store import open_store
from tests.commands import run
from tests.converters.sources.packed import packed, refused
from tests.converters.trees import files_below, picture


def pictures(folder: Path, names: list[str]) -> dict[str, bytes]:
    """Files of these names in a folder, as PNGs or JPEGs; their bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {name: picture(seed, kind="PNG" if name.endswith("png") else "JPEG") for seed, name in enumerate(names)}
    for name, data in made.items():
        (folder / name).write_bytes(data)
    return made


def table(path: Path, rows: Mapping[object, object], title: str = "id_code") -> Path:
    """A table of two columns."""
    path.write_text(f"{title},kind\n" + "".join(f"{key},{value}\n" for key, value in rows.items()))
    return path


IDS = ["0a", "0b", "000c", "d.e"]


@pytest.mark.parametrize("title", ["id_code", "image", "whatever", "file_name"])
def test_stems_take_the_pictures(tmp_path: Path, title: str) -> None:
    """--root with a column of stems packs the pictures, each under its own name; the table comes back."""
    made = pictures(tmp_path / "images", [f"{each}.{'png' if i % 2 else 'jpg'}" for i, each in enumerate(IDS)])
    rows = table(tmp_path / "t.csv", {each: i for i, each in enumerate(IDS)}, title)
    types, samples, _ = packed(rows, tmp_path / "o.lmdb", root=tmp_path / "images")

    assert {"image": "image", "kind": "int"} == types
    assert {name: {"image": data, "kind": i} for i, (name, data) in enumerate(made.items())} == samples
    with open_store(tmp_path / "o.lmdb") as store:
        unpack(store, tmp_path / "again")
    assert {**made, "t.csv": rows.read_bytes()} == files_below(tmp_path / "again")


def test_numbers_are_stems_too(tmp_path: Path) -> None:
    """Whole numbers of a .jsonl; a number that is a label is none."""
    made = pictures(tmp_path / "images", ["0.png", "1.png", "2.png"])
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"label": 2 - i, "id": i}) + "\n" for i in range(3)))
    _, samples, _ = packed(tmp_path / "t.jsonl", tmp_path / "o.lmdb", root=tmp_path / "images")

    assert {f"{i}.png": {"image": made[f"{i}.png"], "label": 2 - i} for i in range(3)} == samples
    with open_store(tmp_path / "o.lmdb") as store:
        unpack(store, tmp_path / "again")
    assert (tmp_path / "t.jsonl").read_bytes() == (tmp_path / "again/t.jsonl").read_bytes()


def test_names_alone_are_never_packed(tmp_path: Path) -> None:
    """Without --root, a column of stems of pictures near by is refused, with the command that takes them."""
    made = pictures(tmp_path / "train", [f"{each}.png" for each in IDS])
    rows = table(tmp_path / "t.csv", dict.fromkeys(IDS, "a"))
    for more in ({"label_column": "kind"}, {"key_column": "id_code"}, {"field": "text=kind:text"}):
        options = [word for name, value in more.items() for word in (f"--{name.replace('_', '-')}", value)]
        said = run("pack", rows, tmp_path / "o.lmdb", *options, code=1)
        assert "column 'id_code' names pictures in" in said
        root = shlex.split(re.search(r"(--root \S+) takes the pictures", said)[1])  # type: ignore[index]
        run("pack", rows, tmp_path / "o.lmdb", *options, *root)
        with open_store(tmp_path / "o.lmdb") as store:
            assert sorted(made) == sorted(store.keys(range(4)))
            assert "image" in store.schema
        (tmp_path / "o.lmdb").unlink()
    run("pack", rows, tmp_path / "o.lmdb", "--field", "name=id_code:text")  # asked for
    rows.rename(tmp_path / "train/t.csv")
    for path in made:
        (tmp_path / "train" / path).unlink()
    said = run("pack", tmp_path / "train/t.csv", tmp_path / "p.lmdb", "--label-column", "kind", code=1)
    assert "samples would hold 'id_code' alone, such as '0a': if these name pictures, --root FOLDER says" in said


def test_a_stem_must_be_unique_and_there(tmp_path: Path) -> None:
    """Two pictures of a stem, and none, are problems of the row; the rest is packed."""
    pictures(tmp_path / "i", ["0a.png", "0b.png", "0b.jpg", "000c.png"])
    rows = table(tmp_path / "t.csv", {each: i for i, each in enumerate(IDS)})
    _, samples, skipped = packed(rows, tmp_path / "o.lmdb", skip=True, root=tmp_path / "i")

    assert ["0a.png", "000c.png"] == list(samples)
    assert "which 0b.jpg and 0b.png are called: remove one" in skipped["t.csv:3"]
    assert "but there is no picture of that name" in skipped["t.csv:5"]
    said = run("info", tmp_path / "o.lmdb")
    assert "0b.jpg (nothing names it; in its folder, that is true of 1 .jpg, 1 .png)" in said


def test_two_columns_of_stems_are_asked_about(tmp_path: Path) -> None:
    """One of an unknown title each."""
    pictures(tmp_path / "i", ["a.png", "b.png"])
    (tmp_path / "t.csv").write_text("left,right\na,b\nb,a\n")

    said = refused(tmp_path / "t.csv", root=tmp_path / "i")
    assert "columns 'left' and 'right' both name pictures" in said
    assert "--field image=left:image" in said


@pytest.mark.parametrize("suffix", [".png", ""])
def test_tables_beside_their_folders(tmp_path: Path, suffix: str) -> None:
    """A root of train.csv, train/ and more is one dataset of several parts; what is not packed is named by count."""
    root = tmp_path / "kaggle"
    made = pictures(root / "train", [f"{each}.png" for each in IDS])
    pictures(root / "test", ["t1.png", "t2.png"])
    (root / "test/x.dat").write_bytes(b"x")
    table(root / "train.csv", {f"{each}{suffix}": i for i, each in enumerate(IDS)})
    table(root / "sample_submission.csv", {f"t1{suffix}": 0, f"t2{suffix}": 0})
    said = refused(root)

    assert "has 2 tables, 'sample_submission', 'train': choose one" in said
    assert f"`fastio pack {root} train.lmdb --split train`" in said
    _, samples, _ = packed(root, tmp_path / "o.lmdb", split="train")
    field = "id_code" if suffix else "image"  # names of files have the name of their column
    assert {name: {field: data, "kind": i} for i, (name, data) in enumerate(made.items())} == samples
    assert "test/ (is not of this part: 3 files (2 .png, 1 .dat))" in run("info", tmp_path / "o.lmdb")
    _, samples, _ = packed(root, tmp_path / "s.lmdb", split="sample_submission")
    assert ["t1.png", "t2.png"] == list(samples)
    said = refused(root, split="test")
    assert f"`fastio pack {root / 'test'} test.lmdb` packs that folder alone" in said


def test_the_first_picture_may_be_missing(tmp_path: Path) -> None:
    """The table is still recognised; its row is a problem."""
    pictures(tmp_path / "d/train", ["b.png", "c.png"])
    table(tmp_path / "d/train.csv", {"a": 0, "b": 1, "c": 2})
    _, samples, skipped = packed(tmp_path / "d", tmp_path / "o.lmdb", skip=True)

    assert ["b.png", "c.png"] == list(samples)
    assert {"train.csv:2"} == skipped.keys()


def test_one_table_needs_no_split(tmp_path: Path) -> None:
    """Where one table alone names pictures, it is taken; with labels too."""
    pictures(tmp_path / "d/photos", ["a.png", "b.png"])
    table(tmp_path / "d/labels.csv", {"a.png": "x", "b.png": "y"})
    run("pack", tmp_path / "d", tmp_path / "o.lmdb", "--label-column", "kind")

    with open_store(tmp_path / "o.lmdb") as store:
        assert (["x", "y"], [0, 1]) == (store.metadata["classes"], store.column("label").tolist())
    assert "2 compared" in run("verify", tmp_path / "o.lmdb", "--against", tmp_path / "d")


def test_names_in_two_folders_are_asked_about(tmp_path: Path) -> None:
    """Which of two folders is meant, nobody can tell from names that both have."""
    for folder in ("left", "right"):
        pictures(tmp_path / f"d/{folder}", ["a.png", "b.png"])
    table(tmp_path / "d/rows.csv", {"a.png": 1, "b.png": 2})

    said = refused(tmp_path / "d")
    assert "'left' and 'right' hold pictures of the names in rows.csv" in said
    _, samples, _ = packed(tmp_path / "d", tmp_path / "o.lmdb", root=tmp_path / "d/right")
    assert ["a.png", "b.png"] == list(samples)


def test_labels_by_stem(tmp_path: Path) -> None:
    """A label file without extensions labels a flat folder; stems that two files have label none."""
    pictures(tmp_path / "i", ["0a.png", "0b.jpg", "000c.png"])
    labels = tmp_path / "l.csv"
    labels.write_text("id,label\n0a,x\n0b,y\n000c,x\n")
    source = open_source(tmp_path / "i", labels=labels)

    assert (["x", "y"], [0, 0, 1]) == (source.metadata["classes"], source.columns["label"].tolist())
    (tmp_path / "i/0b.png").write_bytes(picture(1))
    problems = {each.key: each.problem for each in open_source(tmp_path / "i", labels=labels).problems}
    assert {"0b.jpg", "0b.png", "0b"} == problems.keys()
    labels.write_text("id,label\n0b,y\n")
    with pytest.raises(SourceError, match=r"names '0b' .*; add the extensions to its names, as in '0b\.png'"):
        open_source(tmp_path / "i", labels=labels)


@pytest.mark.parametrize("command", ["pack", "info"])
def test_info_and_pack_agree(tmp_path: Path, command: str) -> None:
    """Both take --split of a root."""
    pictures(tmp_path / "d/train", ["a.png"])
    pictures(tmp_path / "d/val", ["b.png"])
    for part, name in (("train", "a"), ("val", "b")):
        table(tmp_path / f"d/{part}.csv", {name: 1})
    out = [tmp_path / "o.lmdb"] if command == "pack" else []
    result = CliRunner().invoke(cli, list(map(str, [command, tmp_path / "d", *out, "--split", "val"])))

    assert 0 == result.exit_code, result.output
    assert "a table beside the folder of its pictures" in result.output
    with pytest.raises(SourceError, match="has no table 'extra' for --split, only 'train', 'val'"):
        open_source(tmp_path / "d", split="extra")


def test_pictures_of_a_split_are_not_packed_without_its_table(tmp_path: Path) -> None:
    """Whose ids name none of them: the labels would be lost without a word."""
    made = pictures(tmp_path / "data" / "train", ["x1.png", "x2.png"])
    pictures(tmp_path / "data" / "test", ["x3.png"])
    table(tmp_path / "data" / "train.csv", {"z1": "dog", "z2": "cat"})
    said = refused(tmp_path / "data", split="train")

    assert "'train.csv' beside 'train' names no picture in there" in said
    _, samples, _ = packed(tmp_path / "data" / "train", tmp_path / "o.lmdb")
    assert {name: {"image": data} for name, data in made.items()} == samples
    assert len(open_source(tmp_path / "data", split="test")) == 1
