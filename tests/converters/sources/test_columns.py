"""Every column of a source is packed, named as left out, or refused because it holds pictures."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest
import webdataset
from click.testing import CliRunner

from fastio.cli import cli
from fastio.converters import LabelOptions, open_source, pack
from fastio.converters.fields.types import parse_choice
from fastio.errors import SourceError
from fastio.store import open_store
from tests.commands import run
from tests.converters.sources.arrow.picture_tables import picture_table, write_file, write_parquet, write_stream
from tests.converters.sources.test_pairs import tree
from tests.converters.sources.tfrecord.records import example, write_records
from tests.converters.trees import picture

PAIR = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def lines(path: Path, *rows: dict[str, Any]) -> Path:
    """A .jsonl."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def interleaved(count: int = 3) -> pa.Table:
    """A text, its source, and two pictures each; the first row has none."""
    pairs = [[{"bytes": picture(i), "path": f"{i}.png"}] * 2 for i in range(count)]
    images = pa.array([[], *pairs[1:]], pa.list_(PAIR))
    return pa.table({"text": [f"t{i}" for i in range(count)], "source": ["web"] * count, "images": images})


def as_text(data: bytes) -> str:
    """Base64."""
    return base64.b64encode(data).decode()


def _store(folder: Path) -> Path:
    table = write_parquet(
        folder / "a.parquet", picture_table(2, mask=[picture(i, mode="L") for i in range(2)], tag=["x", "y"])
    )
    run("pack", table, folder / "a.lmdb")
    return folder / "a.lmdb"


def _shard(folder: Path) -> Path:
    with webdataset.TarWriter(str(folder / "a.tar")) as tar:
        tar.write({"__key__": "k", "png": picture(0), "mask.png": picture(1), "txt": "t"})
    return folder / "a.tar"


def _records(folder: Path) -> Path:
    features = {"image/encoded": picture(0), "image/depth": picture(1), "image/text": b"t"}
    write_records(folder / "a.tfrecord", [example(features)])
    return folder / "a.tfrecord"


def _hdf5(folder: Path) -> Path:
    with h5py.File(folder / "a.h5", "w") as file:
        file["x"] = np.zeros((2, 4, 4, 3), np.uint8)
        thumbs = file.create_dataset("thumbs", (2,), h5py.vlen_dtype(np.uint8))
        for i in range(2):
            thumbs[i] = np.frombuffer(picture(i), np.uint8)
    return folder / "a.h5"


def _named(folder: Path, value: Callable[[str], Any]) -> Path:
    """A table of texts and pictures that lie beside it, which ``value`` names."""
    tree(folder, {f"p/{i}.png": picture(i) for i in range(3)})
    return lines(folder / "a.jsonl", *({"text": f"t{i}", "image": value(f"p/{i}.png")} for i in range(3)))


SOURCES: dict[str, tuple[Callable[[Path], Path], list[str], str, str]] = {
    # a maker, options, the column, and what is said of it
    "parquet": (
        lambda f: write_parquet(f / "a.parquet", interleaved()), ["--text-column", "text"],
        "images", "lists of pictures",
    ),
    "arrow": (
        lambda f: write_stream(f / "a.arrow", interleaved(), 2), ["--field", "t=text"], "images", "lists of pictures",
    ),
    "parquet, fields": (
        lambda f: write_parquet(f / "a.parquet", picture_table(2, tag=["x", "y"])),
        ["--field", "tag=tag"], "image", "pictures",
    ),
    "parquet, text": (
        lambda f: write_parquet(f / "a.parquet", picture_table(2, text=["x", "y"])),
        ["--text-column", "text"], "image", "pictures",
    ),
    "parquet, base64": (
        lambda f: write_parquet(f / "a.parquet", pa.table({"text": ["x"], "image": [as_text(picture(0))]})),
        ["--field", "text=text"], "image", "pictures as base64 text",
    ),
    "parquet, bytes in lists": (
        lambda f: write_parquet(f / "a.parquet", pa.table({"text": ["x"], "frames": [[picture(0)]]})),
        ["--field", "text=text"], "frames", "lists of pictures",
    ),
    "jsonl, names in objects": (
        lambda f: _named(f, lambda name: {"parts": [{"image": name}]}), [], "image", "lists of names of pictures",
    ),
    "table, base64 in lists of lists": (
        lambda f: lines(f / "a.jsonl", {"image": [["data:image/png;base64," + as_text(picture(0))]], "t": "x"}),
        ["--field", "t=t"], "image", "lists of pictures as base64 text",
    ),
    "tfrecord": (_records, ["--field", "caption=image/text"], "image/depth", "pictures"),
    "store": (_store, ["--field", "tag=tag"], "mask", "pictures"),
    "webdataset": (_shard, ["--field", "caption=txt:text"], "mask", "pictures"),
    "hdf5": (_hdf5, ["--field", "image=x"], "thumbs", "pictures"),
}  # fmt: skip


