"""
The files of a range cache: ranges of objects, and which of them the folder of an object holds.

    <start>-<stop>    stop - start bytes of the object, then
        4  magic      "fior"
        4  crc        CRC-32 of the bytes, then of the folder's name and the file's name
        8  length     stop - start

The file is written under a hidden name and renamed. Nothing is synced: what a crash tears or empties has another length
or CRC-32, and such a file counts as missing. The names are part of the CRC-32, so a file that was moved
or renamed counts as missing too.
"""

from __future__ import annotations

import mmap
import os
import re
import secrets
import struct
import time
from bisect import bisect_left, bisect_right, insort
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio._native import crc32
from fastio.store.write.atomic import write_all

__all__ = [
    "LOCK",
    "TRAILER_BYTES",
    "RangeFolder",
    "range_of",
    "read_range",
    "write_range",
]


_MAGIC = b"fior"
_TRAILER = struct.Struct("<4sIQ")
TRAILER_BYTES = _TRAILER.size
_NAME = re.compile(r"(\d+)-(\d+)")


def range_of(name: str) -> tuple[int, int] | None:
    """
    Return the range that a file of this name holds; None for other names.

    >>> range_of("0-65536"), range_of(".lock"), range_of("7-7")
    ((0, 65536), None, None)
    """
    match = _NAME.fullmatch(name)
    if match is None or int(match[1]) >= int(match[2]):
        return None
    return int(match[1]), int(match[2])


def write_range(folder: Path, start: int, stop: int, data: Any) -> None:
    """Write a range (a contiguous buffer of ``stop - start`` bytes), at once for whoever reads. Raises OSError."""
    name = _name(start, stop)
    hidden = folder / f".{name}.{os.getpid()}-{secrets.token_hex(4)}"
    fd = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        try:
            write_all(fd, data)
            write_all(fd, _TRAILER.pack(_MAGIC, _checksum(data, folder, name), stop - start))
        finally:
            os.close(fd)
        hidden.rename(folder / name)
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise


def read_range(
    folder: Path, start: int, stop: int, *, is_verified: bool = False, is_mapped: bool = True
) -> NDArray[np.uint8] | None:
    """
    Return a range as a read-only array; None if it is missing, cannot be read, or is damaged.

    ``is_verified`` skips the CRC-32. ``is_mapped`` maps the file, so that all processes share its memory; otherwise it
    is copied.
    """
    name = _name(start, stop)
    size = stop - start
    try:
        fd = os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        whole = _bytes_of(fd, size + TRAILER_BYTES, is_mapped=is_mapped)
    except OSError:
        whole = None
    finally:
        os.close(fd)
    if whole is None or not (is_verified or _is_whole(whole, size, folder, name)):
        return None
    return whole[:size]


def remove_range(folder: Path, start: int, stop: int) -> bool:
    """Remove a range. Returns False if it cannot be removed."""
    try:
        (folder / _name(start, stop)).unlink(missing_ok=True)
    except OSError:
        return False
    return True


def _name(start: int, stop: int) -> str:
    return f"{start}-{stop}"


def _bytes_of(fd: int, size: int, *, is_mapped: bool) -> NDArray[np.uint8] | None:
    """All bytes of a file; None if they are not as many as expected."""
    if os.fstat(fd).st_size != size:
        return None
    if is_mapped:
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        return np.frombuffer(mmap.mmap(fd, size, flags=flags, prot=mmap.PROT_READ), np.uint8)
    copy = np.empty(size, np.uint8)
    done = 0
    while done < size:
        count = os.preadv(fd, [copy[done:].data], done)
        if count == 0:
            return None
        done += count
    copy.setflags(write=False)
    return copy


def _is_whole(whole: NDArray[np.uint8], size: int, folder: Path, name: str) -> bool:
    trailer = _TRAILER.unpack(whole[size:].tobytes())
    return trailer == (_MAGIC, _checksum(whole[:size], folder, name), size)


def _checksum(data: Any, folder: Path, name: str) -> int:
    return crc32(f"{folder.name}/{name}".encode(), crc32(data))


# Which ranges of one object are kept: the names in its folder.

