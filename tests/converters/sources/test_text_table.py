"""Rows of .jsonl, .json and .csv: fields, labels, and what is wrong with a row, by file and line."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastio.converters import LabelOptions, open_source
from fastio.converters.fields.types import parse_choice
from fastio.converters.sources.tables.rows import TableFile
from fastio.converters.text import Limits, TextOptions, open_text
from fastio.errors import SourceError
from tests.converters.sources.text_conformance import write_stream
from tests.converters.text.build import documents, packed, values
from tests.converters.trees import tree

LABELLED = TextOptions(label_field="label")


def read(
    tmp_path: Path, name: str, content: str | bytes, options: TextOptions | None = None
) -> tuple[dict[str, bytes], dict[str, str]]:
    """Documents and problems of one file."""
    return documents(tree(tmp_path, {name: content}) / name, options)


def labels(tmp_path: Path, name: str, content: str) -> tuple[list[int], list[str] | None]:
    """Labels and classes of one file."""
    source = open_text(tree(tmp_path, {name: content}) / name, options=LABELLED)
    found = [part.labels for part in source.read(Limits()) if part.labels is not None]
    return np.concatenate(found).tolist(), source.metadata["classes"]


def test_jsonl(tmp_path: Path) -> None:
    """A document a line; blank lines, CR LF and a byte order mark do not matter."""
    content = '\ufeff{"text": "one"}\r\n\n{"text": "z\\u00fc\\n", "x": [1]}'

    assert ({"a.jsonl:1": b"one", "a.jsonl:3": "zü\n".encode()}, {}) == read(tmp_path, "a.jsonl", content)


def test_bad_lines_of_jsonl(tmp_path: Path) -> None:
    """Each bad line is named with its number and what is wrong; the good ones are there."""
    lines = [b'{"text": "good"}', b'{"text": ', b'{"other": 1}', b'{"text": 3}', b'{"text": null}', b"[1]"]
    lines += [b'{"text": "\xff"}', b'{"text": "\\ud800"}', b'{"text": "' + b"x" * 200 + b'"}', b'{"text": "end"}']
    found, problems = read(tmp_path, "a.jsonl", b"\n".join(lines), TextOptions(max_document_bytes=100))

    assert {"a.jsonl:1": b"good", "a.jsonl:10": b"end"} == found
    assert problems.pop("a.jsonl:2").startswith("is not JSON: ")
    assert {
        "a.jsonl:3": "has no field 'text', only 'other': name another with --text-column",
        "a.jsonl:4": "has a number in the field 'text', expected a string",
        "a.jsonl:5": "has null in the field 'text', expected a string",
        "a.jsonl:6": "is a list, expected an object with fields",
        "a.jsonl:7": "is not UTF-8: byte 10 of the line is 0xff (invalid start byte); convert it",
        "a.jsonl:8": "has half of a character (a lone surrogate) at 0 of the field 'text'",
        "a.jsonl:9": "is longer than 100 bytes; --max-document raises that limit",
    } == problems


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_a_field_that_comes_twice(name: str, tmp_path: Path) -> None:
    """JSON readers keep the last one without a word; which of the texts would be lost?"""
    content = '{"text": "a", "text": "b"}\n{"text": "c", "meta": {"x": 1, "x": 2}}\n'
    found, problems = read(tmp_path, name, content)

    where = " (line 1)" if name == "a.json" else ""
    assert {f"{name}:1": f"has the field 'text' twice, so it is unclear which one counts{where}"} == problems
    assert {f"{name}:2": b"c"} == found
    content = '{"meta": {"x": "a"}}\n{"meta": {"x": "b", "x": "c"}}\n'
    found, problems = read(tmp_path, name, content, TextOptions(text_field="meta.x"))
    assert {f"{name}:1": b"a"} == found
    assert "has the name 'x' twice in an object, so it is unclear which one counts" in problems[f"{name}:2"]


def test_bytes_made_of_escapes(tmp_path: Path) -> None:
    """Two halves of characters that JSON escapes are not taken for the bytes that they look like."""
    _, problems = read(tmp_path, "a.jsonl", '{"text": "\\udcc3\\udca9"}')

    assert {"a.jsonl:1": "has half of a character (a lone surrogate) at 0 of the field 'text'"} == problems


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv"])
def test_other_fields_may_be_longer_than_the_limit(tmp_path: Path, name: str) -> None:
    """``max_document_bytes`` is about the text, wherever what is read at once ends."""
    rows = [{"other": "x" * 5000, "text": f"t{i}"} for i in range(400)]
    rows.append({"other": "", "text": "y" * 101})
    if name == "a.csv":
        content = "".join(f"{row['other']},{row['text']}\n" for row in [{"other": "other", "text": "text"}, *rows])
    else:
        content = "\n".join(map(json.dumps, rows))
    found, problems = read(tmp_path, name, content, TextOptions(max_document_bytes=100))

    assert [f"t{i}".encode() for i in range(400)] == list(found.values())
    assert ["is longer than 100 bytes; --max-document raises that limit"] == list(problems.values())


def test_another_field(tmp_path: Path) -> None:
    """The text may have another name."""
    found, _ = read(tmp_path, "a.jsonl", '{"body": "b", "text": "t"}', TextOptions(text_field="body"))

    assert [b"b"] == list(found.values())


@pytest.mark.parametrize("space", ["", "\n", " \r\n\t"])
@pytest.mark.parametrize("is_list", [True, False])
def test_json(tmp_path: Path, space: str, is_list: bool) -> None:
    """A list of objects, or objects one after the other, however they are laid out."""
    rows = [json.dumps({"text": text, "n": {"a": [1]}}) for text in ("one", "zü", "[{,")]
    content = f"{space},{space}".join(rows) if is_list else f"{space} ".join(rows)
    content = f"{space}[{space}{content}{space}]{space}" if is_list else content

    assert [b"one", "zü".encode(), b"[{,"] == list(read(tmp_path, "a.json", content)[0].values())


@settings(max_examples=50, deadline=None)
@given(st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=60) | st.integers(), max_size=4)), st.booleans())
def test_json_is_read_as_by_the_plain_way(tmp_path_factory: pytest.TempPathFactory, rows: object, indent: bool) -> None:
    """Piece by piece gives what ``json.load`` gives at once."""
    path = tmp_path_factory.mktemp("json") / "a.json"
    path.write_text(json.dumps(rows, indent=1 if indent else None, ensure_ascii=False), encoding="utf-8")

    assert rows == [row for _, row in TableFile(str(path)).rows()]


def test_a_json_larger_than_what_is_read_at_once(tmp_path: Path) -> None:
    """Values that lie across blocks are whole."""
    rows = [{"text": "x" * 700_000 + str(i)} for i in range(5)]
    found, _ = read(tmp_path, "a.json", json.dumps(rows, indent=0))

    assert [row["text"].encode() for row in rows] == list(found.values())
    assert ["a.json:1", "a.json:2", "a.json:3", "a.json:4", "a.json:5"] == list(found)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"text": "a"}, {"text": ', r"a\.json: line 1: no JSON"),
        ('[{"text": "a"}', r"line 1: the list has no end; the file is truncated"),
        ('[{"text": "a"}\n{"text": "b"}]', r"line 2: expected ',' or '\]' after an object"),
        (b'[{"text": "\xff"}]', r"from line 1 on: not UTF-8"),
        ('[{"text": "a"}]\n[{"text": "b"}]', r"line 2: '\[' follows the end of the list"),
        ('{"text": "a"}\n] {"text": "b"}', r"line 2: no JSON: Expecting value"),
    ],
)
def test_broken_json(tmp_path: Path, content: str | bytes, message: str) -> None:
    """A list that is broken is an error with the line: nothing behind it could be trusted."""
    with pytest.raises(SourceError, match=message):
        read(tmp_path, "a.json", content)


def test_csv(tmp_path: Path) -> None:
    """Columns by their titles; quoted text may have commas, quotes and line ends; a row's first line names it."""
    content = '\ufefftext,label\r\n"a, ""b""\r\nc",x\r\n\r\nplain,y\r\n'

    assert ({"a.csv:2": b'a, "b"\r\nc', "a.csv:5": b"plain"}, {}) == read(tmp_path, "a.csv", content)


