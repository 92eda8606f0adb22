"""ArrivedRanges: bytes that epochs fetched anyway, here or in other processes, put into the copies under way."""

from __future__ import annotations

import os
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastio.store.atomic import pwrite_all, writing
from fastio.store.staging.handover import handed_over
from fastio.store.staging.stage_plan import CopyContent

__all__ = ["ArrivedFile", "ArrivedRanges", "Range"]

Range = tuple[int, int]  # start and stop


def _nothing() -> None:
    pass


class ArrivedFile:
    """
    Which ranges of one hidden copy this process has written, or is about to.

    No byte is written twice: whoever takes a range first writes it. Safe to share between threads. ``collect`` writes
    what other processes have handed over.
    """

    def __init__(self, partial: Path, collect: Callable[[], None] = _nothing) -> None:
        self._partial = partial
        self._collect = collect
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
        self._collect()
        with self._lock:
            return self._take(start, stop)

    def write(self, start: int, data: Any) -> int:
        """Write what nobody has taken yet of bytes from ``start`` on, and return its size. Raises OSError."""
        view = memoryview(data)
        with self._lock:  # whoever closes the file must find nobody writing
            gaps = self._gaps(start, start + len(view)) if self._is_open else []
            if gaps:
                fd = os.open(self._partial, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
                try:
                    for first, last in gaps:
                        pwrite_all(fd, view[first - start : last - start], first)
                finally:
                    os.close(fd)
                self._take(start, start + len(view))  # not before: what a full disk refused is still missing
        return sum(last - first for first, last in gaps)

    def close(self) -> None:
        """Let nobody write any more: the copy is compared with its checksums, or was given up."""
        with self._lock:
            self._is_open = False

    def _gaps(self, start: int, stop: int) -> list[Range]:
        gaps, at = [], start
        for begin, end in self._taken[slice(*self._touched(start, stop))]:
            if begin > at:
                gaps.append((at, begin))
            at = max(at, end)
        if at < stop:
            gaps.append((at, stop))
        return gaps

    def _take(self, start: int, stop: int) -> list[Range]:
        gaps = self._gaps(start, stop)
        first, last = self._touched(start, stop)
        touched = self._taken[first:last]
        merged = min([start, *(begin for begin, _ in touched)]), max([stop, *(end for _, end in touched)])
        self._taken[first:last] = [merged]
        return gaps

    def _touched(self, start: int, stop: int) -> tuple[int, int]:
        """Return from which to which one taken ranges overlap or touch this one."""
        first = bisect_left(self._taken, start, key=lambda taken: taken[1])
        return first, bisect_right(self._taken, stop, lo=first, key=lambda taken: taken[0])


class ArrivedRanges:
    """The ``ArrivedFile`` of each copy that is under way, by name; none before copying begins, and after it ended."""

    def __init__(self) -> None:
        self._files: dict[str, ArrivedFile] = {}
        self._contents: dict[str, CopyContent] = {}
        self._collecting = threading.Lock()

    def begin(self, content: CopyContent, partial: Path) -> None:
        """Accept ranges of this file from now on, also those that other processes hand over."""
        self._contents[content.name] = content
        self._files[content.name] = ArrivedFile(partial, lambda: self._collect(partial.parent))

    def of(self, name: str) -> ArrivedFile | None:
        """Return the ranges of a file that is to be copied, or is being copied; None otherwise."""
        return self._files.get(name)

    def _collect(self, folder: Path) -> None:
        """Write what was handed over, unless another thread is at it. Raises StoreError if the disk is full."""
        if not self._collecting.acquire(blocking=False):
            return
        try:
            for handed in handed_over(folder):
                file, content = self.of(handed.name), self._contents.get(handed.name)
                if file is None or content is None:
                    continue
                is_inside = 0 <= handed.start <= content.size - len(handed.data)
                if handed.file_crc == content.file_crc and is_inside:
                    with writing(str(folder / handed.name)):
                        file.write(handed.start, handed.data)
        finally:
            self._collecting.release()

    def end(self) -> None:
        """Accept nothing any more."""
        files, self._files = self._files, {}
        for file in files.values():
            file.close()
