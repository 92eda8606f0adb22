"""Rows are taken by values and expressions, alike in every kind of table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastio.converters import LabelOptions, open_source, pack
from fastio.converters.labels.file import read_labels
from fastio.converters.labels.filters import Filter, RowFilter, parse_filter
from fastio.errors import SourceError
from tests.commands import run
from tests.converters.trees import picture

pytest.importorskip("pyarrow")

ROWS = [
    {"file_name": "0.png", "split": "train", "score": 3.5, "kind": "cat", "good": True},
    {"file_name": "1.png", "split": "val", "score": 9.0, "kind": "dog", "good": False},
    {"file_name": "2.png", "split": "train", "score": 9.0, "kind": "bee", "good": True},
    {"file_name": "3.png", "split": "val", "score": None, "kind": "cat", "good": True},
]
CASES: dict[str, tuple[tuple[Filter, ...], list[int]]] = {
    "a number": (("score >= 4",), [1, 2]),
    "texts": (("kind in ('cat', 'dog') and score < 5",), [0]),
    "a value beside it": ((("split", "train"), "score > 4"), [2]),
    "two expressions": (("kind != 'cat'", "split == 'val'"), [1]),
    "a title in other case": (("Score > 4 or KIND == 'cat'",), [0, 1, 2, 3]),
    "nothing there": (("score is None",), [3]),
}


def as_cells(rows: list[dict[str, Any]]) -> str:
    """The rows as a .csv, without the booleans."""
    titles = [name for name in rows[0] if name != "good"]
    cells = [",".join("" if row[name] is None else str(row[name]) for name in titles) for row in rows]
    return "\n".join([",".join(titles), *cells]) + "\n"


def table(folder: Path, suffix: str) -> Path:
    """A table beside its pictures."""
    for number, row in enumerate(ROWS):
        (folder / row["file_name"]).write_bytes(picture(number))
    path = folder / f"metadata{suffix}"
    path.write_text(as_cells(ROWS) if suffix == ".csv" else "".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def parquet(folder: Path) -> Path:
    """The rows with their pictures in a column."""
    import pyarrow as pa
    from pyarrow import parquet as files

    path = folder / "a.parquet"
    columns = [{name: value for name, value in row.items() if name != "file_name"} for row in ROWS]
    rows = [{"image": picture(number), **row} for number, row in enumerate(columns)]
    files.write_table(pa.Table.from_pylist(rows), path)
    return path


KINDS: dict[str, Callable[[Path], Path]] = {
    "csv": lambda folder: table(folder, ".csv"),
    "jsonl": lambda folder: table(folder, ".jsonl"),
    "parquet": parquet,
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", KINDS)
def test_tables(tmp_path: Path, kind: str, case: str) -> None:
    """The same rows pass in each kind of table, and the others are counted as left out."""
    filters, expected = CASES[case]
    without = ("score",) if kind == "parquet" else ()  # of which a row has no value, which no column takes
    options = LabelOptions(filters=filters, ignore_columns=without)
    source = open_source(KINDS[kind](tmp_path), label_options=options)
    report = pack(source, tmp_path / "out.lmdb")

    taken = [key.rpartition("/")[2].removesuffix(".png") for key in source.keys]
    assert expected == [int(each) for each in taken]
    assert (len(expected), 4 - len(expected)) == (report.packed, len(report.left_out))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_label_files(tmp_path: Path, suffix: str, case: str) -> None:
    """The same rows of a label file pass."""
    filters, expected = CASES[case]
    path = tmp_path / f"labels{suffix}"
    path.write_text(as_cells(ROWS) if suffix == ".csv" else json.dumps(ROWS))
    options = LabelOptions(label_columns=("kind",), filters=filters, ignore_columns=("*",))

    labels = read_labels(path, options)
    assert {f"{number}.png" for number in expected} == labels.by_name.keys()
    assert {row["file_name"] for row in ROWS} == labels.by_name.keys() | labels.filtered
    assert options == LabelOptions.from_json(json.loads(json.dumps(options.to_json())))


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_that_is_not_there(tmp_path: Path, kind: str) -> None:
    """The nearest title is named, and where sizes of pictures may be asked for."""
    path = KINDS[kind](tmp_path)
    with pytest.raises(SourceError, match=r"--filter.*no such column among .*; did you mean 'score'\?"):
        open_source(path, label_options=LabelOptions(filters=("scores > 3",)))
    with pytest.raises(SourceError, match="sizes of pictures are not known before these are packed"):
        open_source(path, label_options=LabelOptions(filters=("width > 3",)))
    with pytest.raises(SourceError, match="cannot compare a text with a number"):
        open_source(path, label_options=LabelOptions(filters=("kind > 3",)))


def test_the_column_of_an_expression_is_a_field(tmp_path: Path) -> None:
    """Its values differ, unlike those of COLUMN=VALUE; the command takes what the store then says of itself."""
    path, out = parquet(tmp_path), tmp_path / "out.lmdb"
    options = ("--filter", "score > 4", "--filter", "split=train")

    assert "left out: 3" in run("pack", path, out, *options)
    assert "score" in run("info", out)
    assert "all good" in run("verify", out, "--against", path)
    assert "score > 4" in run("info", path, *options)


def test_other_options_do_not_go_on(tmp_path: Path) -> None:
    """A set that was packed by one expression is not continued by another."""
    path, out = parquet(tmp_path), tmp_path / "out-%06d.tar"
    run("pack", path, out, "--shard-size", "1KB", "--filter", "score > 4")
    (tmp_path / "out-000001.tar").unlink()

    said = run("pack", path, out, "--shard-size", "1KB", "--filter", "score > 3", "--resume", code=1)
    assert "Give the same source and options to go on" in said


def test_what_is_a_filter() -> None:
    """What Python could read is an expression; else there is a column, a sign and a value, which may have signs."""
    assert ("split", "train") == parse_filter("split=train")
    assert ("url", "http://x?a==b") == parse_filter("url=http://x?a==b")
    assert "label in ('a=b', 'c')" == parse_filter("label in ('a=b', 'c')")
    for wrong in ("x=", "=x", "width>=", "a==", "width >= 4 and", ""):
        with pytest.raises(ValueError, match=r"expected COLUMN=VALUE, as in split=train, or an expression"):
            parse_filter(wrong)


@given(values=st.lists(st.none() | st.integers(-5, 5) | st.floats(-5, 5)), limit=st.integers(-5, 5))
def test_cells_are_the_numbers_that_they_say(values: list[float | None], limit: int) -> None:
    """Numbers pass alike as numbers and as the cells of a .csv."""
    cells = ["" if value is None else repr(value) for value in values]
    expected = [value is not None and value >= limit for value in values]
    expression = RowFilter((f"x >= {limit}",))

    assert expected == expression.mask(len(values), lambda _: values, where="").tolist()
    assert expected == expression.mask(len(cells), lambda _: cells, where="", is_text=True).tolist()


@pytest.mark.parametrize("values", [[1, "a"], [[1], [2]], [{"a": 1}], [True, 3]])
def test_values_that_no_expression_takes(values: list[object]) -> None:
    """A column of several kinds of values, of lists or of objects is refused."""
    with pytest.raises(SourceError, match=r"column 'x' holds .*: expected numbers, texts, or true and false"):
        RowFilter(("x == 1",)).mask(len(values), lambda _: values, where="")


def test_numbers_beyond_64_bits() -> None:
    """They are compared as floating numbers."""
    assert [True, False] == RowFilter(("x > 5",)).mask(2, lambda _: [2**70, 3], where="").tolist()
    assert np.bool_ == RowFilter().mask(2, lambda _: [], where="").dtype
