"""What ``fastio pack`` says to someone who mistyped something, and how its help begins."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from fastio import Writer
from fastio.cli import cli
from tests.converters.trees import flat


def said(*args: Any, code: int = 1) -> str:
    """What a command prints; its exit code is as expected."""
    result = CliRunner().invoke(cli, [str(arg) for arg in args])
    assert code == result.exit_code, result.output
    return result.output


@pytest.mark.parametrize("name", ["gone", "gone.jsonl", "gone.txt.gz", "gone.csv", "gone.npz", "gone.idx", "gone/a"])
@pytest.mark.parametrize("options", [(), ("--split", "train"), ("--tokenizer", "bytes")])
def test_a_source_that_is_not_there(tmp_path: Path, name: str, options: tuple[str, ...]) -> None:
    """One line that says so, without all kinds of sources."""
    path = tmp_path / name

    assert f"error: {path}: no file or folder of that name\n" == said("pack", path, tmp_path / "s.lmdb", *options)


@pytest.mark.parametrize("kind", ["flat", "imagefolder", "jsonl", "zip"])
def test_a_named_kind_that_is_not_there(tmp_path: Path, kind: str) -> None:
    """The same if the user says what it is."""
    path = tmp_path / "gone"

    assert f"error: {path}: no file or folder of that name\n" == said(
        "pack", path, tmp_path / "s.lmdb", "--source-kind", kind
    )


def test_a_broken_link_and_a_pattern(tmp_path: Path) -> None:
    """A link that leads nowhere, and a pattern that matches nothing, are called that."""
    (tmp_path / "link").symlink_to(tmp_path / "gone")

    assert f"error: {tmp_path}/link: is a broken link\n" == said("pack", tmp_path / "link", tmp_path / "s.lmdb")
    assert "no file has a name like that" in said("pack", tmp_path / "gone-*", tmp_path / "s.lmdb")
    (tmp_path / "a.png").touch()
    pictures = tmp_path / "*.png"
    assert "a.png': expected a pattern of TFRecord, Parquet" in said("pack", pictures, tmp_path / "s.lmdb")
    assert "*.png: a pattern names the files" in said("pack", pictures, tmp_path / "s.lmdb", "--split", "train")


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({"nope.jpg": 1}, "names 'nope.jpg' (1 name in all), the first picture is '0000.png'; its names must be those"),
        ({"val/0000.png": 1}, "names 'val/0000.png' (1 name in all), .* a folder in a name must be 'pngs'"),
    ],
)
def test_labels_of_no_picture(tmp_path: Path, labels: dict[str, int], words: str) -> None:
    """True counts and an example of each side, also with --on-error skip."""
    flat(tmp_path / "pngs")
    (tmp_path / "l.json").write_text(json.dumps(labels))

    for options in ((), ("--on-error", "skip")):
        text = said("pack", tmp_path / "pngs", tmp_path / "s.lmdb", "--labels", tmp_path / "l.json", *options)
        assert text.startswith(f"error: {tmp_path}/pngs: none of its 7 pictures has a label in l.json: that file ")
        assert re.search(re.escape(words).replace(r"\.\*", ".*"), text)


def test_the_first_line_counts_problems_apart(tmp_path: Path) -> None:
    """A label without a file is no sample."""
    labels = flat(tmp_path / "pngs") | {"nope.png": 1}
    (tmp_path / "l.json").write_text(json.dumps(labels))

    text = said(
        *("pack", tmp_path / "pngs", tmp_path / "s.lmdb", "--labels", tmp_path / "l.json", "--on-error", "skip"), code=0
    )

    assert re.match(r".*/pngs: a folder of images, 7 samples, 1.1 kB, labels are numbers, 1 problem\n", text)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--restart", "x"), "'--restart': 'x': expected a whole number from 0 to 65,535"),
        (("--restart", "65536"), "'--restart': '65536': expected a whole number from 0 to 65,535"),
        (("--jobs", "0"), "'--jobs': '0': expected a whole number, 1 or more"),
        (("--quality", "high"), "'--quality': 'high': expected a whole number from 1 to 100"),
    ],
)
def test_numbers(tmp_path: Path, options: tuple[str, str], words: str) -> None:
    """What is no number of the range is answered by the range."""
    assert words in said("pack", tmp_path, tmp_path / "s.lmdb", *options, code=2)


def test_help_begins_with_what_most_people_use() -> None:
    """Labels first, URLs last."""
    text = said("pack", "--help", code=0).partition("\nOptions:\n")
    options = re.findall(r"^  (--[a-z-]+)", text[2], re.MULTILINE)

    assert ["--labels", "--split", "--shuffle", "--on-error", "--overwrite"] == options[:5]
    assert "--download-timeout" == options[-1]
    titles = ["Labels, tables and fields", "Pictures", "Text", "Sets of shards", "SRC, FILE or OUT behind a URL"]
    assert titles == re.findall(r"^([A-Z][^:\n]*):$", text[2], re.MULTILINE)


def test_the_last_line_counts_all_that_was_found(tmp_path: Path) -> None:
    """Found is packed, skipped and left out together, whether a problem is seen by the scan or while reading."""
    source = tmp_path / "classes"
    (source / "empty").mkdir(parents=True)
    flat(source / "cat", 3)
    (source / "cat" / "bad.png").write_bytes(b"no picture")
    (source / "cat" / "empty.png").touch()
    output = said("pack", source, tmp_path / "s.lmdb", "--on-error", "skip", code=0)

    assert "4 samples, " in output
    assert "packed 3 of 6 found, 2 skipped (listed above and in the store), 1 left out in " in output
    assert "left out: empty/ (is a class folder without an image, and stays a class)" in output


def test_shards_of_another_size_than_asked_for(tmp_path: Path) -> None:
    """Shards are planned before pictures are made smaller, or into pixels: the size to ask for is told."""
    source = tmp_path / "noise"
    source.mkdir()
    for name in range(8):
        Image.effect_noise((64, 64), 90).save(source / f"{name}.png")
    pack = ("pack", source, tmp_path / "s-%06d.tar", "--shard-size", "20000", "--overwrite")
    assert "shards have about" not in said(*pack, code=0)
    smaller = said(*pack, "--resize", "16x16", code=0)

    (times,) = re.findall(r"in SRC; ([\d.]+) times the --shard-size gives shards of about the size", smaller)
    assert float(times) > 8


def picture_csv(folder: Path, titles: str) -> Path:
    """Four pictures, and a table beside them of their names and kinds."""
    flat(folder, 4)
    rows = [f"{name}.png,{kind}\n" for name, kind in zip(("0000", "0001", "0002", "0003"), "abab", strict=True)]
    table = folder / "here.csv"
    table.write_text(f"{titles}\n{''.join(rows)}")
    return table


@pytest.mark.parametrize("titles", ["filename,label", "file_name,label", "photo,label"])
def test_a_table_beside_its_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, titles: str) -> None:
    """It is no text, whatever the column of the names is called; also under its bare name."""
    monkeypatch.chdir(picture_csv(tmp_path / "a", titles).parent)

    assert "here.csv: a table, 4 samples" in said("pack", "here.csv", "../out.lmdb", code=0)
    assert "here.csv: a table (table), not packed; 4 samples" in said("info", "here.csv", code=0)


def test_a_table_elsewhere_than_its_pictures(tmp_path: Path) -> None:
    """Not a single file being found, their folder is asked for."""
    table = picture_csv(tmp_path / "a", "filename,label").rename(tmp_path / "t.csv")
    words = f"column 'filename' names files such as '0000.png', none of which is in {tmp_path}: name their folder"
    for command in (("pack", table, tmp_path / "out.lmdb"), ("info", table)):
        assert f"error: {table}: {words} with --root\n" == said(*command)
    assert "4 of 4 samples" in said("pack", table, tmp_path / "out.lmdb", "--root", tmp_path / "a", code=0)


def test_a_file_that_a_table_names_in_vain(tmp_path: Path) -> None:
    """The row is named, since the table is no folder that the file could be missing in."""
    table = picture_csv(tmp_path / "a", "filename,label")
    (tmp_path / "a" / "0002.png").unlink()
    words = "has a 'filename' that is '0002.png', but there is no such file; correct it"

    assert f"error: {table}:4: {words}" in said("pack", table, tmp_path / "out.lmdb")


@pytest.mark.parametrize("rows", ["url,caption\nhttps://x/0000.png,a\n", "filename,text\n0000.png,a\n"])
def test_tables_that_stay_text(tmp_path: Path, rows: str) -> None:
    """Addresses are no files, and a column called text is what it says where no such picture lies beside the table."""
    (tmp_path / "t.csv").write_text(rows)
    expected = "has no column 'text', only 'url', 'caption'" if "url" in rows else "csv, text in 'text'"

    assert expected in said("pack", tmp_path / "t.csv", tmp_path / "out.lmdb", code=int("url" in rows))


def test_pictures_with_a_text_each(tmp_path: Path) -> None:
    """A table of captions under the title text, beside its pictures, leaves no picture out."""
    table = picture_csv(tmp_path / "a", "filename,text")

    assert "a table; image, text, 4 samples" in said("pack", table, tmp_path / "out.lmdb", code=0)


@pytest.mark.parametrize("title", ["category", "Class", "target"])
def test_a_column_that_could_be_the_label(tmp_path: Path, title: str) -> None:
    """It stays a field, but is named together with the option that makes it the label."""
    table = picture_csv(tmp_path / "a", f"filename,{title}")

    assert f"no labels (--label-column {title} takes them from that column)" in said(
        "pack", table, tmp_path / "out.lmdb", code=0
    )
    assert "2 classes" in said("pack", table, tmp_path / "b.lmdb", "--label-column", title, code=0)


@pytest.mark.parametrize(
    "row", [{"text": "A long story. " * 40 + "cat.jpg"}, {"text": "a\nb", "more": "A long story. " * 400 + "cat.jpg"}]
)
def test_a_text_that_ends_like_a_picture(tmp_path: Path, row: dict[str, str]) -> None:
    """It is no name of a file, which it would be too long for."""
    (tmp_path / "t.jsonl").write_text(json.dumps(row) + "\n")

    assert "jsonl, text in 'text'" in said("pack", tmp_path / "t.jsonl", tmp_path / "out.lmdb", code=0)


def test_metadata_of_a_writer(tmp_path: Path) -> None:
    """Whatever is kept there under "table", and the columns of a table that was packed, say nothing of labels."""
    with Writer(tmp_path / "a.lmdb", {"x": ("float32", (3,))}, metadata={"table": "notes"}) as writer:
        writer.write({"x": np.zeros(3, np.float32)})
    said("pack", tmp_path / "a.lmdb", tmp_path / "b.h5", code=0)
    said("pack", picture_csv(tmp_path / "p", "filename,category"), tmp_path / "c.lmdb", code=0)

    assert "no labels\n" in said("pack", tmp_path / "c.lmdb", tmp_path / "d.lmdb", code=0)


def test_rows_that_a_filter_leaves_out_are_one_reason(tmp_path: Path) -> None:
    """Millions of them would be a line of megabytes, if each named its row."""
    flat(tmp_path / "p", 5)
    names = sorted(path.name for path in (tmp_path / "p").iterdir())
    rows = "".join(f"{name},{'train' if name == names[0] else 'val'}\n" for name in names)
    (tmp_path / "list.csv").write_text(f"file_name,split\n{rows}")
    command = ("pack", tmp_path / "list.csv", tmp_path / "o.lmdb", "--root", tmp_path / "p", "--filter", "split=train")

    assert f"left out: 4 such as {names[1]} (does not pass the filters (list.csv))\n" in said(*command, code=0)
