"""Files and folders that cannot be packed as they are: what they are, and what to do instead."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Protocol

import numpy as np

from fastio._native import image_kind
from fastio.errors import SourceError, StoreError, StoreIncomplete
from fastio.store.foreign.other_libraries import library_of
from fastio.store.formats import FORMATS, content_of, named
from fastio.store.index.seal import find_seal
from fastio.store.kinds.names import plain_name
from fastio.store.kinds.scan import shown
from fastio.types.picture_kinds import PICTURE_KINDS, UNKNOWN, kind_by_name
from fastio.types.units import counted, size

__all__ = [
    "Near",
    "container_of_others",
    "holds_pictures",
    "is_container_of_others",
    "is_of_others",
    "kind_of",
    "unknown",
]


_COMPRESSED = (".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar")


@dataclass(frozen=True, slots=True)
class Near:
    """
    What makes files of some extensions near to a kind: ``missing`` says what to do so that they become one of its
    sources, with ``{}`` for the first of them; ``alone`` says so of a single file.
    """

    suffixes: tuple[str, ...]
    missing: str
    alone: str = ""


class Kind(Protocol):
    """A kind of source, as far as it may be near."""

    @property
    def what(self) -> str:
        """What it is, in words."""
        ...

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The extensions of its files, if they tell."""
        ...

    @property
    def near(self) -> tuple[Near, ...]:
        """Which other files are near to it."""
        ...


def kind_of(path: str) -> str:
    """Return what is under ``path``, which is not a folder, and what to do; words that follow "found"."""
    if not Path(path).exists():
        return "no file or folder of that name"
    return container_of_others(path) or "a file"


def container_of_others(path: str) -> str:
    """Return the same for a file that another program packed or compressed; "" if it is not known to be one."""
    if not Path(path).is_file():
        return ""
    if path.endswith(_COMPRESSED):
        return "a compressed file: decompress it first, then pack the .tar or the folder in it"
    if known := library_of(path):
        return known
    content, form = content_of(path), named(path)
    if content is not None:
        return f"{content.file}, which fastio did not pack: pack it into a store, as --source-kind {content.name}"
    return "" if form is None else f"a file that is named like {form.file} but is not one: get it again"


@dataclass(frozen=True, slots=True)
class Seen:
    """
    What lies below a path that is of no kind: how many files have each extension, in lower case, and the first of them
    by its path from there. ``is_all`` says whether there are no more.
    """

    path: str
    counts: Counter[str]
    first: Mapping[str, str]
    folders: int
    is_all: bool

    @property
    def files(self) -> int:
        """How many files were seen."""
        return self.counts.total()

    def count(self, suffixes: Collection[str]) -> int:
        """Return how many files have one of these extensions."""
        return sum(self.counts[suffix] for suffix in suffixes)

    def one_of(self, suffixes: Collection[str]) -> str:
        """Return the first file with one of these extensions."""
        return min(self.first[suffix] for suffix in suffixes if suffix in self.first)

    def __str__(self) -> str:
        words = [f"{count:,} {suffix or 'without extension'}" for suffix, count in self.counts.most_common(_SHOWN)]
        more = ["other extensions"] if len(self.counts) > _SHOWN else []
        at_least = "" if self.is_all else "at least "
        where = f" in {counted(self.folders, 'folder')} below it" if self.folders else ""
        return f"{at_least}{counted(self.files, 'file')}{where} ({', '.join([*words, *more])})"


def look(folder: str) -> Seen:
    """Look at the names below a folder, in an order that depends on names alone, up to so many."""
    counts, first, folders = Counter[str](), dict[str, str](), 0
    for path, names, files in os.walk(folder):
        names.sort()
        folders += len(names)
        for name in sorted(files):
            if counts.total() == _MOST_FILES:
                return Seen(folder, counts, first, folders, is_all=False)
            suffix = _suffix(name)
            counts[suffix] += 1
            first.setdefault(suffix, os.path.relpath(f"{path}/{name}", folder))
    return Seen(folder, counts, first, folders, is_all=True)


def holds_pictures(folder: str) -> bool:
    """Return whether a file below a folder is a picture by its name."""
    return any(kind_by_name(name) for _, _, files in os.walk(folder) for name in files)


def _suffix(name: str) -> str:
    return "" if name.startswith(".") and name.count(".") == 1 else Path(plain_name(name)).suffix.lower()


