"""A packed store of any format as a source: its fields, labels and metadata stay the same."""

from __future__ import annotations

from pathlib import Path

from fastio.converters.kind import SourceKind, SourceOptions, SourcePath
from fastio.converters.listed import ListedSource
from fastio.converters.other_containers import kind_of
from fastio.errors import SourceError
from fastio.store.formats import holds_shards, named, shard_suffixes, suffixes
from fastio.store.set_names import SET_SUFFIX

__all__ = ["KIND", "names_store"]


def names_store(path: str) -> bool:
    """
    Return whether a path names a store, by the store layer's rules: a suffix of one of FORMATS or of a set object, or
    a folder of shards.
    """
    return holds_shards(path) if Path(path).is_dir() else path.endswith(SET_SUFFIX) or named(path) is not None


def _open(place: SourcePath, options: SourceOptions) -> ListedSource:
    if not names_store(place.path):
        found = "a folder without shards" if place.is_folder else kind_of(place.path)
        raise SourceError(f"{place.path}: expected a packed store ({suffixes()}, or a folder of shards), found {found}")
    from fastio.converters.stored_source import open_stored

    return open_stored(place, options)


def _signs(place: SourcePath) -> str:
    """Recognise the name of a store, or shards in a folder. A folder is listed again only if a name looks like one."""
    if not place.is_folder:
        return "a packed store" if names_store(place.path) else ""
    top = place.top
    may_hold = any(suffix in each.key for each in (*top.problems, *top.left_out) for suffix in shard_suffixes())
    return "shards of a store" if may_hold and holds_shards(place.path) else ""


KIND = SourceKind(
    name="store",
    what="a packed store",
    signs=_signs,
    open=_open,
    own_labels="a packed store has its own labels",
    takes_fields=True,
    takes_without=True,
    aliases=("tar", "webdataset"),
)
