"""Reads Tiny ImageNet as it is downloaded: class folders with boxes to train, val_annotations.txt to validate."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.converters.sources.layouts.numbered import NumberedPictures, lines_of
from fastio.converters.sources.layouts.roots import chosen_part
from fastio.converters.sources.listed import ListedSource
from fastio.converters.sources.options import SourceOptions
from fastio.errors import SourceError
from fastio.store.kinds.scan import Problem, SourcePath, is_hidden, names_in, shown
from fastio.types.picture_kinds import kind_by_name

__all__ = [
    "open_tiny_imagenet",
]


_KIND = "tiny-imagenet"  # of sources
_ANNOTATIONS = "val_annotations.txt"


def open_tiny_imagenet(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open train, val or test. Classes are those of ``wnids.txt``, sorted, as ImageFolder sorts the folders of ``train``.

    ``boxes`` (xywh) are from ``train/CLASS/CLASS_boxes.txt`` and ``val/val_annotations.txt``, which have the corners;
    pictures of ``test`` have neither label nor box. A picture without its line, or a line without its picture, is a
    problem.
    """
    parts = {name: name for name in ("train", "val", "test") if Path(place.path, name).is_dir()}
    part, _ = chosen_part(place.path, parts, options.split, "part", "the folder train, val or test")
    wnids = sorted(line for _, line in lines_of(f"{place.path}/wnids.txt"))
    twice = [one for one, other in pairwise(wnids) if one == other]
    if twice:  # they would move the numbers of those behind
        raise SourceError(f"{place.path}/wnids.txt: the class {twice[0]!r:.40} comes twice: remove one of these lines")
    paths, problems = [f"{place.path}/wnids.txt"], list[Problem]()
    rows: dict[str, tuple[str, list[int]]] = {}
    if part == "train":
        for wnid in wnids:
            boxes = f"{place.path}/train/{wnid}/{wnid}_boxes.txt"
            paths.append(boxes)
            for number, line in lines_of(boxes):
                name, *numbers = line.split()
                _take(rows, problems, f"train/{wnid}/images/{name}", wnid, numbers, f"{wnid}_boxes.txt:{number}")
        pictures = [each for wnid in wnids for each in _pictures(place.path, f"train/{wnid}/images")]
    elif part == "val":
        paths.append(f"{place.path}/val/{_ANNOTATIONS}")
        for number, line in lines_of(paths[-1]):
            name, wnid, *numbers = line.split() + [""] * (2 - len(line.split()))
            _take(rows, problems, f"val/images/{name}", wnid, numbers, f"{_ANNOTATIONS}:{number}")
        pictures = _pictures(place.path, "val/images")
    else:
        pictures = _pictures(place.path, "test/images")
    names = list(dict.fromkeys([*rows, *pictures]))
    if part == "test":
        return NumberedPictures(place, _KIND, options, os.path.realpath(place.path), names, paths, {}).source()
    known = {wnid: i for i, wnid in enumerate(wnids)}
    bad = {i: "has no line with its class and box" for i, name in enumerate(names) if name not in rows}
    bad |= {
        i: f"is of class {rows[name][0]!r:.40}, which is not in wnids.txt"
        for i, name in enumerate(names)
        if name in rows and rows[name][0] not in known
    }
    labels = [0 if i in bad else known[rows[name][0]] for i, name in enumerate(names)]
    corners = np.array([[0] * 4 if name not in rows else rows[name][1] for name in names], np.float32).reshape(-1, 4)
    corners[:, 2:] -= corners[:, :2]
    fields: dict[str, tuple[str, NDArray[Any]]] = {
        "boxes": ("xywh", corners),
        "label": ("label", np.array(labels, np.int64)),
    }
    root = os.path.realpath(place.path)
    return NumberedPictures(place, _KIND, options, root, names, paths, fields, wnids, {}, bad, problems).source()


def _take(
    rows: dict[str, tuple[str, list[int]]],
    problems: list[Problem],
    name: str,
    wnid: str,
    numbers: list[str],
    where: str,
) -> None:
    """Keep the line of a picture; what is no such line is a problem."""
    if len(numbers) != 4 or not all(map(str.isdecimal, numbers)) or name in rows:
        problems.append(
            Problem(shown(where), "is no name of a picture with a class and the corners of a box, or comes twice")
        )
    else:
        rows[name] = (wnid, list(map(int, numbers)))


def _pictures(root: str, folder: str) -> list[str]:
    """The pictures in a folder, sorted, named from the root on."""
    names = [name for name in names_in(f"{root}/{folder}")[1] if kind_by_name(name) and not is_hidden(name)]
    if not names:
        raise SourceError(f"{root}/{folder}: holds no pictures")
    return [f"{folder}/{name}" for name in names]
