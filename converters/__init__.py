"""Packs folders, text and stores, and unpacks them again; installed as ``fastio.converters``.

Each name is imported on first use: looking into a store needs no kind of source.
"""

from __future__ import annotations

if __name__ == "converters":
    raise ImportError("this package is fastio.converters: install fastio, then `import fastio.converters`")

from typing import TYPE_CHECKING

from fastio.lazy import lazy_names

if TYPE_CHECKING:
    from fastio.converters.fields.types import FieldChoice
    from fastio.converters.labels.file import LabelOptions
    from fastio.converters.packing.options import Part
    from fastio.converters.packing.packer import pack
    from fastio.converters.packing.record import PackReport
    from fastio.converters.packing.seal import seal
    from fastio.converters.pictures.raw import Raw
    from fastio.converters.pictures.transcode import Transcode
    from fastio.converters.sources.kind import SourceKind, SourcePath
    from fastio.converters.sources.listed import ListedSource
    from fastio.converters.sources.registry import SOURCES, open_source
    from fastio.converters.sources.source import Chunk, Problem, Source

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
        "SOURCES": "fastio.converters.sources.registry",
        "Chunk": "fastio.converters.sources.source",
        "FieldChoice": "fastio.converters.fields.types",
        "LabelOptions": "fastio.converters.labels.file",
        "ListedSource": "fastio.converters.sources.listed",
        "PackReport": "fastio.converters.packing.record",
        "Part": "fastio.converters.packing.options",
        "Problem": "fastio.converters.sources.source",
        "Raw": "fastio.converters.pictures.raw",
        "Source": "fastio.converters.sources.source",
        "SourceKind": "fastio.converters.sources.kind",
        "SourcePath": "fastio.converters.sources.kind",
        "Transcode": "fastio.converters.pictures.transcode",
        "open_source": "fastio.converters.sources.registry",
        "pack": "fastio.converters.packing.packer",
        "seal": "fastio.converters.packing.seal",
    },
)
