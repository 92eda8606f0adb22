"""CacheLimit: how many bytes the files of a range cache may take, counted by all who write there."""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from fastio.store.files.remote.range_cache_file import TRAILER_BYTES, range_of

__all__ = ["CacheLimit", "existing_folder"]

_FULL_S = 60.0  # seconds until a full cache is measured again
_UNUSED_S = 7 * 86_400.0  # objects that nobody opened for so long may go when the limit is reached
_SCANS = 256  # times that the folder is measured while it fills up
_MOST_UNSCANNED = 64 << 20  # bytes that a process may write between two of them
_PAUSE = 20  # it is measured again after so many times the time that measuring took
_DEFAULT_SHARE = 0.9  # of the free space, without a limit


class CacheLimit:
    """
    The limit of one folder, as one process sees it.

    The folder is measured by the names of its files, again and again while it fills up. Several processes together may
    pass the limit by what each writes in between: 1/256 of the limit, and 64 MiB at most. Not safe to share between
    threads.
    """

    def __init__(self, folder: Path, limit: int | None) -> None:
        self._folder = folder
        self._limit = limit  # None until the free space is known
        self._used: int | None = None  # bytes in the folder when it was last measured
        self._reserved = 0  # and what we have reserved since
        self._full_until = self._next_measuring = float("-inf")

    def reserve(self, size: int, *, current: Collection[str]) -> bool:
        """
        Return whether so many bytes more may be written; they count from now on.

        At the limit, other versions of the ``current`` objects (ids that are in use) are removed, and then objects that
        nobody has opened for a week.
        """
        if time.monotonic() < self._full_until:
            return False
        if self._limit is None:
            free = shutil.disk_usage(existing_folder(self._folder)).free
            self._limit = int(_DEFAULT_SHARE * (_used_bytes(self._folder) + free))
        is_old = (
            self._reserved > min(self._limit // _SCANS, _MOST_UNSCANNED) and time.monotonic() > self._next_measuring
        )
        if self._used is None or is_old:
            self._measure()
        if not self._fits(size):
            self._measure()
            for unused in _unused(self._folder, current):
                if self._fits(size):
                    break
                shutil.rmtree(unused, ignore_errors=True)
                self._measure()
        if not self._fits(size):
            self._full_until = time.monotonic() + _FULL_S
            return False
        self._reserved += size
        return True

    def give_back(self, size: int) -> None:
        """Note that reserved bytes were not written."""
        self._reserved -= size

    def _measure(self) -> None:
        begun = time.monotonic()
        self._used, self._reserved = _used_bytes(self._folder), 0
        now = time.monotonic()
        self._next_measuring = now + _PAUSE * (now - begun)

    def _fits(self, size: int) -> bool:
        assert self._used is not None
        assert self._limit is not None
        return self._used + self._reserved + size <= self._limit


def existing_folder(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that is there already."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _objects(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if not path.name.startswith(".")]
    except OSError:
        return []


def _used_bytes(folder: Path) -> int:
    return sum(map(_object_bytes, _objects(folder)))


def _object_bytes(folder: Path) -> int:
    try:
        ranges = [range_of(path.name) for path in folder.iterdir()]
    except OSError:
        return 0
    return sum(kept[1] - kept[0] + TRAILER_BYTES for kept in ranges if kept is not None)


def _unused(folder: Path, current: Collection[str]) -> Iterator[Path]:
    """Other versions of the current objects, then objects that nobody opened for long, oldest first."""
    urls = {name.partition("-")[0] for name in current}
    others = [path for path in _objects(folder) if path.name not in current]
    yield from (path for path in others if path.name.partition("-")[0] in urls)
    ages = [(_age_s(path), path) for path in others if path.name.partition("-")[0] not in urls]
    yield from (path for age_s, path in sorted(ages, reverse=True) if age_s > _UNUSED_S)


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0
