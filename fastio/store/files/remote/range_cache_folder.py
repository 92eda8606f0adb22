"""Which ranges of one object are kept: the names in its folder."""

from __future__ import annotations

import os
import time
from bisect import bisect_left, bisect_right, insort
from pathlib import Path

from fastio.store.files.remote.range_cache_file import range_of, remove_range

__all__ = ["LOCK", "Cover", "RangeFolder"]

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
