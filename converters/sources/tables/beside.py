"""Opens a dataset whose tables lie beside the folders of the pictures that they name: train.csv and train/."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from fastio.converters.sources.columns import is_file, names_picture
from fastio.converters.sources.layouts.roots import chosen_part
from fastio.converters.sources.listed import ListedSource
from fastio.converters.sources.options import SourceOptions
from fastio.converters.sources.tables.names import Stems
from fastio.converters.sources.tables.rows import TableFile
from fastio.converters.sources.tables.source import table_source
from fastio.errors import SourceError
from fastio.store.kinds.layouts import parts_among
from fastio.store.kinds.names import is_table_name, part_of, plain_name
from fastio.store.kinds.scan import SourcePath, is_hidden

__all__ = [
    "open_beside",
    "tables_beside",
]


_KIND = "beside"  # of sources
_MOST_ROWS = 8  # that are looked at


def open_beside(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open one of the tables of a folder, each a part of the dataset; its rows are the samples, as those of any table.

    The pictures lie in one of the folders beside it, named with or without their extensions.
    """
    tables = {_stem(name): (name, folders) for name, folders in tables_beside(place).items()}
    expected = "a table that names pictures in a folder beside it"
    _, (name, folders) = chosen_part(place.path, tables, options.split, "table", expected)
    if options.root is None and len(folders) > 1:
        raise SourceError(
            f"{place.path}: {' and '.join(map(repr, folders[:3]))} hold pictures of the names in {name}: say which "
            f"folder is meant, as in --root {os.path.join(place.path, folders[0])}"  # noqa: PTH118 - as the user wrote it
        )
    root = options.root or os.path.normpath(os.path.join(place.path, folders[0]))  # noqa: PTH118
    source = table_source(_KIND, place, f"{place.path}/{name}", replace(options, root=root, split=None))
    record: dict[str, Any] = {**source.metadata["source"]}
    if options.root is None:
        del record["root"]  # found again
    return replace(source, metadata={**source.metadata, "source": record})


def tables_beside(place: SourcePath) -> Mapping[str, Sequence[str]]:
    """
    Return the tables in a folder of which one of the first rows names a picture in a folder beside them, with these
    folders; "" is the folder itself, for names with a folder in them. A folder named as the table counts alone.
    """
    names = sorted(
        each.key for each in (*place.top.problems, *place.top.left_out) if _may_be_table(f"{place.path}/{each.key}")
    )
    folders = {name: Stems(f"{place.path}/{name}") for name in ("", *place.top.folders) if not is_hidden(name)}

    def holding(name: str) -> Sequence[str]:
        rows = _first_rows(f"{place.path}/{name}")
        found = [folder for folder, stems in folders.items() if _is_in(f"{place.path}/{folder}", stems, rows)]
        own = [folder for folder in found if folder == _stem(name)]
        own = own or [folder for folder in found if part_of(name) and part_of(folder) == part_of(name)]
        return own if len(own) == 1 else found

    return parts_among(names, holding)


def _may_be_table(path: str) -> bool:
    """Whether a file is a table by its name, and no single object of JSON, which could be of any size."""
    if not is_table_name(path) or not path.lower().endswith(".json"):
        return is_table_name(path)
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - the names of a folder
            return file.read(64).lstrip()[:1] == b"["
    except OSError:
        return False


def _first_rows(path: str) -> list[Mapping[str, Any]]:
    try:
        return [row for _, row in islice(TableFile(path).rows(), _MOST_ROWS) if not isinstance(row, str)]
    except SourceError:  # whoever opens it says so
        return []


def _is_in(folder: str, stems: Stems, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a value of one of these rows is the name of a picture in a folder, with its extension or without."""
    for row in rows:
        values = [value for value in row.values() if isinstance(value, (str, int)) and not isinstance(value, bool)]
        if any(names_picture(value) and is_file(folder, str(value)) for value in values):
            return True
        first = next(iter(values), None)  # a number further on is hardly a name
        if first is not None and len(stems.files(str(first))) == 1:
            return True
    return False


def _stem(name: str) -> str:
    return plain_name(name).rpartition(".")[0]
