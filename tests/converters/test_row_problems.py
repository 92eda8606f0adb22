"""Rows that are wrong are problems of their samples, from every source, in the Writer and when a store is verified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastio
from fastio.converters import open_source, pack
from fastio.converters.fields_asked import parse_choice
from fastio.converters.verify import verify
from fastio.errors import SampleError, SourceError
from fastio.store import SampleBatch, create_store, open_store
from fastio.types.field_types import field_of
from fastio.types.schema import Schema
from fastio.types.spans import Spans
from tests.converters.test_tables import dataset, jsonl, rows_of

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
