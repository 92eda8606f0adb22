"""What a path given by a user means: which format it names, and which files it stands for."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from fastio.errors import StoreError, StoreNotFound
from fastio.store import formats
from fastio.store.format import Format
from fastio.store.listing import check_no_journal, visible_names

__all__ = ["NUMBER", "expand", "format_of", "match_format", "number_pattern", "ranged", "target_format"]

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
