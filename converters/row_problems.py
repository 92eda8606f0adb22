"""What is wrong with the rows of ragged fields before they are packed, in words that follow the sample's key."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fastio.types.schema import Schema
from fastio.types.spans import Spans

__all__ = ["RowProblems", "count_problems", "row_problems"]

# The field and a sentence, by the position of the sample.
RowProblems = dict[int, tuple[str, str]]


def row_problems(schema: Schema, spans: Mapping[str, Spans]) -> RowProblems:
    """Find samples whose rows must not be packed, in the values of some samples."""
    return count_problems(schema, {name: each.sizes for name, each in spans.items()})


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
