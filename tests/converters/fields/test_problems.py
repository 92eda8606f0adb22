"""Rows that are wrong are problems of their samples, from every source, in the Writer and when a store is verified."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import fastio
from fastio.cli import cli
from fastio.converters import open_source, pack
from fastio.converters.fields.types import parse_choice
from fastio.converters.inspect.verify import verify
from fastio.errors import SampleError, SourceError
from fastio.store import SampleBatch, create_store, open_store
from fastio.types.field_types import field_of
from fastio.types.schema import Schema
from fastio.types.spans import Spans
from tests.converters.sources.tables.table_files import dataset, jsonl, rows_of

FIELDS = {"boxes": "xyxy", "kinds": "int64[*] per boxes", "poses": "points[2] per boxes"}
BOX = [0, 0, 2, 3]
POSE = [[0, 0], [1, 1]]
GOOD = {"boxes": [BOX], "kinds": [1], "poses": [POSE]}
NO_ROWS: dict[str, Any] = {"boxes": [], "kinds": [], "poses": []}
OTHER_COUNTS: list[tuple[dict[str, Any], str]] = [
    ({"kinds": [1, 2]}, "has 2 rows in 'kinds' for 1 of 'boxes'"),
    ({"kinds": []}, "has 0 rows in 'kinds' for 1 of 'boxes'"),
    ({"poses": [POSE] * 3}, "has 3 rows in 'poses' for 1 of 'boxes'"),
    ({"boxes": []}, "has 1 rows in 'kinds' for 0 of 'boxes'"),
]

NAN, INF = float("nan"), float("inf")
BAD_ROWS: list[tuple[str, str, list[Any], str]] = [
    (
        "float32[*,4]",
        "xyxy",
        [3, 0, 2, 3],
        r"the box \[3, 0, 2, 3\] in row 1 of 'a'; expected .* x1 <= x2 and y1 <= y2",
    ),
    ("float64[*,4]", "xyxy", [0, 3.5, 2, 3], r"the box \[0, 3.5, 2, 3\] in row 1 of 'a'"),
    ("int16[*,4]", "xyxy", [0, 3, 2, -3], r"the box \[0, 3, 2, -3\] in row 1 of 'a'"),
    ("uint8[*,4]", "xyxy", [0, 3, 2, 0], r"the box \[0, 3, 2, 0\] in row 1 of 'a'"),
    ("float32[*,4]", "xyxy", [0, 0, NAN, 3], r"the box \[0, 0, nan, 3\] in row 1 of 'a'; expected finite numbers"),
    ("float32[*,4]", "xyxy", [0, 0, INF, 3], r"the box \[0, 0, inf, 3\] in row 1 of 'a'"),
    ("float32[*,4]", "xywh", [0, 0, -1, 3], r"the box \[0, 0, -1, 3\] .* width and height at least 0 \(xywh\)"),
    ("float32[*,4]", "cxcywh", [5, 5, 1, -0.5], r"the box \[5, 5, 1, -0.5\] .* at least 0 \(cxcywh\)"),
    ("float32[*,2]", "points", [1, NAN], "nan in row 1 of 'a'; expected finite numbers"),
    ("float16[*,2,2]", "points", [[1, 1], [-INF, 2]], "-inf in row 1 of 'a'; expected finite numbers"),
]
GOOD_ROWS: list[tuple[str, str, list[Any]]] = [
    ("float32[*,4]", "xyxy", [2, 3, 2, 3]),
    ("float32[*,4]", "xyxy", [-5, -6, -5, 3]),
    ("float32[*,4]", "xywh", [9, 9, 0, 0]),
    ("float32[*,4]", "cxcywh", [-9, 9, 0.5, 0]),
    ("float32[*,2]", "points", [-3, 0]),
]


def stored(path: Path, samples: list[dict[str, Any]]) -> Path:
    """A store as an earlier fastio wrote it, which took any rows."""
    schema = Schema(tuple(field_of(name, type_) for name, type_ in FIELDS.items()))
    spans = {}
    for field in schema.fields:
        values = [np.asarray(sample[field.name], field.dtype).tobytes() for sample in samples]
        sizes = np.array([len(value) for value in values], np.int64)
        spans[field.name] = Spans.joined(np.frombuffer(b"".join(values), np.uint8), sizes)
    with create_store(path, schema) as writer:
        writer.append(SampleBatch([f"{i:08d}" for i in range(len(samples))], spans, {}, {}))
        writer.close({})
    return path


def from_table(root: Path, objects: list[dict[str, Any]], *fields: str) -> Any:
    """A source of pictures with a table whose column "objects" holds these."""
    rows = [{**row, "objects": each} for row, each in zip(rows_of(len(objects)), objects, strict=True)]
    dataset(root, jsonl(rows), count=len(rows))
    return open_source(root, fields=[parse_choice(each) for each in fields])


@pytest.mark.parametrize(("change", "sentence"), OTHER_COUNTS)
def test_the_writer_refuses_other_counts_of_rows(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    """A sample whose rows do not belong to those of its boxes one by one is named; the others are packed."""
    writer = fastio.Writer(tmp_path / "raised.lmdb", FIELDS)
    writer.write(GOOD, key="a")
    writer.write({**GOOD, **change}, key="b")
    with pytest.raises(SampleError, match=f"'b' {sentence}; there must be one for each") as caught:
        writer.close()
    with fastio.Writer(tmp_path / "skipped.lmdb", FIELDS, on_error="skip") as writer:
        for key, sample in {"a": GOOD, "b": {**GOOD, **change}, "c": NO_ROWS}.items():
            writer.write(sample, key=key)

    assert "b" == caught.value.key
    assert ["b"] == [each.key for each in writer.report.skipped]
    with open_store(tmp_path / "skipped.lmdb") as store:
        assert ["a", "c"] == store.keys(np.arange(2))


@pytest.mark.parametrize("samples", [[NO_ROWS], [GOOD, *[NO_ROWS] * 1030], [*[NO_ROWS] * 1030, GOOD]])
def test_pieces_without_a_row_are_packed(tmp_path: Path, suffix: str, samples: list[dict[str, Any]]) -> None:
    """The Writer takes any number of samples without boxes and points, one after the other or alone."""
    with fastio.Writer(tmp_path / f"out.{suffix}", FIELDS) as writer:
        for sample in samples:
            writer.write(sample)

    assert len(samples) == writer.report.packed
    assert () == tuple(verify(tmp_path / f"out.{suffix}").problems)


EMPTY: dict[str, Any] = {
    **{type_: [] for type_ in ("xyxy", "xywh", "cxcywh", "points", "points[3]", "points[0]", "tokens", "tokens16")},
    **{type_: [] for type_ in ("int64[*]", "bool[*]", "complex64[*]", "float16[*,2,2]", "float32[*,0]", "float32[0]")},
    **{type_: [] for type_ in ("int64[*] per boxes", "points[2] per boxes", "float32[0] column")},
    "uint8[0,4,3]": np.zeros((0, 4, 3), np.uint8),
    "text": "",
    "bytes": b"",
    "json": None,
}


@given(
    types=st.lists(st.sampled_from(sorted(EMPTY)), min_size=1, unique=True),
    name=st.sampled_from(["out.lmdb", "out.h5", "out.tar", "out.zip", "out-%06d.tar"]),
    count=st.integers(1, 3),
)
@settings(max_examples=40)
def test_fields_without_values(types: list[str], name: str, count: int) -> None:
    """Samples whose values are all empty are written, read, described, verified, unpacked and packed again."""
    fields = {"boxes": "xyxy", **{f"f{i}": type_ for i, type_ in enumerate(types)}}
    sample = {name: EMPTY[type_] for name, type_ in fields.items()}
    with TemporaryDirectory() as folder:
        with fastio.Writer(f"{folder}/{name}", fields) as writer:
            for _ in range(count):
                writer.write(sample)
        store = f"{folder}/{name}".replace("-%06d.tar", ".fastio-set")
        commands = [["info"], ["info", "--json"], ["verify", "--decode"], ["unpack", f"{folder}/tree"]]
        commands.append(["pack", f"{folder}/again.zip"])
        results = [CliRunner().invoke(cli, [command, store, *rest]) for command, *rest in commands]
        dataset = fastio.FastDataset(store, fields=list(fields))
        values = [value for i in range(count) for value in dataset[i]]
        batches = list(fastio.FastLoader(dataset, batch_size=2))

    assert [0] * len(commands) == [result.exit_code for result in results], [result.output for result in results]
    assert all(value in ("", b"", None) for value in values if np.asarray(value).size), values
    assert (count * len(fields), -(-count // 2)) == (len(values), len(batches))


def test_a_source_with_other_counts_of_rows(tmp_path: Path) -> None:
    """Rows of a table are checked as those of the Writer are."""
    objects = [{"bbox": [[1, 2, 3, 4]] * count, "categories": [1] * count} for count in (1, 0, 2, 1)]
    objects[3]["categories"] = [1, 2]
    fields = ("boxes=objects.bbox:xywh", "kinds=objects.categories:int64[*] per boxes")
    source = from_table(tmp_path / "set", objects, *fields)
    with pytest.raises(SourceError, match=r"images/3\.png: has 2 rows in 'kinds' for 1 of 'boxes'"):
        pack(source, tmp_path / "raised.lmdb")
    report = pack(source, tmp_path / "out.lmdb", on_error="skip")

    assert (3, ["images/3.png"]) == (report.packed, [each.key for each in report.skipped])


def test_verify_reports_other_counts_of_rows(tmp_path: Path, suffix: str) -> None:
    """A store that was packed before rows were counted is not called good."""
    store = stored(tmp_path / f"out.{suffix}", [GOOD, *({**GOOD, **change} for change, _ in OTHER_COUNTS)])

    assert {f"{i:08d}": sentence for i, (_, sentence) in enumerate(OTHER_COUNTS, 1)} == {
        each.key: each.problem.partition(";")[0] for each in verify(store).problems
    }
    assert () == tuple(verify(stored(tmp_path / f"good.{suffix}", [GOOD])).problems)


@pytest.mark.parametrize(("type_", "role", "row", "sentence"), BAD_ROWS)
def test_the_writer_refuses_bad_boxes_and_points(
    tmp_path: Path, type_: str, role: str, row: list[Any], sentence: str
) -> None:
    """Numbers that are no box or no point are named by their row; the others are packed."""
    field = replace(field_of("a", type_), role=role)
    good = np.ones_like(row).tolist()
    with fastio.Writer(tmp_path / "out.lmdb", {"a": field}, on_error="skip") as writer:
        for key, rows in {"none": [], "good": [good] * 3, "bad": [good, row, row], "last": [good]}.items():
            writer.write({"a": rows}, key=key)

    assert (3, ["bad"]) == (writer.report.packed, [each.key for each in writer.report.skipped])
    assert re.search(f"^has {sentence}", writer.report.skipped[0].problem), writer.report.skipped


@pytest.mark.parametrize(("type_", "role", "row"), GOOD_ROWS)
def test_boxes_without_area_or_outside_are_packed(tmp_path: Path, type_: str, role: str, row: list[Any]) -> None:
    """Only what no picture can have is refused."""
    with fastio.Writer(tmp_path / "out.lmdb", {"a": replace(field_of("a", type_), role=role)}) as writer:
        writer.write({"a": [row, row]})

    assert 1 == writer.report.packed


def test_a_source_with_bad_boxes(tmp_path: Path) -> None:
    """Boxes of a table are checked, and the sample with a wrong one is named."""
    objects = [{"bbox": [[1, 2, 3, 4]] * count} for count in (1, 0, 2, 1)]
    objects[2]["bbox"] = [[1, 2, 3, 4], [5, 5, 5, -1]]
    source = from_table(tmp_path / "set", objects, "boxes=objects.bbox:xywh")
    with pytest.raises(SourceError, match=r"images/2\.png: has the box \[5, 5, 5, -1\] in row 1 of 'boxes'"):
        pack(source, tmp_path / "raised.lmdb")
    report = pack(source, tmp_path / "out.lmdb", on_error="skip")

    assert (3, ["images/2.png"]) == (report.packed, [each.key for each in report.skipped])


def test_a_store_is_copied_with_the_numbers_it_has(tmp_path: Path) -> None:
    """What an earlier fastio took stays, from store to store."""
    bad = {"boxes": [[3, 0, 2, NAN]], "kinds": [1], "poses": [POSE]}
    first = stored(tmp_path / "first.lmdb", [GOOD, bad])

    assert 2 == pack(open_source(first), tmp_path / "second.zip").packed