@pytest.mark.parametrize("name", SOURCES)
def test_a_column_of_pictures_is_not_lost(tmp_path: Path, name: str) -> None:
    """Pack refuses it, and info says so, unless --without names it; then the store and the report name it."""
    make, options, column, what = SOURCES[name]
    source, out = make(tmp_path), tmp_path / "out.zip"
    said = run("pack", source, out, *options, code=1)
    assert f"{column!r} holds {what}, " in said
    assert f"--without {column} leaves it out" in said
    assert not out.exists()
    if name != "store":
        words = ["info", source, *options]
        assert f"{column!r} holds {what}, " in CliRunner().invoke(cli, list(map(str, words))).output
    if name == "tfrecord":
        options = [*options, "--without", "image/encoded"]
    run("pack", source, out, *options, "--without", column)
    with open_store(out) as store:
        assert column in store.metadata["source"]["left_out"]
    report = [line for line in run("info", out).splitlines() if line.startswith("left out: ")]
    assert [True] == [column in line for line in report]
    assert "all good" in run("verify", out, "--against", source)


def test_other_columns_are_named(tmp_path: Path) -> None:
    """Columns besides the text, or besides the fields asked for, are in the report of pack and of info before it."""
    text = lines(tmp_path / "a.jsonl", {"text": "a", "url": "x"}, {"text": "b", "url": "y", "late": 1})
    assert "left out: columns url, late" in run("pack", text, tmp_path / "a.lmdb")
    assert "left out: columns url, late" in run("info", text)
    assert "left out: columns url, late" in run("info", tmp_path / "a.lmdb")
    assert ["url", "late"] == json.loads(run("info", text, "--json"))["left_out_columns"]

    table = write_parquet(tmp_path / "b.parquet", picture_table(2, tag=["x", "y"], n=[1, 2]))
    options = ("--field", "image=image", "--field", "n=n")
    assert "left out: column tag" in run("pack", table, tmp_path / "b.lmdb", *options)
    assert "left out: column tag" in run("info", table, *options)
    assert "left out" not in run("pack", table, tmp_path / "c.lmdb")


def test_the_report_in_python(tmp_path: Path) -> None:
    """PackReport names the columns that no field was made of, and parts of structs that nobody asked for."""
    boxes = [{"bbox": [0.0, 1.0], "crop": "a"}] * 2
    table = write_parquet(tmp_path / "a.parquet", picture_table(2, tag=["x", "y"], objects=boxes))
    fields = [parse_choice("image=image"), parse_choice("bbox=objects.bbox")]
    report = pack(open_source(table, fields=fields), tmp_path / "a.lmdb")

    assert ["tag", "objects.crop"] == list(report.left_out_columns)


@pytest.mark.parametrize("name", ["parquet, fields", "tfrecord", "store", "hdf5", "jsonl, names in objects"])
def test_a_column_to_leave_out_that_does_not_exist(tmp_path: Path, name: str) -> None:
    """One line says so, and names those that there are."""
    make, options, column, _ = SOURCES[name]
    said = run("pack", make(tmp_path), tmp_path / "out.lmdb", *options, "--without", "nowhere", code=1)

    assert "--without nowhere: there is no such " in said
    assert repr(column) in said
    assert 1 == said.count("\n")


def test_text_has_columns_only_in_tables(tmp_path: Path) -> None:
    """--without is an error for what has no columns."""
    tree(tmp_path, {"a.txt": b"one\n", "f/0.png": picture(0)})

    assert "only tables have columns" in run(
        "pack", tmp_path / "a.txt", tmp_path / "o.lmdb", "--without", "a", "--document", "line", code=1
    )
    assert "has no columns: drop --without a" in run(
        "pack", tmp_path / "f", tmp_path / "o.lmdb", "--without", "a", code=1
    )


