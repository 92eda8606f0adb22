"""Reads CelebA as it is downloaded: lists of attributes, boxes, landmarks, identities and parts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.converters.sources.layouts.numbered import NumberedPictures, lines_of
from fastio.converters.sources.layouts.roots import chosen_part
from fastio.converters.sources.listed import ListedSource
from fastio.converters.sources.options import SourceOptions
from fastio.errors import SourceError
from fastio.store.kinds.scan import Problem, SourcePath

__all__ = [
    "open_celeba",
]


_KIND = "celeba"  # of sources
_FOLDERS = ("img_align_celeba/img_align_celeba", "img_align_celeba", "img_align_celeba_png", "img_celeba")
_PARTS = {"train": 0, "val": 1, "test": 2}
_SUFFIXES = (".txt", ".csv")


def open_celeba(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open one part of CelebA, by ``list_eval_partition``: train, val or test; all pictures if that list is not there.

    ``attributes`` are 0 or 1 (n, 40), whose names are among the classes of fields, ``landmarks`` points, ``identity`` a
    number. ``boxes`` are those of the faces (xywh); of aligned pictures, for which they were not made, they are
    ``face_box``, four numbers that crops leave alone. A picture that a list lacks is a problem.
    """
    folder = next((name for name in _FOLDERS if Path(place.path, name).is_dir()), None)
    if options.root is None and folder is None:
        raise SourceError(f"{place.path}: expected the pictures in one of {', '.join(_FOLDERS)}, or --root DIR")
    root = options.root or f"{place.path}/{folder}"
    is_aligned = "align" in os.path.realpath(root)
    lists = _Lists(place.path)
    titles, attributes = lists.table("list_attr_celeba")
    _, partition = lists.table("list_eval_partition")
    names, bad = list(attributes or partition), dict[int, str]()
    if partition:
        _, wanted = chosen_part(place.path, _PARTS, options.split, "part")
        others = [[number] for number in _PARTS.values() if number != wanted]
        names = [name for name in partition if partition[name] not in others]
        names += [name for name in attributes if name not in partition]
        for i, name in enumerate(names):
            if partition.get(name) != [wanted]:
                bad[i] = f"has no part from 0 to 2 in list_eval_partition: {partition.get(name, 'no line')}"
    elif options.split is not None:
        raise SourceError(f"{place.path}: has no list_eval_partition.txt, which --split {options.split} needs")
    fields: dict[str, tuple[str, NDArray[Any]]] = {}
    if attributes:
        signs = _numbers(attributes, names, len(titles), "list_attr_celeba", bad)
        fields["attributes"] = (f"int8[{len(titles)}] column", (signs > 0).astype(np.int8))
    _, boxes = lists.table("list_bbox_celeba")
    if boxes:
        rows = _numbers(boxes, names, 4, "list_bbox_celeba", bad)
        fields |= {"face_box": ("int32[4] column", rows)} if is_aligned else {"boxes": ("xywh", rows)}
    points_of = "list_landmarks_align_celeba" if is_aligned else "list_landmarks_celeba"
    titles_of_points, points = lists.table(points_of)
    if points:
        count = len(titles_of_points)
        fields["landmarks"] = ("points", _numbers(points, names, count, points_of, bad).reshape(-1, count // 2, 2))
    _, identities = lists.table("identity_CelebA")
    if identities:
        fields["identity"] = ("int", _numbers(identities, names, 1, "identity_CelebA", bad)[:, 0])
    field_classes = {"attributes": titles} if attributes else {}
    return NumberedPictures(
        place,
        _KIND,
        options,
        os.path.realpath(root),
        names,
        lists.paths,
        fields,
        None,
        field_classes,
        bad,
        lists.problems,
    ).source()


class _Lists:
    """The lists of a folder, as .txt of the download or .csv of Kaggle; ``paths`` are those that were read."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.paths: list[str] = []
        self.problems: list[Problem] = []

    def table(self, name: str) -> tuple[list[str], dict[str, list[int]]]:
        """
        Return the titles and the numbers of each picture, nothing if there is no such list.

        A .txt begins with the number of its rows and the titles, if it has any; those of parts and identities do not.
        """
        path = next(
            (f"{self._folder}/{name}{end}" for end in _SUFFIXES if Path(self._folder, name + end).is_file()), ""
        )
        if not path:
            return [], {}
        self.paths.append(path)
        titles, rows = list[str](), dict[str, list[int]]()
        said, count = -1, 0
        for number, line in lines_of(path):
            words = [word.strip() for word in (line.split(",") if path.endswith(".csv") else line.split())]
            if number == 1 and len(words) == 1 and words[0].isdecimal():
                said = int(words[0])
                continue
            if not rows and not titles and not _is_row(words):
                titles = words[1:] if words[0] in ("image_id", "image") else words
                continue
            count += 1
            if not _is_row(words) or (titles and len(words) != 1 + len(titles)) or words[0] in rows:
                where = f"{Path(path).name}:{number}"
                self.problems.append(
                    Problem(where, f"is no picture with {len(titles) or 1} whole numbers, or comes twice")
                )
                continue
            rows[words[0]] = [int(word.removesuffix(".0")) for word in words[1:]]
        if said not in (-1, count):
            self.problems.append(
                Problem(Path(path).name, f"says that {said:,} pictures follow, but {count:,} do: download it again")
            )
        return titles, rows


def _is_row(words: Sequence[str]) -> bool:
    """Whether a line is the name of a picture and whole numbers."""
    return (
        "." in words[0]
        and len(words) > 1
        and all(word.removeprefix("-").removesuffix(".0").isdecimal() for word in words[1:])
    )


def _numbers(
    rows: Mapping[str, Sequence[int]], names: Sequence[str], width: int, where: str, bad: dict[int, str]
) -> NDArray[np.int64]:
    """The numbers of each picture, (n, width); one that the list lacks is bad."""
    found = np.zeros((len(names), width), np.int64)
    for i, name in enumerate(names):
        row = rows.get(name)
        if row is None or len(row) != width:
            bad.setdefault(i, f"has no {width} numbers in {where}")
        else:
            found[i] = row
    return found
