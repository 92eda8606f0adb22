"""Names of fields that columns of a table, or features of a record, give."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fastio.errors import SourceError

__all__ = ["name_from_column", "refuse_equal_names"]


def name_from_column(place: str, kind: str, column: str) -> str:
    """
    Return the name of the field that a column becomes: in small letters, with "_" for whatever a name cannot have.

    ``kind`` is what messages call it. Raises SourceError if nothing is left.
    """
    name = re.sub(r"[^a-z0-9_]", "_", column.lower()).lstrip("_0123456789")
    if not name:
        raise SourceError(f"{place}: {kind} {column!r} cannot name a field: --field NAME={column} gives it a name")
    return name


def refuse_equal_names(place: str, kind: str, fields: Iterable[tuple[str, str]]) -> None:
    """Raise SourceError if two ``fields``, names with the columns that they come from, have one name."""
    columns: dict[str, str] = {}
    for name, column in fields:
        if name in columns:
            raise SourceError(
                f"{place}: {kind}s {columns[name]!r} and {column!r} would both be the field {name!r}: name the fields, "
                f"such as --field {name}_2={column}"
            )
        columns[name] = column
