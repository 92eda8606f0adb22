"""Arrow (Feather) files and streams whose columns are the fields of samples: pictures, captions, numbers."""

from __future__ import annotations

from fastio.converters.arrow.reading import ARROW_SUFFIXES
from fastio.converters.kind import SourceKind, SourceOptions, SourcePath
from fastio.converters.listed import ListedSource
from fastio.converters.shard_files import FileSet, first_file
from fastio.converters.streams import plain_name

__all__ = ["KIND", "open_arrow"]


def open_arrow(place: SourcePath, options: SourceOptions) -> ListedSource:
    """Open an Arrow file or stream, those that a pattern matches, or those in a folder; see ``table_source``."""
    from fastio.converters.arrow.source import table_source

    files = FileSet.of(place, _is_arrow, "an Arrow file", ", ".join(ARROW_SUFFIXES))
    return table_source(KIND.name, "arrow", place, files, options)


def _is_arrow(name: str) -> bool:
    return plain_name(name).lower().endswith(ARROW_SUFFIXES) and not name.startswith(".")


def _signs(place: SourcePath) -> str:
    """Whether there is an Arrow file or stream."""
    return "Arrow files" if first_file(place, _is_arrow) else ""


def _has_pictures(place: SourcePath) -> bool:
    from fastio.converters.arrow.source import holds_pictures

    return holds_pictures("arrow", first_file(place, _is_arrow))


KIND = SourceKind(
    name="arrow",
    what="Arrow files",
    signs=_signs,
    open=open_arrow,
    own_labels="its columns hold the labels (--label-column names one)",
    takes_fields=True,
    takes_columns=True,
    covers=("imagefolder",),
    text_kinds=("arrow", "datasets"),
    has_more_than_text=_has_pictures,
)
