"""The labels of a table: numbers unchanged, or names, whose sorted list gives the classes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fastio.converters.label_values import WHOLE
from fastio.converters.scan import is_utf8
from fastio.errors import SourceError

__all__ = ["TableLabels"]

_INT64 = range(-(2**63), 2**63)


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
        return int(label) if label in _INT64 else f"has the label {label}, which does not fit in 64 bits"


def _mixed(number: str, name: str) -> str:
    return f"labels mix numbers and names: {number}, {name}; make all of them numbers or all of them names"
