"""The files of one set: a single file, a pattern, or those in a folder; their splits, and which of them are missing."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fastio.errors import SourceError
from fastio.store.kinds.names import NUMBERED, is_result, matching, part_of, plain_name
from fastio.store.kinds.scan import (
    Folder,
    Problem,
    SourcePath,
    Wanted,
    is_hidden,
    junk_reason,
    scan_folder,
    scan_root,
    shown,
)

__all__ = [
    "FileSet",
]


_NOTES = frozenset(["dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "features.json"])
_SHOWN = 10


def _note(name: str) -> str:
    if is_result(name):
        return "is a result that datasets keeps in its cache"
    return junk_reason(name) or ("is a note about the data" if name in _NOTES else "")


@dataclass(frozen=True, slots=True)
class FileSet:
    """
    Files in one ``folder``, sorted by name, all of one set.

    ``problems`` are other files, and numbers missing in names such as ``train-00000-of-00005.parquet``; ``left_out``
    are notes about the data. ``listed`` are the folders that were looked into, see ``Folder``.
    """

    folder: str
    names: Sequence[str]
    size_bytes: int
    disk_bytes: int
    problems: Sequence[Problem] = ()
    left_out: Sequence[Problem] = ()
    listed: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        place: SourcePath,
        is_wanted: Callable[[str], bool],
        what: str,
        extensions: str,
        *,
        leaves_out: Callable[[str], str] | None = _note,
    ) -> FileSet:
        """
        Return the file at ``place``, those that its pattern matches, or those in the folder whose names are wanted.
        ``leaves_out`` says why another file is no problem; None: each is one.

        Wanted files all in one folder below (``data``) are taken from there. Raises SourceError if there are none, or
        if their names are those of several splits.
        """
        if not place.is_folder:
            paths = matching(place.path)
            if not paths or not all(map(os.path.isfile, paths)):
                raise SourceError(f"{place.path}: expected {what} ({extensions}), found no such file")
            folders = {str(Path(path).parent) for path in paths}
            if len(folders) > 1:
                raise SourceError(f"{place.path}: matches files in several folders: {_listed(sorted(folders))}")
            status = [Path(path).stat() for path in paths]
            sizes = sum(each.st_size for each in status), sum(each.st_blocks * 512 for each in status)
            return cls(folders.pop(), [Path(path).name for path in paths], *sizes)
        wanted = Wanted(lambda name: int(is_wanted(name)), what, extensions, leaves_out)
        folder, found = _holding(place, wanted)
        drop_twins(found)
        parts = Counter(part for name in found.keys if (part := part_of(name)))
        if len(parts) > 1:
            counts = [f"{part} ({count} file{'s' * (count > 1)})" for part, count in parts.items()]
            raise SourceError(f"{place.path}: holds several splits, {_listed(counts)}: choose one with --split")
        beside = [
            Problem(shown(name), f"is a folder beside {_plural(what)}") for name in found.folders if not is_hidden(name)
        ]
        problems = [*found.problems, *beside, *_missing(found.keys)]
        return cls(folder, found.keys, sum(found.sizes), found.disk_bytes, problems, found.left_out, found.listed)

    def place(self, name: str) -> str:
        """Return the path of a file."""
        return str(Path(self.folder) / name)


def drop_twins(found: Folder) -> list[bool]:
    """
    Turn files that exist both plain and compressed into problems, except the first; returns whether each file stays.
    """
    taken: set[str] = set()
    stays = []
    for name in found.keys:
        stays.append(plain_name(name) not in taken)
        taken.add(plain_name(name))
        if not stays[-1]:
            problem = "exists both plain and compressed, or compressed twice: remove one"
            found.problems.append(Problem(shown(name), problem))
    found.keep(stays)
    return stays


def _plural(what: str) -> str:
    """Return "Arrow files" for "an Arrow file"."""
    return f"{what.partition(' ')[2]}s"


def _holding(place: SourcePath, wanted: Wanted) -> tuple[str, Folder]:
    """The folder that holds the files, and what is in it: ``place``, or the only one below that holds some."""
    top = scan_root(place.path, wanted)
    if top.keys:
        return place.path, top
    below = {name: scan_folder(f"{place.path}/{name}", "", wanted) for name in top.folders if not is_hidden(name)}
    holding = [name for name, folder in below.items() if folder.keys]
    if not holding:
        raise SourceError(f"{place.path}: expected {wanted.what} ({wanted.extensions}), found none")
    if len(holding) > 1:
        raise SourceError(
            f"{place.path}: {_listed(holding)} each hold {_plural(wanted.what)}: name one of these folders, or --split "
            "it"
        )
    found = below[holding[0]]
    for folder in below.values():
        found.listed |= folder.listed
    found.add(Folder(problems=top.problems, left_out=top.left_out, listed=top.listed, disk_bytes=top.disk_bytes))
    return f"{place.path}/{holding[0]}", found


def _missing(names: Sequence[str]) -> list[Problem]:
    """A problem for each number that names such as ``a-00000-of-00005`` lack."""
    there = [match for name in names if (match := NUMBERED.match(name))]
    problems = []
    sets = {(each["part"], each["count"], each["rest"], len(each["number"])): each for each in there}
    for key, each in sets.items():
        numbers = {int(other["number"]) for other in there if (other["part"], other["count"], other["rest"]) == key[:3]}
        if int(each["count"]) > 10 * len(names) + 1000:
            continue  # a number of another kind
        for number in sorted(set(range(int(each["count"]))) - numbers):
            start, stop = each.span("number")
            name = f"{each.string[:start]}{number:0{stop - start}d}{each.string[stop:]}"
            problems.append(Problem(shown(name), "is missing: the names of the others count it"))
    return problems


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:_SHOWN])}{', ...' if len(names) > _SHOWN else ''}"
