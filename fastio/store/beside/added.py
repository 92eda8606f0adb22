"""
Fields that ``fastio add-field`` adds to a store: each is a store of its own in the folder ``NAME.fields`` beside it.

    photos.lmdb                      photos.fastio-set, photos-000000.tar, ...
    photos.lmdb.fields/              photos.fastio-set.fields/
        latents.lmdb                     latents.fastio-set, latents-000000.tar, ...

Its samples are those of the first store, in the same order and with the same keys; its metadata say to which content
it was added. A file or a set object appears when it is complete, so the names in the folder say which fields there are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from fastio.errors import StoreError
from fastio.store.address import Address
from fastio.store.files.local import expanded, is_local
from fastio.store.formats import named
from fastio.store.index.store import SealedStore
from fastio.store.protocol import IN_PLACE
from fastio.store.sets.names import SET_SUFFIX

__all__ = ["FIELDS_SUFFIX", "added_fields", "added_to", "fields_folder", "last_added_to", "open_added"]

FIELDS_SUFFIX = ".fields"
_NAME = re.compile(r"[a-z][a-z0-9_]*")  # of a field; the names of shards have a number behind
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


def added_fields(path: str, *, in_place: bool = False) -> dict[str, str]:
    """Return the fields that were added to the store at ``path``, by name, and the paths of what holds them."""
    folder = fields_folder(path, in_place=in_place)
    try:
        names = sorted(each.name for each in Path(folder).iterdir()) if folder is not None else []
    except (FileNotFoundError, NotADirectoryError):
        return {}
    found: dict[str, str] = {}
    for name in names:
        stem = name.partition(".")[0]
        if _NAME.fullmatch(stem) and (name == f"{stem}{SET_SUFFIX}" or named(name) is not None):
            place = f"{folder}/{name}"
            if stem in found:
                raise StoreError(f"{place}: is the field {stem!r} once more, beside {found[stem]}: remove one of them")
            found[stem] = place
    return found


def open_added(store: SealedStore, path: str, open_one: Callable[[str], SealedStore]) -> list[SealedStore]:
    """
    Open the stores of the fields that were added to ``store``, which ``path`` names.

    Raises StoreError for one that was added to other content than the store now has.
    """
    opened: list[SealedStore] = []
    try:
        for name, place in added_fields(path, in_place=store.format == IN_PLACE).items():
            opened.append(open_one(place))
            if last_added_to(opened[-1]) != added_to(store)[_ADDED_TO]:
                raise StoreError(
                    f"{place}: was added to other samples than {path} holds now: add the field {name!r} to those that "
                    "a set has got since (fastio add-field --append), add it anew (--overwrite), or remove this file"
                )
    except BaseException:
        for each in opened:
            each.close()
        raise
    return opened


def last_added_to(field: SealedStore) -> Any:
    """Return what a field was last added to: of one that has grown, each part says it of its own time."""
    parts = field.metadata.get("merged") or [{"metadata": field.metadata}]
    return parts[-1]["metadata"].get(_ADDED_TO)


def added_to(store: SealedStore) -> Mapping[str, Any]:
    """Return the metadata of a field that is added to this store, which say to what."""
    return {_ADDED_TO: {"identity": store.identity, "samples": len(store)}}
