"""What is wrong with the rows of ragged fields and the sizes of masks, in words that follow the sample's key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.types.schema import Field, Schema
from fastio.types.spans import Spans, firsts_of

__all__ = [
    "count_problems",
    "element_words",
    "list_problems",
    "mask_size_problems",
    "row_problems",
]


# The field and a sentence, by the position of the sample.
RowProblems = dict[int, tuple[str, str]]


def row_problems(
    schema: Schema, spans: Mapping[str, Spans], wrong: Iterable[int] = (), *, with_numbers: bool = True
) -> RowProblems:
    """
    Find samples whose rows must not be packed: those of ``count_problems``, boxes and points that are not finite, and
    boxes whose sides are negative. Boxes without an area are good.

    ``wrong`` are positions that have a problem already, whose bytes do not matter. Without ``with_numbers``, rows are
    only counted.
    """
    problems = count_problems(schema, {name: each.sizes for name, each in spans.items()})
    for field in schema.payload if with_numbers else ():
        if field.geometry and field.unit_bytes:
            good = field.fits(spans[field.name].sizes).copy()
            good[list(wrong)] = False
            positions = np.flatnonzero(good)
            for i, sentence in _number_problems(field, spans[field.name].at(positions)).items():
                problems.setdefault(int(positions[i]), (field.name, sentence))
    return problems


def count_problems(schema: Schema, sizes: Mapping[str, NDArray[np.int64]]) -> RowProblems:
    """
    Find samples in which a field has more or fewer rows than the field that they belong to (see ``Field.owner``).

    ``sizes`` holds the bytes of each value, ``(n,)``, by field; the values themselves are not read.
    """
    problems: RowProblems = {}
    for field in schema.payload:
        owner = schema[field.owner] if field.owner else None
        if owner is None or not field.unit_bytes or not owner.unit_bytes:  # rows without elements cannot be counted
            continue
        rows, owned = sizes[field.name] // field.unit_bytes, sizes[owner.name] // owner.unit_bytes
        for i in np.flatnonzero(rows != owned).tolist():
            sentence = f"has {rows[i]} rows in {field.name!r} for {owned[i]} of {owner.name!r}"
            problems.setdefault(i, (field.name, f"{sentence}; there must be one for each"))
    return problems


def _number_problems(field: Field, spans: Spans) -> dict[int, str]:
    """The first row of each value that is no box or no point."""
    views = spans.runs().views()
    if not views:
        return {}
    rows = np.concatenate(views).view(field.dtype).reshape(-1, *(size or 0 for size in field.shape[1:]))
    is_bad = np.zeros(len(rows), bool)
    if rows.dtype.kind in "fc":
        is_bad |= ~np.isfinite(rows).all(axis=tuple(range(1, rows.ndim)))
    if field.is_box and rows.dtype.kind in "biuf":
        far, near = rows[:, 2:], rows[:, :2] if field.geometry == "xyxy" else 0
        is_bad |= (far < near).any(axis=1)
    stops = np.cumsum(spans.sizes // field.unit_bytes)
    problems: dict[int, str] = {}
    for row in np.flatnonzero(is_bad).tolist():
        i = int(np.searchsorted(stops, row, side="right"))
        number = row - int(stops[i - 1]) if i else row
        problems.setdefault(i, f"has {_words(field, rows[row])} in row {number} of {field.name!r}; {_rule(field)}")
    return problems


def _words(field: Field, row: NDArray[Any]) -> str:
    """A whole box, or the first number of a point that is not finite."""
    if field.is_box:
        return f"the box [{', '.join(f'{number:g}' for number in row.tolist())}]"
    return str(row[~np.isfinite(row)][0])


def _rule(field: Field) -> str:
    """What is expected of a row."""
    if field.is_points:
        return "expected finite numbers"
    if field.geometry == "xyxy":
        return "expected finite numbers, x1 <= x2 and y1 <= y2"
    return f"expected finite numbers, width and height at least 0 ({field.geometry})"


# Finds masks that are not as large as their pictures, in words that follow the sample's key.


def mask_size_problems(schema: Schema, shapes: Mapping[str, NDArray[np.int32]]) -> RowProblems:
    """
    Find samples whose masks have another height or width than their picture (``schema.picture``).

    ``shapes`` holds height, width and channels ``(n, 3)`` by field; zeros, and fields that it lacks, are unknown.
    """
    picture = schema.picture
    problems: RowProblems = {}
    if picture is None or picture.name not in shapes:
        return problems
    expected = shapes[picture.name][:, :2]
    for field in schema.payload:
        if not field.traits.is_mask or field == picture or field.name not in shapes:
            continue
        sizes = shapes[field.name][:, :2]
        is_known = (sizes > 0).all(axis=1) & (expected > 0).all(axis=1)
        for i in np.flatnonzero(is_known & (sizes != expected).any(axis=1)).tolist():
            sentence = (
                f"has a mask of {_sizes_in_words(sizes[i])} in {field.name!r}, but its picture {picture.name!r} is "
                f"{_sizes_in_words(expected[i])} (height x width): they must be equal, or no crop fits both"
            )
            problems.setdefault(i, (field.name, sentence))
    return problems


def _sizes_in_words(size: NDArray[np.int32]) -> str:
    return "x".join(map(str, size.tolist()))


# Elements of lists, which are named by their places.


def element_words(number: int, count: int, problem: str) -> str:
    """
    Return what is wrong with element ``number`` of ``count``, counted from 1, in words that follow what has the list.

    >>> element_words(2, 3, "is not an image")
    'has a bad element, 2 of 3: it is not an image'
    """
    return f"has a bad element, {number:,} of {count:,}: it {problem}"


def list_problems(
    counts: NDArray[np.int64], problems: Mapping[int, str], *, is_optional: bool = False
) -> dict[int, str]:
    """
    Return what is wrong with lists of so many elements each, by the position of their sample, from what is wrong with
    elements, by their positions among all of them. Of several in one list, the first is named; a value that may be
    missing is no element.

    >>> list_problems(np.array([2, 0, 3]), {3: "is empty", 4: "is gone"})
    {2: 'has a bad element, 2 of 3: it is empty'}
    """
    found: dict[int, str] = {}
    firsts = firsts_of(counts)
    for element in sorted(problems):
        row = int(np.searchsorted(firsts, element, side="right")) - 1
        number, words = element - int(firsts[row]) + 1, problems[element]
        words = words if is_optional else element_words(number, int(counts[row]), words)
        found.setdefault(row, words)
    return found
