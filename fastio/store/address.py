"""Address: what a path or URL given by a user means: the folder, the files there, their set object and their format."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from fastio.errors import StoreError, StoreNotFound
from fastio.store import formats
from fastio.store.files.local import is_local
from fastio.store.files.remote_options import DEFAULT, Remote
from fastio.store.folders import LocalFolder, folder_of
from fastio.store.formats.format import Format
from fastio.store.listing import check_no_journal
from fastio.store.sets.names import SET_SUFFIX, NumberedName, numbered_paths, set_path
from fastio.store.store_folder import StoreFolder

if TYPE_CHECKING:
    from fastio.store.sets.set_object import SetObject

__all__ = ["Address", "format_of", "target_format"]

_WEB = ("http://", "https://")  # servers that cannot be asked for the names in a folder
_WILDCARD = re.compile(r"[*?\[]")
_WEB_WILDCARD = re.compile(r"[*\[]")  # "?" begins a query there


class _Kind(Enum):
    """How an address names files."""

    SET = "by their set object"
    FILE = "one file"
    FOLDER = "all shards in a folder"
    RANGE = "{000000..000009}"
    NUMBERED = "%06d"
    WILDCARD = "as a shell does"


@dataclass(frozen=True, slots=True)
class Address:
    """
    A path or URL to read, parsed once: the folder of the files, their name there, and the format, by the suffix.

    On this machine, a name that exists stands for itself, whatever characters it has. Behind a URL nothing is asked
    for: what names neither shards nor a file of a format is a folder.
    """

    path: str
    folder: StoreFolder
    name: str  # in the folder: of a file, or a pattern; "" for all of it
    format: Format | None
    kind: _Kind
    range: Sequence[str] = ()  # the paths that a range of numbers stands for

    @classmethod
    def parse(cls, path: str, options: Remote = DEFAULT) -> Address:
        """Return what a path or URL names at the moment. Raises StoreError for a range that does not ascend."""
        if is_local(path):
            kind = _kind_here(path)
            form = formats.named(os.path.basename(os.path.normpath(path)))  # noqa: PTH119 - pathlib would read a glob's slashes alike
        else:
            kind, form = _kind_there(path), formats.named(path)
        folder, name = folder_of(f"{path.rstrip('/')}/" if kind is _Kind.FOLDER else path, options)
        return cls(path, folder, name, form, kind, numbered_paths(path) or () if kind is _Kind.RANGE else ())

    @property
    def is_folder(self) -> bool:
        """Whether all shards in a folder are meant."""
        return self.kind is _Kind.FOLDER

    @property
    def is_local(self) -> bool:
        """Whether the files lie on this machine."""
        return is_local(self.path)

    def set_object(self) -> str | None:
        """
        Return the set object that makes a store of the files; None if there is none, or one file is meant.

        It lies beside the shards of a pattern and has their name without the number; behind a URL it need not exist.
        Another set object is meant if wildcards match all of its shards, or if it is the only one in the folder of this
        name. Raises StoreError if several are meant, or only a part of one.
        """
        if self.kind is _Kind.SET:
            return self.path
        if self.kind is _Kind.FILE:
            return None
        if self.kind is _Kind.FOLDER:
            objects = [name for name in self._names() if name.endswith(SET_SUFFIX)]
            if len(objects) > 1:
                raise StoreError(f"{self.path}: holds {len(objects)} sets: name one of {', '.join(objects)}")
            return self.folder.full(objects[0]) if objects else None
        if self.kind is _Kind.WILDCARD and self.is_local:
            return self._set_of_wildcard()
        named = set_path(self.path)
        return named if not self.is_local or os.path.lexists(named) else None

    def files(self) -> tuple[Format, list[str]]:
        """
        Return the format of the files, and where they lie, sorted by name: for those that no set object lists.

        Raises StoreNotFound if there are none; one file and those of a range are not looked for. Raises StoreError if
        an older fastio was killed while it gave these files their names.
        """
        form = self.format or self._format_of_files()
        if self.kind is _Kind.RANGE:
            files = list(self.range)
        elif self.kind is _Kind.FOLDER:
            files = [self.folder.full(name) for name in self._names() if form.is_name(name)]
            if not files:
                raise StoreNotFound(f"{self.path}: a folder without {form.name} shards: name a store")
        else:
            files = [self.path] if self.kind is _Kind.FILE else self._matching()
        if self.is_local:
            check_no_journal(files[0])
        return form, files

    def check_names(self, found: SetObject) -> None:
        """
        Raise StoreError if the shards that this names are not those of the set object beside them: if they are of
        another format, or a range of numbers names others.
        """
        if self.format is not None and self.format.name != found.format:
            raise StoreError(f"{self.path}: {found.path} is a set of {found.format} shards: open it by that name")
        if self.kind is not _Kind.RANGE:
            return
        names = {shard.rpartition("/")[2] for shard in self.range}
        listed = {member.name.rpartition("/")[2] for member in found.members}
        if names != listed:
            raise StoreError(
                f"{self.path}: names {len(names)} shards, of which {len(names & listed)} are among the {len(listed)} "
                f"of the set {found.path}: open the set by that name"
            )

    def _names(self) -> list[str]:
        """Return the names of the visible files in the folder, sorted."""
        if self.path.startswith(_WEB):
            raise StoreError(
                f"{self.path}: a web server does not list its files: name the set object (name{SET_SUFFIX}), one file, "
                "or the shards by a range, name-{000000..000009}.tar"
            )
        return self.folder.names()

    def _format_of_files(self) -> Format:
        """Return the format of files that no suffix tells."""
        if self.kind is _Kind.FOLDER:
            names = self._names()
            if not names and not self.is_local:
                raise StoreNotFound(
                    f"{self.path}: holds nothing: check the name; a store there is named by its file or its folder"
                )
            return formats.of_names(self.path, names)
        expected = f"expected a name that ends in one of {formats.suffixes()}"
        if not self.is_local:
            raise StoreError(f"{self.path}: {expected}")
        if not os.path.lexists(self.path):
            raise StoreNotFound(f"{self.path}: no such file or folder; {expected}, or a folder of shards")
        raise StoreError(f"{self.path}: {expected}, or a folder of shards")

    def _folders(self) -> Sequence[StoreFolder]:
        """Return the folders that a pattern is looked for in: on this machine, their names may be a pattern too."""
        if not self.is_local:
            if _WILDCARD.search(self.folder.path):
                raise StoreError(f"{self.path}: only the last part of a URL may hold a pattern: name the folder")
            return (self.folder,)
        folder = os.path.split(self.path)[0]
        found = sorted(glob.glob(folder)) if glob.has_magic(folder) else [folder]  # noqa: PTH207 - keeps "./"
        return [LocalFolder(each) for each in found]

    def _matching(self) -> list[str]:
        """Return the shards whose names a pattern matches, in the order of their paths."""
        numbered = NumberedName.parse(self.name)
        if numbered is not None and self.is_local:
            check_no_journal(self.path)
        pattern = re.compile(fnmatch.translate(self.name)) if numbered is None else numbered.pattern
        folders = self._folders()
        names = {folder: self._names() if folder is self.folder else folder.names() for folder in folders}
        paths = [folder.full(name) for folder in folders for name in names[folder] if pattern.fullmatch(name)]
        if not paths:
            raise StoreNotFound(
                f"{self.path}: matches no file: check the pattern"
                if numbered is None and self.is_local
                else f"{self.path}: no such shards: check the name, or pack the dataset first"
            )
        return sorted(paths)

    def _set_of_wildcard(self) -> str | None:
        meant = [each for folder in self._folders() for each in self._sets_in(folder)]
        if len(meant) > 1:
            raise StoreError(f"{self.path}: matches shards of {len(meant)} sets: open one, e.g. {meant[0]}")
        return meant[0] if meant else None

    def _sets_in(self, folder: StoreFolder) -> list[str]:
        """Return the set objects here of which wildcards match shards. Raises StoreError if they match some only."""
        names = folder.names()
        objects = [each for each in names if each.endswith(SET_SUFFIX)]
        if not objects:
            return []
        from fastio.store.sets.set_object import current_set

        matched = set(fnmatch.filter(names, self.name))
        meant = []
        for each in objects:
            path = folder.full(each)
            known = current_set(path)
            listed = {member.name for member in known.members} if known is not None else set()
            if listed & matched and not listed <= matched:
                raise StoreError(
                    f"{folder.full(self.name)}: matches {len(listed & matched)} of the {len(listed)} shards of {path}: "
                    "open the set by that name"
                )
            if listed & matched or each == set_path(self.name):
                meant.append(path)
        return meant


def format_of(path: str | os.PathLike[str]) -> str:
    """Return the name in FORMATS for a path's suffix. Raises StoreError for an unknown suffix."""
    address = Address.parse(os.fspath(path))
    return (address.format or address._format_of_files()).name


