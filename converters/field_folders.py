"""The folders of files that ``--field NAME=FOLDER`` asks for: where they lie, and what is in them by stem."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from pathlib import Path

from fastio.converters.fields_asked import FieldChoice
from fastio.converters.junk import is_hidden
from fastio.converters.scan import IMAGES, Folder, Wanted, scan_root, scan_tree
from fastio.errors import SourceError
from fastio.types.picture_kinds import kind_by_name
from fastio.types.schema import Field

__all__ = ["FieldFolder", "find_folder", "scan_files", "stem_of"]

_STEM = "{stem}"
_SYSTEM_FILES = frozenset([".ds_store", "thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r"])
_FILES = {  # by trait of the field: the extension of its files, and what they are
    "is_text": (".txt", "a text file"),
    "is_json": (".json", "a JSON file"),
    "is_plain": (".npy", "a NumPy array"),
}


@dataclass(frozen=True, slots=True)
class FieldFolder:
    """
    The files of one field: those below ``path`` whose names are ``prefix``, a stem and ``suffix``.

    ``suffix`` is "" if any extension will do. ``scan`` holds the files; those of other names belong to nothing.
    """

    name: str
    path: str
    prefix: str = ""
    suffix: str = ""
    field: Field | None = None
    scan: Folder = dataclass_field(default_factory=Folder)

    @property
    def has_pattern(self) -> bool:
        """Whether names have more than a stem and an extension."""
        return bool(self.prefix or self.suffix)

    def stem_of(self, key: str) -> str | None:
        """Return the stem of a file below the folder, with the folders above it; None if it is not of this field."""
        if not self.has_pattern:
            return stem_of(key)
        above, slash, name = key.rpartition("/")
        long_enough = len(name) > len(self.prefix) + len(self.suffix)
        if not (long_enough and name.startswith(self.prefix) and name.endswith(self.suffix)):
            return None
        return above + slash + name[len(self.prefix) : len(name) - len(self.suffix)]


def stem_of(key: str) -> str:
    """
    Return a path without the extension of its file.

    >>> stem_of("town/a.b.png"), stem_of("v1.0/a")
    ('town/a.b', 'v1.0/a')
    """
    above, slash, name = key.rpartition("/")
    return above + slash + (name.rpartition(".")[0] or name)


def find_folder(choice: FieldChoice, bases: Sequence[str]) -> FieldFolder:
    """
    Return the folder that ``choice.where`` names in exactly one of the folders ``bases``.

    ``masks/`` stands for all files in it, ``masks/{stem}_mask.png`` for those of such names. Raises SourceError if
    there is no such folder, or if there are several.
    """
    folder, prefix, suffix = choice.where, "", ""
    if _STEM in choice.where:
        folder, _, pattern = choice.where.rpartition("/")
        prefix, found, suffix = pattern.partition(_STEM)
        if not found or _STEM in suffix:
            raise SourceError(f"--field {choice}: expected {_STEM} once, in the name of the files")
        bases = bases if folder else bases[:1]
    paths = [Path(base, folder) for base in bases]
    places = {os.path.realpath(path): str(path) for path in paths if path.is_dir()}
    if len(places) == 1:
        return FieldFolder(choice.name, next(iter(places)), prefix, suffix, choice.field)
    if places:
        both = " or ".join(repr(path) for path in places.values())
        raise SourceError(f"--field {choice}: could be {both}: write the whole path, or add --root DIR")
    tried = ", ".join(dict.fromkeys(os.path.normpath(base) for base in bases))
    raise SourceError(f"--field {choice}: there is no folder {folder!r} in {tried}; expected NAME=FOLDER")


def scan_files(folder: FieldFolder, *, without: Sequence[str] = ()) -> FieldFolder:
    """
    Return the folder with its files, sorted by path, links followed; ``without`` are folders that are not looked into.

    Files that cannot be of the field are problems or left out by the rules of pictures, of text, ...
    """
    wanted = _wanted(folder)
    top = scan_root(folder.path, wanted)
    found = Folder(disk_bytes=0)
    found.add(top)
    for key in top.folders:
        if os.path.realpath(f"{folder.path}/{key}") not in without:
            found.add(scan_tree(folder.path, key, wanted))
    return replace(folder, scan=found)


def _wanted(folder: FieldFolder) -> Wanted:
    """The files of the field's type; without a type, those of pictures if there are any, otherwise all."""
    suffix = folder.suffix
    if folder.field is None and not suffix:
        return IMAGES if _has_pictures(folder.path) else _anything("", "a file of this field")
    if folder.field is None:
        return IMAGES if kind_by_name(suffix) else _anything(suffix, f"a {suffix} file")
    if folder.field.traits.is_picture:
        return IMAGES
    of_field = ("", f"a file of the field {folder.name!r}")
    extension, what = next((each for trait, each in _FILES.items() if getattr(folder.field.traits, trait)), of_field)
    return _anything(suffix or extension, what)


def _has_pictures(path: str) -> bool:
    """Whether one of the files below a folder is a picture by its name."""
    for _, folders, files in os.walk(path, followlinks=False):
        folders[:] = sorted(name for name in folders if not is_hidden(name))
        if any(map(kind_by_name, files)):
            return True
    return False


def _anything(suffix: str, what: str) -> Wanted:
    """Files whose names end so, but for those of the operating system."""

    def kind_of(name: str) -> int:
        is_ours = not name.startswith(".") and name.lower() not in _SYSTEM_FILES
        return int(is_ours and name.lower().endswith(suffix.lower()))

    def leaves_out(name: str) -> str:
        if name.lower() in _SYSTEM_FILES:
            return "is a file of the operating system"
        return "is a hidden file" if name.startswith(".") else ""

    return Wanted(kind_of, what, suffix or "any extension", leaves_out)
