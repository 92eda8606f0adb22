"""Finds masks that are not as large as their pictures, in words that follow the sample's key."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fastio.converters.row_problems import RowProblems
from fastio.types.schema import Schema

__all__ = ["mask_size_problems"]


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
                f"has a mask of {_words(sizes[i])} in {field.name!r}, but its picture {picture.name!r} is "
                f"{_words(expected[i])} (height x width): they must be equal, or no crop fits both"
            )
            problems.setdefault(i, (field.name, sentence))
    return problems


def _words(size: NDArray[np.int32]) -> str:
    return "x".join(map(str, size.tolist()))
