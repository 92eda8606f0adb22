"""From folders and tar shards to packed stores and back; installed as ``fastio.converters``."""

from __future__ import annotations

if __name__ == "converters":
    raise ImportError("this package is fastio.converters: install fastio, then `import fastio.converters`")

import os
from collections.abc import Callable
from pathlib import Path

from fastio.converters.base import Chunk, Problem, Source
from fastio.converters.flat import open_flat
from fastio.converters.imagefolder import open_imagefolder
from fastio.converters.packer import PackReport, pack
from fastio.converters.scan import image_kind
from fastio.converters.tar import is_tar, open_tar
from fastio.errors import SourceError

__all__ = ["LAYOUTS", "SOURCES", "Chunk", "PackReport", "Problem", "Source", "open_source", "pack"]

# A new layout is one file and one line here; the conformance tests run on it by themselves.
SOURCES: dict[str, Callable[[str, str | None], Source]] = {
    "flat": open_flat,
    "imagefolder": open_imagefolder,
    "tar": open_tar,
}
LAYOUTS = ("auto", *SOURCES)


def open_source(
    path: str | os.PathLike[str], *, layout: str = "auto", labels: str | os.PathLike[str] | None = None
) -> Source:
    """
    An unpacked dataset, ready to be packed: names and sizes are scanned, nothing is read yet.

    ``auto`` looks at the names below ``path`` and decides; where that would be guessing,
    SourceError says what was found and names the layouts to choose from.
    """
    path = os.fspath(path)
    if layout not in LAYOUTS:
        raise SourceError(f"layout {layout!r}: expected one of {', '.join(LAYOUTS)}")
    chosen = _detect(path) if layout == "auto" else layout
    return SOURCES[chosen](path, None if labels is None else os.fspath(labels))


def _detect(path: str) -> str:
    """The layout that the names below ``path`` leave no doubt about."""
    if is_tar(path):
        return "tar"
    if not Path(path).exists():
        raise SourceError(f"{path}: there is no such file or folder")
    if not Path(path).is_dir():
        raise SourceError(f"{path}: expected a folder of images, class folders or tar shards, got a file")
    images, others, folders, shards = 0, 0, 0, 0
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir():
                folders += 1
            elif image_kind(entry.name):
                images += 1
            elif entry.name.endswith(".tar"):
                shards += 1
            else:
                others += 1
    if images and not folders and not shards:
        return "flat"
    if folders and not images and not shards:
        return "imagefolder"
    if shards and not images and not folders:
        return "tar"
    found = f"{images} images, {folders} folders, {shards} tar files and {others} others"
    raise SourceError(f"{path}: {found}: cannot tell how it is laid out; say --layout flat, imagefolder or tar")
