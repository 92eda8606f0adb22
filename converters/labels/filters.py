"""Which rows of a table the user takes: by the value of a column, or by an expression over columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SchemaError, SourceError
from fastio.types.expression import ColumnValues, Expression

__all__ = ["Filter", "RowFilter", "as_text", "parse_filter"]

# A column and a value that it has, or an expression over columns.
Filter = tuple[str, str] | str

# The values of a column for all rows, in order; the column as the user names it.
ValuesOf = Callable[[str], Iterable[object]]

_COMPARISONS = ("<", ">", "!", "=")  # before or behind an equals sign: this is no COLUMN=VALUE
_INT64: Final = np.iinfo(np.int64)


def parse_filter(text: str) -> Filter:
    """
    Return what ``--filter`` says: what is an expression is one, everything else is a column and its value.

    Raises ValueError for what is neither.

    >>> parse_filter("split=train"), parse_filter("width >= 400")
    (('split', 'train'), 'width >= 400')
    """
    try:
        return Expression(text, where="--filter").text
    except SchemaError as exc:
        column, _, value = text.partition("=")
        if not column or not value or column.endswith(_COMPARISONS) or value.startswith(_COMPARISONS):
            raise ValueError(
                f"{text!r}: expected COLUMN=VALUE, as in split=train, or an expression, such as width >= 400 ({exc})"
            ) from exc
    return column, value


def as_text(value: object) -> str:
    """Return a value as it is written in COLUMN=VALUE: JSON's true is "true"."""
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


@dataclass(frozen=True, slots=True)
class RowFilter:
    """
    Takes the rows that have, in each column of a pair, one of the values named for it, and of which every expression
    is true.
    """

    filters: Sequence[Filter] = ()

    def __str__(self) -> str:
        return ", ".join(each if isinstance(each, str) else "=".join(each) for each in self.filters)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The columns and values."""
        return [each for each in self.filters if not isinstance(each, str)]

    @property
    def columns(self) -> list[str]:
        """The columns that are asked for, as the user names them, each once."""
        expressions = [Expression(each, where="--filter") for each in self.filters if isinstance(each, str)]
        named = [name for expression in expressions for name in expression.columns]
        return list(dict.fromkeys([*(name for name, _ in self.pairs), *named]))

    def mask(self, count: int, values_of: ValuesOf, *, where: str, is_text: bool = False) -> NDArray[np.bool_]:
        """
        Return which of ``count`` rows pass, ``(count,)``; ``values_of`` has all of ``columns``.

        With ``is_text``, values are cells of a file that has only text: a column of which every cell that is not empty
        is a number is one of numbers. Raises SourceError for values that cannot be compared.
        """
        passes = np.ones(count, bool)
        for column in dict.fromkeys(name for name, _ in self.pairs):
            wanted = {value for name, value in self.pairs if name == column}
            passes &= np.fromiter((as_text(value) in wanted for value in values_of(column)), bool, count)
        for text in self.filters:
            if isinstance(text, str):
                expression = Expression(text, where=f"{where}--filter")
                values = {name: _values(name, list(values_of(name)), is_text) for name in expression.columns}
                try:
                    passes &= expression.mask(count, values.__getitem__, expression.columns)
                except SchemaError as exc:
                    raise SourceError(str(exc)) from exc
        return passes


def _values(name: str, values: Sequence[object], is_text: bool) -> ColumnValues:
    """Return the values of a column as expressions take them. Raises SourceError for values that they do not take."""
    if is_text:
        cells = [None if value is None else str(value).strip() for value in values]
        if not any(cells):
            return ColumnValues([None] * len(cells))
        numbers = _numbers(cells)
        return ColumnValues(cells) if numbers is None else ColumnValues(numbers, texts=cells)
    there = [value for value in values if value is not None]
    if not all(isinstance(value, str) for value in there) and not all(isinstance(value, bool) for value in there):
        if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in there):
            kinds = ", ".join(sorted({type(value).__name__ for value in there}))
            raise SourceError(f"--filter: column {name!r} holds {kinds}: expected numbers, texts, or true and false")
        return ColumnValues(_alike([value if isinstance(value, (int, float)) else None for value in values]))
    return ColumnValues(values)


def _numbers(cells: Sequence[str | None]) -> list[int | float | None] | None:
    """Return cells as numbers, None for empty ones; None if one is no number."""
    found: list[int | float | None] = []
    for cell in cells:
        if not cell:
            found.append(None)
            continue
        if "_" in cell:  # which Python takes within numbers
            return None
        try:
            found.append(int(cell))
        except ValueError:
            try:
                found.append(float(cell))
            except ValueError:
                return None
    return _alike(found)


def _alike(values: list[int | float | None]) -> list[int | float | None]:
    """Return numbers of one type: integers where all are, and fit 64 bits."""
    if all(value is None or (isinstance(value, int) and _INT64.min <= value <= _INT64.max) for value in values):
        return values
    return [None if value is None else float(value) for value in values]
