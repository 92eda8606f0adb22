"""RemoteSource: one version of one object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fastio.errors import StoreCorrupt, StoreError
from fastio.store.files.local import check_range
from fastio.store.files.remote.client import Answer, Client, Precondition
from fastio.store.files.remote.clients import client_of
from fastio.store.files.remote_options import RemoteOptions

__all__ = ["RemoteSource"]

_TAIL_BYTES = 64 << 10  # the seal, the header and often the whole index


class RemoteSource:
    """
    One version of one object, told by its ETag; see ByteSource.

    Opening reads its last 64 KiB, which ranges within are answered from until ``release``.
    """

    kind = "remote"
    memory = None

    def __init__(self, path: str, options: RemoteOptions, *, size: int, etag: str | None, end: Answer | None) -> None:
        self.path = path
        self.size = size
        self.options = options
        self._etag = etag
        self._end = end

    @classmethod
    def open(cls, path: str, options: RemoteOptions) -> Self:
        """Raises StoreNotFound for a missing object, StoreError for one that cannot be read."""
        client, key = client_of(path, options)
        end = client.get_end(key, _TAIL_BYTES)
        return cls(path, options, size=end.size, etag=end.etag, end=end)

    @classmethod
    def known(cls, path: str, options: RemoteOptions, *, size: int) -> Self:
        """Return an object of which a set object has told the size; the first answer tells its version."""
        return cls(path, options, size=size, etag=None, end=None)

    @property
    def identity(self) -> Mapping[str, int | str]:
        """Size and ETag."""
        return {"size": self.size, "etag": self._etag or ""}

    def read(self, start: int, stop: int) -> NDArray[np.uint8]:
        """A copy, or a view of the end that was read at opening."""
        check_range(self.path, start, stop, self.size)
        if start == stop:
            return np.empty(0, np.uint8)
        end = self._end
        if end is not None and start >= end.start:
            return np.frombuffer(end.data, np.uint8)[start - end.start : stop - end.start]
        client, key = client_of(self.path, self.options)
        return np.frombuffer(self.fetched(client, key, start, stop).data, np.uint8)

    def fetched(self, client: Client, key: str, start: int, stop: int) -> Answer:
        """Return a range of this version. Raises StoreError if another one is there, StoreCorrupt for fewer bytes."""
        try:
            answer = client.get(key, start, stop, etag=self._etag)
        except Precondition as exc:
            raise StoreError(f"{self.path}: was replaced or changed since it was opened: open the store again") from exc
        if answer.size != self.size or (answer.start, len(answer.data)) != (start, stop - start):
            raise StoreCorrupt(
                f"{self.path}: expected bytes {start} to {stop} of {self.size}, got {len(answer.data)} from "
                f"{answer.start} of {answer.size}: copy or pack again"
            )
        self._etag = self._etag or answer.etag
        return answer

    def check(self) -> None:
        """See ByteSource."""
        client, key = client_of(self.path, self.options)
        if self.size:
            self.fetched(client, key, 0, 1)

    def release(self) -> None:
        """Let go of the end."""
        self._end = None
