"""Pictures with a metadata.csv or metadata.jsonl, by Hugging Face's ImageFolder convention: columns become fields."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from fastio.converters.junk import is_hidden
from fastio.converters.kind import SourceKind, SourceOptions, SourcePath
from fastio.converters.listed import ListedSource
from fastio.converters.scan import Folder, scan_tree, shown
from fastio.converters.source import Problem
from fastio.converters.tables.rows import METADATA_NAMES, TableFile
from fastio.errors import SourceError
from fastio.types.picture_kinds import kind_by_name

__all__ = ["KIND", "open_metadata"]


def open_metadata(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open a folder of pictures, at any depth, with a table that has a row for each: ``file_name``, and further columns.

    Columns called ``..._file_name`` name further files. Pictures that no row names are problems, and so are rows
    without their file.
    """
    from fastio.converters.tables.table_source import TableParts, open_rows

    names = _tables(place)
    if len(names) != 1:
        found = " and ".join(names) or "none of them"
        raise SourceError(f"{place.path}: expected one of {', '.join(METADATA_NAMES)}, found {found}")
    table = TableFile(str(Path(place.path, names[0])), has_titles=options.columns.header)
    if table.first() is not None and not any(each.endswith("file_name") for each in table.first() or ()):
        key = options.columns.key_column
        if key is None and all(choice.name != "image" for choice in options.fields):
            raise SourceError(
                f"{table.path}: has no column 'file_name', only {', '.join(map(repr, table.first() or ()))}: name the "
                "column with the files, as in --key-column path"
            )

    def others(named: Collection[str]) -> tuple[list[Problem], list[Problem]]:
        return _unnamed(place, table.name, named)

    return open_rows(TableParts(KIND.name, place, table, place.path, others), options)


def _unnamed(place: SourcePath, table: str, named: Collection[str]) -> tuple[list[Problem], list[Problem]]:
    """Pictures that no row names, and what is neither a picture nor named."""
    found = Folder()
    found.add(place.top)
    for key in place.top.folders:
        found.add(scan_tree(place.path, key))
    ours = {table, *map(shown, named)}
    problems = [Problem(shown(key), f"has no row in {table}") for key in found.keys if key not in named]
    left_out = [each for each in found.left_out if each.key not in ours]
    for each in found.problems:
        if each.key not in ours and each.problem.startswith("is not an image"):
            left_out.append(Problem(each.key, f"is not an image, and has no row in {table}"))
        elif each.key not in ours:
            problems.append(each)
    return problems, left_out


def _tables(place: SourcePath) -> list[str]:
    """The tables of the convention in the folder itself."""
    top = place.top
    return sorted({each.key for each in (*top.problems, *top.left_out)} & set(METADATA_NAMES))


def _signs(place: SourcePath) -> str:
    """Whether a table of the convention lies in the folder, with pictures or folders beside it."""
    if not place.is_folder:
        return ""
    names, top = _tables(place), place.top
    has_files = bool(top.keys) or any(not is_hidden(name) for name in top.folders)
    has_files = has_files or any(kind_by_name(each.key) for each in top.problems)
    return f"pictures and {' and '.join(names)}" if names and has_files else ""


KIND = SourceKind(
    name="metadata",
    what="pictures with a metadata.csv or metadata.jsonl",
    signs=_signs,
    open=open_metadata,
    own_labels="its table of metadata has the labels (--label-column names the column)",
    takes_fields=True,
    takes_columns=True,
    covers=("flat", "imagefolder", "pairs", "parquet"),
)
