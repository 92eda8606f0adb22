"""ListedFiles: the files that a column of lists names, read as lists of values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.converters.fields.problems import list_problems
from fastio.converters.sources.listed import Indices, Values
from fastio.converters.sources.pairs import FieldFiles
from fastio.types.schema import Field
from fastio.types.spans import ListSpans, elements_of

__all__ = ["ListedFiles"]


@dataclass(frozen=True, slots=True)
class ListedFiles:
    """
    Lists of files as the values of ``field``: ``files`` are those of all rows, of which row i has those from
    ``firsts[i]`` up to ``firsts[i + 1]``.
    """

    field: Field
    files: FieldFiles
    firsts: NDArray[np.int64]

    def begin(self, indices: Indices, pool: _native.ThreadPool | None) -> Callable[[], Values]:
        """Begin to read the files of some rows; see ``ListedSource.read``. A bad one is a problem of its row."""
        elements, counts = elements_of(self.firsts, indices)
        wait = self.files.begin(elements, pool)

        def finish() -> Values:
            values = wait()
            wrong = list_problems(counts, values.problems, is_optional=self.field.is_optional)
            name = self.field.name
            problems = {i: f"has a field {name!r} that {words}" for i, words in wrong.items()}
            return Values({}, problems, lists={name: ListSpans(values.spans[name], counts)})

        return finish
