"""Parquet and Arrow files that are damaged, hostile, or not what their names say: one error that names the file."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastio.converters import LabelOptions, open_source, pack
from fastio.converters.fields.types import parse_choice
from fastio.converters.text import open_text
from fastio.errors import FastioError, SourceError
from fastio.store import open_store
from tests.converters.sources.arrow.picture_tables import (
    picture_table,
    stored,
    with_features,
    write_file,
    write_parquet,
    write_stream,
)

PLAIN = {"compression": "none", "use_dictionary": False, "write_statistics": False, "write_page_checksum": True}


def parquet(path: Path, **options: Any) -> bytes:
    """A Parquet file whose pages have checksums."""
    return write_parquet(path, picture_table(20), 6, **{**PLAIN, **options}).read_bytes()


def stream(path: Path) -> bytes:
    """An Arrow stream of seven batches."""
    return write_stream(path, picture_table(20)).read_bytes()


def file(path: Path) -> bytes:
    """An Arrow file of seven batches."""
    return write_file(path, picture_table(20)).read_bytes()


def flipped(data: bytes, at: float) -> bytes:
    """One byte of the file changed."""
    position = int(len(data) * at)
    return data[:position] + bytes([data[position] ^ 0x5A]) + data[position + 1 :]


CUTS = {
    f"cut at {share}": lambda data, share=share: data[: int(len(data) * share)] for share in (0, 0.001, 0.3, 0.7, 0.99)
}
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    **CUTS,
    "another kind": lambda _: b"no table at all",
    "zeros": lambda data: bytes(len(data)),
    "only the marks": lambda data: data[:8] + data[-8:],
    "twice": lambda data: data + data[:100],
    "the last byte": lambda data: data[:-1],
}


@pytest.mark.parametrize(("suffix", "write"), [("parquet", pq.write_table), ("arrow", write_stream)])
def test_a_table_without_columns(tmp_path: Path, suffix: str, write: Any) -> None:
    """It is named, whoever asks: a source, a text, or a store in place."""
    path = str(tmp_path / f"a.{suffix}")
    write(pa.table({}), path) if suffix == "parquet" else write(path, pa.table({}))
    for opened in (open_source, open_text, open_store):
        with pytest.raises(FastioError, match=rf"a\.{suffix}: expected {suffix} data: it has no columns"):
            opened(path)


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize(("suffix", "make"), [("parquet", parquet), ("arrow", stream), ("feather", file)])
def test_damaged_files(
    tmp_path: Path, suffix: str, make: Callable[[Path], bytes], damage: Callable[[bytes], bytes]
) -> None:
    """A file that is cut, overwritten or extended is an error that names it; nothing is packed."""
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(damage(make(path)))
    with pytest.raises(SourceError, match=rf"a\.{suffix}: "):
        pack(open_source(path), tmp_path / "out.lmdb", on_error="skip")
    assert not (tmp_path / "out.lmdb").exists()


@pytest.mark.parametrize("at", [i / 23 for i in range(1, 23)])
def test_a_changed_byte_of_parquet(tmp_path: Path, at: float) -> None:
    """Whatever byte of a file with checksums changes, no changed picture is packed."""
    path = tmp_path / "a.parquet"
    whole = parquet(path)
    pack(open_source(path), tmp_path / "whole.lmdb")
    path.write_bytes(flipped(whole, at))
    with suppress(SourceError):
        pack(open_source(path), tmp_path / "out.lmdb")
        assert stored(tmp_path / "whole.lmdb") == stored(tmp_path / "out.lmdb")


OFFSETS = ([0, 10_000_000, 2, 3], [0, -4, 8, 12], [0, 1 << 30, 1 << 30, 12])


@pytest.mark.parametrize("offsets", OFFSETS, ids=str)
def test_offsets_that_lead_out(tmp_path: Path, offsets: list[int]) -> None:
    """Offsets outside the values of a damaged file are an error, whatever Arrow would do with them."""
    path = write_file(tmp_path / "a.arrow", pa.table({"image": [b"aaaa", b"bbbb", b"cccc"]}))
    whole = path.read_bytes()
    path.write_bytes(whole.replace(np.array([0, 4, 8, 12], "<i4").tobytes(), np.array(offsets, "<i4").tobytes()))
    with pytest.raises(SourceError, match=r"a\.arrow: expected arrow data: .*; damaged or truncated\?"):
        pack(open_source(path), tmp_path / "out.lmdb")


@pytest.mark.parametrize("write", [write_file, write_stream, write_parquet])
def test_names_of_columns_that_are_not_utf8(tmp_path: Path, write: Callable[..., Path]) -> None:
    """A byte of a column's name that changes is an error of one line, as other damage is."""
    path = write(
        tmp_path / ("a.parquet" if write is write_parquet else "a.arrow"), picture_table(3, caption=["a"] * 3), 2
    )
    path.write_bytes(path.read_bytes().replace(b"caption", b"capt\x96on"))
    with pytest.raises(SourceError, match=rf"{path.name}: expected \w+ data: .*; damaged or truncated\?\Z"):
        open_source(path)


