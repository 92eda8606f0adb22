"""The table of formats. A new container is one file in this folder and one entry here."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fastio.errors import StoreError, StoreNotFound
from fastio.store.formats import hdf5, lmdb, tar, zip_archive
from fastio.store.formats.format import HEAD_BYTES, Format
from fastio.store.listing import visible_names
from fastio.store.sets.names import SET_SUFFIX

__all__ = [
    "FORMATS",
    "content_of",
    "holds_shards",
    "looks_like",
    "named",
    "names_store",
    "of_names",
    "shard_suffixes",
    "suffixes",
]


FORMATS: dict[str, Format] = {form.name: form for form in (lmdb.FORMAT, hdf5.FORMAT, tar.FORMAT, zip_archive.FORMAT)}


def named(path: str) -> Format | None:
    """Return the format that the suffix of this name stands for."""
    return next((form for form in FORMATS.values() if form.is_name(path)), None)


def content_of(path: str | Path) -> Format | None:
    """Return the format of a file by its first bytes, which others may have written. Raises OSError."""
    with Path(path).open("rb") as file:
        return looks_like(file.read(HEAD_BYTES))


def looks_like(head: bytes, *, likely: Format | None = None) -> Format | None:
    """
    The format of a file that begins with these HEAD_BYTES.

    ``likely`` wins if several formats fit: a member of an archive may begin where another format has its mark.
    """
    formats = [*([likely] if likely else []), *FORMATS.values()]
    return next((form for form in formats if form.is_content(head)), None)


def of_names(folder: str, names: Iterable[str]) -> Format:
    """
    Return the format of the shards in a folder that holds files of these names. Raises StoreNotFound if there are none,
    StoreError if formats are mixed.
    """
    held = _held(names)
    if not held:
        raise StoreNotFound(f"{folder}: a folder without {' or '.join(shard_suffixes())} shards: name a store")
    if len(held) > 1:
        kinds = " and ".join(form.suffixes[0] for form in held)
        raise StoreError(f"{folder}: holds {kinds} files: name the shards, e.g. name-*{held[0].suffixes[0]}")
    return held[0]


def holds_shards(folder: str | Path) -> bool:
    """Return whether a folder holds shards, or a set object that lists some, which makes it a store."""
    names = visible_names(folder)
    return bool(_held(names)) or any(name.endswith(SET_SUFFIX) for name in names)


def names_store(path: str) -> bool:
    """
    Return whether a path names a store: by a suffix of one of FORMATS or of a set object, or as a folder of shards.
    """
    return holds_shards(path) if Path(path).is_dir() else path.endswith(SET_SUFFIX) or named(path) is not None


def suffixes() -> str:
    """Return all suffixes, for messages: ``.lmdb, .h5, .hdf5, .tar``."""
    return ", ".join(suffix for form in FORMATS.values() for suffix in form.suffixes)


def shard_suffixes() -> list[str]:
    """Return the suffixes of formats whose stores may consist of several files."""
    return [suffix for form in FORMATS.values() if form.has_shards for suffix in form.suffixes]


def _held(names: Iterable[str]) -> list[Format]:
    names = list(names)
    return [form for form in FORMATS.values() if form.has_shards and any(map(form.is_name, names))]
