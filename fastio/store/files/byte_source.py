"""What a store needs of the bytes behind it: ``ByteSource`` is one file, ``StoreFiles`` all files of a store."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.store.files.remote_options import Remote
from fastio.types.spans import Spans

__all__ = ["ByteSource", "Fetched", "JointPrefetch", "Kind", "Prefetch", "Read", "StoreFiles"]

Read = Literal["auto", "map", "pread", "remote"]


class ByteSource(Protocol):
    """
    One version of one file, whatever kind of storage holds it.

    Opening a store reads the seal, the header and the index by ``read``; samples are read in batches, by
    ``StoreFiles.fetch``. Immutable, safe to share between threads and over a fork. It is not pickled: a process that
    receives a store by pickle opens its files itself.
    """

    @property
    def kind(self) -> str:
        """The name in KINDS."""
        ...

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int:
        """Bytes of the file."""
        ...

    @property
    def identity(self) -> Mapping[str, int | str]:
        """Which version of the file this is, as JSON: "size" and times of a local file, an ETag of an object."""
        ...

    @property
    def memory(self) -> NDArray[np.uint8] | None:
        """All bytes, read-only, if they can be looked at in place; otherwise None."""
        ...

    def read(self, start: int, stop: int) -> NDArray[np.uint8]:
        """
        The bytes from ``start`` up to ``stop`` as a read-only array: a view of the mapping, or a copy.

        Raises ValueError if the range leaves the file, and StoreError if it cannot be read.
        """
        ...

    def check(self) -> None:
        """Raise StoreError if another version of the file, or none, lies under the path by now."""
        ...

    def release(self) -> None:
        """Let go of what was kept for the next ``read``, such as a descriptor; ``read`` works as before."""
        ...


class Fetched(Protocol):
    """Spans on their way into memory."""

    def wait(self) -> tuple[Spans, NDArray[np.int32] | None]:
        """
        Wait for the bytes.

        Returns the spans over memory, and the status of each (``_native.TRUNCATED``, ``IO_ERROR``) if some could not
        be read, else None. A span that could not be read has the size 0.
        """
        ...


class Prefetch(Protocol):
    """Spans that come nearer, as ``read_ahead`` returns them; ``_native.Job`` is one."""

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        ...

    def wait(self, timeout_s: float = -1.0) -> bool:
        """Wait, without a bound below 0; False when not done in time."""
        ...

    def cancel(self) -> None:
        """Let go of it: what has not begun is not done. Spans fetched already stay as they are."""
        ...


@dataclass(frozen=True, slots=True)
class JointPrefetch:
    """Spans that come nearer in several ways as one; see Prefetch."""

    parts: Sequence[Prefetch]

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return all(part.done for part in self.parts)

    def wait(self, timeout_s: float = -1.0) -> bool:
        """Wait for all of them, together so long."""
        if timeout_s < 0:
            return all(part.wait() for part in self.parts)
        stop = time.monotonic() + timeout_s
        return all(part.wait(max(0.0, stop - time.monotonic())) for part in self.parts)

    def cancel(self) -> None:
        """Let go of all of them."""
        for part in self.parts:
            part.cancel()


class StoreFiles(Protocol):
    """
    All files of an open store, which brings its spans into memory.

    Whoever looks at the bytes of ``store.spans(...)`` gets them from ``fetch`` first. Safe to share between threads and
    over a fork; what a parent has under way, a forked child asks for anew.
    """

    @property
    def buffers(self) -> _native.Buffers:
        """What the store's spans point into: each file's bytes, or its size if they are not in memory."""
        ...

    @property
    def in_place(self) -> bool:
        """Whether ``fetch`` gives the same spans back, because the files are mapped; otherwise it copies."""
        ...

    @property
    def threads(self) -> int:
        """How many threads a pool for ``fetch`` or ``read_ahead`` should have."""
        ...

    @property
    def holds(self) -> bool:
        """
        Whether what ``read_ahead`` brought is there only while its result lives; otherwise the page cache has it.

        Where it is, keep the result until the last sample of its spans was fetched.
        """
        ...

    @property
    def ahead_bytes(self) -> int:
        """How many bytes of samples a loader should ask for by ``read_ahead`` before the batch that it begins."""
        ...

    @property
    def chunk_bytes(self) -> int:
        """How many bytes of samples a loader should ask for by one ``fetch``."""
        ...

    def fetch(
        self,
        spans: Spans,
        *,
        pool: _native.ThreadPool | None = None,
        ring: _native.BufferRing | None = None,
        is_near: bool = False,
    ) -> Fetched:
        """
        Begin to bring spans of this store into memory: of ``ring``, or new memory without one.

        ``shard`` of the spans that come back numbers buffers in memory, not files. Without a pool they may be read
        before this returns. ``is_near`` says that somebody has them read ahead already. Raises IndexError for spans
        outside their file, and StoreError if a file was replaced.
        """
        ...

    def read_ahead(
        self, spans: Spans, *, pool: _native.ThreadPool | None = None, comes_again: bool = False
    ) -> Prefetch:
        """
        Begin to bring spans nearer, without a promise: those fetched afterwards come sooner.

        It may block while the disk's queue is full, and dropping the result cancels it; see ``holds``. With
        ``comes_again``, the same bytes are asked for once more with what lies around them: a cache need not keep them.
        """
        ...

    def failure(self, spans: Spans) -> str | None:
        """Return why one of these spans of the store could not be read, as words that end a message; None: unknown."""
        ...

    def close(self) -> None:
        """Let threads and connections go; twice does no harm. Spans in memory stay."""
        ...


@dataclass(frozen=True, slots=True)
class Kind:
    """
    One way to read files: an entry of KINDS.

    ``claims`` says whether ``read="auto"`` takes it for a path. ``files`` makes the files of one store from sources of
    this kind, and of those in ``joins``.
    """

    name: str
    claims: Callable[[str], bool]
    open: Callable[[str, Remote], ByteSource]
    files: Callable[[Sequence[Any]], StoreFiles]
    joins: frozenset[str] = frozenset()
