"""Tables that are wrong: a bad row is a problem of its own, a table that cannot be understood is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastio.converters import pack
from fastio.errors import SourceError
from fastio.store import open_store
from tests.converters.sources.tables.table_files import as_csv, dataset, jsonl, opened, packed, rows_of
from tests.converters.sources.test_pairs import tree
from tests.converters.trees import picture

# A row that replaces that of images/1.png, the key under which it is reported, and a part of the sentence.
BAD_ROWS: dict[str, tuple[Any, str, str]] = {
    "no such file": ({"file_name": "images/none.png"}, "images/none.png", "there is no such file"),
    "no such mask": ({"mask_file_name": "masks/none.png"}, "images/1.png", "there is no such file"),
    "parent": ({"file_name": "../set/images/1.png"}, "metadata.jsonl:2", "leads out of the folder"),
    "parent in the middle": ({"file_name": "images/../images/1.png"}, "metadata.jsonl:2", "leads out of the folder"),
    "mask of a parent": ({"mask_file_name": "../../etc/passwd"}, "images/1.png", "leads out of the folder"),
    "absolute": ({"file_name": "/etc/passwd"}, "metadata.jsonl:2", "is a path elsewhere"),
    "NUL": ({"file_name": "images/1\0.png"}, "metadata.jsonl:2", "holds a NUL"),
    "surrogate": ({"file_name": "images/\ud800.png"}, "metadata.jsonl:2", "is not UTF-8"),
    "empty name": ({"file_name": ""}, "metadata.jsonl:2", "is empty"),
    "dot": ({"file_name": "."}, "metadata.jsonl:2", "leads out of the folder"),
    "folder": ({"file_name": "images"}, "images", "which is a folder"),
    "through a file": ({"file_name": "images/0.png/x.png"}, "images/0.png/x.png", "Not a directory"),
    "too long": ({"file_name": "a" * 300 + ".png"}, "a" * 300 + ".png", "File name too long"),
    "repeated": ({"file_name": "images/0.png"}, "images/0.png", "comes twice"),
    "repeated otherwise": ({"file_name": "./images//0.png"}, "images/0.png", "comes twice"),
    "empty file": ({"file_name": "empty.png"}, "empty.png", "is empty (0 bytes)"),
    "text file": ({"file_name": "text.png"}, "text.png", "not an image"),
    "cut file": ({"file_name": "cut.png"}, "cut.png", ""),
    "pipe": ({"file_name": "pipe.png"}, "pipe.png", "not a regular file"),
    "broken link": ({"file_name": "link.png"}, "link.png", "there is no such file"),
    "no object": (b"[1, 2]", "metadata.jsonl:2", "is a list, expected an object"),
    "cut line": (b'{"file_name": "images/1', "metadata.jsonl:2", "is not JSON"),
    "twice the same title": (b'{"file_name": "a", "file_name": "b"}', "metadata.jsonl:2", "twice"),
    "latin line": (b'{"file_name": "\xe9.png"}', "metadata.jsonl:2", "is not UTF-8"),
    "text with half a character": ({"text": "\ud800"}, "images/1.png", "surrogate"),
    "NaN in JSON": (None, "images/1.png", "JSON"),
    "boxes of three": ({"objects": {"bbox": [[1, 2, 3]], "categories": [1]}}, "images/1.png", "expected xywh"),
    "boxes that are text": ({"objects": {"bbox": "1 2 3 4", "categories": [1]}}, "images/1.png", "expected xywh"),
    "no boxes": ({"objects": {"categories": [1]}}, "images/1.png", "'boxes'"),
    "objects that are a number": ({"objects": 5}, "images/1.png", "has no 'objects.bbox'"),
    "objects that are null": ({"objects": None}, "images/1.png", "'boxes'"),
    "huge box": ({"objects": {"bbox": [[10**400, 0, 1, 1]], "categories": [1]}}, "images/1.png", "'boxes'"),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_a_bad_row_is_a_problem(tmp_path: Path, name: str) -> None:
    """What is wrong with a row is said under its key, and the others are packed."""
    change, key, sentence = BAD_ROWS[name]
    rows = rows_of()
    lines = jsonl(rows).splitlines(keepends=True)
    if isinstance(change, bytes):
        lines[1] = change + b"\n"
    elif change is None:
        lines[1] = lines[1].replace(b"0.5", b"NaN")
    else:
        lines[1] = json.dumps({**rows[1], **change}).encode() + b"\n"
    root = dataset(tmp_path / "set", b"".join(lines))
    tree(root, {"empty.png": b"", "text.png": b"no picture at all", "cut.png": picture(1)[:20]})
    os.mkfifo(root / "pipe.png")
    (root / "link.png").symlink_to("nowhere")
    source = opened(root, "boxes=objects.bbox:xywh")
    with pytest.raises(SourceError):
        pack(source, tmp_path / "no.lmdb")
    report = packed(source, tmp_path / "out.lmdb")

    with open_store(tmp_path / "out.lmdb") as store:
        assert {"images/2.png", "images/3.png"} <= set(store.keys(np.arange(report.packed))) <= set(source.keys)
    sentences = [each.problem for each in report.skipped if each.key == key]
    assert any(sentence in each for each in sentences), report.skipped


def test_pictures_without_a_row_are_problems(tmp_path: Path) -> None:
    """A picture that no row names is listed; other files are left out by name."""
    root = dataset(tmp_path / "set", jsonl(rows_of(3)))
    (root / "coco.json").write_text("{}")
    report = packed(opened(root), tmp_path / "out.lmdb")

    missing = [("images/3.png", "has no row in metadata.jsonl"), ("masks/3.png", "has no row in metadata.jsonl")]
    assert missing == [(each.key, each.problem) for each in report.skipped]
    assert ["coco.json"] == [each.key for each in report.left_out]


@pytest.mark.parametrize(
    ("table", "options", "sentence"),
    [
        (b"", {}, "holds no rows"),
        (b"\n\n", {}, "holds no rows"),
        (b"nothing\n", {}, "holds no rows; line 1 is not JSON"),
        (jsonl([{"path": "images/0.png"}]), {}, "has no column 'file_name', only 'path'"),
        (jsonl(rows_of()), {"ignore_columns": ("no",)}, "--without no: there is no such column"),
        (jsonl(rows_of()), {"filters": (("no", "1"),)}, "--filter no: there is no such column"),
        (jsonl(rows_of()), {"key_column": "no"}, "--key-column no: there is no such column"),
        (jsonl(rows_of()), {"label_columns": ("no",)}, "--label-column no: there is no such column"),
        (jsonl(rows_of()), {"label_columns": ("count", "score")}, "one column of a table can be the label"),
        (jsonl(rows_of()), {"label_columns": ("objects",)}, "expected one number or name"),
        (jsonl([{"file_name": "images/0.png", "A b": 1, "a_b": 2}]), {}, "would both be the field 'a_b'"),
        (jsonl([{"file_name": "images/0.png", "image": 1}]), {}, "would both be the field 'image'"),
        (jsonl([{"file_name": "images/0.png", "1st": 1}]), {}, "cannot be the name of a field"),
        (jsonl([{"file_name": f"{i}.png", "label": f"a bee {i}"} for i in range(30)]), {}, "captions or names"),
    ],
)
def test_tables_that_are_refused(tmp_path: Path, table: bytes, options: dict[str, Any], sentence: str) -> None:
    """What could be meant otherwise, or is nothing, is an error with what to type."""
    root = dataset(tmp_path / "set", table)
    with pytest.raises(SourceError, match=sentence):
        opened(root, **options)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b'file_name,text\nimages/0.png,"open\n', "is a quote open"),
        (b"file_name,file_name\nimages/0.png,x\n", "two columns have the same name"),
        ("file_name,text\n".encode("utf-16"), "UTF-16"),
        (b"file_name,text\n", "holds no rows"),
        (b"", "holds no rows"),
    ],
)
def test_csv_that_cannot_be_read(tmp_path: Path, data: bytes, sentence: str) -> None:
    """A table whose rows cannot be told apart is refused as a whole."""
    root = dataset(tmp_path / "set", data, "metadata.csv")
    with pytest.raises(SourceError, match=sentence):
        opened(root)


def test_a_bad_line_is_named_once(tmp_path: Path) -> None:
    """The path of a table is that of its lines: it comes once."""
    path = dataset(tmp_path / "set", jsonl(rows_of()) + b"broken\n") / "metadata.jsonl"
    with pytest.raises(SourceError) as caught:
        pack(opened(path, root=path.parent), tmp_path / "out.lmdb")

    assert str(caught.value).startswith(f"{path}:5: is not JSON")


def test_csv_rows_of_other_lengths(tmp_path: Path) -> None:
    """A row with too few or too many cells, or that is not UTF-8, is a problem of that row."""
    data = b"file_name,text\nimages/0.png\nimages/1.png,a,b\nimages/2.png,\xe9\nimages/3.png,ok\n"
    root = dataset(tmp_path / "set", data, "metadata.csv")
    report = packed(opened(root), tmp_path / "out.lmdb")

    assert 1 == report.packed
    assert {"metadata.csv:2", "metadata.csv:3", "images/2.png"} <= {each.key for each in report.skipped}


def test_two_tables_are_refused(tmp_path: Path) -> None:
    """Which of two tables counts, nobody can tell."""
    root = dataset(tmp_path / "set", jsonl(rows_of()))
    (root / "metadata.csv").write_bytes(as_csv(rows_of()))
    with pytest.raises(SourceError, match=r"found metadata\.csv and metadata\.jsonl"):
        opened(root)


@pytest.mark.parametrize("name", ["metadata.jsonl", "metadata.json", "metadata.csv"])
def test_numbers_beyond_float64(tmp_path: Path, name: str) -> None:
    """1e400 is a problem of its row, by its column, as no float can give it back; Infinity by its name is a number."""
    numbers = [("0.5", "[1, 2]"), ("1e400", "[1, 2]"), ("0.5", "[1, -1e400]"), ("Infinity", "[NaN, 2]")]
    objects = [f'{{"file_name": "images/{i}.png", "score": {a}, "all": {b}}}' for i, (a, b) in enumerate(numbers)]
    cells = ["file_name,score,all", *(f'images/{i}.png,{a},"{b}"' for i, (a, b) in enumerate(numbers))]
    text = {"jsonl": "\n".join(objects), "json": f"[{','.join(objects)}]", "csv": "\n".join(cells)}
    dataset(tmp_path / "set", text[name.rpartition(".")[2]].encode(), name)
    fields = ("image=file_name", "score=score:float", "all=all:float32[*]")
    source = opened(tmp_path / "set" / name, *fields, root=tmp_path / "set")
    report = packed(source, tmp_path / "out.lmdb")

    line = (3, 4) if name.endswith("csv") else (2, 3)  # of .json, the row
    assert {
        "images/1.png": f"has a number in 'score' that is beyond float64: write it as text ({name}:{line[0]})",
        "images/2.png": f"has a number in 'all' that is beyond float64: write it as text ({name}:{line[1]})",
    } == {each.key: each.problem for each in report.skipped}
    with open_store(tmp_path / "out.lmdb") as store:
        assert [0.5, float("inf")] == store.column("score").tolist()


@pytest.mark.parametrize(
    ("name", "text", "field", "line"),
    [
        ("a.jsonl", '{"n": 1, "m": {"a": 1, "a": 2}}\n{"n": 2, "m": {"a": 3}}\n', "m", 1),
        ("a.jsonl", '{"n": 1, "m": [{"a": 1, "a": 2}]}\n{"n": 2, "m": [{"a": 3}]}\n', "m", 1),
        ("a.json", '[{"n": 1, "m": {"x": {"a": 1, "a": 2}}},{"n": 2, "m": {"x": {}}}]', "m", 1),
        ("a.jsonl", '{"n": 1, "m": {"a": 1, "a": 2}}\n{"n": 2, "m": {"a": 3}}\n', "m.a", 1),
        ("a.csv", 'n,m\n1,"{""a"":1,""a"":2}"\n2,{}\n', "m", 2),
        ("a.csv", 'n,m\n1,"{""a"":1,""a"":2}"\n2,"{""a"":3}"\n', "m.a", 2),
    ],
)
def test_names_that_come_twice_in_json(tmp_path: Path, name: str, text: str, field: str, line: int) -> None:
    """Readers of JSON keep the last of them; the first would be lost. What is not packed may have them."""
    (tmp_path / name).write_text(text)
    rest = ("m",) if "." in field else ()
    report = pack(opened(tmp_path / name, f"q={field}:json", ignore_columns=rest), tmp_path / "out.h5", on_error="skip")

    assert [f"{name}:{line}"] == [each.key for each in report.skipped]
    assert "the name 'a' twice in an object" in report.skipped[0].problem
    assert 1 == report.packed
    assert 2 == pack(opened(tmp_path / name, "note=n:json", ignore_columns=("m",)), tmp_path / "two.h5").packed
