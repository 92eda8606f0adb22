"""Client: the few requests that fastio sends to an object store, whatever library sends them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from fastio.errors import StoreError

__all__ = ["Answer", "Client", "ObjectEntry", "Precondition", "split_url"]


@dataclass(frozen=True, slots=True)
class Answer:
    """Bytes of one version of an object, as they arrived."""

    data: Any  # a buffer
    start: int  # of ``data`` in the object
    size: int  # of the whole object
    etag: str


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """One object of a listing; ``name`` is relative to the prefix that was listed."""

    name: str
    size: int
    etag: str


class Precondition(StoreError):  # noqa: N818 - reads as a statement, like StoreNotFound
    """The object is there already, or is another version than the one named."""


class Client(Protocol):
    """
    Requests to one bucket or server; safe to use from several threads, not after a fork.

    ``key`` is a path in the bucket without a slash before it. Methods raise StoreNotFound for a missing object,
    Precondition where a condition fails, and StoreError that names the URL for everything else.
    """

    def get(self, key: str, start: int, stop: int, *, etag: str | None = None) -> Answer:
        """Return the bytes from ``start`` up to ``stop``, of the version ``etag`` if it is given."""
        ...

    def get_end(self, key: str, size: int) -> Answer:
        """Return the last ``size`` bytes, or all if there are fewer."""
        ...

    def entries(self, prefix: str) -> list[ObjectEntry]:
        """Return the objects directly below a prefix (empty, or ended by a slash), sorted by name."""
        ...

    def put(self, key: str, data: Any, *, if_absent: bool = False, etag: str | None = None) -> None:
        """
        Store bytes, or the file of a ``Path``, at once: whoever reads finds all of it or nothing.

        ``if_absent`` and ``etag`` are conditions on what is there now.
        """
        ...

    def remove(self, key: str) -> None:
        """Remove an object; one that is not there is no error."""
        ...


def split_url(url: str) -> tuple[str, str]:
    """
    Return the bucket or server, and the key.

    >>> split_url("s3://bucket/a/in-%06d.tar")
    ('s3://bucket', 'a/in-%06d.tar')
    """
    scheme, _, rest = url.partition("://")
    bucket, _, key = rest.partition("/")
    return f"{scheme}://{bucket}", key
