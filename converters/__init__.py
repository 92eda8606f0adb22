"""Packs folders, text and stores, and unpacks them again; installed as ``fastio.converters``.

Each name is imported on first use: looking into a store needs no kind of source.
"""

from __future__ import annotations

if __name__ == "converters":
    raise ImportError("this package is fastio.converters: install fastio, then `import fastio.converters`")

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastio.converters.fields_asked import FieldChoice
    from fastio.converters.kind import SourceKind, SourcePath
    from fastio.converters.labels import LabelOptions
    from fastio.converters.listed import ListedSource
    from fastio.converters.pack_report import PackReport
    from fastio.converters.packer import pack
    from fastio.converters.planned import Part, seal
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

_HOMES = {
    "SOURCES": "source_kinds",
    "Chunk": "source",
    "FieldChoice": "fields_asked",
    "LabelOptions": "labels",
    "ListedSource": "listed",
    "PackReport": "pack_report",
    "Part": "planned",
    "Problem": "source",
    "Raw": "raw",
    "Source": "source",
    "SourceKind": "kind",
    "SourcePath": "kind",
    "Transcode": "transcode",
    "open_source": "source_kinds",
    "pack": "packer",
    "seal": "planned",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