@pytest.mark.parametrize("index", [3, 1 << 30, -1, -(1 << 30)])
@pytest.mark.parametrize("values", [[b"aaaa", b"bbbb", b"cccc"], ["aaaa", "bbbb", "cccc"]], ids=["bytes", "text"])
def test_indices_that_lead_out(tmp_path: Path, values: list[Any], index: int) -> None:
    """So are indices outside the dictionary of a column: Arrow looks where they lead, and may end the process."""
    column = pa.DictionaryArray.from_arrays(pa.array([index, 0, 1, 2], pa.int32()), pa.array(values), safe=False)
    path = write_file(tmp_path / "a.arrow", pa.table({"image": column}))
    with pytest.raises(SourceError, match=r"a\.arrow: expected arrow data: .*; damaged or truncated\?"):
        pack(open_source(path), tmp_path / "out.lmdb")


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    """Arrow does not check the text of a column: a row with other bytes is a problem, its neighbours are not."""
    path = write_file(tmp_path / "a.arrow", picture_table(3, caption=["one", "tqo", "two"]))
    path.write_bytes(path.read_bytes().replace(b"tqo", b"t\xffo"))
    report = pack(open_source(path), tmp_path / "out.lmdb", on_error="skip")

    assert ["a/0", "a/2"] == list(stored(tmp_path / "out.lmdb"))
    assert ["has a field 'caption' that is not UTF-8: byte 1 is 0xff"] == [each.problem for each in report.skipped]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"label_columns": ("kind",)}, r"has the label 't\udcffo', which is not text (column 'kind')"),
        ({"key_column": "kind"}, r"has the key 't\udcffo' in 'kind'"),
        ({"fields": ["it=kind:json"], "ignore_columns": ("image",)}, "has a field 'it' that is not a JSON document"),
    ],
)
def test_names_that_are_not_utf8(tmp_path: Path, options: dict[str, Any], problem: str) -> None:
    """Keys, labels and JSON in other bytes are problems of their rows."""
    path = write_file(tmp_path / "a.arrow", picture_table(2, kind=["tqo", "123"]))
    path.write_bytes(path.read_bytes().replace(b"tqo", b"t\xffo"))
    fields = [parse_choice(words) for words in options.pop("fields", ())]
    source = open_source(path, fields=fields, label_options=LabelOptions(**options))
    report = pack(source, tmp_path / "out.lmdb", on_error="skip")

    assert [True] == [each.problem.startswith(problem) for each in report.skipped]


def test_characters_cut_between_rows(tmp_path: Path) -> None:
    """Text that is UTF-8 only if rows are read as one is a problem of both rows."""
    path = write_file(tmp_path / "a.arrow", picture_table(2, caption=["qq", "ww"]))
    path.write_bytes(path.read_bytes().replace(b"qqww", b"q\xc3\xa9w"))
    source = open_source(path)
    chunk = source.begin(source.chunks(1 << 20, 10)[0])()

    assert ["a/0", "a/1"] == [each.key for each in chunk.problems]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"x": [None, None]}, {}, "column 'x' holds nothing but nulls; --without x leaves it out"),
        ({"x": [[{"bytes": b"", "name": ""}]] * 2}, {}, r"column 'x' is list<.*binary in it fits no field"),
        ({"é": [1, 2]}, {}, "column 'é' cannot name a field: --field NAME=é gives it a name"),
        ({"A": [1, 2], "a": [1, 2]}, {}, "columns 'A' and 'a' would both be the field 'a'"),
        ({}, {"fields": ["x=nothing"]}, r"--field x=nothing: there is no such column among 'image' \("),
        ({}, {"fields": ["x=image.size"]}, r"column 'image.size': there is no part 'size', only 'bytes', 'path'"),
        ({}, {"fields": ["x=label.a"]}, "column 'label.a': there is no part 'a', it is int64"),
        ({}, {"label_columns": ("kind",)}, "--label-column kind: there is no such column"),
        ({}, {"label_columns": ("image",)}, r"column 'image' is struct<.*>, expected numbers or names as labels"),
        ({}, {"label_columns": ("label", "image")}, "a table has one label; keep the others as fields"),
        ({}, {"key_column": "id"}, "--key-column id: there is no such column"),
        ({}, {"filters": (("split", "train"),)}, "--filter split=train: there is no such column"),
        ({}, {"ignore_columns": ("a",)}, "--without a: there is no such column"),
        ({}, {"ignore_columns": ("*",)}, "no column is left to pack"),
        ({}, {"header": False}, "its columns have names: drop --no-header"),
    ],
)
def test_what_cannot_be_meant(tmp_path: Path, columns: Any, options: dict[str, Any], message: str) -> None:
    """Columns that fit no field or are not there are named, with what to type."""
    path = write_parquet(tmp_path / "a.parquet", picture_table(2, **columns))
    fields = [parse_choice(words) for words in options.pop("fields", ())]
    with pytest.raises(SourceError, match=message):
        open_source(path, fields=fields, label_options=LabelOptions(**options))


