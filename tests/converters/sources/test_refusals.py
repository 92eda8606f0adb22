"""What is answered to folders with something wrong: the whole line, as the guide shows it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from fastio import FastDataset, Unpacked
from fastio.cli import cli
from fastio.errors import StoreError
from tests.converters.sources.layouts import pictures
from tests.converters.trees import class_folders, flat, tree

GUIDE = (Path(__file__).parents[3] / "fastio/guide/packing.md").read_text()
TABLE = GUIDE.split("## What a refusal says")[1].split("\n| --- |")[1].split("\n\n")[0]
ROWS = {
    typed: answer.strip(" |")
    for typed, answer in re.findall(r"^\| [^|]+ \| `(fastio pack [^`]+)` \| (.+)$", TABLE, re.MULTILINE)
}


def _empty(at: Path) -> None:
    (at / "new").mkdir()


def _wrapped(at: Path) -> None:
    (at / "download").mkdir()
    class_folders(at / "download/photos")


def _parts(at: Path) -> None:
    (at / "photos").mkdir()
    for part in ("train", "val"):
        class_folders(at / "photos" / part)


def _yolo(at: Path) -> None:
    labels = {"labels/a.txt": "cat 0.5 0.5 0.1 0.1\n", "labels/b.txt": "dog 0.1 0.1 0.1 0.1\n"}
    tree(at / "boxes", {**pictures("images/a.jpg", "images/b.jpg"), **labels})


def _voc(at: Path) -> None:
    tree(at / "voc", {**pictures("JPEGImages/a.jpg"), "Annotations/a.xml": "<data><object/></data>"})


def _cityscapes(at: Path) -> None:
    tree(at / "city", pictures("leftImg8bit/train/bern/bern_0_0_leftImg8bit.png"))


def _coco(at: Path) -> None:
    entries = '{"images": [{"id": 1, "file_name": "b.jpg"}], "annotations": [], "categories": []}'
    tree(at / "coco", {**pictures("images/a.jpg"), "annotations/instances.json": entries})


def _masks(at: Path) -> None:
    tree(at / "scenes", {**pictures("images/a.jpg"), **pictures("mask/a.png", mode="L")})


def _labels(at: Path) -> None:
    flat(at / "pngs")
    (at / "labels.csv").write_text("file,label\nx.png,1\n")


def _list(at: Path) -> None:
    tree(at / "lists", {"train.txt": "a.jpg 1\nb.jpg 2\n"})


def _dicom(at: Path) -> None:
    tree(at / "scans", {"a/1.dcm": "x", "b/2.dcm": "x"})


BUILD: dict[str, Callable[[Path], None]] = {
    "fastio pack new out.lmdb": _empty,
    "fastio pack download out.lmdb": _wrapped,
    "fastio pack photos out.lmdb": _parts,
    "fastio pack boxes out.lmdb": _yolo,
    "fastio pack voc out.lmdb": _voc,
    "fastio pack city out.lmdb": _cityscapes,
    "fastio pack coco out.lmdb": _coco,
    "fastio pack scenes/images out.lmdb --field mask=masks/": _masks,
    "fastio pack pngs out.lmdb --labels labels.csv": _labels,
    "fastio pack lists out.lmdb": _list,
    "fastio pack scans out.lmdb": _dicom,
}


def test_the_guide_shows_each() -> None:
    """Its table and the folders that are built here are about the same commands."""
    assert BUILD.keys() == ROWS.keys()


@pytest.mark.parametrize("typed", BUILD)
def test_the_answer_is_that_of_the_guide(typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, to the letter; nothing is written. FastDataset says the same, but for the name of the store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    BUILD[typed](tmp_path)
    before = sorted(tmp_path.rglob("*"))
    words = shlex.split(typed)
    result = CliRunner().invoke(cli, words[1:])

    assert 1 == result.exit_code
    assert f"error: {ROWS[typed]}" == result.output.splitlines()[-1]
    assert before == sorted(tmp_path.rglob("*"))
    given = dict(zip(words[4::2], words[5::2], strict=True))
    fields = [given["--field"]] if "--field" in given else []
    with pytest.raises(StoreError) as caught:
        FastDataset(words[2], unpacked=Unpacked(given.get("--labels"), fields=fields))
    name = Path(words[2]).name
    assert ROWS[typed] == re.sub(rf"(?<= ){name}\.lmdb", "out.lmdb", str(caught.value))
