"""What a path or URL given by a user means: which format it names, which files, and which set object."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from fastio.errors import StoreError, StoreNotFound
from fastio.store import formats
from fastio.store.files.remote_options import RemoteOptions
from fastio.store.folders import folder_of
from fastio.store.formats.format import Format
from fastio.store.listing import check_no_journal, visible_names
from fastio.store.sets.names import SET_SUFFIX, set_path
from fastio.store.sets.set_object import SetObject

__all__ = [
    "NUMBER",
    "check_named",
    "current_set",
    "expand",
    "format_of",
    "match_format",
    "number_pattern",
    "set_of_path",
    "set_of_url",
    "shards_of_url",
    "target_format",
]


NUMBER = re.compile(r"%(?:0(\d+))?d")  # %06d or %d
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_MAX_RANGE = 1_000_000


def format_of(path: str | os.PathLike[str]) -> str:
    """Return the name in FORMATS for a path's suffix. Raises StoreError for an unknown suffix."""
    return match_format(os.fspath(path)).name


def match_format(path: str) -> Format:
    """Return the format of a store to read: by its suffix, or by the shards in the folder of this name."""
    form = formats.named(os.path.basename(os.path.normpath(path)))  # noqa: PTH119 - pathlib would read a glob's slashes alike
    if form is not None:
        return form
    if Path(path).is_dir():
        return formats.of_folder(path)
    expected = f"expected a name that ends in one of {formats.suffixes()}, or a folder of shards"
    if not os.path.lexists(path):
        raise StoreNotFound(f"{path}: no such file or folder; {expected}")
    raise StoreError(f"{path}: {expected}")


def target_format(path: str) -> Format:
    """Return the format of a file to write, by its suffix."""
    form = formats.named(path)
    if form is None:
        shards = formats.shard_suffixes()[0]
        raise StoreError(
            f"{path}: expected a name that ends in one of {formats.suffixes()}; shards are named name-%06d{shards}"
        )
    return form


def expand(path: str, form: Format) -> list[str]:
    """
    Return the files behind a path: itself, ``{000000..000009}``, ``%06d``, a glob, or a folder of this format's
    shards.

    They are sorted by the shards' names. Raises StoreNotFound if a pattern finds nothing; files of a brace range need
    not exist. Raises StoreError if an older fastio was killed while it gave these files their names.
    """
    files = _expanded(path, form)
    check_no_journal(files[0])
    return files


def _expanded(path: str, form: Format) -> list[str]:
    if Path(path).is_dir():
        return _matching([path], form.is_name, f"{path}: a folder without {form.name} shards: name a store")
    if os.path.lexists(path):
        return [path]
    shards = ranged(path)
    if shards is not None:
        return shards
    folder, name = os.path.split(path)
    pattern = number_pattern(name)
    if pattern is not None:
        check_no_journal(path)
        return _matching(
            [folder],
            lambda name: pattern.fullmatch(name) is not None,
            f"{path}: no such shards: check the name, or pack the dataset first",
        )
    if glob.has_magic(path):
        matches = re.compile(fnmatch.translate(name)).match
        folders = glob.glob(folder) if glob.has_magic(folder) else [folder]  # noqa: PTH207 - keeps "./"
        return _matching(folders, lambda name: matches(name) is not None, f"{path}: matches no file: check the pattern")
    return [path]


def ranged(path: str) -> list[str] | None:
    """
    Return the paths that a range of numbers in braces stands for; None without one.

    >>> ranged("s3://bucket/in-{08..10}.tar")
    ['s3://bucket/in-08.tar', 's3://bucket/in-09.tar', 's3://bucket/in-10.tar']
    """
    braces = _RANGE.search(path)
    if braces is None:
        return None
    first, last = int(braces[1]), int(braces[2])
    if not 0 <= last - first < _MAX_RANGE:
        raise StoreError(f"{path}: expected an ascending range of at most {_MAX_RANGE} shards, got {braces[0]}")
    width = len(braces[1])
    return [f"{path[: braces.start()]}{i:0{width}d}{path[braces.end() :]}" for i in range(first, last + 1)]


