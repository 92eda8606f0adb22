"""COCO's JSON: images with boxes, classes, key points or captions."""

from __future__ import annotations

from fastio.converters.coco.reading import looks_like_coco
from fastio.converters.kind import SourceKind, SourceOptions, SourcePath
from fastio.converters.listed import ListedSource
from fastio.errors import SourceError

__all__ = ["KIND", "open_annotations"]


def open_annotations(place: SourcePath, options: SourceOptions) -> ListedSource:
    """Open a COCO JSON, see ``open_coco``. Its images lie below ``--root``, or in a folder in or beside its own."""
    if place.is_folder:
        raise SourceError(f"{place.path}: is a folder; expected a COCO JSON: name the file in it")
    from fastio.converters.coco.source import open_coco

    return open_coco(KIND.name, place, options)


def _is_coco(place: SourcePath) -> bool:
    return not place.is_folder and looks_like_coco(place.path)


KIND = SourceKind(
    name="coco",
    what="COCO annotations",
    signs=lambda place: "COCO's images and annotations" if _is_coco(place) else "",
    open=open_annotations,
    own_labels="its annotations are the labels",
    takes_root=True,
    covers=("table",),
    text_kinds=("json",),
    has_more_than_text=_is_coco,
)
