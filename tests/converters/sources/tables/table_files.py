"""Tables with pictures for tests, and what they become."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastio.converters import LabelOptions, PackReport, Source, open_source, pack
from fastio.converters.fields.types import parse_choice
from fastio.converters.inspect.verify import verify
from fastio.types.field_types import type_of
from tests.converters.sources.test_pairs import mask, tree
from tests.converters.trees import picture

OBJECTS = {"bbox": [[1, 2, 3, 4], [0.5, 0, 1, 1]], "categories": [3, 4]}


def rows_of(count: int = 4) -> list[dict[str, Any]]:
    """Rows with all kinds of values."""
    return [
        {
            "file_name": f"images/{i}.png",
            "mask_file_name": f"masks/{i}.png",
            "text": f"a bee, {i} times",
            "score": i / 3,
            "count": i,
            "is_day": i % 2 == 0,
            "objects": OBJECTS if i else {"bbox": [], "categories": []},
            "label": ("bee", "cat")[i % 2],
        }
        for i in range(count)
    ]


def jsonl(rows: Sequence[dict[str, Any]]) -> bytes:
    """Rows as lines of JSON."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def as_csv(rows: Sequence[dict[str, Any]], delimiter: str = ",") -> bytes:
    """Rows as a table; objects as JSON."""
    file = io.StringIO(newline="")
    writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    writer.writerow(rows[0])
    for row in rows:
        writer.writerow([json.dumps(v) if isinstance(v, dict) else "" if v is None else v for v in row.values()])
    return file.getvalue().encode()


def dataset(root: Path, table: bytes, name: str = "metadata.jsonl", count: int = 4) -> Path:
    """``images/i.png``, ``masks/i.png`` and a table."""
    files = {f"images/{i}.png": picture(i) for i in range(count)} | {f"masks/{i}.png": mask(i) for i in range(count)}
    return tree(root, {**files, name: table})


def opened(path: Path, *fields: str, root: Path | str | None = None, **columns: Any) -> Source:
    """The source with these ``--field``s and options of columns."""
    options = LabelOptions(**columns)
    return open_source(path, fields=[parse_choice(each) for each in fields], root=root, label_options=options)


def types(source: Source) -> dict[str, str]:
    """Each field's type, in words."""
    return {field.name: type_of(field) for field in source.schema.fields}


def packed(source: Source, out: Path) -> PackReport:
    """Pack what is good; the counts agree, and verify finds the same."""
    report = pack(source, out, on_error="skip")
    assert report.found == report.packed + len(report.skipped) + len(report.left_out)
    assert not verify(out, against=source).problems
    return report


def parsed(data: bytes, name: str) -> list[dict[str, Any]]:
    """The rows of a table that was written."""
    if name.endswith(".jsonl"):
        return [json.loads(line) for line in data.decode().splitlines()]
    return list(csv.DictReader(io.StringIO(data.decode(), newline=""), delimiter="\t" if name.endswith("tsv") else ","))