def number_pattern(name: str) -> re.Pattern[str] | None:
    """
    Return a regular expression for the names that one with ``%06d`` or ``%d`` stands for; its group is the number.

    None for another name.
    """
    number = NUMBER.search(name)
    if number is None:
        return None
    digits = rf"(\d{{{number[1]},}})" if number[1] else r"(0|[1-9]\d*)"
    before, after = re.escape(name[: number.start()]), re.escape(name[number.end() :])
    return re.compile(before + digits + after)


def _matching(folders: Sequence[str], is_meant: Callable[[str], bool], message: str) -> list[str]:
    """Return the shards whose names are meant, in the order of their paths."""
    paths = [
        os.path.join(folder, name)  # noqa: PTH118 - keeps "./"
        for folder in folders
        for name in visible_names(folder or ".")
        if is_meant(name)
    ]
    if not paths:
        raise StoreNotFound(message)
    return sorted(paths)


# Which set object a path of this machine stands for; ``address.py`` does the same for URLs.


def set_of_path(path: str) -> str | None:
    """
    Return the set object that makes a store of what a path names; None if there is none.

    It lies beside the shards of a pattern and has their name without the number. Another set object is meant if a
    glob matches all of its shards, or if it is the only one in the folder of this name. Raises StoreError if several
    are meant, or only a part of one.
    """
    if path.endswith(SET_SUFFIX):
        return path
    if Path(path).is_dir():
        return _only_set(path)
    if os.path.lexists(path):
        return None
    if ranged(path) is not None or number_pattern(os.path.basename(path)) is not None:  # noqa: PTH119
        named = set_path(path)
        return named if os.path.lexists(named) else None
    return _set_of_glob(path) if glob.has_magic(path) else None


def current_set(path: str, *, with_index: bool = False) -> SetObject | None:
    """
    Return the set object of this local path, None if there is none; without the index only its list of shards.

    Raises StoreError if it cannot be read.
    """
    from fastio.store.folders import LocalFolder
    from fastio.store.sets.set_object import read_set

    try:
        return read_set(LocalFolder(str(Path(path).parent)).open(Path(path).name), with_index=with_index)
    except StoreNotFound:
        return None


def _only_set(folder: str) -> str | None:
    names = [name for name in visible_names(folder) if name.endswith(SET_SUFFIX)]
    if len(names) > 1:
        raise StoreError(f"{folder}: holds {len(names)} sets: name one of {', '.join(names)}")
    return os.path.join(folder, names[0]) if names else None  # noqa: PTH118 - keeps "./"


def _set_of_glob(path: str) -> str | None:
    folder, name = os.path.split(path)
    folders = glob.glob(folder) if glob.has_magic(folder) else [folder]  # noqa: PTH207 - keeps "./"
    meant = [each for parent in sorted(folders) for each in _sets_of_glob(parent, name)]
    if len(meant) > 1:
        raise StoreError(f"{path}: matches shards of {len(meant)} sets: open one, e.g. {meant[0]}")
    return meant[0] if meant else None


def _sets_of_glob(folder: str, name: str) -> list[str]:
    """Return the set objects of a folder of which a glob matches shards. Raises StoreError if it matches some only."""
    names = visible_names(folder or ".")
    objects = [each for each in names if each.endswith(SET_SUFFIX)]
    matched = set(fnmatch.filter(names, name)) if objects else set()
    meant = []
    for each in objects:
        path = os.path.join(folder, each)  # noqa: PTH118 - keeps "./"
        known = current_set(path)
        listed = {member.name for member in known.members} if known is not None else set()
        if listed & matched and not listed <= matched:
            raise StoreError(
                f"{os.path.join(folder, name)}: matches {len(listed & matched)} of the {len(listed)} shards of {path}: "  # noqa: PTH118
                "open the set by that name"
            )
        if listed & matched or each == os.path.basename(set_path(name)):  # noqa: PTH119
            meant.append(path)
    return meant


