"""Requests by fsspec, for the schemes that obstore does not know: sftp, webdav, memory, ..."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fastio.errors import FastioError, StoreError, StoreNotFound
from fastio.store.files.remote.client import Answer, ObjectEntry, Precondition, RequestFailed

__all__ = ["FsspecClient"]

_VERSIONS = ("ETag", "etag", "e_tag", "mtime", "LastModified", "last_modified", "modified", "created", "uid", "ino")
_DENIED = frozenset({errno.EACCES, errno.EPERM})


class FsspecClient:
    """
    See Client. These file systems know no conditions: the version is asked for before and after a range is read.

    A request cannot be cancelled: after ``timeout`` its thread is left to itself.
    """

    def __init__(self, bucket: str, options: Mapping[str, Any], *, timeout: float) -> None:
        scheme = bucket.partition("://")[0]
        try:
            import fsspec
        except ImportError as exc:
            raise StoreError(f"{bucket}: {scheme}:// needs fsspec: pip install fsspec") from exc
        self._bucket = bucket
        self._timeout = timeout
        self._busy = threading.Lock()  # of the answers to a put: not all file systems are safe to share
        with self._translating(""):
            try:
                self._system: Any = fsspec.core.url_to_fs(bucket + "/", **options)[0]
            except ValueError as exc:
                raise StoreError(f"{bucket}: nothing here reads from {scheme}://: {_line(exc)}") from exc
            except ImportError as exc:
                raise StoreError(f"{bucket}: {scheme}:// needs another package: {_line(exc)}") from exc

    def get(self, key: str, start: int, stop: int, *, etag: str | None = None) -> Answer:
        """See Client."""
        with self._translating(key):
            size, version = self._version(key)
            if etag is not None and version != etag:
                raise Precondition(f"{self._url(key)}: is another version than expected: open the store again")
            data = self._system.cat_file(self._url(key), start=start, end=stop)
            if self._version(key) != (size, version):
                raise Precondition(f"{self._url(key)}: changed while it was read: open the store again")
            return Answer(data, start, size, version)

    async def fetch(self, key: str, start: int, stop: int, *, etag: str | None = None) -> Answer:
        """See Client."""
        try:
            return await asyncio.wait_for(asyncio.to_thread(self.get, key, start, stop, etag=etag), self._timeout)
        except TimeoutError:
            reason = f"no whole answer within {self._timeout:g} s"
            raise RequestFailed(self._url(key), reason, "check the server, or raise download_timeout") from None

    def get_end(self, key: str, size: int) -> Answer:
        """See Client."""
        with self._translating(key):
            whole, version = self._version(key)
        start = max(0, whole - size)
        return self.get(key, start, whole, etag=version) if whole else Answer(b"", 0, 0, version)

    def entries(self, prefix: str) -> list[ObjectEntry]:
        """See Client."""
        with self._translating(prefix):
            entries = [
                ObjectEntry(name, int(entry["size"] or 0), _version_of(entry))
                for name, entry in self._listed(prefix, "file").items()
            ]
        return sorted(entries, key=lambda entry: entry.name)

    def folders(self, prefix: str) -> list[str]:
        """See Client."""
        with self._translating(prefix):
            return sorted(self._listed(prefix, "directory"))

    def _listed(self, prefix: str, kind: str) -> dict[str, Any]:
        """What of this kind lies directly below a prefix, by name."""
        self._system.invalidate_cache()
        listed = self._system.ls(self._url(prefix), detail=True)
        return {each["name"].rstrip("/").rpartition("/")[2]: each for each in listed if each["type"] == kind}

    def put(self, key: str, data: Any, *, if_absent: bool = False, etag: str | None = None) -> None:
        """See Client. The condition is checked before; two writers at the same instant are not told apart."""
        url = self._url(key)
        with self._busy, self._translating(key):
            self._system.invalidate_cache()
            is_there = self._system.exists(url)
            if (if_absent and is_there) or (etag is not None and (not is_there or self._version(key)[1] != etag)):
                raise Precondition(
                    f"{url}: is there already, or is another version than expected: open the store again"
                )
            folder, _, name = url.rpartition("/")
            hidden = f"{folder}/.{name}.partial"
            with suppress(NotImplementedError):
                self._system.makedirs(folder, exist_ok=True)
            if isinstance(data, Path):
                self._system.put_file(str(data), hidden)
            else:
                self._system.pipe_file(hidden, bytes(data))
            self._system.mv(hidden, url)

    def remove(self, key: str) -> None:
        """See Client."""
        with self._translating(key), suppress(FileNotFoundError):
            self._system.rm_file(self._url(key))

    def _url(self, key: str) -> str:
        return f"{self._bucket}/{key}" if key else self._bucket

    def _version(self, key: str) -> tuple[int, str]:
        """Return the size of an object, and what tells its versions apart."""
        self._system.invalidate_cache()
        info = self._system.info(self._url(key))
        if info.get("type") == "directory" or info.get("size") is None:
            raise StoreError(f"{self._url(key)}: expected a file, got a folder")
        return int(info["size"]), _version_of(info)

    @contextmanager
    def _translating(self, key: str) -> Iterator[None]:
        """Turn the errors of all these file systems into ours, which name the URL."""
        url = self._url(key)
        try:
            yield
        except FastioError:
            raise
        except FileNotFoundError as exc:
            raise StoreNotFound(f"{url}: no such object; check the name, or pack the dataset first") from exc
        except PermissionError as exc:
            raise StoreError(f"{url}: access denied ({_line(exc)}): check the credentials") from exc
        except Exception as exc:  # each of these libraries has its own errors
            if getattr(exc, "errno", None) in _DENIED:
                raise StoreError(f"{url}: access denied ({_line(exc)}): check the credentials") from exc
            raise RequestFailed(url, _line(exc)) from exc


def _version_of(info: Mapping[str, Any]) -> str:
    return "; ".join(f"{name} {info[name]}" for name in _VERSIONS if info.get(name) is not None)


def _line(exc: BaseException) -> str:
    return (str(exc).splitlines() or [type(exc).__name__])[0]