def test_bad_rows_of_csv(tmp_path: Path) -> None:
    """Rows with another number of cells, or bytes that are no UTF-8, are problems."""
    path = tree(tmp_path, {"a.csv": b"text,label\ngood,1\na,b,c\nd\n\xfc,2\nend,3\n"}) / "a.csv"
    report = packed(path, tmp_path / "out.h5", on_error="skip")

    assert {"a.csv:2": b"good", "a.csv:6": b"end"} == values(tmp_path / "out.h5")
    assert {
        "a.csv:3": "has 3 columns, expected 2; text with ',' needs quotes",
        "a.csv:4": "has 1 columns, expected 2; text with ',' needs quotes",
        "a.csv:5": "is not UTF-8 in the field 'text': byte 0 is 0xfc (invalid start byte); convert it",
    } == {problem.key: problem.problem for problem in report.skipped}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('text\n"open\nmore\n', r"a\.csv: the row from line 2 on cannot be read: .*is a quote open"),
        ("text,text\na,b\n", "line 1: two columns have the same name"),
        ("text\ra\rb\r", "line 1: the header has a carriage return outside quotes"),
        ("text\na\n".encode("utf-16"), "is not UTF-8: it begins like UTF-16"),
    ],
)
def test_broken_csv(tmp_path: Path, content: str | bytes, message: str) -> None:
    """An open quote swallows the rest of the file: an error with the line it began in."""
    with pytest.raises(SourceError, match=message):
        read(tmp_path, "a.csv", content)


