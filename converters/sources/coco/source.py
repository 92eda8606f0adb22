"""Makes a source of a COCO JSON: reads it, and finds the folder of its images."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from fastio.converters.sources.coco.annotations import Annotations
from fastio.converters.sources.coco.samples import CocoFile, CocoSamples, Images
from fastio.converters.sources.layouts.roots import chosen_part, find_root
from fastio.converters.sources.listed import ListedSource
from fastio.converters.sources.options import SourceOptions
from fastio.converters.sources.streams import MAX_DOCUMENT_BYTES, opened
from fastio.converters.sources.tables.rows import JsonText, kind_in_json
from fastio.errors import SourceError
from fastio.store.kinds.layouts import coco_files
from fastio.store.kinds.scan import SourcePath

__all__ = [
    "open_annotations",
]


def open_annotations(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open a COCO JSON, or a folder with some in it or in ``annotations`` in it, each a part of the dataset. Its images
    lie below ``--root``, or in a folder in or beside its own; they stay in the order of the file.

    Every image is a sample, also without annotations. An annotation of an unknown image is a problem of its own; one
    with something wrong is a problem of its image.
    """
    path = place.path
    if place.is_folder:
        files = {Path(name).name.removesuffix(".json"): name for name in coco_files(place)}
        expected = "a COCO JSON in it or in its folder annotations"
        path = f"{path}/{chosen_part(path, files, options.split, 'COCO JSON', expected)[1]}"
    elif options.split is not None:
        raise SourceError(f"{path}: is one part of a dataset: drop --split {options.split}")
    images, annotations = Images(), Annotations()
    takers = {"images": images.add, "annotations": annotations.add}
    try:
        file = read_coco(path, lambda name, entry, where: takers[name](entry, where))
        collected = annotations.finish()
    finally:
        annotations.close()
    if not images.ids:
        raise SourceError(f"{path}: has no images" + (f": {images.homeless[0][1]}" if images.homeless else ""))
    root = _root(path, options.root, images)
    return CocoSamples(place, "coco", [path], options, file, images, collected, root).source()


def _root(path: str, root: str | None, images: Images) -> str:
    """The folder of the images. Names from addresses count without their folder where nothing lies under both."""
    plain = [name.rpartition("/")[2] if isinstance(name, str) else name for name in images.names]
    if images.order and "file_name" not in images.order and plain != images.names:
        try:
            found = find_root(path, root, images.names)
        except SourceError:
            found = find_root(path, root, plain)
        is_there = any(os.path.isfile(os.path.join(found, str(name))) for name in images.names[:100])  # noqa: PTH113, PTH118
        images.names = images.names if is_there else plain
    return find_root(path, root, images.names)


# The JSON, read front to back: one image or annotation at a time, however long the file is.

_SPACE = " \t\r\n"
_LISTS: Final = ("images", "annotations")


def read_coco(path: str, take: Callable[[str, Any, str], None]) -> CocoFile:
    """
    Read the file once; ``take(list, entry, where)`` gets each entry of "images" and "annotations", in their order.

    Raises SourceError that names the line if the JSON is broken, or if a list is missing or comes twice.
    """
    result = CocoFile()
    with opened(path) as stream:
        text = JsonText(stream, MAX_DOCUMENT_BYTES)
        text.skip(_SPACE)
        _expect(text, "{", path)
        text.skip(_SPACE)
        while text.peek() and text.peek() != "}":
            name = text.value()
            if not isinstance(name, str) or name in result.order:
                what = f"{name!r} comes twice" if isinstance(name, str) else "expected a name in quotes"
                raise SourceError(f"{path}: line {text.line}: {what}")
            result.order.append(name)
            text.skip(_SPACE)
            _expect(text, ":", path)
            text.skip(_SPACE)
            if name in _LISTS:
                _read_list(text, name, path, take)
            else:
                result.others[name] = text.value()
            text.skip(_SPACE)
            if text.peek() == ",":
                text.take()
                text.skip(_SPACE)
            elif text.peek() != "}":
                raise SourceError(
                    f"{path}: line {text.line}: expected ',' or '}}' after {name!r}; is the file truncated?"
                )
        _expect(text, "}", path)
        text.skip(_SPACE)
        if text.peek():
            raise SourceError(f"{path}: line {text.line}: {text.peek()!r} follows the end of the object")
    missing = [name for name in _LISTS if name not in result.order]
    if missing:
        raise SourceError(f"{path}: has no list {missing[0]!r}; expected COCO's images, annotations and categories")
    return result


def _read_list(text: JsonText, name: str, path: str, take: Callable[[str, Any, str], None]) -> None:
    if text.peek() != "[":
        raise SourceError(f"{path}: line {text.line}: {name!r} is {kind_in_json(text.value())}, expected a list")
    text.take()
    text.skip(_SPACE)
    while text.peek() and text.peek() != "]":
        where = f"line {text.line}"
        take(name, text.value(), where)
        text.skip(_SPACE)
        if text.peek() == ",":
            text.take()
            text.skip(_SPACE)
        elif text.peek() != "]":
            raise SourceError(f"{path}: line {text.line}: expected ',' or ']' in {name!r}; is the file truncated?")
    _expect(text, "]", path)


def _expect(text: JsonText, character: str, path: str) -> None:
    if text.peek() != character:
        got = repr(text.peek()) if text.peek() else "the end of the file"
        raise SourceError(f"{path}: line {text.line}: expected {character!r}, got {got}")
    text.take()
