"""Paths into JSON: what they lead to, and which part of one is nowhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["PathCheck", "missing_part", "value_at"]


def value_at(document: Any, path: Sequence[str]) -> Any:
    """
    Return what a path leads to; of a list, what it leads to in each of its members. None where there is nothing.

    Raises KeyError for a path through a number or a text.
    """
    if not path or document is None:
        return document
    if isinstance(document, list):
        return [value_at(each, path) for each in document]
    if not isinstance(document, dict):
        raise KeyError(path[0])
    return value_at(document.get(path[0]), path[1:])


def missing_part(name: str, document: Any, path: Sequence[str]) -> str:
    """
    Return which part of the path no object on the way has, in words; "" if there is one, or no object to tell by.

    ``name`` is what the document is called.

    >>> missing_part("objects", {"bbox": [], "kind": []}, ["bboxx"])
    "no 'bboxx' in 'objects', only 'bbox', 'kind'"
    """
    values = [document]
    for part in path:
        objects = [each for each in _members(values) if isinstance(each, dict)]
        if objects and not any(part in each for each in objects):
            return f"no {part!r} in {name!r}, only {', '.join(map(repr, objects[0]))}"
        values = [each[part] for each in objects if part in each]
        name = f"{name}.{part}"
    return ""


def _members(values: Sequence[Any]) -> Iterator[Any]:
    for each in values:
        if isinstance(each, list):
            yield from _members(each)
        else:
            yield each


@dataclass(slots=True)
class PathCheck:
    """
    Finds out whether a path leads to anything in at least one of many documents called ``name``.

    ``missing`` says, as ``missing_part``, what the first of them lacks; it is "" as soon as one lacks nothing.
    """

    name: str
    path: Sequence[str]
    missing: str = ""
    _is_there: bool = False

    def look_at(self, document: Any, value: Any) -> str:
        """Take one more document, in which the path leads to ``value``; return what it lacks, in words."""
        is_there = value is not None and not (isinstance(value, list) and all(each is None for each in value))
        missing = "" if is_there else missing_part(self.name, document, self.path)
        if is_there:
            self._is_there, self.missing = True, ""
        elif not self._is_there:
            self.missing = self.missing or missing
        return missing
