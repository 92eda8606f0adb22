"""A table anywhere that names files, or holds text and numbers only: one sample per row."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TypeGuard

from fastio.converters.kind import SourceKind, SourceOptions, SourcePath
from fastio.converters.listed import ListedSource
from fastio.converters.source import Problem
from fastio.converters.tables.rows import TABLE_SUFFIXES, TableFile, is_table_name
from fastio.errors import SourceError
from fastio.types.picture_kinds import kind_by_name

__all__ = ["KIND", "open_table"]

_LONGEST_NAME = 1024  # characters; what is longer is a text that ends with the name of a picture


def open_table(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open a .csv, .tsv, .jsonl, .json or .parquet file. Files are named from ``--root`` on, or from the table's folder.

    A sample is named after its file, by ``--key-column``, or by its line. Files that no row names belong to nothing:
    only the table says what the samples are.
    """
    from fastio.converters.tables.table_source import TableParts, open_rows

    if place.is_folder or not is_table_name(place.path):
        raise SourceError(f"{place.path}: expected a table ({', '.join(TABLE_SUFFIXES)})")
    table = TableFile(place.path, has_titles=options.columns.header)
    root = options.root or os.path.dirname(place.path) or "."  # noqa: PTH120 - "" for a name alone
    return open_rows(TableParts(KIND.name, place, table, root, _no_others, takes_root=True), options)


def _no_others(_named: Collection[str]) -> tuple[list[Problem], list[Problem]]:
    return [], []


def _names_pictures(place: SourcePath) -> bool:
    """
    Whether the first row of a table names a picture: under "file_name", or anywhere.

    Where there is a "text", a picture under another title must lie beside the table. Columns of Parquet files have
    types, so that their texts are fields without further signs.
    """
    if place.is_folder or not is_table_name(place.path):
        return False
    table = TableFile(place.path)
    row = table.first() or {}
    if _names_picture(row.get("file_name")):
        return True
    names = [] if table.kind == "parquet" else [value for value in row.values() if _names_picture(value)]
    if "text" in row:
        folder = os.path.dirname(place.path)  # noqa: PTH120 - "" for a name alone
        return any(os.path.isfile(os.path.join(folder, name)) for name in names)  # noqa: PTH113, PTH118 - never raises
    return bool(names)


def _names_picture(value: object) -> TypeGuard[str]:
    if not isinstance(value, str) or len(value) > _LONGEST_NAME:
        return False
    return "\n" not in value and "://" not in value and kind_by_name(value) != 0


def _signs(place: SourcePath) -> str:
    """Whether it is a table. Parquet files are a kind of their own, unless they name files."""
    if place.is_folder or not is_table_name(place.path):
        return ""
    return "a table" if TableFile(place.path).kind != "parquet" or _names_pictures(place) else ""


KIND = SourceKind(
    name="table",
    what="a table",
    signs=_signs,
    open=open_table,
    own_labels="a table has its own labels (--label-column names the column)",
    takes_fields=True,
    takes_root=True,
    takes_columns=True,
    covers=("parquet",),
    text_kinds=("csv", "tsv", "jsonl", "json"),
    has_more_than_text=_names_pictures,
)
