"""Turns labels as written in a file into numbers of one kind: classes, integers, fractions, or several per sample."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SourceError
from fastio.store.kinds.scan import is_utf8

__all__ = [
    "WHOLE",
    "NumberedLabels",
    "Row",
    "TableLabels",
    "number_labels",
    "plain_label",
    "type_cells",
]


# One statement of a label file: file name, label as it stands there, and where ("line 3", or "" where there are none).
Row = tuple[Any, Any, str]

WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.0*)?\Z")
_INTEGER = re.compile(r"[-+]?[0-9]+\Z")
_FRACTION = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")
_INT64 = range(-(2**63), 2**63)
_EXACT = 2**53  # whole numbers up to here are float64 to the last digit
_FLOAT32_MAX = float(np.finfo(np.float32).max)
_PRINTED_BITS = 128


@dataclass(frozen=True, slots=True)
class NumberedLabels:
    """
    Labels as numbers of one kind.

    ``dtype`` is ``<i8`` for integers and for positions in ``classes``, ``<f8`` if any label is a fraction. If a
    sample has ``width`` numbers (tuples, otherwise None), they are ``<i8``, or ``<f4`` if one is a float.
    """

    by_name: Mapping[str, Any]
    classes: tuple[str, ...] | None = None
    dtype: str = "<i8"
    width: int | None = None

    def array(self, values: Sequence[Any]) -> NDArray[Any]:
        """Return some of the labels as an array ``(n,)``, or ``(n, width)``."""
        shape = (len(values),) if self.width is None else (len(values), self.width)
        return np.array(values, self.dtype).reshape(shape)


def number_labels(labels: Mapping[str, Any]) -> NumberedLabels:
    """Turn labels by file name into numbers. Raises SourceError for mixtures, and for values that do not fit."""
    kinds = set(map(type, labels.values()))
    if kinds - {int, str}:
        labels = {name: plain_label(name, label) for name, label in labels.items()}
        kinds = set(map(type, labels.values()))
    if int in kinds:
        _check_range(labels)
    if kinds <= {int}:
        return NumberedLabels(dict(labels))
    if kinds == {str}:
        classes = sorted(set(labels.values()))
        if classes[0] == "":
            raise SourceError(f"{next(name for name, label in labels.items() if label == '')!r}: label is empty")
        position = {name: i for i, name in enumerate(classes)}
        return NumberedLabels({name: position[label] for name, label in labels.items()}, tuple(classes))
    if kinds <= {int, float}:
        return _fractions(labels)
    if kinds == {tuple}:
        return _vectors(labels)
    raise _mixture(labels)


def _check_range(labels: Mapping[str, Any]) -> None:
    for name, label in labels.items():
        if type(label) is int and label not in _INT64:
            raise _too_large(name, label)


def _fractions(labels: Mapping[str, Any]) -> NumberedLabels:
    for name, label in labels.items():
        if type(label) is int and abs(label) > _EXACT:
            raise SourceError(
                f"{name!r}: label {label} among fractions: all become float64, which cannot hold it exactly"
            )
    return NumberedLabels({name: float(label) for name, label in labels.items()}, dtype="<f8")


def _vectors(labels: Mapping[str, tuple[int | float, ...]]) -> NumberedLabels:
    first, label = next(iter(labels.items()))
    for name, each in labels.items():
        if len(each) != len(label):
            raise SourceError(
                f"labels have different lengths: {first!r} has {len(label)} numbers, {name!r} has {len(each)}; "
                "expected the same count for every sample"
            )
    if not any(type(number) is float for each in labels.values() for number in each):
        for name, each in labels.items():
            for number in each:
                if number not in _INT64:
                    raise _too_large(name, int(number))
        return NumberedLabels(dict(labels), width=len(label))
    for name, each in labels.items():
        if max(map(abs, each)) > _FLOAT32_MAX:
            raise SourceError(f"{name!r}: label {each!r:.60} does not fit into float32")
    return NumberedLabels(dict(labels), dtype="<f4", width=len(label))


def _mixture(labels: Mapping[str, Any]) -> SourceError:
    """What to say of labels of two kinds."""
    kinds: dict[str, tuple[str, Any]] = {}
    for name, label in labels.items():
        kind = "names" if isinstance(label, str) else "lists of numbers" if isinstance(label, tuple) else "numbers"
        kinds.setdefault(kind, (name, label))
    (one, (first, a)), (other, (second, b)) = sorted(kinds.items(), key=lambda item: _MIXED.index(item[0]))[:2]
    return SourceError(
        f"labels mix {one} and {other}: {first!r} has {a!r:.60}, {second!r} has {b!r:.60}; make all of them "
        f"{one} or all of them {other}"
    )


_MIXED = ("numbers", "names", "lists of numbers")


def plain_label(name: str, label: object) -> int | float | str | tuple[int | float, ...]:
    """Return one label as int, float, str or a tuple of numbers, whatever type the file stores."""
    if isinstance(label, np.ndarray) and label.size == 1:
        label = label.reshape(()).item()
    if isinstance(label, np.ndarray | list | tuple):
        return _vector(name, label)
    if isinstance(label, bytes):
        label = os.fsdecode(label)
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    if isinstance(label, float) and math.isfinite(label):
        return label
    if isinstance(label, int) and label not in _INT64:
        raise _too_large(name, label)
    if isinstance(label, int | str):
        return int(label) if isinstance(label, int) else label
    kind = f"{label!r:.60}" if isinstance(label, float | None) else f"of type {type(label).__name__}"
    raise SourceError(f"{name!r}: label is {kind}; expected a number, a class name or a list of numbers")


def _vector(name: str, label: NDArray[Any] | Sequence[Any]) -> tuple[int | float, ...]:
    """Several numbers; True and False are 1 and 0."""
    if isinstance(label, np.ndarray) and label.ndim != 1:
        raise SourceError(
            f"{name!r}: label is an array of {label.ndim} dimensions; expected a number or a list of them"
        )
    numbers = label.tolist() if isinstance(label, np.ndarray) else list(label)
    if not numbers:
        raise SourceError(f"{name!r}: label is an empty list; expected the same count of numbers for every sample")
    for number in numbers:
        if isinstance(number, str | bytes):
            raise SourceError(
                f"{name!r}: label is a list with the text {number!r:.40} in it; several names per sample cannot be "
                "classes: write a list of numbers, 0 or 1 for each class"
            )
        if not isinstance(number, int | float):
            raise SourceError(f"{name!r}: label is a list with a {type(number).__name__} in it, expected numbers")
        if isinstance(number, float) and not math.isfinite(number):
            raise SourceError(f"{name!r}: label is a list with {number} in it, expected finite numbers")
    return tuple(int(number) if isinstance(number, bool) else number for number in numbers)


def _too_large(name: str, label: int) -> SourceError:
    """Python refuses to print numbers of thousands of digits."""
    words = str(label) if label.bit_length() <= _PRINTED_BITS else f"is a number of {label.bit_length()} bits and"
    return SourceError(f"{name!r}: label {words} does not fit in 64 bits")


def type_cells(rows: list[tuple[str, Any, str]]) -> list[Row]:
    """
    Convert labels of an untyped table to numbers if all of them are numbers, otherwise to names.

    A label is one cell, or a list of several, which must be numbers. Some numbers among names are refused, because
    they may be mistakes; leading zeros make a name ("007").
    """
    if rows and isinstance(rows[0][1], list):
        return _typed_lists(rows)
    whole = [WHOLE.match(label) is not None for _, label, _ in rows]
    if all(whole):
        return [(name, _number(int, label.partition(".")[0], where), where) for name, label, where in rows]
    if all(_FRACTION.match(label) for _, label, _ in rows):
        if not any(re.search(r"[.eE]", label) for _, label, _ in rows):
            return list(rows)  # leading zeros: "007" and "7" are two names
        return [(name, _number(float, label, where), where) for name, label, where in rows]
    numeric = [_FRACTION.match(label) is not None for _, label, _ in rows]
    if any(numeric):
        number, word = rows[numeric.index(True)], rows[numeric.index(False)]
        raise SourceError(
            f"labels mix numbers and names: {number[2]} has {number[1]!r}, {word[2]} has {word[1]!r:.60}; make "
            'all of them numbers or all of them names (in .json, "1" in quotes is a name)'
        )
    return list(rows)


def _typed_lists(rows: Iterable[tuple[str, list[str], str]]) -> list[Row]:
    """Several cells a label: whole numbers where all of them are, otherwise fractions."""
    rows = list(rows)
    for _, cells, where in rows:
        for cell in cells:
            if not _FRACTION.match(cell):
                raise SourceError(
                    f"{where}: {cell!r:.60} is not a number; if several columns make the label, all must hold numbers"
                )
    kind = int if all(_INTEGER.match(cell) for _, cells, _ in rows for cell in cells) else float
    return [(name, [_number(kind, cell, where) for cell in cells], where) for name, cells, where in rows]


def _number(kind: Callable[[str], int | float], cell: str, where: str) -> int | float:
    try:
        number = kind(cell)
    except ValueError as exc:  # thousands of digits
        raise SourceError(f"{where}: label {cell:.20}... does not fit in 64 bits") from exc
    if number in (math.inf, -math.inf):
        raise SourceError(f"{where}: label {cell:.40} does not fit in a float64")
    return number


# The labels of a table: numbers unchanged, or names, whose sorted list gives the classes.

_WHOLE_NUMBERS = range(-(2**63), 2**63)


@dataclass(slots=True)
class TableLabels:
    """
    Learns from all labels of a table whether they are numbers or names, and then gives each its number.

    A .csv has no types (``is_typed`` is False): if all its labels are integers without leading zeros, they are
    numbers. ``known`` are classes that the table itself declares: numbers are positions in them.
    """

    is_typed: bool
    known: list[str] | None = None
    _numbers: bool = False
    _names: set[str] = field(default_factory=set)
    _first: dict[str, str] = field(default_factory=dict)

    def learn(self, labels: Iterable[tuple[str, object]]) -> None:
        """Examine every label once, with the key of its row. Raises SourceError for a mix of numbers and names."""
        for key, label in labels:
            if isinstance(label, str):
                if label and label not in self._names and is_utf8(label):
                    self._names.add(label)
                    self._first.setdefault("name", f"{key} has {label!r:.60}")
            elif isinstance(label, int) or (isinstance(label, float) and label.is_integer()):
                self._numbers = True
                self._first.setdefault("number", f"{key} has {label!r}")
        whole = sum(WHOLE.match(name) is not None for name in self._names)
        if not self.is_typed and self._names and whole == len(self._names):
            self._names, self._numbers = set(), True
        elif not self.is_typed and whole and not all(name.isdigit() for name in self._names):
            number = next(name for name in sorted(self._names) if WHOLE.match(name))
            word = next(name for name in sorted(self._names) if not WHOLE.match(name))
            raise SourceError(_mixed(f"one is {number!r}", f"one is {word!r:.60}"))
        if self._numbers and self._names:
            raise SourceError(_mixed(self._first["number"], self._first["name"]))

    @property
    def classes(self) -> list[str] | None:
        """The names of the numbers; None if the labels are numbers of their own."""
        if self.known is not None:
            return self.known
        return sorted(self._names) or None

    def positions(self) -> dict[str, int]:
        """Return the number of every name."""
        return {name: i for i, name in enumerate(self.classes or ())}

    def number(self, label: object, positions: dict[str, int]) -> int | str:
        """Return a label's number, or a sentence if it has none."""
        if label is None or label == "":
            return "has no label"
        if isinstance(label, float) and label.is_integer():
            label = int(label)
        if isinstance(label, str):
            if label in positions:
                return positions[label]
            if not self.is_typed and WHOLE.match(label):
                label = int(label.partition(".")[0])
            else:
                why = "is not one of the classes" if is_utf8(label) else "is not text"
                return f"has the label {label!r:.60}, which {why}"
        if not isinstance(label, int):
            return f"has the label {label!r:.60}, expected an integer or a name"
        if self.known is not None and not 0 <= label < len(self.known):
            return f"has the label {label}, expected 0 to {len(self.known) - 1}"
        return int(label) if label in _WHOLE_NUMBERS else f"has the label {label}, which does not fit in 64 bits"


def _mixed(number: str, name: str) -> str:
    return f"labels mix numbers and names: {number}, {name}; make all of them numbers or all of them names"