def test_a_later_file_with_one_more_column(tmp_path: Path) -> None:
    """A column that only a later file has is named, or refused if it holds pictures; of text, too."""
    for name, field in (("fields", ["--field", "text=text"]), ("text", [])):
        folder = tmp_path / name
        folder.mkdir()
        write_file(folder / "a.arrow", pa.table({"text": ["a"]}))
        write_file(folder / "b.arrow", pa.table({"text": ["b"], "tag": ["x"]}))
        assert "left out: column tag" in run("pack", folder, tmp_path / f"{name}.lmdb", *field)
        write_file(folder / "b.arrow", pa.table({"text": ["b"], "tag": [[picture(0)]]}))
        said = run("pack", folder, tmp_path / "p.lmdb", *field, code=1)
        assert "b.arrow" in said or "a.arrow" in said
        assert "column 'tag' holds lists of pictures" in said


def test_a_late_row_with_pictures(tmp_path: Path) -> None:
    """A column of pictures that comes far behind the first rows of a text still stops the run, and leaves nothing."""
    rows = [*({"text": f"t{i}"} for i in range(200)), {"text": "last", "image": as_text(picture(0))}]
    source = lines(tmp_path / "a.jsonl", *rows)

    assert "column 'image' holds pictures as base64 text" in run("pack", source, tmp_path / "o.lmdb", code=1)
    assert not (tmp_path / "o.lmdb").exists()


def test_what_the_user_names_with_a_type_is_meant(tmp_path: Path) -> None:
    """--field NAME=COLUMN:json keeps names of pictures as JSON: they may be wanted."""
    source = _named(tmp_path, lambda name: [name])
    run("pack", source, tmp_path / "o.lmdb", "--field", "image=image:json")
    with open_store(tmp_path / "o.lmdb") as store:
        assert ["text", "image"] == [field.name for field in store.schema.fields]


def test_names_of_pictures_that_are_packed_are_no_loss(tmp_path: Path) -> None:
    """JSON that repeats the name of the sample's own picture holds no further one."""
    tree(tmp_path, {f"{i}.png": picture(i) for i in range(2)})
    rows = [{"image": f"{i}.png", "info": {"name": f"{i}.png"}} for i in range(2)]
    source = open_source(lines(tmp_path / "a.jsonl", *rows))

    assert ["image", "info"] == [field.name for field in source.schema.fields]


def test_a_star_leaves_out_what_is_not_used(tmp_path: Path) -> None:
    """``*`` says of all columns, also of those with pictures, that they stay out."""
    path = write_parquet(tmp_path / "a.parquet", picture_table(2, tag=["x", "y"]))
    source = open_source(path, fields=[parse_choice("tag=tag")], label_options=LabelOptions(ignore_columns=("*",)))

    assert ["image", "label"] == source.metadata["source"]["left_out"]


@pytest.mark.parametrize(("title", "ids"), [("id", ["000", "001"]), ("image", ["000", "001"]), ("image_id", [7, 8])])
@pytest.mark.parametrize("suffix", ["jpg", "JPEG"])
def test_ids_without_extensions(tmp_path: Path, title: str, ids: list[Any], suffix: str) -> None:
    """A table of ids is no store of ids: --root takes the pictures, whatever case their extensions have."""
    tree(tmp_path, {f"photos/{name}.{suffix}": picture(0, kind="JPEG") for name in ids})
    (tmp_path / "train.csv").write_text(f"{title},label\n" + "".join(f"{name},1\n" for name in ids))
    run("pack", tmp_path / "train.csv", tmp_path / "o.lmdb", "--root", tmp_path / "photos")

    with open_store(tmp_path / "o.lmdb") as store:
        assert [f"{name}.{suffix}" for name in ids] == store.keys(np.arange(2))
        assert ["image", "label"] == [field.name for field in store.schema.fields]


def test_a_root_that_nothing_uses(tmp_path: Path) -> None:
    """--root of a table that names no file is an error, not ignored."""
    tree(tmp_path, {"photos/a.png": picture(0)})
    (tmp_path / "t.csv").write_text("caption,label\nx,1\n")
    with pytest.raises(SourceError, match="no column names files, of 'caption', 'label': drop --root"):
        open_source(tmp_path / "t.csv", root=tmp_path / "photos")
