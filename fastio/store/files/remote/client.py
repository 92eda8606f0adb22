"""Client: the few requests that fastio sends to an object store, by whatever library, and when it repeats them."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

from fastio.errors import StoreError
from fastio.store.files.remote_options import Remote

__all__ = [
    "OBSTORE_SCHEMES",
    "WRONG_ANSWER",
    "Answer",
    "Client",
    "ObjectEntry",
    "Precondition",
    "RequestFailed",
    "after_attempts",
    "claim_process",
    "pause_s",
    "repeated",
    "split_url",
]


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
    """

    def __init__(
        self,
        url: str,
        reason: str,
        advice: str = "check the address and the network",
        *,
        cause: Cause = "",
    ) -> None:
        super().__init__(f"{url}: cannot be read or written: {reason}: {advice}")
        self.url = url
        self.reason = reason
        self.advice = advice
        self.cause = cause

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the attributes when pickled."""
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

    def folders(self, prefix: str) -> list[str]:
        """Return the names of the folders directly below a prefix, sorted."""
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


# When a failed request is sent again.

Result = TypeVar("Result")

_FIRST_S = 0.1
_LONGEST_S = 15.0


def pause_s(attempt: int) -> float:
    """
    Return the seconds to wait after failed attempt number ``attempt`` (counted from 0).

    They double from a tenth of a second up to 15, less a random part of up to a half, so that many readers do not come
    back at once.
    """
    return min(_LONGEST_S, _FIRST_S * 2.0**attempt) * random.uniform(0.5, 1.0)


def repeated(path: str, options: Remote, attempt: Callable[[], Result]) -> Result:
    """
    Return what ``attempt`` returns, asked again after a pause while it fails for a reason that may pass.

    Raises StoreError when the last attempt failed.
    """
    for number in range(options.download_retry + 1):
        try:
            return attempt()
        except RequestFailed as exc:
            if number == options.download_retry:
                raise StoreError(str(after_attempts(path, exc, number + 1))) from None
            time.sleep(pause_s(number))
    raise AssertionError


def after_attempts(path: str, failure: RequestFailed, attempts: int, *, spent: int | None = None) -> RequestFailed:
    """Return the error that ends the attempts; ``spent``: because the epoch has repeated so many requests."""
    tried = "" if attempts == 1 else f", at the last of {attempts} attempts"
    if spent is not None:
        reason = f"{failure.reason}{tried}: this epoch has repeated {spent} requests, as many as epoch_retry allows"
        return RequestFailed(path, reason, "check the server, or raise epoch_retry")
    return RequestFailed(path, f"{failure.reason}{tried}", failure.advice)


# The schemes of URLs that obstore reads.

OBSTORE_SCHEMES = frozenset({"s3", "s3a", "gs", "gcs", "az", "azure", "adl", "abfs", "abfss", "http", "https"})


# Forked processes, in which the client of an object store would hang.

_owner: int | None = None


def claim_process() -> None:
    """
    Remember that this process uses object stores.

    Raises StoreError in a process forked from one that did: threads of the client are missing there.
    """
    global _owner  # noqa: PLW0603 - the client's threads belong to the process too
    if _owner is None:
        _owner = os.getpid()
    elif _owner != os.getpid():
        raise StoreError(
            "object stores cannot be read in a forked process: use FastLoader, which needs no worker processes, or "
            'DataLoader(..., multiprocessing_context="spawn")'
        )
