"""RemoteSource: one version of one object, and its copy on a disk of this machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastio.errors import StoreError, StoreNotFound
from fastio.store.files.local import aligned, check_range
from fastio.store.files.remote.client import WRONG_ANSWER, Answer, Precondition, RequestFailed, repeated
from fastio.store.files.remote.clients import client_of
from fastio.store.files.remote.local_copy import LocalCopy
from fastio.store.files.remote.range_cache import CachedObject, RangeCache, object_id
from fastio.store.files.remote.request_threads import end_requests
from fastio.store.files.remote_options import Remote

__all__ = [
    "RemoteSource",
]


_TAIL_BYTES = 64 << 10  # the seal, the header and often the whole index
_HEAD_BYTES = 8 << 10  # the seal and the head of containers that begin with them
_PIECE_BYTES = 2 << 20  # of what one thread waits for: 35 ms at 60 MB/s, as long as many first bytes take
_PIECES = 8  # at once

Item = TypeVar("Item")
Result = TypeVar("Result")


class RemoteSource:
    """
    One version of one object, told by its ETag; see ByteSource.

    Opening reads its last 64 KiB, which ranges within are answered from until ``release``, as those in its first 8 KiB
    are once one of them was read. What is there of ``local_copy`` is read instead of the object.
    """

    kind = "remote"
    memory = None

    def __init__(
        self, path: str, options: Remote, *, size: int, etag: str | None, end: Answer | None, content: str = ""
    ) -> None:
        self.path = path
        self.size = size
        self.options = options
        self._etag = etag
        self._end = end
        self._head: NDArray[np.uint8] | None = None
        self._content = content
        self._choosing = threading.Lock()
        self._cached: tuple[int, CachedObject] | None = None  # in which process
        self.local_copy: LocalCopy | None = None

    @classmethod
    def open(cls, path: str, options: Remote) -> Self:
        """Raises StoreNotFound for a missing object, StoreError for one that cannot be read."""
        client, key = client_of(path, options)
        end = repeated(path, options, lambda: _checked_end(path, client.get_end(key, _TAIL_BYTES)))
        return cls(path, options, size=end.size, etag=end.etag, end=end)

    @classmethod
    def known(cls, path: str, options: Remote, *, size: int, content: str = "") -> Self:
        """
        Return an object of which a set object has told the size; the first answer tells its version.

        ``content`` names its content, if that is known, such as a checksum of all of it.
        """
        return cls(path, options, size=size, etag=None, end=None, content=content)

    @property
    def identity(self) -> Mapping[str, int | str]:
        """Size and ETag."""
        return {"size": self.size, "etag": self._etag or ""}

    @property
    def etag(self) -> str | None:
        """Which version every answer must be of; None before the first one."""
        return self._etag

    @property
    def cached(self) -> CachedObject | None:
        """
        What a cache directory has of this version; None without one, and while nothing tells the version.

        A forked process has a cache of its own: its parent's lock may have been taken when it was forked.
        """
        if self.options.cache_dir is None:
            return None
        process = os.getpid()
        if self._cached is None or self._cached[0] != process:
            cache = RangeCache.of(self.options)
            name = object_id(self.path, self.options, size=self.size, version=self._content or self._etag or "")
            if cache is None or name is None:
                return None
            self._cached = process, cache.object(name, self.size)
        return self._cached[1]

    def read(self, start: int, stop: int) -> NDArray[np.uint8]:
        """
        A copy; or a view of a file in the cache directory, for what is read between ``open`` and ``release``.

        That is an index, which every process of a node needs: one of them fetches it.
        """
        check_range(self.path, start, stop, self.size)
        end = self._end
        if self.local_copy is not None and (end is None or start < end.start):
            pieces = self.local_copy.pieces(start, stop)
            if len(pieces) == 1 and pieces[0][2] is not None:
                return pieces[0][2]
        if end is None or start < min(end.start, stop):
            return self._before_end(start, stop, end)
        copy = aligned(start, stop - start)
        copy[:] = np.frombuffer(end.data, np.uint8)[start - end.start : stop - end.start]
        copy.setflags(write=False)
        return copy

    def read_at_once(self, ranges: Sequence[tuple[int, int]]) -> list[NDArray[np.uint8]]:
        """``read`` several ranges, which are asked for at once. Raises what the first of them raises."""
        return _at_once(lambda each: self.read(*each), ranges)

    def _before_end(self, start: int, stop: int, end: Answer | None) -> NDArray[np.uint8]:
        """Return a range that does not lie within the end; in the head, from what is held of that."""
        if end is not None and stop <= min(_HEAD_BYTES, end.start):
            if self._head is None:
                self._head = self._once(0, min(_HEAD_BYTES, end.start))
            return self._head[start:stop]
        return self._fetched(start, stop) if end is None else self._once(start, stop)

    def _once(self, start: int, stop: int) -> NDArray[np.uint8]:
        cached = self.cached
        if cached is None:
            return self._fetched(start, stop)
        return cached.once(start, stop, lambda: self._fetched(start, stop), wait_s=self.options.download_timeout)

    def accepted(self, answer: Answer, start: int, stop: int) -> NDArray[np.uint8]:
        """
        Return the bytes of an answer to a request for this range.

        Raises StoreError if it is of another version, and RequestFailed if it is not what was asked for.
        """
        with self._choosing:  # of several first answers, one tells the version
            if self._etag is None and answer.size == self.size:
                self._etag = answer.etag
        if self._etag is not None and answer.etag != self._etag:
            raise self.replaced()
        if answer.size != self.size:
            reason = f"expected an object of {self.size} bytes, got one of {answer.size}"
            raise RequestFailed(self.path, reason, "check the server, or open the store again")
        if (answer.start, len(answer.data)) != (start, stop - start):
            reason = f"asked for bytes {start} to {stop}, got {len(answer.data)} bytes from {answer.start}"
            raise RequestFailed(self.path, reason, WRONG_ANSWER)
        return np.frombuffer(answer.data, np.uint8)

    def replaced(self) -> StoreError:
        """Return the error for an object that is another version by now."""
        return StoreError(f"{self.path}: was replaced or changed since it was opened: open the store again")

    def _fetched(self, start: int, stop: int) -> NDArray[np.uint8]:
        """Return a copy; of many bytes, several pieces are asked for at once."""
        copy = aligned(start, stop - start)

        def fetch(at: int) -> None:
            to = min(stop, at + _PIECE_BYTES)
            copy[at - start : to - start] = self._piece(at, to)

        _at_once(fetch, range(start, stop, _PIECE_BYTES))
        copy.setflags(write=False)
        return copy

    def _piece(self, start: int, stop: int) -> NDArray[np.uint8]:
        client, key = client_of(self.path, self.options)

        def attempt() -> NDArray[np.uint8]:
            try:
                return self.accepted(client.get(key, start, stop, etag=self._etag), start, stop)
            except Precondition:
                raise self.replaced() from None

        return repeated(self.path, self.options, attempt)

    def gone(self) -> StoreError:
        """Return the error for an object that is not there any more, or never was."""
        if self._etag is None:
            return StoreError(f"{self.path}: is missing, but its set lists it: fastio repair puts it there from a copy")
        return StoreError(f"{self.path}: can no longer be read (no such object): open the store again")

    def check(self) -> None:
        """See ByteSource."""
        if self.size:
            try:
                self._fetched(0, 1)
            except StoreNotFound as exc:
                raise self.gone() from exc

    def release(self) -> None:
        """Let go of the end and the head."""
        self._end = self._head = None


def _at_once(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Do some work for several items at once, in threads; of one in this thread."""
    if len(items) <= 1:
        return list(map(work, items))
    with ThreadPoolExecutor(min(len(items), _PIECES), thread_name_prefix="fastio") as threads:
        try:
            return list(threads.map(work, items))
        except KeyboardInterrupt:
            end_requests(threads)
            raise


def _checked_end(path: str, end: Answer) -> Answer:
    """Return the answer to a request for the end of an object. Raises RequestFailed if it is not that end."""
    start = max(0, end.size - _TAIL_BYTES)
    if (end.start, len(end.data)) != (start, end.size - start):
        reason = f"asked for bytes {start} to {end.size}, got {len(end.data)} bytes from {end.start}"
        raise RequestFailed(path, reason, WRONG_ANSWER)
    return end
