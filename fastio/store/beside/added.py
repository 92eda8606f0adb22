"""
Fields that ``fastio add-field`` adds to a store: those of a call are a store in the folder ``NAME.fields`` beside it.

    photos.lmdb                      photos.fastio-set, photos-000000.tar, ...
    photos.lmdb.fields/              photos.fastio-set.fields/
        caption+score.lmdb               latents.fastio-set, latents-000000.tar, ...
        latents.lmdb

Its samples are those of the first store, in the same order and with the same keys; its metadata say to which content
it was added, its name which fields it has. A file or a set object appears when it is complete, so the names in the
folder say which fields there are, and those that were added together are there together.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from fastio.errors import StoreError
from fastio.store.address import Address
from fastio.store.files.local import expanded, is_local
from fastio.store.formats import named
from fastio.store.index.store import SealedStore
from fastio.store.protocol import IN_PLACE
from fastio.store.sets.names import SET_SUFFIX

__all__ = [
    "FIELDS_SUFFIX",
    "added_stores",
    "added_to",
    "fields_folder",
    "joined_name",
    "last_added_to",
    "names_joined",
    "open_added",
    "path_of_added",
]

FIELDS_SUFFIX = ".fields"
_JOINED = "+"  # between the names of fields
_NAMES = re.compile(r"[a-z][a-z0-9_]*(\+[a-z][a-z0-9_]*)*")  # the names of shards have a number behind
_ADDED_TO: Final = "added_to"


def fields_folder(path: str, *, in_place: bool = False) -> str | None:
    """
    Return the folder of the fields that are added to the store at ``path``: beside its file or folder, or beside its
    set object. A folder that is read ``in_place`` has no set object. None for a store behind a URL, and for shards that
    no set object lists.
    """
    path = expanded(path)
    if not is_local(path):
        return None
    place = path if in_place else Address.parse(path).set_object() or path
    return f"{os.path.realpath(place)}{FIELDS_SUFFIX}" if os.path.lexists(place) else None


def path_of_added(set_object: str, joined: str) -> str:
    """Return the path of the set object of fields that are added to a set, by their ``joined_name``."""
    return f"{os.path.realpath(set_object)}{FIELDS_SUFFIX}/{joined}{SET_SUFFIX}"


def joined_name(names: Iterable[str]) -> str:
    """
    Return the name of the store of fields that are added together, the same in whichever order they are named.

    >>> joined_name(["score", "caption"])
    'caption+score'
    """
    return _JOINED.join(sorted(names))


def names_joined(joined: str) -> list[str]:
    """Return the names of the fields of such a store."""
    return joined.split(_JOINED)


def added_stores(path: str, *, in_place: bool = False) -> dict[str, str]:
    """
    Return the paths of the stores that hold the fields added to the store at ``path``, by ``joined_name`` of these.

    Raises StoreError for a field that two of them have.
    """
    folder = fields_folder(path, in_place=in_place)
    try:
        names = sorted(each.name for each in Path(folder).iterdir()) if folder is not None else []
    except (FileNotFoundError, NotADirectoryError):
        return {}
    stores: dict[str, str] = {}
    holders: dict[str, str] = {}
    for name in names:
        joined = name.partition(".")[0]
        if _NAMES.fullmatch(joined) and (name == f"{joined}{SET_SUFFIX}" or named(name) is not None):
            if joined in stores and _lists(stores[joined], name):
                continue
            stores[joined] = place = f"{folder}/{name}"
            for field in names_joined(joined):
                if field in holders:
                    raise StoreError(
                        f"{place}: is the field {field!r} once more, beside {holders[field]}: remove one of them"
                    )
                holders[field] = place
    return stores


def _lists(store: str, name: str) -> bool:
    """Whether a file beside a set object is one of its shards, as in the copy of a set that was merged of files."""
    if not store.endswith(SET_SUFFIX):
        return False
    from fastio.store.sets.set_object import current_set  # with what stores without added fields do without

    known = current_set(store)
    return known is not None and any(member.name == name for member in known.members)


def open_added(store: SealedStore, path: str, open_one: Callable[[str], SealedStore]) -> list[SealedStore]:
    """
    Open the stores of the fields that were added to ``store``, which ``path`` names.

    Raises StoreError for one that was added to other content than the store now has.
    """
    opened: list[SealedStore] = []
    try:
        for joined, place in added_stores(path, in_place=store.format == IN_PLACE).items():
            opened.append(open_one(place))
            if last_added_to(opened[-1]) != added_to(store.identity, len(store))[_ADDED_TO]:
                raise StoreError(
                    f"{place}: was added to other samples than {path} holds now: add {' '.join(names_joined(joined))} "
                    "to those that a set has got since (fastio add-field --append), add it anew (--overwrite), or "
                    "remove this file"
                )
    except BaseException:
        for each in opened:
            each.close()
        raise
    return opened


def last_added_to(field: SealedStore) -> Any:
    """Return what fields were last added to: a merged set says it itself; of one that has grown, each part does."""
    known = field.metadata
    if _ADDED_TO in known:
        return known[_ADDED_TO]
    *_, last = known.get("merged") or [{"metadata": {}}]
    return last["metadata"].get(_ADDED_TO)


def added_to(identity: int, samples: int) -> Mapping[str, Any]:
    """Return the metadata of fields that are added to a store of this content, which say to what."""
    return {_ADDED_TO: {"identity": identity, "samples": samples}}
