"""Opens the set of a set object, on this machine or behind a URL."""

from __future__ import annotations

from fastio.store.folders import folder_of
from fastio.store.index import SealedStore
from fastio.store.members import open_members
from fastio.store.opened_files import Way
from fastio.store.set_object import read_set
from fastio.store.urls import check_named

__all__ = ["open_set"]


def open_set(path: str, set_object: str, way: Way) -> SealedStore:
    """Open the set of this object, which the user named by ``path``."""
    folder, name = folder_of(set_object, way.remote)
    source = folder.open(name, way.read)
    if way.stage is not None:
        way.stage.use_for_set_object(source)
    found = read_set(source)
    check_named(path, found)
    shards = open_members(found, read=way.read, options=way.remote)
    if way.stage is not None:
        way.stage.use_for_members(shards)
    return SealedStore(
        path, format_name=found.format, shards=shards, opener=way.opener, index=shards.joined, set_object=found
    )
