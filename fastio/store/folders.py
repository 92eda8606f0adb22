"""Folders of files, on this machine or in an object store: where shards and set objects lie."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from fastio.errors import StoreError, StoreNotFound
from fastio.store import formats
from fastio.store.atomic import PartialFile, exists, sync_folder, writing
from fastio.store.files import ByteSource, Read, open_file
from fastio.store.files.local import is_local
from fastio.store.files.remote.client import Precondition
from fastio.store.files.remote.clients import client_of
from fastio.store.files.remote.retry import repeated
from fastio.store.files.remote_options import DEFAULT, RemoteOptions
from fastio.store.publish import publish_file
from fastio.store.seal import SEAL_SIZE, always_at, find_seal, read_seal
from fastio.store.sealed import bytes_from

__all__ = ["FolderEntry", "LocalFolder", "RemoteFolder", "StoreFolder", "folder_of"]


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
        is in the way, but has the same seal, nothing changes; for any other, StoreError is raised.
        """
        ...

    def remove(self, name: str) -> None:
        """Remove a file; one that is not there is no error."""
        ...


def folder_of(path: str, options: RemoteOptions = DEFAULT) -> tuple[StoreFolder, str]:
    """
    Return the folder in which a path or URL lies, and its name there.

    >>> folder, name = folder_of("data/in-%06d.tar")
    >>> folder.path, name
    ('data', 'in-%06d.tar')
    """
    if is_local(path):
        folder, name = os.path.split(path)
        return LocalFolder(folder), name
    folder, _, name = path.rpartition("/")
    return RemoteFolder(folder, options), name


class LocalFolder:
    """A directory of this machine; see StoreFolder."""

    def __init__(self, path: str) -> None:
        self.path = path or "."
        self._prefix = path

    def full(self, name: str) -> str:
        """See StoreFolder."""
        return name if not is_local(name) else os.path.join(self._prefix, name)  # noqa: PTH118 - keeps "./"

    def entries(self) -> Mapping[str, FolderEntry]:
        """See StoreFolder."""
        try:
            with os.scandir(self.path) as entries:
                found = {e.name: FolderEntry(e.name, e.stat().st_size) for e in entries if not e.name.startswith(".")}
        except FileNotFoundError as exc:
            raise StoreNotFound(f"{self.path}: no such folder: create it first") from exc
        except OSError as exc:
            raise StoreError(f"{self.path}: cannot be listed ({exc.strerror}); check its permissions") from exc
        return {name: found[name] for name in sorted(found)}

    def open(self, name: str, read: Read = "auto") -> ByteSource:
        """See StoreFolder."""
        return open_file(self.full(name), read)

    def etag(self, name: str) -> str | None:
        """See StoreFolder."""
        try:
            status = Path(self.full(name)).stat()
        except OSError:
            return None
        return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"

    def put(self, name: str, file: Path, *, replace: bool = False, etag: str | None = None) -> None:
        """See StoreFolder. Of two who name an ``etag`` at once, both may succeed: let them take turns by a lock."""
        if not replace and self.etag(name) != etag:
            if _is_same(self, name, file):
                return
            raise (exists if etag is None else _other_version)(self.full(name))
        copy = PartialFile(self.full(name))
        try:
            with writing(copy.path), file.open("rb") as source, os.fdopen(os.dup(copy.fd), "wb") as out:
                shutil.copyfileobj(source, out, 1 << 20)
            publish_file(copy, replace=replace or etag is not None)
        except StoreError:
            if copy.is_published or not _is_same(self, name, file):  # a twin of this packer may have been faster
                raise
        finally:
            copy.discard()

    def remove(self, name: str) -> None:
        """See StoreFolder."""
        path = self.full(name)
        with writing(path):
            Path(path).unlink(missing_ok=True)
            sync_folder(Path(path).parent)


class RemoteFolder:
    """A prefix of an object store; see StoreFolder."""

    def __init__(self, path: str, options: RemoteOptions = DEFAULT) -> None:
        self.path = path
        self.options = options

    def full(self, name: str) -> str:
        """See StoreFolder."""
        return name if not is_local(name) or name.startswith("/") else f"{self.path}/{name}"

    def entries(self) -> Mapping[str, FolderEntry]:
        """See StoreFolder."""
        url = f"{self.path}/"
        client, key = client_of(url, self.options)
        listed = repeated(url, self.options, lambda: client.entries(key))
        return {e.name: FolderEntry(e.name, e.size) for e in listed if not e.name.startswith(".")}

    def open(self, name: str, read: Read = "auto") -> ByteSource:
        """See StoreFolder."""
        return open_file(self.full(name), read, self.options)

    def etag(self, name: str) -> str | None:
        """See StoreFolder."""
        url = self.full(name)
        client, key = client_of(url, self.options)
        try:
            return repeated(url, self.options, lambda: client.get_end(key, SEAL_SIZE)).etag
        except StoreNotFound:
            return None

    def put(self, name: str, file: Path, *, replace: bool = False, etag: str | None = None) -> None:
        """See StoreFolder."""
        url = self.full(name)
        client, key = client_of(url, self.options)
        is_new = not replace and etag is None
        try:
            repeated(url, self.options, lambda: client.put(key, file, if_absent=is_new, etag=etag))
        except Precondition as exc:
            if not _is_same(self, name, file):  # or it is what a lost answer, or a twin of this packer, has put there
                raise (exists if etag is None else _other_version)(self.full(name)) from exc

    def remove(self, name: str) -> None:
        """See StoreFolder."""
        url = self.full(name)
        client, key = client_of(url, self.options)
        repeated(url, self.options, lambda: client.remove(key))


def _other_version(path: str) -> StoreError:
    return StoreError(f"{path}: was replaced by another process meanwhile: look what it holds, then run this again")


def _is_same(folder: StoreFolder, name: str, file: Path) -> bool:
    """Whether the file of this name and the local one have the same seal, and so the same bytes."""
    form = formats.named(name)
    seal_at = always_at(-SEAL_SIZE) if form is None else form.seal_at
    expected = read_seal(str(file), seal_at)
    if expected is None:
        return False
    try:
        other = folder.open(name)
        return find_seal(other.path, other.size, partial(bytes_from, other), seal_at) == expected
    except StoreError:
        return False