def test_a_carriage_return_outside_quotes(tmp_path: Path) -> None:
    """Text or the end of a row? It is a problem of that row; in quotes it is text."""
    found, problems = read(tmp_path, "a.csv", 'text,n\na,1\n"b\nb",\rc\n"d\rd\r",2\ne,3\r\n')

    assert {"a.csv:2": b"a", "a.csv:5": b"d\rd\r", "a.csv:6": b"e"} == found
    assert ["a.csv:3"] == list(problems)
    assert problems["a.csv:3"].startswith("has a carriage return outside quotes")


@pytest.mark.parametrize("row", [b"caf\xc3", b"\xf0\x9f\x98"])
def test_csv_that_ends_within_a_character(tmp_path: Path, row: bytes) -> None:
    """The bytes at its end are no UTF-8, which is told of them later: they are not dropped."""
    found, _ = read(tmp_path, "a.csv", b"text\nok\n" + row)

    assert {"a.csv:2": b"ok", "a.csv:3": row} == found


def test_a_long_field_of_csv(tmp_path: Path) -> None:
    """Text above the csv module's own limit is read."""
    assert [200_000] == [len(text) for text in read(tmp_path, "a.csv", "text\n" + "x" * 200_000)[0].values()]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.csv", "text,label\na,3\nb,-1\nc,10\n", ([3, -1, 10], None)),
        ("a.csv", "text,label\na,dog\nb,cat\nc,dog\n", ([1, 0, 1], ["cat", "dog"])),
        ("a.csv", "text,label\na,007\nb,1\n", ([0, 1], ["007", "1"])),
        ("a.jsonl", '{"text": "a", "label": 3}\n{"text": "b", "label": 1.0}', ([3, 1], None)),
        ("a.jsonl", '{"text": "a", "label": "3"}\n{"text": "b", "label": "1"}', ([1, 0], ["1", "3"])),
        ("a.jsonl", '{"text": "a", "label": true}', ([1], None)),
    ],
)
def test_labels(tmp_path: Path, name: str, content: str, expected: tuple[list[int], list[str] | None]) -> None:
    """Numbers stay, names become positions in their sorted list; a .csv has no types."""
    assert expected == labels(tmp_path, name, content)


def test_labels_that_are_no_text(tmp_path: Path) -> None:
    """Bytes that are no UTF-8, and halves of characters, name no class."""
    for name, content in (
        ("a.csv", b"text,label\na,cat\nb,d\xffg\n"),
        ("a.jsonl", b'{"text": "a", "label": "cat"}\n\n{"text": "b", "label": "\\ud800"}'),
    ):
        source = open_text(tree(tmp_path, {name: content}) / name, options=LABELLED)
        problems = [each for part in source.read(Limits()) for each in part.problems]

        assert ["cat"] == source.metadata["classes"]
        assert [f"{name}:3"] == [problem.key for problem in problems]
        assert problems[0].problem.endswith(", which is not text (field 'label')")


def test_labels_that_are_none(tmp_path: Path) -> None:
    """A row without a label, or with one that is no number and no name, is a problem."""
    rows = [{"text": "a", "label": 1}, {"text": "b"}, {"text": "c", "label": 0.5}, {"text": "d", "label": 2**63}]
    found, problems = read(tmp_path, "a.jsonl", "\n".join(map(json.dumps, rows)), LABELLED)

    assert ["a.jsonl:1"] == list(found)
    assert {
        "a.jsonl:2": "has no label (field 'label')",
        "a.jsonl:3": "has the label 0.5, expected an integer or a name (field 'label')",
        "a.jsonl:4": "has the label 9223372036854775808, which does not fit in 64 bits (field 'label')",
    } == problems


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "text,label\na,3\nb,cat\n"),
        ("a.jsonl", '{"text": "a", "label": 3}\n{"text": "b", "label": "cat"}'),
        ("a.jsonl", '{"text": "a", "label": 3.0}\n{"text": "b", "label": "cat"}'),
    ],
)
def test_numbers_and_names_at_once(tmp_path: Path, name: str, content: str) -> None:
    """Labels of both kinds would have to be guessed at."""
    with pytest.raises(SourceError, match=r"labels mix numbers and names: .*3.*cat"):
        labels(tmp_path, name, content)


FORMATS = ("a.csv", "a.tsv.gz", "a.jsonl", "a.jsonl.zst", "a.json", "a.parquet", "a.arrow")


