"""Folders of files, where shards and set objects lie: ``folder_of`` finds the one for a path or URL."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from fastio.errors import StoreError, StoreNotFound
from fastio.store.files import ByteSource, Read, open_file
from fastio.store.files.local import is_local
from fastio.store.files.remote_options import DEFAULT, Remote
from fastio.store.listing import visible_names
from fastio.store.store_folder import FolderEntry, StoreFolder, is_same_file, other_version
from fastio.store.write.atomic import PartialFile, exists, publish_file, sync_folder, writing

__all__ = ["LocalFolder", "folder_of"]


def folder_of(path: str, options: Remote = DEFAULT) -> tuple[StoreFolder, str]:
    """
    Return the folder in which a path or URL lies, and its name there.

    >>> folder, name = folder_of("data/in-%06d.tar")
    >>> folder.path, name
    ('data', 'in-%06d.tar')
    """
    if is_local(path):
        folder, name = os.path.split(path)
        return LocalFolder(folder), name
    from fastio.store.remote_folder import RemoteFolder

    folder, _, name = path.rpartition("/")
    return RemoteFolder(folder, options), name


class LocalFolder:
    """A directory of this machine; see StoreFolder."""

    def __init__(self, path: str) -> None:
        self.path = path or "."
        self._prefix = path
        self._before = os.path.join(path, "")  # noqa: PTH118 - keeps "./"

    def full(self, name: str) -> str:
        """See StoreFolder."""
        if "/" not in name:  # as of a hundred thousand shards
            return self._before + name
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

    def names(self) -> list[str]:
        """See StoreFolder."""
        return visible_names(self.path)

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
            if is_same_file(self, name, file):
                return
            raise (exists if etag is None else other_version)(self.full(name))
        import shutil

        copy = PartialFile(self.full(name))
        try:
            with writing(copy.path), file.open("rb") as source, os.fdopen(os.dup(copy.fd), "wb") as out:
                shutil.copyfileobj(source, out, 1 << 20)
            publish_file(copy, replace=replace or etag is not None)
        except StoreError:
            if copy.is_published or not is_same_file(self, name, file):  # a twin of this packer may have been faster
                raise
        finally:
            copy.discard()

    def remove(self, name: str) -> None:
        """See StoreFolder."""
        path = self.full(name)
        with writing(path):
            Path(path).unlink(missing_ok=True)
            sync_folder(Path(path).parent)
