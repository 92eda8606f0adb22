"""RowSource: the common part of sources whose documents are rows of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastio.converters.kind import source_record
from fastio.converters.label_columns import ALL_OTHERS
from fastio.converters.source import Problem
from fastio.converters.source_columns import FIRST_VALUES, SourceColumns, is_empty
from fastio.converters.table_labels import TableLabels
from fastio.converters.text.documents import TextOptions
from fastio.converters.text.files import TextFiles

__all__ = ["OtherColumns", "RowSource"]

DEFAULT_FIELD = "text"


@dataclass(slots=True)
class OtherColumns:
    """
    The columns that are not packed, as far as rows have been read: ``names``, in the order in which they first came.

    ``columns`` looks at the first values of each, and refuses those that hold pictures.
    """

    columns: SourceColumns
    used: frozenset[str]
    names: list[str] = field(default_factory=list)
    _known: set[str] = field(default_factory=set)  # columns that need no further look
    _counts: dict[str, int] = field(default_factory=dict)  # of values looked at

    def __post_init__(self) -> None:
        self._known |= self.used

    def see(self, row: Mapping[str, Any]) -> None:
        """Take the columns of one more row. Raises SourceError for a column that holds pictures."""
        if row.keys() <= self._known:
            return
        for name, value in row.items():
            if name in self._known:
                continue
            if name not in self._counts:
                self.names.append(name)
            self._counts[name] = self._counts.get(name, 0) + (not is_empty(value))
            if name in self.columns.without or ALL_OTHERS in self.columns.without:
                self._counts[name] = FIRST_VALUES
            else:
                self.columns.refuse_pictures(name, [value])
            if self._counts[name] >= FIRST_VALUES:
                self._known.add(name)


@dataclass(frozen=True, slots=True)
class RowSource:
    """
    A kind of table: its files, which field of a row is text, and how labels are read; ``read`` is each kind's own.

    ``others`` are the columns that are not packed, complete when everything has been read.
    """

    kind: str
    files: TextFiles
    options: TextOptions
    label_rule: TableLabels | None
    others: OtherColumns
    is_ids: bool = False

    @property
    def path(self) -> str:
        """As the user named it."""
        return self.files.path

    @property
    def has_labels(self) -> bool:
        """Whether a field of labels was named."""
        return self.label_rule is not None

    @property
    def problems(self) -> Sequence[Problem]:
        """Files that belong to no table."""
        return self.files.problems

    @property
    def size_bytes(self) -> int:
        """The sum over all files."""
        return self.files.size_bytes

    @property
    def disk_bytes(self) -> int:
        """The sum over all files."""
        return self.files.disk_bytes

    @property
    def files_opened(self) -> int:
        """How many files there are."""
        return len(self.files.names)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Which fields were used, and the classes."""
        fields = {
            "text_field": self.text_field,
            "label_field": self.options.label_field,
            "max_document_bytes": self.options.max_document_bytes,
            "left_out": list(self.others.names),
        }
        classes = None if self.label_rule is None else self.label_rule.classes
        return {"classes": classes, "source": source_record(self.kind, self.files.shown_name, **fields)}

    @property
    def text_field(self) -> str:
        """The field that is text."""
        return self.options.text_field or DEFAULT_FIELD
