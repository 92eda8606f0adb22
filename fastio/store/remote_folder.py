"""RemoteFolder: a prefix of an object store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fastio.errors import StoreNotFound
from fastio.store.files import ByteSource, Read, open_file
from fastio.store.files.local import is_local
from fastio.store.files.remote.client import Precondition, repeated
from fastio.store.files.remote.clients import client_of
from fastio.store.files.remote_options import DEFAULT, Remote
from fastio.store.index.seal import SEAL_SIZE
from fastio.store.store_folder import FolderEntry, is_same_file, other_version
from fastio.store.write.atomic import exists

__all__ = ["RemoteFolder"]


class RemoteFolder:
    """A prefix of an object store; see StoreFolder."""

    def __init__(self, path: str, options: Remote = DEFAULT) -> None:
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

    def folders(self) -> list[str]:
        """Return the names of the folders in it, sorted; hidden ones are passed over."""
        url = f"{self.path}/"
        client, key = client_of(url, self.options)
        return [name for name in repeated(url, self.options, lambda: client.folders(key)) if not name.startswith(".")]

    def names(self) -> list[str]:
        """See StoreFolder."""
        return list(self.entries())

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
            # A lost answer, or a twin of this packer, may have put the same file there.
            if not is_same_file(self, name, file):
                raise (exists if etag is None else other_version)(self.full(name)) from exc

    def remove(self, name: str) -> None:
        """See StoreFolder."""
        url = self.full(name)
        client, key = client_of(url, self.options)
        repeated(url, self.options, lambda: client.remove(key))
