"""Where a store's bytes come from: the table of kinds, and the two functions that open files by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastio.errors import StoreError
from fastio.store.files import mapped, pread, remote
from fastio.store.files.byte_source import ByteSource, Fetched, Kind, Prefetch, Read, StoreFiles
from fastio.store.files.late import kinds_of
from fastio.store.files.listed import ListedFiles, ListedFolder
from fastio.store.files.mapped_folder import MappedFiles, MappedFolder
from fastio.store.files.remote_options import DEFAULT, Remote

__all__ = [
    "KINDS",
    "ByteSource",
    "Fetched",
    "Kind",
    "Prefetch",
    "Read",
    "StoreFiles",
    "check_read",
    "files_of",
    "kind_of",
    "open_file",
]

# With read="auto" the first kind that claims a path reads it.
KINDS: dict[str, Kind] = {each.name: each for each in (remote.KIND, pread.KIND, mapped.KIND)}

# Of many files, which are listed, and no path opens them.
_FOLDERS: dict[str, Callable[[Sequence[Any]], StoreFiles]] = {
    ListedFolder.kind: ListedFiles,
    MappedFolder.kind: MappedFiles,
}


def check_read(read: str) -> None:
    """Raise ValueError if there is no such way to read."""
    if read != "auto" and read not in KINDS:
        known = ", ".join(map(repr, ["auto", *sorted(KINDS)]))
        raise ValueError(f"read={read!r}: expected one of {known}")


def open_file(path: str, read: Read = "auto", options: Remote = DEFAULT) -> ByteSource:
    """
    Open a file for reading, by the kind named, or with "auto" by the first that claims the path. ``options`` are for
    URLs.

    Raises StoreNotFound for a missing file, and StoreError for one that cannot be opened.
    """
    return KINDS[kind_of(path, read)].open(path, options)


def kind_of(path: str, read: Read = "auto") -> str:
    """Return the kind that reads a file: ``read``, or with "auto" the first that claims the path. Raises StoreError."""
    check_read(read)
    if read != "auto":
        return read
    name = next((name for name, kind in KINDS.items() if kind.claims(path)), None)
    if name is None:
        raise StoreError(
            f"{path}: expected a file of this machine; nothing here reads from {path.partition('://')[0]}://"
        )
    return name


def files_of(sources: Sequence[ByteSource]) -> StoreFiles:
    """The files of one store, or of several that are read as one; StoreError if no kind can read all of them."""
    names = kinds_of(sources)
    for folder, files in _FOLDERS.items():
        if names == {folder}:
            return files(sources)
    for name in (*names, *reversed(KINDS)):  # its own kind first; mapped ones for no sources
        if names.isdisjoint(_FOLDERS) and names <= KINDS[name].joins | {name}:
            return KINDS[name].files(sources)
    first = sources[0]
    other = next(source for source in sources if source.kind != first.kind)
    raise StoreError(
        f"{other.path}: is read by {other.kind!r} and {first.path} by {first.kind!r}, which cannot be joined; "
        f"copy both to one place"
    )
