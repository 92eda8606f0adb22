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
from fastio.converters.raw import Raw
from fastio.converters.scan import Folder, image_kind, scan_root
from fastio.converters.tar import is_tar, open_tar
from fastio.converters.transcode import Transcode
from fastio.errors import SourceError

__all__ = ["LAYOUTS", "SOURCES", "Chunk", "PackReport", "Problem", "Raw", "Source", "Transcode", "open_source", "pack"]

# A new layout is one file and one line here; the conformance tests run on it by themselves. Each takes the path, the
# label file, and the scan of the path where one has been made.
SOURCES: dict[str, Callable[[str, str | None, Folder | None], Source]] = {
    "flat": open_flat,
    "imagefolder": open_imagefolder,
    "tar": open_tar,
}
_COMPRESSED = (".gz", ".tgz", ".bz2", ".xz", ".zst", ".zip", ".7z")
_STORES = (".lmdb", ".h5", ".hdf5")
LAYOUTS = ("auto", *SOURCES)


def open_source(
    path: str | os.PathLike[str], *, layout: str = "auto", labels: str | os.PathLike[str] | None = None
) -> Source:
    """
    An unpacked dataset, ready to be packed: names and sizes are scanned, nothing is read yet.

    ``auto`` looks at the names in ``path`` and decides; where that would be guessing,
    SourceError says what was found and names the layouts to choose from.
    """
    path = os.fspath(path)
    if layout not in LAYOUTS:
        raise SourceError(f"layout {layout!r}: expected one of {', '.join(LAYOUTS)}")
    top = None
    if layout == "auto":
        top = scan_root(path) if Path(path).is_dir() else None
        layout = _detect(path, top)
    return SOURCES[layout](path, None if labels is None else os.fspath(labels), top)


def _detect(path: str, top: Folder | None) -> str:
    """The layout that the names in ``path`` leave no doubt about."""
    if top is None:
        if is_tar(path):
            return "tar"
        what = "a file" if Path(path).exists() else "nothing"
        if path.endswith(_STORES) and Path(path).exists():
            what = f"a file that is packed already: `fastio unpack {path} FOLDER` gives back what is in it"
        if path.endswith(_COMPRESSED) and Path(path).exists():
            what = "a compressed file: decompress it first, then pack the .tar or the folder in it"
        raise SourceError(f"{path}: expected a folder of images, class folders, tar shards or text, found {what}")
    problems = [problem.key for problem in top.problems]
    images = len(top.keys) + sum(map(bool, map(image_kind, problems)))
    shards = sum(key.endswith(".tar") for key in problems)
    folders = len(top.folders)
    if images and not folders and not shards:
        return "flat"
    if folders and not images and not shards:
        return "imagefolder"
    if shards and not images and not folders:
        return "tar"
    others = len(problems) + len(top.keys) - images - shards
    if not (images or folders or shards or others):
        raise SourceError(f"{path}: is empty; expected images, class folders or tar shards")
    found = f"images: {images}, folders: {folders}, tar files: {shards}, others: {others}"
    raise SourceError(f"{path}: {found}: cannot tell how it is laid out; say --layout flat, imagefolder or tar")
