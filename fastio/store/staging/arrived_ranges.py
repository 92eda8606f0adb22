"""Bytes that epochs fetched anyway, here or in other processes, put into the copies under way."""

from __future__ import annotations

import os
import re
import shutil
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from fastio.store.staging.plan import CopyContent
from fastio.store.write.atomic import pwrite_all, writing

__all__ = [
    "ArrivedFile",
    "ArrivedRanges",
    "Handed",
    "Range",
    "accept_handed",
    "hand_over",
    "handed_over",
    "refuse_handed",
]


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


# Bytes that one process fetched, left for another one that copies the store to a folder of the same node.
#
# Each is a file in a hidden folder, which is there while somebody copies:
#
#     .fastio-stage.arrived/4194304-8388608-1a2b3c4d-in-000001.tar    start, stop, CRC-32 of the shard, its name
#     .fastio-stage.arrived/.4711-139872                              on its way, named by process and thread
#
# The file is the bytes alone. Whoever copies takes it and removes it.

_NAME = ".fastio-stage.arrived"
_LEAST_BYTES = 1 << 20  # a file for less would cost more than a request
_MOST_WAITING = 256  # files; blocks of an order have up to 4 MiB
_SPARE_BYTES = 1 << 30  # which these files take at most
_ENTRY = re.compile(r"(?s)(?P<start>\d+)-(?P<stop>\d+)-(?P<crc>[0-9a-f]{8})-(?P<name>.+)")


class Handed(NamedTuple):
    """Bytes of the file ``name`` from ``start`` on, whose whole content has this CRC-32."""

    name: str
    file_crc: int
    start: int
    data: bytes


def hand_over(folder: Path, content: CopyContent, start: int, data: Any) -> None:
    """
    Leave bytes of a file for whoever copies it to ``folder``.

    Nothing is left if nobody copies, if there are few bytes or many that wait, or if the disk refuses them: then they
    are fetched once more. Files of other tools have no checksum that tells one version from another, and are left out.
    """
    view = memoryview(data)
    if len(view) < _LEAST_BYTES or content.seal_at is None:
        return
    arrived = folder / _NAME
    partial = arrived / f".{os.getpid()}-{threading.get_ident()}"
    try:
        if len(os.listdir(arrived)) >= _MOST_WAITING:  # noqa: PTH208 - names are enough
            return
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            pwrite_all(fd, view, 0)
        finally:
            os.close(fd)
        partial.rename(arrived / f"{start}-{start + len(view)}-{content.file_crc:08x}-{content.name}")
    except OSError:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def accept_handed(folder: Path, spare_bytes: int) -> None:
    """Let other processes hand over bytes from now on if the disk has room for them. Raises OSError."""
    if spare_bytes >= _SPARE_BYTES:
        (folder / _NAME).mkdir(exist_ok=True)


def handed_over(folder: Path) -> Iterator[Handed]:
    """Yield what was handed over, and remove it."""
    try:
        names = os.listdir(folder / _NAME)  # noqa: PTH208
    except OSError:  # nobody may hand over anything, or the folder cannot be read
        return
    for match in filter(None, map(_ENTRY.fullmatch, names)):
        path = folder / _NAME / match[0]
        try:
            data = path.read_bytes()
            path.unlink()
        except OSError:  # these bytes are fetched
            continue
        start, stop = int(match["start"]), int(match["stop"])
        if len(data) == stop - start:
            yield Handed(match["name"], int(match["crc"], 16), start, data)


def refuse_handed(folder: Path) -> None:
    """Remove the folder with all that waits in it: no process can hand over anything from then on."""
    arrived, removed = folder / _NAME, folder / f"{_NAME}.old"
    shutil.rmtree(removed, ignore_errors=True)
    with suppress(OSError):
        arrived.rename(removed)  # in one step: who writes to it meanwhile finds no folder
    shutil.rmtree(removed, ignore_errors=True)
