"""Files and folders that cannot be packed as they are: what they are, and what to do instead."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from fastio.errors import StoreError
from fastio.store.foreign.other_libraries import library_of
from fastio.store.formats import content_of, named
from fastio.store.index.seal import read_seal

__all__ = [
    "container_of_others",
    "folder_kind",
    "is_of_others",
    "kind_of",
]


_COMPRESSED = (".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar")


def kind_of(path: str) -> str:
    """Return what is under ``path``, which is not a folder, and what to do; words that follow "found"."""
    if not Path(path).exists():
        return "no file or folder of that name"
    return container_of_others(path) or "a file"


def container_of_others(path: str) -> str:
    """Return the same for a file that another program packed or compressed; "" if it is not known to be one."""
    if not Path(path).is_file():
        return ""
    if path.endswith(_COMPRESSED):
        return "a compressed file: decompress it first, then pack the .tar or the folder in it"
    if known := library_of(path):
        return known
    content, form = content_of(path), named(path)
    if content is not None:
        return f"{content.file}, which fastio did not pack: pack it into a store, as --source-kind {content.name}"
    return "" if form is None else f"a file that is named like {form.file} but is not one: get it again"


def folder_kind(names: Collection[str]) -> str:
    """Return what a folder with these files is, if it is not a dataset; words that follow "found"."""
    stores = [name for name in names if named(name) is not None]
    return f"{', '.join(stores[:3])}: name one of them, to pack that store" if stores else ""


# Whether a file is a container that another program wrote, by its first bytes and the lack of our seal.


def is_of_others(path: str, name: str) -> bool:
    """Whether the file begins as those of a container in FORMATS do, and fastio has not packed it."""
    if not Path(path).is_file():
        return False
    try:
        form = content_of(path)
        return form is not None and form.name == name and read_seal(path, form.seal_at) is None
    except (OSError, StoreError):
        return False
