"""Which set object a path of this machine stands for; ``urls.py`` does the same for URLs."""

from __future__ import annotations

import fnmatch
import glob
import os
from pathlib import Path
from typing import TYPE_CHECKING

from fastio.errors import StoreError, StoreNotFound
from fastio.store.listing import visible_names
from fastio.store.set_names import SET_SUFFIX, set_path
from fastio.store.target import number_pattern, ranged

if TYPE_CHECKING:
    from fastio.store.set_object import SetObject

__all__ = ["current_set", "set_of_path"]


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
    from fastio.store.set_object import read_set

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
