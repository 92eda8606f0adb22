"""Reads lists of pictures: a text with a path and, mostly, a label in each line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.converters.labels.file import look_like_captions
from fastio.converters.sources.layouts.numbered import NumberedPictures, lines_of
from fastio.converters.sources.layouts.roots import chosen_part, find_root
from fastio.converters.sources.listed import ListedSource
from fastio.converters.sources.options import SourceOptions
from fastio.errors import SourceError
from fastio.store.kinds.layouts import picture_lists, split_line
from fastio.store.kinds.scan import Problem, SourcePath

__all__ = [
    "open_list",
]


_KIND = "list"  # of sources


def open_list(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open a list, or a folder with some, each a part: ``images/a.jpg 3`` a line, blanks or a comma between.

    Pictures lie below ``--root``, or in the folder of the list, one in it or one beside it. Labels are whole numbers,
    several a line too, or names of classes, sorted, of all lists in the folder. A line without a label, where others
    have one, is a problem. Raises SourceError for numbers among names, as tables of labels do.
    """
    path, beside = place.path, [place.path]
    if place.is_folder:
        lists = {Path(name).stem: f"{place.path}/{name}" for name in picture_lists(place)}
        expected = "a list with the name of a picture in each line"
        path, beside = chosen_part(place.path, lists, options.split, "list", expected)[1], list(lists.values())
    names, labels, problems = [], list[str](), list[Problem]()
    for number, line in lines_of(path):
        name, label = split_line(line)
        if name:
            names.append(name)
            labels.append(label)
        else:
            problems.append(Problem(f"{Path(path).name}:{number}", f"names no picture: {line!r:.80}"))
    if not names:
        raise SourceError(f"{path}: names no pictures; expected lines such as 'images/a.jpg 3'")
    root = find_root(path, options.root, names)
    others = [each for each in beside if each != path]
    fields, classes, bad = _labels(path, labels, others, options)
    return NumberedPictures(
        place, _KIND, options, root, names, [path], fields, classes, {}, bad, problems, others
    ).source()


def _labels(
    path: str, labels: Sequence[str], others: Sequence[str], options: SourceOptions
) -> tuple[dict[str, tuple[str, NDArray[Any]]], list[str] | None, dict[int, str]]:
    """The field of labels, the names of classes, and the lines without what others have, by position."""
    bad = {i: "has no label in its line" for i, label in enumerate(labels) if not label}
    if len(bad) == len(labels):
        return {}, None, {}
    rows = [label.replace(",", " ").split() for label in labels]
    if all(_are_numbers(label) for label in labels if label):
        width = len(next(filter(None, rows)))
        for i, row in enumerate(rows):
            if row and len(row) != width:
                bad[i] = f"has {len(row)} labels, expected {width}"
            elif any(not -(2**63) <= int(word[:20]) < 2**63 or len(word) > 20 for word in row):
                bad[i] = f"has a label beyond 64 bits ({labels[i]:.40})"
        numbers = np.array([[0] * width if i in bad else list(map(int, row)) for i, row in enumerate(rows)], np.int64)
        return {"label": ("label", numbers[:, 0]) if width == 1 else (f"int64[{width}] column", numbers)}, None, bad
    _check_words(path, labels)
    names = {label for label in labels if label}
    names |= {label for other in others for _, line in lines_of(other) if (label := split_line(line)[1])}
    classes = sorted(names)
    if look_like_captions(classes, len(labels)) and not options.columns.many_classes:
        raise SourceError(
            f"{path}: {len(labels):,} pictures have {len(classes):,} labels, e.g. {classes[0]!r:.60}: captions, "
            "not classes? Write them into a .csv with titles, or add --many-classes"
        )
    position = {name: i for i, name in enumerate(classes)}
    return {"label": ("label", np.array([position.get(label, 0) for label in labels], np.int64))}, classes, bad


def _check_words(path: str, labels: Sequence[str]) -> None:
    """Raise SourceError for numbers among names: as names, "10" comes before "2", and no class would be its number."""
    number = next((i for i, label in enumerate(labels) if _are_numbers(label)), None)
    if number is not None:
        word = next(i for i, label in enumerate(labels) if label and not _are_numbers(label))
        raise SourceError(
            f"{path}: labels mix numbers and names: picture {number + 1} has {labels[number]!r:.40}, picture "
            f"{word + 1} has {labels[word]!r:.60}; make all of them numbers or all of them names"
        )


def _are_numbers(label: str) -> bool:
    words = label.replace(",", " ").split()
    return bool(words) and all(word.lstrip("-").isdecimal() for word in words)
