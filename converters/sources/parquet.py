"""Parquet files whose columns are the fields of samples: pictures, captions, numbers."""

from __future__ import annotations

from fastio.converters.arrow.reading import PARQUET_SUFFIXES
from fastio.converters.kind import SourceKind, SourceOptions, SourcePath
from fastio.converters.listed import ListedSource
from fastio.converters.shard_files import FileSet, first_file
from fastio.converters.streams import plain_name

__all__ = ["KIND", "open_parquet"]


def open_parquet(place: SourcePath, options: SourceOptions) -> ListedSource:
    """Open a Parquet file, those that a pattern matches, or those in a folder; see ``table_source``."""
    from fastio.converters.arrow.source import table_source

    files = FileSet.of(place, _is_parquet, "a Parquet file", ", ".join(PARQUET_SUFFIXES))
    return table_source(KIND.name, "parquet", place, files, options)


def _is_parquet(name: str) -> bool:
    return plain_name(name).lower().endswith(PARQUET_SUFFIXES) and not name.startswith(".")


def _signs(place: SourcePath) -> str:
    """Whether there is a Parquet file."""
    return "Parquet files" if first_file(place, _is_parquet) else ""


def _has_pictures(place: SourcePath) -> bool:
    from fastio.converters.arrow.source import holds_pictures

    return holds_pictures("parquet", first_file(place, _is_parquet))


KIND = SourceKind(
    name="parquet",
    what="Parquet files",
    signs=_signs,
    open=open_parquet,
    own_labels="its columns hold the labels (--label-column names one)",
    takes_fields=True,
    takes_columns=True,
    covers=("imagefolder",),
    text_kinds=("parquet",),
    has_more_than_text=_has_pictures,
)
