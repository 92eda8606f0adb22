"""Writes label files for ``fastio unpack --labels``, in the form that ``read_labels`` reads."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from fastio.errors import SourceError

__all__ = ["format_labels"]

Label = int | float | str | Sequence[int | float]

_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")


def format_labels(path: str | os.PathLike[str], labels: Mapping[str, Label], titles: Sequence[str] = ()) -> str:
    """
    Return the text of a label file by its suffix (.csv, .tsv, .json or .jsonl); ``read_labels`` reads the same back.

    Lists of numbers become as many columns of a table, under ``titles`` if their count fits, otherwise label_1, ...
    """
    suffix = Path(path).suffix.lower()
    if suffix in (".csv", ".tsv"):
        return _table(path, labels, titles, "," if suffix == ".csv" else "\t")
    if suffix == ".json":
        return json.dumps(dict(labels), indent=0, ensure_ascii=False) + "\n"
    if suffix == ".jsonl":
        rows = ({"filename": name, "label": label} for name, label in labels.items())
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    raise SourceError(f"{path}: expected a label file to write as .csv, .tsv, .json or .jsonl")


def _table(path: str | os.PathLike[str], labels: Mapping[str, Label], titles: Sequence[str], delimiter: str) -> str:
    if any(isinstance(label, str) and (_NUMBER.match(label) or label != label.strip()) for label in labels.values()):
        raise SourceError(f"{path}: class names that look like numbers would come back as numbers: write .json")
    rows = {name: [label] if isinstance(label, int | float | str) else list(label) for name, label in labels.items()}
    width = len(next(iter(rows.values()), [0]))
    if width == 1:
        titles = ["label"]
    elif len(titles) != width or "filename" in titles:
        titles = [f"label_{i + 1}" for i in range(width)]
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(("filename", *titles))
    writer.writerows((name, *cells) for name, cells in rows.items())
    return text.getvalue()
