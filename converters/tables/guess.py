"""ColumnGuess: what type all values of a table's column have, found in one pass over its rows."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any, Final

from fastio.converters.label_values import WHOLE
from fastio.converters.source_columns import FIRST_VALUES, is_empty
from fastio.types.picture_kinds import kind_by_name

__all__ = ["ColumnGuess"]

_EXACT: Final = 2**53  # whole numbers up to here are float64 to the last digit
_INT64: Final = 2**63
_FRACTION = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?\Z")
_WORDS: Final = (frozenset(["true", "false"]), frozenset(["True", "False"]))
_LOOKED_AT = 50  # values that tell whether a column names pictures


@dataclass(slots=True)
class ColumnGuess:
    """
    The values of one column, as far as its type needs them.

    ``first`` are the first that are not empty, which tell whether they hold pictures.

    ``kinds`` are "int", "large" (a whole number that int64 cannot hold), "float", "bool", "text", "json" (a list or an
    object), "bytes", "null" and others by their Python names; an empty cell is "null". ``count`` counts rows that
    have the column at all, ``nulls`` those of them that say nothing, ``missing`` those that have no such column. With
    ``keeps_texts``, ``texts`` are the different texts.
    """

    title: str
    is_typed: bool
    keeps_texts: bool = False
    kinds: set[str] = field(default_factory=set)
    words: set[str] = field(default_factory=set)  # different spellings of booleans in cells
    count: int = 0
    nulls: int = 0
    missing: int = 0
    texts: set[str] = field(default_factory=set)
    names_pictures: bool | None = None  # whether all texts so far do
    largest: int = 0
    first: list[Any] = field(default_factory=list)

    def add(self, value: Any) -> None:
        """Take one more value."""
        self.count += 1
        if len(self.first) < FIRST_VALUES and not is_empty(value):
            self.first.append(value)
        if type(value) is str:
            self._add_text(value)
        elif value is None:
            self.nulls += 1
            self.kinds.add("null")
        elif type(value) is int:
            self._add_whole(value)
        else:
            kind = float if isinstance(value, float) else type(value)
            self.kinds.add(_KINDS.get(kind, kind.__name__))

    def finish(self, rows: int) -> None:
        """Take the number of all rows: what is not there is no value, like null."""
        self.missing = rows - self.count
        if self.missing:
            self.kinds.add("null")

    def type(self) -> str:
        """
        Return "int", "float", "bool", "text", "json" or "bytes"; "" if values are of types that no field can have.

        Whole numbers among fractions are fractions if float64 holds them exactly. Columns with nulls, with values of
        several kinds or with numbers beyond int64 are JSON, which changes none of them.
        """
        kinds = self.kinds
        if kinds - _KNOWN:
            return ""
        if not self.is_typed:
            return self._type_of_cells()
        if len(kinds) == 1 and (only := next(iter(kinds))) in ("int", "float", "bool", "text", "bytes"):
            return only
        if kinds == {"int", "float"} and self.largest <= _EXACT:
            return "float"
        return "" if "bytes" in kinds else "json"

    @property
    def is_text(self) -> bool:
        """Whether all values that are there are text."""
        return self.kinds <= {"text", "null"} and "text" in self.kinds

    @property
    def names_files(self) -> bool:
        """Whether the first values are names of pictures."""
        return bool(self.names_pictures) and self.is_text

    def _type_of_cells(self) -> str:
        """The type of cells without types; text as soon as one cell is nothing else."""
        kinds = self.kinds - {"null"}
        has_gaps = bool(self.nulls or self.missing)
        if kinds == {"bool"} and any(self.words <= each for each in _WORDS):
            return "json" if has_gaps else "bool"
        if kinds == {"int"}:
            return "json" if has_gaps else "int"
        if kinds in ({"int", "float"}, {"float"}) and self.largest <= _EXACT:
            return "json" if has_gaps else "float"
        return "text"

    def _add_text(self, value: str) -> None:
        if self.names_pictures is not False and self.count <= _LOOKED_AT and value:
            self.names_pictures = kind_by_name(value) != 0
        if self.keeps_texts and value:
            self.texts.add(value)
        if self.is_typed:
            self.kinds.add("text")
        elif not value:
            self.nulls += 1
            self.kinds.add("null")
        elif "text" not in self.kinds:
            self._add_cell(value)

    def _add_cell(self, cell: str) -> None:
        if WHOLE.match(cell) and "." not in cell:
            self._add_whole(int(cell) if len(cell) <= 20 else _INT64)
            if "large" in self.kinds or cell.startswith("-0"):
                self.kinds.add("text")
        elif _FRACTION.match(cell) and math.isfinite(float(cell)):
            self.kinds.add("float")
        elif any(cell in words for words in _WORDS):
            self.words.add(cell)
            self.kinds.add("bool")
        else:
            self.kinds.add("text")

    def _add_whole(self, value: int) -> None:
        self.largest = max(self.largest, abs(value))
        self.kinds.add("int" if -_INT64 <= value < _INT64 else "large")


_KINDS: Final = {float: "float", bool: "bool", list: "json", dict: "json", bytes: "bytes"}
_KNOWN: Final = frozenset(["int", "large", "float", "bool", "text", "json", "bytes", "null"])
