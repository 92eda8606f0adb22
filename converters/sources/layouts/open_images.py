"""Reads the boxes of Open Images: a .csv with a row for each box, and a folder of pictures named by their ids."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from fastio.converters.sources.coco.detections import Detections
from fastio.converters.sources.listed import ListedSource
from fastio.converters.sources.options import SourceOptions
from fastio.converters.sources.tables.names import Stems
from fastio.converters.sources.tables.rows import TableFile
from fastio.errors import SourceError
from fastio.store.kinds.scan import Problem, SourcePath, is_hidden, names_in, shown

__all__ = [
    "open_open_images",
]


_KIND = "open-images"  # of sources
_NAMES = ("class-descriptions-boxable.csv", "oidv7-class-descriptions-boxable.csv", "class-descriptions.csv")
_SIDES = ("XMin", "XMax", "YMin", "YMax")


def open_open_images(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open a .csv of boxes (``ImageID, Source, LabelName, Confidence, XMin, XMax, YMin, YMax, IsOccluded, ...``).

    Pictures lie below ``--root``, or in the one folder beside the .csv that holds the first of them. Each is a sample,
    with COCO's fields: boxes in pixels, classes by the sorted ids of the .csv, whose names are those of
    ``class-descriptions-boxable.csv`` if it is there; ``objects`` keep the other columns. A picture that is not there
    is a problem, and so is a row that is no box.
    """
    table, problems = TableFile(place.path), list[Problem]()
    pictures, labels = dict[str, int](), dict[str, int]()  # by their ids, the numbers of both; -1: no such picture
    root, stems = "", None
    with closing(Detections(is_normalised=True)) as found:
        for line, row in table.rows():
            made = row if isinstance(row, str) else _box(row)
            if isinstance(made, str):
                problems.append(Problem(f"{table.name}:{line}", made))
                continue
            image, label = str(made.pop("image")), made.pop("label")
            if stems is None:
                root = os.path.realpath(options.root) if options.root else _root(place.path, image)
                stems = Stems(root)
            number = labels.setdefault(label, len(labels))
            if image not in pictures:
                name, problem = stems.name(image)
                if problem:
                    problems.append(Problem(shown(image), f"has boxes under a name that {problem}"))
                pictures[image] = -1 if problem else found.add(name)
            if pictures[image] >= 0:
                found.add_object(pictures[image], {"category_id": number, **made})
        if not pictures:
            raise SourceError(f"{place.path}: holds no boxes" + (f": {problems[0].problem}" if problems else ""))
        names, files = _names(place.path)
        classes = [names.get(label, label) for label in sorted(labels)]
        numbers = [labels[label] for label in sorted(labels)]
        return found.source(place, _KIND, options, root, classes, [place.path, *files], problems, numbers=numbers)


def _box(row: Mapping[str, Any]) -> dict[str, Any] | str:
    """A row as an annotation of COCO in fractions, or what is wrong with it."""
    if not row.get("ImageID") or not row.get("LabelName"):
        return "has no ImageID or no LabelName"
    try:
        left, right, top, bottom = (float(row[name]) for name in _SIDES)
    except (KeyError, TypeError, ValueError):
        return f"has no numbers {', '.join(_SIDES)}"
    if not 0 <= left <= right <= 1 or not 0 <= top <= bottom <= 1:
        return f"has a box that is no part of the picture: {left}, {right}, {top}, {bottom}"
    rest = {name: _plain(value) for name, value in row.items() if name not in ("ImageID", "LabelName", *_SIDES)}
    return {"image": row["ImageID"], "label": row["LabelName"], "bbox": [left, top, right - left, bottom - top], **rest}


def _plain(cell: str) -> Any:
    return int(cell) if cell.lstrip("-").isdecimal() and len(cell) < 19 else cell


def _root(path: str, image: str) -> str:
    """The one folder beside the .csv, or its own, that holds a picture of this id."""
    here = Path(os.path.realpath(path)).parent
    folders = [here, *(here / name for name in names_in(str(here))[0] if not is_hidden(name))]
    holding = [str(folder) for folder in folders if Stems(str(folder)).files(image)]
    if len(holding) == 1:
        return holding[0]
    found = f"{' and '.join(map(repr, holding))} both do" if holding else "none beside it does"
    raise SourceError(
        f"{path}: which folder holds its pictures (the first is {image!r})? {found}: name it with --root DIR"
    )


def _names(path: str) -> tuple[dict[str, str], list[str]]:
    """The names of classes by their ids, and the file that has them, if it lies beside the .csv."""
    file = next((each for name in _NAMES if (each := Path(path).with_name(name)).is_file()), None)
    if file is None:
        return {}, []
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            return {row[0]: row[1] for row in csv.reader(stream, strict=True) if len(row) == 2}, [str(file)]
    except (OSError, UnicodeDecodeError, csv.Error) as exc:
        raise SourceError(f"{file}: expected the id and the name of a class in each row: {exc}") from exc