def unknown(path: str, kinds: Sequence[Kind]) -> SourceError:
    """Return the error for what is of none of these kinds: what was seen, and which kinds are nearest to it."""
    if not Path(path).is_dir():
        found = kind_of(path)
        if not Path(path).exists():
            return SourceError(f"{path}: {found}")
        if found != "a file":
            return SourceError(f"{path}: is of no kind that fastio packs: found {found}")
        near = _near_file(path, kinds)
        return SourceError(f"{path}: is of no kind that fastio packs: found {_file_words(path)}{_nearest(near)}")
    seen = look(path)
    if not seen.files:
        inside = f", but for {counted(seen.folders, 'empty folder')}" if seen.folders else ""
        return SourceError(f"{path}: is empty{inside}: there is nothing to pack")
    return SourceError(f"{path}: is of no kind that fastio packs: found {seen}{_nearest(_near_folder(seen, kinds))}")


def _nearest(near: Sequence[str]) -> str:
    if not near:
        return "; fastio pack --help lists the kinds"
    return f"; nearest: {'; or '.join(near[:_MOST_NEAR])}"


def _near_folder(seen: Seen, kinds: Sequence[Kind]) -> list[str]:
    """Kinds that some of the files speak for, those of most files first, each with what is missing."""
    found: list[tuple[int, str]] = []
    owners = {suffix: kind for kind in kinds for suffix in kind.suffixes}
    for kind in kinds:
        for near in (Near(kind.suffixes, "name it, or its folder, as {}"), *kind.near):
            suffixes = [each for each in near.suffixes if owners.get(each, kind) is kind]
            count = seen.count(suffixes)
            if count:
                missing = near.missing.format(seen.one_of(suffixes))
                found.append((count, f"{kind.what}, for {counted(count, 'file')}: {missing}"))
    unnamed = seen.first.get("")
    if unnamed and (content := _content(f"{seen.path}/{unnamed}")):
        found.append((seen.counts[""], f"a folder of images: {unnamed} is {content}, but its name does not say so"))
    every = sorted(found, key=lambda each: -each[0])
    return list(dict.fromkeys(words for _, words in every))


def _near_file(path: str, kinds: Sequence[Kind]) -> list[str]:
    """Kinds that a file would be of by another name."""
    suffix, name = _suffix(Path(path).name), Path(path).name
    near = [
        f"{kind.what}: {(each.alone or each.missing).format(name)}"
        for kind in kinds
        for each in kind.near
        if suffix in each.suffixes
    ]
    content = _content(path)
    if content and not kind_by_name(path):
        near.append(f"a folder of images: this is {content}, but its name does not say so")
    alike = {each: kind for kind in kinds for each in kind.suffixes}
    close = get_close_matches(suffix, alike, 2) if len(suffix) > _SHORTEST else []
    return [*near, *(f"{alike[each].what}, if it is named {each}" for each in close if each != suffix)]


def _content(path: str) -> str:
    """What kind of picture a file is by its first bytes, with its article; "" if it is none."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(32)
    except OSError:
        return ""
    kind = image_kind(np.frombuffer(head, np.uint8))
    return "" if kind == UNKNOWN else f"{PICTURE_KINDS[kind]}"


def _file_words(path: str) -> str:
    """A file by its extension, size and first bytes."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(8)
        length = size(Path(path).stat().st_size)
    except OSError:
        return "a file"
    suffix = _suffix(Path(path).name)
    begins = f" that begins with {shown(str(head)[1:])}" if head else ""
    return f"a {suffix} file of {length}{begins}" if suffix else f"a file without extension, of {length}{begins}"


_SHOWN, _MOST_NEAR, _MOST_FILES, _SHORTEST = 4, 3, 10_000, 3


# Whether a file is a container that another program wrote, by its first bytes and the lack of our seal.


def is_of_others(path: str, name: str) -> bool:
    """Whether the file begins as those of a container in FORMATS do, and fastio has not packed it."""
    if not Path(path).is_file():
        return False
    try:
        form = content_of(path)
        if form is None or form.name != name:
            return False
        with Path(path).open("rb") as file:
            fd = file.fileno()
            find_seal(path, os.fstat(fd).st_size, lambda start, size: os.pread(fd, size, start), form.seal_at)
    except StoreIncomplete:  # no seal; one that contradicts its file is fastio's, of a file that was cut off, say
        return True
    except (OSError, StoreError):
        return False
    return False


def is_container_of_others(path: str) -> bool:
    """
    Return whether a file is a container in FORMATS that another program wrote, which only its own kind of source reads.
    """
    return any(form.foreign is None and is_of_others(path, form.name) for form in FORMATS.values())
