"""Keys of samples that are rows or records of files, and the rows that filters and keys leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastio.converters.label_columns import as_text
from fastio.converters.listed import Indices
from fastio.converters.scan import is_utf8, shown
from fastio.converters.source import Problem
from fastio.converters.streams import plain_name

__all__ = ["RowKeys", "passing", "unique_keys"]

# The values of a column for all rows, in order; the column as the user names it.
ValuesOf = Callable[[str], Iterable[object]]


@dataclass(frozen=True, slots=True)
class RowKeys:
    """The name of a row's file and the row's position in it: ``train-00000-of-00005/0012``."""

    stems: Sequence[str]
    file_rows: NDArray[np.int64]

    @classmethod
    def of(cls, names: Sequence[str], file_rows: NDArray[np.int64], suffixes: Sequence[str] = ()) -> RowKeys:
        """Return the keys for files of these names, without these suffixes unless they alone tell files apart."""
        stems = [shown(_without(plain_name(name), suffixes)) for name in names]
        return cls(stems if len(set(stems)) == len(stems) else [shown(name) for name in names], file_rows)

    def at(self, indices: Indices) -> list[str]:
        """Return the keys of rows, counted over all files."""
        widths = [len(str(max(count - 1, 0))) for count in self.file_rows.tolist()]
        starts = np.cumsum(self.file_rows) - self.file_rows
        files = np.searchsorted(starts, indices, side="right") - 1
        positions = zip(files.tolist(), (indices - starts[files]).tolist(), strict=True)
        return [f"{self.stems[file]}/{row:0{widths[file]}d}" for file, row in positions]


def passing(keys: RowKeys, filters: Sequence[tuple[str, str]], values_of: ValuesOf) -> tuple[Indices, list[Problem]]:
    """Return the rows that have, in each column of ``filters``, one of the values named for it; and the others."""
    passes = np.ones(int(keys.file_rows.sum()), bool)
    for column in dict.fromkeys(name for name, _ in filters):
        wanted = {value for name, value in filters if name == column}
        passes &= np.fromiter((as_text(value) in wanted for value in values_of(column)), bool, len(passes))
    sentence = f"does not pass the filter {', '.join(f'{name}={value}' for name, value in filters)}"
    return np.flatnonzero(passes), [Problem(key, sentence) for key in keys.at(np.flatnonzero(~passes))]


def unique_keys(keys: RowKeys, column: str, rows: Indices, values_of: ValuesOf) -> tuple[list[str], list[Problem]]:
    """
    Return the values of a column as keys, "" for those of ``rows`` that have none or that of an earlier one.

    These are problems, under the key that they would have without the column.
    """
    found: list[str] = []
    problems: list[Problem] = []
    firsts: dict[str, int] = {}
    wanted = np.zeros(int(keys.file_rows.sum()), bool)
    wanted[rows] = True
    for i, value in enumerate(values_of(column)):
        key = "" if value is None else str(value)
        first = firsts.setdefault(key, i) if key and wanted[i] else i
        if wanted[i] and (not key or first != i or "\0" in key or not is_utf8(key)):
            own, other = keys.at(np.array([i, first], np.int64))
            again = f"has the key {key!r:.80}, which {other} has already"
            problems.append(Problem(own, again if first != i else f"has the key {value!r:.80} in {column!r}"))
            key = ""
        found.append(key)
    return found, problems


def _without(name: str, suffixes: Sequence[str]) -> str:
    return next((name[: -len(suffix)] for suffix in suffixes if name.lower().endswith(suffix)), name) or name
