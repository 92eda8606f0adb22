"""Reads CUB-200 as it is downloaded: images.txt, and lists of labels, boxes and parts by the numbers in it."""

from __future__ import annotations

import os
from collections.abc import Sequence
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
from fastio.types.units import counted

__all__ = [
    "open_cub",
]


_KIND = "cub"  # of sources
_PARTS = {"train": "1", "test": "0"}


def open_cub(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open train or test, by ``train_test_split.txt``; all pictures if that list is not there.

    ``label`` is the class of ``image_class_labels.txt`` less one, whose names are in ``classes.txt``; ``boxes`` (xywh)
    are those of ``bounding_boxes.txt``. A picture that one of the lists lacks is a problem.
    """
    lists = {name: f"{place.path}/{name}.txt" for name in _LISTS if Path(place.path, f"{name}.txt").is_file()}
    if not {"images", "image_class_labels", "classes"} <= lists.keys():
        raise SourceError(f"{place.path}: expected images.txt, image_class_labels.txt and classes.txt")
    problems: list[Problem] = []
    rows = {name: _rows(path, problems) for name, path in lists.items()}
    ids = list(rows["images"])
    if "train_test_split" in rows:
        _, wanted = chosen_part(place.path, _PARTS, options.split, "part")
        others = [[value] for value in _PARTS.values() if value != wanted]
        ids = [each for each in ids if rows["train_test_split"].get(each) not in others]
    elif options.split is not None:
        raise SourceError(f"{place.path}: has no train_test_split.txt, which --split {options.split} needs")
    by_number = {int(number): " ".join(words) for number, words in rows["classes"].items()}
    classes = [by_number[number] for number in sorted(by_number)]
    if sorted(by_number) != list(range(1, len(rows["classes"]) + 1)):
        raise SourceError(
            f"{lists['classes']}: expected a line for each class from 1 on, got {sorted(by_number)!r:.80}"
        )
    bad: dict[int, str] = {}
    for name in rows.keys() - {"images", "classes"}:
        bad |= {i: f"has no line in {name}.txt" for i, each in enumerate(ids) if each not in rows[name]}
    if "train_test_split" in rows:
        parts = [(i, words) for i, each in enumerate(ids) if (words := rows["train_test_split"].get(each)) is not None]
        bad |= {i: f"has {' '.join(words)!r:.40} in train_test_split.txt" for i, words in parts if words != [wanted]}
    labels = _numbers(rows["image_class_labels"], ids, 1, bad, "image_class_labels.txt")[:, 0].astype(np.int64) - 1
    bad |= {
        i: f"is of class {label + 1}, which classes.txt lacks"
        for i, label in enumerate(labels.tolist())
        if not 0 <= label < len(classes) and i not in bad
    }
    fields: dict[str, tuple[str, NDArray[Any]]] = {}
    if "bounding_boxes" in rows:
        fields["boxes"] = ("xywh", _numbers(rows["bounding_boxes"], ids, 4, bad, "bounding_boxes.txt"))
    fields["label"] = ("label", labels)
    names = ["images/" + " ".join(rows["images"][each]) for each in ids]
    root, paths = os.path.realpath(place.path), list(lists.values())
    return NumberedPictures(place, _KIND, options, root, names, paths, fields, classes, {}, bad, problems).source()


_LISTS = ("images", "image_class_labels", "classes", "train_test_split", "bounding_boxes")


def _rows(path: str, problems: list[Problem]) -> dict[str, list[str]]:
    """What a list says by number; a line that begins with none, or with one that came before, is a problem."""
    rows: dict[str, list[str]] = {}
    for number, line in lines_of(path):
        key, *words = line.split()
        if not key.isdecimal() or not words or key in rows:
            problems.append(Problem(f"{Path(path).name}:{number}", "is no number and words, or its number comes twice"))
        else:
            rows[key] = words
    return rows


def _numbers(
    rows: dict[str, list[str]], ids: Sequence[str], width: int, bad: dict[int, str], where: str
) -> NDArray[np.float32]:
    """The numbers of each picture, (n, width); what is none is bad."""
    found = np.zeros((len(ids), width), np.float32)
    for i, each in enumerate(ids):
        if i in bad:
            continue
        words = rows.get(each, [])
        try:
            numbers = [float(word) for word in words]
        except ValueError:
            numbers = []
        if len(numbers) != width or (width == 1 and not words[0].isdecimal()):
            bad[i] = f"has no {counted(width, 'number')} in {where}: {' '.join(words)!r:.60}"
        else:
            found[i] = numbers
    return found