# What a URL given by a user means: a set object, one file, or shards named by a range of numbers or a listing.

_WEB = ("http://", "https://")  # servers that cannot be asked for the names in a folder
_WILDCARD = re.compile(r"[*?\[]")
_WEB_WILDCARD = re.compile(r"[*\[]")  # "?" begins a query there


def set_of_url(url: str, options: RemoteOptions) -> str | None:
    """
    Return the set object that makes a store of what a URL names, or None if no set object is meant.

    That of a pattern need not exist. A folder is listed: its only set object is meant. Raises StoreError if there are
    several.
    """
    if url.endswith(SET_SUFFIX):
        return url
    if _is_pattern(url):
        return set_path(url)
    if formats.named(url) is not None:
        return None
    folder = url.rstrip("/")
    objects = [name for name in _names(folder, url, options) if name.endswith(SET_SUFFIX)]
    if len(objects) > 1:
        raise StoreError(f"{url}: holds {len(objects)} sets: name one of {', '.join(objects)}")
    return f"{folder}/{objects[0]}" if objects else None


def shards_of_url(url: str, options: RemoteOptions) -> tuple[Format, list[str]]:
    """
    Return the files that a URL names where no set object lists them, in the order of their names, and their format.

    Raises StoreNotFound if there are none; those of a range of numbers are not looked for.
    """
    form, shards = formats.named(url), ranged(url)
    if form is None:
        folder = url.rstrip("/")
        if _is_pattern(url):
            raise StoreError(f"{url}: expected a name that ends in one of {formats.suffixes()}")
        names = _names(folder, url, options)
        if not names:
            raise StoreNotFound(
                f"{url}: holds nothing: check the name; a store there is named by its file or its folder"
            )
        form = formats.of_names(url, names)
        return form, [f"{folder}/{name}" for name in names if form.is_name(name)]
    if shards is not None or not _is_pattern(url):
        return form, [url] if shards is None else shards
    folder, _, name = url.rpartition("/")
    if _WILDCARD.search(folder):
        raise StoreError(f"{url}: only the last part of a URL may hold a pattern: name the folder")
    pattern = number_pattern(name) or re.compile(fnmatch.translate(name))
    names = [each for each in _names(folder, url, options) if pattern.fullmatch(each)]
    if not names:
        raise StoreNotFound(f"{url}: no such shards: check the name, or pack the dataset first")
    return form, [f"{folder}/{each}" for each in names]


def check_named(url: str, set_object: SetObject) -> None:
    """
    Raise StoreError if the shards that a URL names are not those of the set object beside them: if they are of another
    format, or a range of numbers names others.
    """
    form, shards = formats.named(url), ranged(url)
    if form is not None and form.name != set_object.format:
        raise StoreError(f"{url}: {set_object.path} is a set of {set_object.format} shards: open it by that name")
    if shards is None:
        return
    names = {shard.rpartition("/")[2] for shard in shards}
    listed = {member.name.rpartition("/")[2] for member in set_object.members}
    if names != listed:
        raise StoreError(
            f"{url}: names {len(names)} shards, of which {len(names & listed)} are among the {len(listed)} of the set "
            f"{set_object.path}: open the set by that name"
        )


def _is_pattern(url: str) -> bool:
    """Whether a URL names shards by ``{000000..000009}``, ``%06d`` or wildcards."""
    wildcard = _WEB_WILDCARD if url.startswith(_WEB) else _WILDCARD
    has_number = number_pattern(url.rpartition("/")[2]) is not None
    return has_number or wildcard.search(url) is not None or ranged(url) is not None


def _names(folder: str, url: str, options: RemoteOptions) -> list[str]:
    """Return the names of the objects in the folder that this URL means, sorted."""
    if folder.startswith(_WEB):
        raise StoreError(
            f"{url}: a web server does not list its files: name the set object (name{SET_SUFFIX}), one file, or the "
            "shards by a range, name-{000000..000009}.tar"
        )
    return list(folder_of(f"{folder}/", options)[0].entries())