LOCK = ".lock"
_STALE_S = 3600.0  # seconds after which a hidden file belongs to a writer that was killed
_TOUCH_S = 3600.0
_PAUSE = 20  # a folder is read again after so many times the time that reading it took

Range = tuple[int, int]
Cover = list[tuple[int, int, Range | None]]  # start, stop, and the kept range in which they lie


class RangeFolder:
    """
    The ranges kept of one object, in memory. ``refresh`` reads the names again if the folder changed.

    Not safe to share between threads.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.verified: set[Range] = set()  # whose CRC-32 this process has compared
        self._ranges: list[Range] = []  # sorted
        self._longest = 0
        self._changed_ns = -1  # the folder's mtime when its names were read
        self._touched = float("-inf")
        self._next_reading = float("-inf")
        self._lost: set[Range] = set()  # damaged, and cannot be removed

    def refresh(self, *, at_once: bool = False) -> None:
        """
        Read the names of the folder if it changed; one that is not there has none.

        Unless ``at_once``, a folder of very many names is not read again soon.
        """
        begun = time.monotonic()
        if begun < self._next_reading and not at_once:
            return
        try:
            changed_ns = self.path.stat().st_mtime_ns
            if changed_ns == self._changed_ns:
                return
            names = [path.name for path in self.path.iterdir()]
        except OSError:
            changed_ns, names = -1, []
        ranges = sorted({kept for kept in map(range_of, names) if kept is not None} - self._lost)
        self._ranges, self._changed_ns = ranges, changed_ns
        self._longest = max((stop - start for start, stop in ranges), default=0)
        self.verified.intersection_update(ranges)
        self._remove_stale([name for name in names if name.startswith(".") and name != LOCK])
        now = time.monotonic()
        self._next_reading = now + _PAUSE * (now - begun)

    def touch(self) -> None:
        """Note on the folder, now and then, that it is in use."""
        now = time.monotonic()
        if now - self._touched > _TOUCH_S:
            self._touched = now
            try:
                os.utime(self.path)
            except OSError:
                return  # not there yet, or not ours: it only looks older than it is

    def add(self, kept: Range) -> None:
        """Note a range that this process has written."""
        self._lost.discard(kept)
        at = bisect_left(self._ranges, kept)
        if self._ranges[at : at + 1] != [kept]:
            insort(self._ranges, kept)
            self._longest = max(self._longest, kept[1] - kept[0])

    def remove(self, kept: Range) -> None:
        """Remove a range; one that cannot be removed is not read again."""
        if not remove_range(self.path, *kept):
            self._lost.add(kept)
        self.verified.discard(kept)
        at = bisect_left(self._ranges, kept)
        if self._ranges[at : at + 1] == [kept]:
            del self._ranges[at]

    def overlapping(self, start: int, stop: int) -> list[Range]:
        """Return the kept ranges that share bytes with this one."""
        first = bisect_left(self._ranges, (start - self._longest, 0))
        last = bisect_left(self._ranges, (stop, 0))
        return [kept for kept in self._ranges[first:last] if kept[1] > start]

    def cover(self, start: int, stop: int) -> Cover:
        """
        Divide a range into the parts that kept ranges hold, and gaps; as few parts as possible.

        >>> folder = RangeFolder(Path("x"))
        >>> folder.add((0, 10)), folder.add((20, 40))
        (None, None)
        >>> folder.cover(5, 30)
        [(5, 10, (0, 10)), (10, 20, None), (20, 30, (20, 40))]
        """
        candidates = self.overlapping(start, stop)
        starts = [kept[0] for kept in candidates]
        parts: Cover = []
        at = start
        while at < stop:
            reached = bisect_right(starts, at)
            best = max(candidates[:reached], key=lambda kept: kept[1], default=None)
            if best is not None and best[1] > at:
                end = min(best[1], stop)
                parts.append((at, end, best))
            else:
                end = starts[reached] if reached < len(starts) else stop
                parts.append((at, end, None))
            at = end
        return parts

    def _remove_stale(self, hidden: list[str]) -> None:
        """Remove what writers left that were killed."""
        oldest = time.time() - _STALE_S
        for name in hidden:
            try:
                if (self.path / name).stat().st_mtime < oldest:
                    (self.path / name).unlink()
            except OSError:
                continue  # renamed meanwhile, or not ours
