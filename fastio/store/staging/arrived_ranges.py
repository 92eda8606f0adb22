"""ArrivedRanges: bytes that an epoch fetched anyway, put into the copies that are under way."""

from __future__ import annotations

import os
import threading
from bisect import bisect_left
from pathlib import Path
from typing import Any

from fastio.store.atomic import pwrite_all

__all__ = ["ArrivedFile", "ArrivedRanges", "Range"]

Range = tuple[int, int]  # start and stop


class ArrivedFile:
    """
    Which ranges of one hidden copy this process has written, or is about to.

    No byte is written twice: whoever takes a range first writes it. Safe to share between threads.
    """

    def __init__(self, partial: Path) -> None:
        self._partial = partial
        self._lock = threading.Lock()
        self._taken: list[Range] = []  # sorted, neither overlapping nor touching
        self._is_open = True

    def take(self, start: int, stop: int) -> list[Range]:
        """
        Return the parts of a range that nobody has taken yet, and take them.

        >>> file = ArrivedFile(Path("x"))
        >>> file.take(0, 10), file.take(20, 30)
        ([(0, 10)], [(20, 30)])
        >>> file.take(5, 40)
        [(10, 20), (30, 40)]
        """
        with self._lock:
            return self._take(start, stop)

    def write(self, start: int, data: Any) -> int:
        """Write what nobody has taken yet of bytes from ``start`` on, and return its size. Raises OSError."""
        view = memoryview(data)
        with self._lock:  # whoever closes the file must find nobody writing
            gaps = self._take(start, start + len(view)) if self._is_open else []
            if gaps:
                fd = os.open(self._partial, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
                try:
                    for first, last in gaps:
                        pwrite_all(fd, view[first - start : last - start], first)
                finally:
                    os.close(fd)
        return sum(last - first for first, last in gaps)

    def close(self) -> None:
        """Let nobody write any more: the copy is compared with its checksums, or was given up."""
        with self._lock:
            self._is_open = False

    def _take(self, start: int, stop: int) -> list[Range]:
        first = bisect_left(self._taken, start, key=lambda taken: taken[1])
        last = first
        gaps, at = [], start
        while last < len(self._taken) and self._taken[last][0] <= stop:
            begin, end = self._taken[last]
            if begin > at:
                gaps.append((at, begin))
            at = max(at, end)
            last += 1
        if at < stop:
            gaps.append((at, stop))
        touched = self._taken[first:last]
        merged = min([start, *(begin for begin, _ in touched)]), max([stop, *(end for _, end in touched)])
        self._taken[first:last] = [merged]
        return gaps


class ArrivedRanges:
    """The ``ArrivedFile`` of each copy that is under way, by name; none before copying begins, and after it ended."""

    def __init__(self) -> None:
        self._files: dict[str, ArrivedFile] = {}

    def begin(self, name: str, partial: Path) -> None:
        """Accept ranges of this file from now on."""
        self._files[name] = ArrivedFile(partial)

    def of(self, name: str) -> ArrivedFile | None:
        """Return the ranges of a file that is to be copied, or is being copied; None otherwise."""
        return self._files.get(name)

    def end(self) -> None:
        """Accept nothing any more."""
        files, self._files = self._files, {}
        for file in files.values():
            file.close()
