"""RowSource: the common part of sources whose documents are rows of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastio.converters.kind import source_record
from fastio.converters.source import Problem
from fastio.converters.table_labels import TableLabels
from fastio.converters.text.documents import TextOptions
from fastio.converters.text.files import TextFiles

__all__ = ["RowSource"]

DEFAULT_FIELD = "text"


@dataclass(frozen=True, slots=True)
class RowSource:
    """
    A kind of table: its files, which field of a row is text, and how labels are read; ``read`` is each kind's own.
    """

    kind: str
    files: TextFiles
    options: TextOptions
    label_rule: TableLabels | None
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
        }
        classes = None if self.label_rule is None else self.label_rule.classes
        return {"classes": classes, "source": source_record(self.kind, self.files.shown_name, **fields)}

    @property
    def text_field(self) -> str:
        """The field that is text."""
        return self.options.text_field or DEFAULT_FIELD
