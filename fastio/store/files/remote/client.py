"""Client: the few requests that fastio sends to an object store, whatever library sends them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

from fastio.errors import StoreError

__all__ = ["WRONG_ANSWER", "Answer", "Client", "ObjectEntry", "Precondition", "RequestFailed", "split_url"]

WRONG_ANSWER = "check the server, and proxies on the way"  # what to do about an answer to another question

Cause = Literal["", "busy", "range", "expired"]


@dataclass(frozen=True, slots=True)
class Answer:
    """Bytes of one version of an object, as they arrived."""

    data: Any  # a buffer
    start: int  # of ``data`` in the object
    size: int  # of the whole object
    etag: str  # or the time of its last change, of servers without ETags
    latency_s: float = 0.0  # until the first byte


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """One object of a listing; ``name`` is relative to the prefix that was listed."""

    name: str
    size: int
    etag: str


class Precondition(StoreError):  # noqa: N818 - reads as a statement, like StoreNotFound
    """The object is there already, or is another version than the one named."""


class RequestFailed(StoreError):  # noqa: N818 - reads as a statement
    """
    A request failed for a reason that may pass: a connection that was cut, a server that is busy.

    ``reason`` says why and ``advice`` what to do, without the URL. ``cause`` is "busy" if the server has too many
    requests, "range" if it has no such range or knows no ranges, "expired" if it takes the credentials no more.
    ``retry_after_s`` tells when a busy server wants to be asked again; it may ask the server for that.
    """

    def __init__(
        self,
        url: str,
        reason: str,
        advice: str = "check the address and the network",
        *,
        cause: Cause = "",
        retry_after_s: Callable[[], float | None] = lambda: None,
    ) -> None:
        super().__init__(f"{url}: cannot be read or written: {reason}: {advice}")
        self.url = url
        self.reason = reason
        self.advice = advice
        self.cause = cause
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the attributes when pickled, but for the way to ask the server."""
        return partial(RequestFailed, cause=self.cause), (self.url, self.reason, self.advice)


class Client(Protocol):
    """
    Requests to one bucket or server; safe to use from several threads, not after a fork.

    ``key`` is a path in the bucket without a slash before it. Each method sends one request, or a few for large
    objects, and none a second time. It raises StoreNotFound for a missing object, Precondition where a condition
    fails, RequestFailed where another attempt may help, and StoreError that names the URL for everything else.
    """

    def get(self, key: str, start: int, stop: int, *, etag: str | None = None) -> Answer:
        """Return the bytes from ``start`` up to ``stop``, of the version ``etag`` if it is given."""
        ...

    async def fetch(self, key: str, start: int, stop: int, *, etag: str | None = None) -> Answer:
        """Do the same as ``get``; cancelling it ends the request."""
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
