"""SourceColumns: every column of a source is packed, named as left out, or refused because it holds pictures."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np

from fastio.converters.labels.columns import ALL_OTHERS
from fastio.converters.sources.column_kinds import holding
from fastio.converters.sources.column_kinds.kind import begins_picture
from fastio.errors import SourceError
from fastio.types.picture_kinds import kind_by_name

__all__ = [
    "FIRST_VALUES",
    "ColumnRefusedError",
    "SourceColumns",
    "is_empty",
    "is_file",
    "mentions_picture",
    "names_picture",
]


FIRST_VALUES: Final = 8  # of a column, that tell whether it holds pictures
_DEEPEST, _MOST_PARTS = 6, 32  # lists and objects within each other, and parts of each, that are looked at
_LONGEST_NAME = 1024  # characters; a longer text is not the name of a file
_LISTS = "lists of "
_WRITTEN = "in a form that fastio.Writer alone packs, as image[*]"


class ColumnRefusedError(SourceError):
    """A column that is not packed as it is, and that ``--without`` leaves out."""

    def __init__(self, message: str, column: str = "") -> None:
        super().__init__(message)
        self.column = column


@dataclass(frozen=True, slots=True)
class SourceColumns:
    """
    The columns of a source. Every kind of table asks here what becomes of those that it does not pack.

    ``first_values(name)`` returns the first values of a column, none if its type cannot hold pictures. ``without`` are
    the columns that the user leaves out, ``*`` all that are not used. Texts may name files below ``root``; those
    ``known`` are packed already. Lists of names count wherever the files are if ``takes_files``: a name alone would
    be a file there. ``decodes``: columns of one of COLUMN_KINDS can be packed; ``takes_lists``: those of lists of the
    bytes of pictures, too. ``noun`` is what messages call a column.
    """

    place: str
    names: Sequence[str]
    first_values: Callable[[str], Iterable[Any]]
    without: Collection[str] = ()
    root: str = ""
    known: Collection[str] = ()
    takes_files: bool = False
    decodes: bool = False
    takes_lists: bool = False
    noun: str = "column"

    def left_out(self, packed: Collection[str], settled: Collection[str]) -> list[str]:
        """
        Return the columns that are not ``packed``, for the report and the store's record.

        Raises SourceError, with what to type, for a column that holds pictures and is neither left out by the user nor
        ``settled``: packed as pictures or files, or as the type that the user named. A column to leave out that does
        not exist is an error, too.
        """
        for name in self.without:
            if name not in self.names and name != ALL_OTHERS:
                listed = ", ".join(map(repr, self.names)) or "none"
                raise SourceError(f"{self.place}: --without {name}: there is no such {self.noun} among {listed:.500}")
        for name in self.names:
            is_meant = name in self.without or (ALL_OTHERS in self.without and name not in packed)
            if not is_meant and name not in settled:
                self.refuse_pictures(name, self.first_values(name))
        return [name for name in self.names if name not in packed]

    def refuse_pictures(self, name: str, values: Iterable[Any]) -> None:
        """Raise SourceError if one of the first values of a column that are not empty holds a picture."""
        for value in islice((each for each in values if not is_empty(each)), FIRST_VALUES):
            pictures = self._pictures_in(value, _DEEPEST)
            if (
                not pictures
                and self.takes_files
                and isinstance(value, (list, tuple))
                and all(map(names_picture, value))
            ):
                pictures = f"{_LISTS}names of pictures"
            if pictures:
                column = shlex.quote(name)
                loss = self._loss(pictures, column, value)
                raise ColumnRefusedError(
                    f"{self.place}: {self.noun} {name!r} holds {pictures}, {loss}; --without {column} leaves it out",
                    name,
                )

    def _loss(self, pictures: str, column: str, value: object) -> str:
        """What would become of them, and another way out if there is one."""
        is_list, is_taken = pictures.startswith(_LISTS), self.takes_lists and _has_files(value)
        if pictures.endswith("names of pictures"):
            keeps = f"--field NAME={column}:{'json' if is_list else 'text'} keeps the names alone"
            if not self.takes_files and all(map(names_picture, value if isinstance(value, (list, tuple)) else [value])):
                return f"and only these would be packed: --root FOLDER packs the files, {keeps}"
            return f"{_WRITTEN}: {keeps}" if is_list else f"and only these would be packed: {keeps}"
        if is_list and not is_taken:
            return _WRITTEN
        if not self.decodes and pictures != "pictures" and not is_list:
            return "which are not decoded here: write them with fastio.pack or fastio.Writer"
        return f"which would not be packed: --field NAME={column}{':image' * self.takes_files} packs them"

    def _pictures_in(self, value: Any, depth: int) -> str:
        """
        What pictures a value holds, in words; "" if none.

        Looks for bytes that begin like a picture, the same in base64, structs of bytes and path, names of files, and
        for lists and objects that hold any of these.
        """
        if isinstance(value, (bytes, bytearray, memoryview)):
            return "pictures" if begins_picture(value) else ""
        if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 1:
            return "pictures" if begins_picture(value.tobytes()) else ""
        if isinstance(value, str):
            return holding(value) or ("names of pictures" if self._names_file(value) else "")
        if not depth:
            return ""
        if isinstance(value, Mapping):
            if {"bytes", "path"} == value.keys() and names_picture(value["path"]):
                return "pictures"
            return self._first_in(value.values(), depth - 1)
        if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.dtype.hasobject):
            pictures = self._first_in(value, depth - 1)
            return pictures and _LISTS + pictures.removeprefix(_LISTS)
        return ""

    def _first_in(self, parts: Iterable[Any], depth: int) -> str:
        return next(filter(None, (self._pictures_in(part, depth) for part in islice(parts, _MOST_PARTS))), "")

    def _names_file(self, text: str) -> bool:
        """Whether a text is the name of a picture that lies below the root and is not packed otherwise."""
        if not self.root or not names_picture(text) or text in self.known:
            return False
        return is_file(self.root, text)


def _has_files(value: object) -> bool:
    """Whether a value is a list with the bytes of pictures themselves, not within other lists or objects."""
    parts = value if isinstance(value, (list, tuple)) else ()
    files = [each.get("bytes") if isinstance(each, Mapping) else each for each in parts]
    return any(isinstance(each, bytes) and begins_picture(each) for each in files)


def names_picture(value: object) -> bool:
    """Return whether a value is a text that ends like the name of a picture, and no address."""
    if not isinstance(value, str) or len(value) > _LONGEST_NAME:
        return False
    return "\n" not in value and "\0" not in value and "://" not in value and kind_by_name(value) != 0


def mentions_picture(value: object) -> bool:
    """Return whether a value is the name or the address of a picture, or a list or an object that has one in it."""
    if isinstance(value, Mapping):
        return any(map(mentions_picture, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(mentions_picture, value))
    return isinstance(value, str) and names_picture(value.rpartition("://")[2])


def is_file(root: str, name: str) -> bool:
    """Return whether there is a file of this name below a folder; never raises."""
    return os.path.isfile(os.path.join(root, name))  # noqa: PTH113, PTH118 - Path raises for names that are too long


def is_empty(value: object) -> bool:
    """Return whether a value says nothing of what its column holds: null, an empty list, text or array."""
    if isinstance(value, np.ndarray):
        return value.size == 0
    return value is None or (isinstance(value, (str, bytes, list, tuple, Mapping)) and len(value) == 0)