def test_captions_as_labels(tmp_path: Path) -> None:
    """Nearly as many names as rows are no classes."""
    path = write_parquet(tmp_path / "a.parquet", picture_table(30, kind=[f"row {i}" for i in range(30)]))
    options = LabelOptions(label_columns=("kind",), ignore_columns=("label",))
    with pytest.raises(SourceError, match=r"30 different labels, .*: captions or names rather than classes"):
        open_source(path, label_options=options)


@pytest.mark.parametrize("note", ["{broken", "[1]", '{"info": {"features": [1]}}'])
def test_a_broken_note_of_datasets(tmp_path: Path, note: str) -> None:
    """Without it nobody knows whether labels have names."""
    path = write_parquet(tmp_path / "a.parquet", picture_table(1).replace_schema_metadata({"huggingface": note}))
    with pytest.raises(SourceError, match="the notes of Hugging Face datasets in it cannot be read"):
        open_source(path)


@pytest.mark.parametrize(
    "feature", [None, 3, "Image", ["x", "y"], {"_type": 7}, {"_type": "Array2D", "shape": "x"}, {"names": 5}], ids=str
)
def test_odd_notes_of_a_column(tmp_path: Path, feature: Any) -> None:
    """Notes that say nothing sensible are as good as none."""
    path = write_parquet(tmp_path / "a.parquet", with_features(picture_table(2), {"image": feature, "label": feature}))
    pack(open_source(path), tmp_path / "out.lmdb")

    assert [0, 1] == [sample["label"] for sample in stored(tmp_path / "out.lmdb").values()]


def test_files_that_differ(tmp_path: Path) -> None:
    """All files of a set must have the columns of the first, of the same types."""
    write_parquet(tmp_path / "a.parquet", picture_table(1, n=[1]))
    write_parquet(tmp_path / "b.parquet", picture_table(1))
    with pytest.raises(SourceError, match=r"b\.parquet: has no column 'n', unlike a\.parquet; it has 'image', 'label'"):
        open_source(tmp_path)
    write_parquet(tmp_path / "b.parquet", picture_table(1, n=["x"]))
    with pytest.raises(SourceError, match=r"b\.parquet: column 'n' is string, but int64 in a\.parquet"):
        open_source(tmp_path)


def test_columns_of_one_name(tmp_path: Path) -> None:
    """Which of two columns is meant cannot be told."""
    table = pa.Table.from_arrays([pa.array([b"x"]), pa.array([b"y"])], ["image", "image"])
    with pytest.raises(SourceError, match=r"has 2 columns named 'image', so it is unclear which one counts"):
        open_source(write_file(tmp_path / "a.arrow", table))


def test_a_file_that_changes(tmp_path: Path) -> None:
    """A file that has lost rows since it was opened is an error."""
    path = write_parquet(tmp_path / "a.parquet", picture_table(5))
    source = open_source(path)
    write_parquet(path, picture_table(3))
    with pytest.raises(SourceError, match=r"a\.parquet: changed while it was being read"):
        pack(source, tmp_path / "out.lmdb")


def test_empty_tables(tmp_path: Path) -> None:
    """Files without rows add nothing; if all are so, there is nothing to pack."""
    write_parquet(tmp_path / "a.parquet", picture_table(2).slice(0, 0))
    with pytest.raises(SourceError, match="nothing to pack, the source has no samples"):
        pack(open_source(tmp_path), tmp_path / "out.lmdb")
    write_parquet(tmp_path / "b.parquet", picture_table(2))
    pack(open_source(tmp_path), tmp_path / "out.lmdb")

    assert ["b/0", "b/1"] == list(stored(tmp_path / "out.lmdb"))


def test_compressed_as_a_whole(tmp_path: Path) -> None:
    """Files in .gz are read as the files in them; one that is cut off is an error."""
    path = tmp_path / "a.parquet.gz"
    path.write_bytes(gzip.compress(parquet(tmp_path / "x.bin")))
    pack(open_source(path), tmp_path / "out.lmdb")
    assert "a/00" in stored(tmp_path / "out.lmdb")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(SourceError, match=r"a\.parquet\.gz: "):
        open_source(path)