def target_format(path: str) -> Format:
    """Return the format of a file to write, by its suffix."""
    form = formats.named(path)
    if form is None:
        shards = formats.shard_suffixes()[0]
        raise StoreError(
            f"{path}: expected a name that ends in one of {formats.suffixes()}; shards are named name-%06d{shards}"
        )
    return form


def _kind_here(path: str) -> _Kind:
    """What a path of this machine is, or would be."""
    if path.endswith(SET_SUFFIX):
        return _Kind.SET
    if Path(path).is_dir():
        return _Kind.FOLDER
    if os.path.lexists(path):
        return _Kind.FILE
    return _pattern_kind(path) or (_Kind.WILDCARD if glob.has_magic(path) else _Kind.FILE)


def _kind_there(url: str) -> _Kind:
    """What a URL names, by its text alone."""
    if url.endswith(SET_SUFFIX):
        return _Kind.SET
    kind = _pattern_kind(url)
    if kind is None and (_WEB_WILDCARD if url.startswith(_WEB) else _WILDCARD).search(url):
        kind = _Kind.WILDCARD
    return kind or (_Kind.FILE if formats.named(url) is not None else _Kind.FOLDER)


def _pattern_kind(path: str) -> _Kind | None:
    if numbered_paths(path) is not None:
        return _Kind.RANGE
    return _Kind.NUMBERED if NumberedName.parse(path.rpartition("/")[2]) is not None else None
