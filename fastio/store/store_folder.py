"""StoreFolder, the protocol: files by name, on this machine or in an object store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fastio.errors import StoreError
from fastio.store import formats
from fastio.store.files import ByteSource, Read
from fastio.store.files.local import is_local
from fastio.store.index.seal import SEAL_SIZE, always_at, read_seal
from fastio.store.index.sealed import file_crc, seal_of

__all__ = ["FolderEntry", "StoreFolder", "is_same_file", "other_version"]


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """One file of a folder."""

    name: str
    size: int


class StoreFolder(Protocol):
    """Files by name. Names have no slash; what begins with a dot is not listed."""

    @property
    def path(self) -> str:
        """As the user named it; "." for none."""
        ...

    def full(self, name: str) -> str:
        """Return the path or URL of a file here; an absolute name stays as it is."""
        ...

    def entries(self) -> Mapping[str, FolderEntry]:
        """Return the files here by name, sorted. Raises StoreError if that cannot be listed."""
        ...

    def names(self) -> list[str]:
        """Return the names of the files here, sorted; none for what is no folder of this machine."""
        ...

    def open(self, name: str, read: Read = "auto") -> ByteSource:
        """Raises StoreNotFound for a missing file."""
        ...

    def etag(self, name: str) -> str | None:
        """Return what tells this version of a file from any other, as in HTTP; None for a missing file."""
        ...

    def put(self, name: str, file: Path, *, replace: bool = False, etag: str | None = None) -> None:
        """
        Give a copy of a packed file this name, at once: others see all of it or nothing, and it survives a crash.

        It replaces nothing, with ``replace`` whatever is there, with ``etag`` that version only. If a file
        is in the way, but has the same bytes, nothing changes; for any other, StoreError is raised.
        """
        ...

    def remove(self, name: str) -> None:
        """Remove a file; one that is not there is no error."""
        ...


def other_version(path: str) -> StoreError:
    """Return the error for a file that is not the version that was to be replaced."""
    return StoreError(f"{path}: was replaced by another process meanwhile: look what it holds, then run this again")


def is_same_file(folder: StoreFolder, name: str, file: Path) -> bool:
    """Whether the file of this name is whole, every byte of it, and has the seal of the local one."""
    form = formats.named(name)
    seal_at = always_at(-SEAL_SIZE) if form is None else form.seal_at
    expected = read_seal(str(file), seal_at)
    if expected is None:
        return False
    try:
        other = folder.open(name, "pread" if is_local(folder.path) else "auto")  # of a failing disk, see open_damaged
        try:
            return seal_of(other, seal_at) == expected and file_crc(other, expected) == expected.file_crc
        finally:
            other.release()
    except StoreError:
        return False
