"""Reads a COCO JSON front to back: one image or annotation at a time, however long the file is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from fastio.converters.sources.streams import opened
from fastio.converters.sources.tables.rows import MAX_DOCUMENT_BYTES, JsonText, kind_in_json
from fastio.errors import SourceError

__all__ = [
    "CocoFile",
    "read_coco",
]


_SPACE = " \t\r\n"
_LISTS: Final = ("images", "annotations")


@dataclass(slots=True)
class CocoFile:
    """
    What a COCO JSON holds beside its images and annotations.

    ``order`` are the names at the top in their order, ``others`` the values of those that are neither of the two.
    """

    order: list[str] = field(default_factory=list)
    others: dict[str, Any] = field(default_factory=dict)


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
