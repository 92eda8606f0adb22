"""Pairs of folders: pictures and, by the same stem, their masks, texts or arrays in folders of their own."""

from __future__ import annotations

from fastio.converters.kind import SourceKind, SourceOptions, SourcePath
from fastio.converters.listed import ListedSource

__all__ = ["KIND"]


def _open(place: SourcePath, options: SourceOptions) -> ListedSource:
    from fastio.converters.paired_folders import open_pairs

    return open_pairs(place, options)


def _signs(place: SourcePath) -> str:
    """Whether a folder holds pictures or folders; which of them are fields, ``--field`` says."""
    return "folders of fields" if place.is_folder and (place.top.keys or place.top.folders) else ""


KIND = SourceKind(
    name="pairs",
    what="folders of fields",
    signs=_signs,
    open=_open,
    own_labels="folders of fields have no label file",
    takes_fields=True,
    takes_root=True,
    needs_fields=True,
    text_kinds=("text-folder",),
)
