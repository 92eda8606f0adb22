"""Packs folders, text and stores, and unpacks them again; installed as ``fastio.converters``.

Each name is imported on first use: looking into a store needs no kind of source.
"""

from __future__ import annotations

if __name__ == "converters":
    raise ImportError("this package is fastio.converters: install fastio, then `import fastio.converters`")

from typing import TYPE_CHECKING

from fastio.lazy import lazy_names

if TYPE_CHECKING:
    from fastio.converters.fields_asked import FieldChoice
    from fastio.converters.kind import SourceKind, SourcePath
    from fastio.converters.labels import LabelOptions
    from fastio.converters.listed import ListedSource
    from fastio.converters.pack_report import PackReport
    from fastio.converters.packer import pack
    from fastio.converters.planned.part import Part
    from fastio.converters.planned.seal import seal
    from fastio.converters.raw import Raw
    from fastio.converters.source import Chunk, Problem, Source
    from fastio.converters.source_kinds import SOURCES, open_source
    from fastio.converters.transcode import Transcode

__all__ = [
    "SOURCES",
    "Chunk",
    "FieldChoice",
    "LabelOptions",
    "ListedSource",
    "PackReport",
    "Part",
    "Problem",
    "Raw",
    "Source",
    "SourceKind",
    "SourcePath",
    "Transcode",
    "open_source",
    "pack",
    "seal",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "SOURCES": "fastio.converters.source_kinds",
        "Chunk": "fastio.converters.source",
        "FieldChoice": "fastio.converters.fields_asked",
        "LabelOptions": "fastio.converters.labels",
        "ListedSource": "fastio.converters.listed",
        "PackReport": "fastio.converters.pack_report",
        "Part": "fastio.converters.planned.part",
        "Problem": "fastio.converters.source",
        "Raw": "fastio.converters.raw",
        "Source": "fastio.converters.source",
        "SourceKind": "fastio.converters.kind",
        "SourcePath": "fastio.converters.kind",
        "Transcode": "fastio.converters.transcode",
        "open_source": "fastio.converters.source_kinds",
        "pack": "fastio.converters.packer",
        "seal": "fastio.converters.planned.seal",
    },
)
