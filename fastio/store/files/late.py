"""Files that are opened when they are first read, few of them at a time: the shards of a large set."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastio.store.files.byte_source import ByteSource
from fastio.types.lazy_sequence import LazySequence

__all__ = ["LateSource", "LateSources", "Openings", "kinds_of", "most_open", "sizes_of"]

_SHARE = 8  # of the mappings that the kernel allows a process: other sets, their readers and torch need some, too
_MAPPINGS = 65_530  # where the kernel does not say
_DESCRIPTORS = 32  # an ``ulimit -n`` of 256 is enough for several sets


def most_open(kind: str) -> int:
    """Return how many files of one set, read by this kind, stay open after they were read."""
    if kind != "map":
        return _DESCRIPTORS
    allowed = _MAPPINGS
    with contextlib.suppress(OSError, ValueError):
        allowed = int(Path("/proc/sys/vm/max_map_count").read_text())
    return max(1, allowed // _SHARE)


class Openings:
    """
    Opens the files of one set, and lets go of the one that was read longest ago when there are more than ``most``.

    ``open_file(number)`` opens one and compares it with what the set lists. A file that was let go of stays open while
    somebody has bytes of it. Threads may share it, and processes that are forked meanwhile: there is no lock, which a
    fork could leave taken, since each step on the table is one of Python's own.
    """

    def __init__(self, open_file: Callable[[int], ByteSource], most: int) -> None:
        self._open_file = open_file
        self._most = most
        self._open: OrderedDict[int, ByteSource] = OrderedDict()  # the one read last at the end

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, number: int) -> ByteSource:
        """Return a file, opened. Raises StoreError if it is not the one that is listed."""
        file = self._open.get(number)
        if file is not None:
            with contextlib.suppress(KeyError):  # another thread has let it go meanwhile
                self._open.move_to_end(number)
            return file
        # Two threads may open it at once. The first one's stays: a value that is replaced ends within the table's step,
        # which another thread may then enter, and OrderedDict loses entries.
        file = self._open.setdefault(number, self._open_file(number))
        while len(self._open) > self._most:
            with contextlib.suppress(KeyError):  # others have let all go meanwhile
                self._open.popitem(last=False)[1].release()
        return file

    def release(self, number: int) -> None:
        """Let a file go."""
        file = self._open.pop(number, None)
        if file is not None:
            file.release()

    def release_all(self) -> None:
        """Let all files go."""
        for number in list(self._open):
            self.release(number)


class LateSource:
    """File ``number`` of a set, of a size that is known before it is opened; see ByteSource."""

    __slots__ = ("_number", "_openings", "kind", "path", "size")

    def __init__(self, path: str, size: int, kind: str, openings: Openings, number: int) -> None:
        self.path, self.size, self.kind = path, size, kind
        self._openings, self._number = openings, number

    def opened(self) -> ByteSource:
        """Return the file, opened. Raises StoreError if it is not the one that is listed."""
        return self._openings.opened(self._number)

    @property
    def identity(self) -> Mapping[str, int | str]:
        """That of the file, which is opened for it."""
        return self.opened().identity

    @property
    def memory(self) -> NDArray[np.uint8] | None:
        """All bytes, if the file is mapped."""
        return self.opened().memory

    def read(self, start: int, stop: int) -> NDArray[np.uint8]:
        """See ByteSource."""
        return self.opened().read(start, stop)

    def check(self) -> None:
        """See ByteSource."""
        self.opened().check()

    def release(self) -> None:
        """Let the file go until it is read again."""
        self._openings.release(self._number)


class LateSources(LazySequence[LateSource]):
    """
    The files of a large set on this machine: nothing is kept for one that nobody reads.

    ``sizes`` are their bytes, int64 ``(n,)``, ``kinds`` what reads each; ``path_of(number)`` is its path, and
    ``openings`` open them, by kind.
    """

    def __init__(
        self,
        sizes: NDArray[np.int64],
        kinds: Sequence[str],
        path_of: Callable[[int], str],
        openings: Mapping[str, Openings],
    ) -> None:
        self.sizes, self.kinds, self.path_of = sizes, kinds, path_of
        self._openings = openings

    def __len__(self) -> int:
        return len(self.kinds)

    def item(self, number: int) -> LateSource:
        """See LazySequence."""
        kind = self.kinds[number]
        return LateSource(self.path_of(number), int(self.sizes[number]), kind, self._openings[kind], number)

    def release(self) -> None:
        """Let all files go until they are read again."""
        for each in self._openings.values():
            each.release_all()


def sizes_of(sources: Sequence[ByteSource]) -> NDArray[np.int64]:
    """Return the bytes of each file, ``(n,)``."""
    if isinstance(sources, LateSources):
        return sources.sizes
    return np.array([source.size for source in sources], np.int64)


def kinds_of(sources: Sequence[ByteSource]) -> set[str]:
    """Return which kinds read these files."""
    return set(sources.kinds) if isinstance(sources, LateSources) else {source.kind for source in sources}