def table(folder: Path, name: str, rows: list[dict[str, Any]]) -> Path:
    """A table of these rows in the format and the compression of its name; objects are JSON in cells."""
    path = folder / name
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), path)
        return path
    if name.endswith(".arrow"):
        return write_stream(path, pa.Table.from_pylist(rows))
    content = "".join(json.dumps(row) + "\n" for row in rows)
    if ".csv" in name or ".tsv" in name:
        text = io.StringIO()
        writer = csv.writer(text, delimiter="\t" if ".tsv" in name else ",")
        writer.writerow(rows[0])
        writer.writerows(
            [[json.dumps(each) if isinstance(each, dict) else each for each in row.values()] for row in rows]
        )
        content = text.getvalue()
    if name.endswith(".zst"):
        with pa.CompressedOutputStream(str(path), "zstd") as out:
            out.write(content.encode())
    else:
        path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    return path


NESTED = [{"Meta": {"text": f"t{i}, ü", "n": i}, "Kind": ("cat", "dog")[i % 2]} for i in range(5)]


@pytest.mark.parametrize("name", FORMATS)
def test_a_column_is_named_alike_in_every_format(tmp_path: Path, name: str) -> None:
    """The column of the text and that of the labels may lie in JSON, and case does not matter, as for ``--field``."""
    path = table(tmp_path, name, NESTED)
    source = open_text(path, options=TextOptions(text_field="meta.text", label_field="kind"))
    parts = list(source.read(Limits()))

    assert [row["Meta"]["text"] for row in NESTED] == [
        part.data[start : start + size].tobytes().decode()
        for part in parts
        for start, size in zip(part.starts.tolist(), part.sizes.tolist(), strict=True)
    ]
    assert ["cat", "dog"] == source.metadata["classes"]
    assert [0, 1, 0, 1, 0] == np.concatenate([part.labels for part in parts if part.labels is not None]).tolist()

    fields = [parse_choice("text=meta.text:text")]
    samples = open_source(path, kind="auto", fields=fields, label_options=LabelOptions(label_columns=("kind",)))
    chunk = samples.begin(range(len(samples)))()
    assert [row["Meta"]["text"] for row in NESTED] == [
        view.tobytes().decode() for view in chunk.batch.spans["text"].views()
    ]
    assert [0, 1, 0, 1, 0] == chunk.batch.columns["label"].tolist()


@pytest.mark.parametrize("name", FORMATS)
def test_a_label_column_that_is_not_there(tmp_path: Path, name: str) -> None:
    """It is named with those that are, whatever the format, and not row by row."""
    path = table(tmp_path, name, [{"text": "a", "kind": "x"}])
    with pytest.raises(SourceError, match=r"has no column 'nope', only 'text'.*: name another with --label-column"):
        open_text(path, options=TextOptions(label_field="nope"))


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    """A row whose JSON is none, or has nothing at the path, is a problem of its own."""
    rows = [{"meta": {"text": "a"}}, {"meta": 3}, {"meta": "{"}, {"meta": {}}, {"other": 1}, {"meta": '{"text": "b"}'}]
    found, problems = read(tmp_path, "a.jsonl", "\n".join(map(json.dumps, rows)), TextOptions(text_field="meta.text"))

    assert {"a.jsonl:1": b"a", "a.jsonl:6": b"b"} == found
    assert {
        "a.jsonl:2": "has no field 'meta.text': there is 3",
        "a.jsonl:3": "has no field 'meta.text': there is '{'",
        "a.jsonl:4": "has null in the field 'meta.text', expected a string",
        "a.jsonl:5": "has no field 'meta.text', only 'other': name another with --text-column",
    } == problems


def test_files_of_a_pattern(tmp_path: Path) -> None:
    """A pattern takes the files that it matches, in the order of their names."""
    tree(tmp_path, {f"{part}-{i}.jsonl": f'{{"text": "{part}{i}"}}' for part in ("train", "val") for i in range(2)})

    assert [b"train0", b"train1"] == list(documents(tmp_path / "train-*.jsonl")[0].values())


def test_splits_beside_each_other(tmp_path: Path) -> None:
    """A folder whose files are those of several splits is not packed as one text."""
    tree(tmp_path, {f"{part}-{i}.jsonl": '{"text": "a"}' for part in ("train", "val") for i in range(2)})
    with pytest.raises(SourceError, match=r"holds several splits, train \(2 files\), val \(2 files\): choose one"):
        open_text(tmp_path)


def test_a_part_that_is_missing(tmp_path: Path) -> None:
    """Numbers that the names of the others count are problems, as of pictures."""
    tree(tmp_path, {f"a-{i:05d}-of-00003.jsonl": '{"text": "a"}' for i in (0, 2)})

    assert ["a-00001-of-00003.jsonl"] == list(documents(tmp_path)[1])
