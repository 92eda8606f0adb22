"""From folders and tar shards to packed stores and back; installed as ``fastio.converters``."""

from __future__ import annotations

if __name__ == "converters":
    raise ImportError("this package is fastio.converters: install fastio, then `import fastio.converters`")

import os
from collections.abc import Callable
from pathlib import Path

from fastio.converters.ambiguous import refuse_fields, refuse_splits, split_folder
from fastio.converters.flat import open_flat
from fastio.converters.imagefolder import open_imagefolder
from fastio.converters.junk import is_hidden
from fastio.converters.labels import LabelFile, LabelOptions
from fastio.converters.other_containers import folder_kind, kind_of
from fastio.converters.packer import PackReport, pack
from fastio.converters.raw import Raw
from fastio.converters.scan import Folder, image_kind, scan_root
from fastio.converters.source import Chunk, Problem, Source
from fastio.converters.tar import is_tar, open_tar
from fastio.converters.transcode import Transcode
from fastio.errors import SourceError

__all__ = [
    "LAYOUTS",
    "SOURCES",
    "Chunk",
    "LabelOptions",
    "PackReport",
    "Problem",
    "Raw",
    "Source",
    "Transcode",
    "open_source",
    "pack",
]

# A new layout is one file and one line here; the conformance tests run on it by themselves. Each takes the path, the
# label file, and the scan of the path where one has been made.
SOURCES: dict[str, Callable[[str, LabelFile | None, Folder | None], Source]] = {
    "flat": open_flat,
    "imagefolder": open_imagefolder,
    "tar": open_tar,
}
LAYOUTS = ("auto", *SOURCES)
_EXPECTED = "a folder of images, class folders, tar shards or text"


def open_source(
    path: str | os.PathLike[str],
    *,
    layout: str = "auto",
    labels: str | os.PathLike[str] | None = None,
    label_options: LabelOptions | None = None,
    split: str | None = None,
) -> Source:
    """
    An unpacked dataset, ready to be packed: names and sizes are scanned, nothing is read yet.

    ``split`` is a folder in ``path``, which is then the source. ``auto`` looks at the names and decides; where that
    would be guessing (also where folders are rather parts of a data set or fields of a sample than classes),
    SourceError says what was found and what to choose from.
    """
    path = os.fspath(path)
    if layout not in LAYOUTS:
        raise SourceError(f"layout {layout!r}: expected one of {', '.join(LAYOUTS)}")
    if split is not None:
        path = split_folder(path, split)
    file = None if labels is None else LabelFile(os.fspath(labels), label_options or LabelOptions())
    if layout != "auto":
        return SOURCES[layout](path, file, None)
    top = scan_root(path) if Path(path).is_dir() else None
    layout = _detect(path, top)
    if layout != "imagefolder" or top is None:
        return SOURCES[layout](path, file, top)
    refuse_splits(path, top.folders)
    source = open_imagefolder(path, file, top)
    refuse_fields(path, source.metadata["classes"], source.keys, source.problems)
    return source


def _detect(path: str, top: Folder | None) -> str:
    """The layout that the names in ``path`` leave no doubt about."""
    if top is None:
        if is_tar(path):
            return "tar"
        raise SourceError(f"{path}: expected {_EXPECTED}, found {kind_of(path)}")
    problems = [problem.key for problem in top.problems]
    images = len(top.keys) + sum(map(bool, map(image_kind, problems)))
    shards = sum(key.endswith(".tar") for key in problems)
    folders = sum(not is_hidden(name) for name in top.folders)
    if images and not folders and not shards:
        return "flat"
    if folders and not images and not shards:
        return "imagefolder"
    if shards and not images and not folders:
        return "tar"
    others = len(problems) + len(top.keys) + len(top.left_out) - images - shards
    if not (images or folders or shards or others):
        raise SourceError(f"{path}: is empty; expected images, class folders or tar shards")
    known = folder_kind(problems)
    if known:
        raise SourceError(f"{path}: expected {_EXPECTED}, found {known}")
    found = f"images: {images}, folders: {folders}, tar files: {shards}, others: {others}"
    raise SourceError(f"{path}: {found}: cannot tell how it is laid out; say --layout flat, imagefolder or tar")
