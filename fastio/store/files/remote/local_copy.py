"""LocalCopy: a copy of an object on this machine, which may be on its way, and what a loader wants there next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from fastio.errors import StoreError
from fastio.store.files.remote.disk import LocalBytes
from fastio.store.files.remote.request_threads import ByteRange, Download
from fastio.types.spans import Spans

__all__ = ["Copier", "LocalCopy", "WantedRanges"]


class Copier(Protocol):
    """Makes copies, in a thread of this process."""

    def bring_first(self, wanted: WantedRanges) -> None:
        """Bring these ranges before all else."""
        ...


class LocalCopy(LocalBytes, Protocol):
    """What is there of a copy is read instead of the object."""

    @property
    def stage(self) -> Copier | None:
        """What copies in this process."""
        ...

    @property
    def is_writing(self) -> bool:
        """Whether ``keep`` writes to a copy that is on its way."""
        ...

    def missing(self, start: int, stop: int) -> int | None:
        """Return how many bytes of a range the copy lacks; None while nobody has begun it."""
        ...

    def mend(self, start: int, data: Any) -> None:
        """Put the bytes from ``start`` on right in a finished copy, where a sample did not have its CRC-32."""
        ...

    def whole(self) -> str | None:
        """Return the path of the copy if it is finished; None before."""
        ...


class WantedRanges:
    """
    The ranges of an epoch, in its order, that ``begin`` brings into the copies of their objects, ahead of the loader;
    ``copy_of`` returns that of an object.

    A loader and whoever copies share it, each in a thread of its own. The loader itself has ``asked`` for the first
    ones. While it ``is_waiting``, it waits for its first batch, and nothing else should be fetched.
    """

    def __init__(
        self, spans: Spans, copy_of: Callable[[int], LocalCopy | None], begin: Callable[[ByteRange], Download]
    ) -> None:
        self._spans = spans
        self._copy_of: Callable[[int], LocalCopy | None] = copy_of
        self._begin: Callable[[ByteRange], Download] | None = begin
        self._begun = 0
        self.asked = 0
        self.is_waiting = True

    def close(self) -> None:
        """Let go of all that it refers to: nobody wants these ranges any more."""
        self.is_waiting, self._begin, self._copy_of = False, None, _none

    def begin_next(self) -> Download | None:
        """Begin to bring the next range that its copy lacks; None if there is none, or nobody copies it now."""
        begin, copy_of = self._begin, self._copy_of
        while begin is not None and (at := max(self.asked, self._begun)) < len(self._spans):
            shard, start = int(self._spans.shard[at]), int(self._spans.starts[at])
            wanted = ByteRange(shard, start, start + int(self._spans.sizes[at]))
            copy = copy_of(shard)
            missing = None if copy is None or not copy.is_writing else copy.missing(wanted.start, wanted.stop)
            if missing is None:
                return None
            self._begun = at + 1
            if missing:
                try:
                    return begin(wanted)
                except StoreError:  # the store was closed
                    return None
        return None


def _none(_shard: int) -> None:
    return None
