"""
RangeCache: what was read of objects, kept in a folder up to a limit, and shared by the processes and jobs of a node.

    <cache_dir>/<object id>.bytes     what is there of one version of one URL; ``disk`` draws it
    <cache_dir>/<object id>.ranges    its record; its mtime says when it was last used
"""

from __future__ import annotations

import hashlib
import logging
import mmap
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.store.files.local import network_file_system
from fastio.store.files.remote.disk import POLL_S, Claim, DiskObject, Piece
from fastio.store.files.remote_options import Remote

__all__ = ["CachedObject", "RangeCache", "object_id"]

_LOG = logging.getLogger(__name__)


def object_id(url: str, options: Remote, *, size: int, version: str) -> str | None:
    """
    Return the name under which ranges of one version of an object are kept; None if it has no version.

    ``version`` is its ETag, or what a set object says of its content. The first half of the name is the same for all
    versions of the URL.
    """
    if not version:
        return None
    servers = sorted(
        f"{name}={value}" for name, value in options.storage_options.items() if "endpoint" in name or "account" in name
    )
    return f"{_digest(url, *servers)}-{_digest(str(size), version)}"


def _digest(*words: str) -> str:
    return hashlib.blake2b("\0".join(words).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


class RangeCache:
    """
    Objects in one folder; safe to use from threads.

    Ranges are written until the limit is reached and stay: an epoch reads every sample once, so a kept fraction f gives
    f hits in each epoch, whatever the order. No method raises because of the disk. If the folder cannot be written,
    this process says so once and stops writing.
    """

    def __init__(self, folder: str, limit: int | None) -> None:
        self.folder = Path(folder)
        self.hit_bytes = self.kept_bytes = 0
        self._limit = CacheLimit(self.folder, limit)
        self._objects: dict[str, CachedObject] = {}
        self._indexes: set[tuple[str, int, int]] = set()  # what ``once`` gave
        self._lock = threading.Lock()
        self._is_writing = True
        self._has_dropped = False
        self._is_mapped = network_file_system(existing_folder(self.folder)) is None

    @classmethod
    def of(cls, options: Remote) -> RangeCache | None:
        """Return the cache of these options, one for each folder and process; None without a folder or limit."""
        if options.cache_dir is None or options.cache_limit == 0:
            return None
        return _shared(str(Path(options.cache_dir).absolute()), options.cache_limit, os.getpid())

    def object(self, name: str, size: int) -> CachedObject:
        """Return what is kept of the object of this id."""
        with self._lock:
            found = self._objects.get(name)
            if found is None:
                self.make_folder()
                disk = DiskObject(
                    self.folder / f"{name}{_BYTES}",
                    self.folder / f"{name}{_RANGES}",
                    size=size,
                    content=name,
                    makes=True,
                    is_mapped=self._is_mapped,
                )
                found = self._objects[name] = CachedObject(self, name, disk)
        return found

    def forget_indexes(self) -> None:
        """Remove what ``once`` has given to this process: something of it is not what was packed."""
        with self._lock:
            indexes, self._indexes = self._indexes, set()
        for name, start, stop in indexes:
            self._objects[name].drop(start, stop)

    def make_folder(self) -> None:
        """Make the folder, if that can be."""
        with suppress(OSError):  # writing says what is wrong
            self.folder.mkdir(parents=True, exist_ok=True)

    def count_hit(self, size_bytes: int) -> None:
        """Count bytes that were found."""
        with self._lock:
            self.hit_bytes += size_bytes

    def given(self, name: str, start: int, stop: int) -> None:
        """Note that a range of an index was given out."""
        with self._lock:
            self._indexes.add((name, start, stop))

    def write(self, disk: DiskObject, start: int, data: Any, *, is_limited: bool) -> None:
        """Write what is not there yet of bytes, if the limit allows."""
        size = len(memoryview(data)) + mmap.PAGESIZE if is_limited else 0
        with self._lock:
            if not self._is_writing or (size and not self._limit.reserve(size, current=self._objects)):
                return
        written = 0
        try:
            try:
                written = disk.write(start, data)
            except FileNotFoundError:  # somebody removed the folder
                self.make_folder()
                written = disk.write(start, data)
        except OSError as exc:
            self._stop_writing(exc)
        with self._lock:
            self.kept_bytes += written
            if not written:
                self._limit.give_back(size)

    def report_damage(self, path: Path, start: int, stop: int) -> None:
        """Say, the first time, that a range was not what was packed."""
        with self._lock:
            is_first, self._has_dropped = not self._has_dropped, True
        if is_first:
            _LOG.warning(
                "%s: holds other bytes than were packed (%d to %d): removed, and fetched again; check the disk, and "
                "the network",
                path,
                start,
                stop,
            )

    def _stop_writing(self, error: OSError) -> None:
        with self._lock:
            was_writing, self._is_writing = self._is_writing, False
        if was_writing:
            _LOG.warning(
                "%s: nothing more is kept there (%s): free space, or choose another cache_dir",
                self.folder,
                error.strerror or error,
            )


class CachedObject:
    """What a cache directory has of one object; see LocalBytes."""

    def __init__(self, cache: RangeCache, name: str, disk: DiskObject) -> None:
        self._cache = cache
        self._name = name
        self._disk = disk
        self._touched = float("-inf")

    def find(self, start: int, stop: int) -> NDArray[np.uint8] | None:
        """Return a range, read-only; None unless all of it is there."""
        pieces = self._pieces(start, stop)
        if not pieces:
            return np.empty(0, np.uint8)
        if pieces[0][2] is not None and len(pieces) == 1:
            self._cache.count_hit(stop - start)
            return pieces[0][2]
        return None

    def pieces(self, start: int, stop: int) -> list[Piece]:
        """See LocalBytes."""
        pieces = self._pieces(start, stop)
        found = sum([last - first for first, last, data in pieces if data is not None])
        if found:
            self._cache.count_hit(found)
        return pieces

    def opened(self, start: int, stop: int) -> int | None:
        """Return a descriptor of the file that has all of a range, to be mapped and closed; None if it is not there."""
        return self._disk.opened(start, stop)

    def claim(self, start: int, stop: int) -> Claim | None:
        """See LocalBytes."""
        return self._disk.claim(start, stop)

    def keep(self, start: int, data: Any) -> None:
        """See LocalBytes."""
        self._cache.write(self._disk, start, data, is_limited=True)

    def drop(self, start: int, stop: int) -> None:
        """See LocalBytes. The first time, the log says so."""
        if self._disk.drop(start, stop):
            self._cache.report_damage(self._disk.path, start, stop)

    def once(self, start: int, stop: int, fetch: Callable[[], Any], *, wait_s: float) -> NDArray[np.uint8]:
        """
        Return a range that all processes of a node need, such as an index: one of them fetches it, the others read it.

        A process that dies while it fetches lets the next one go on. After ``wait_s`` seconds this one fetches itself.
        What ``fetch`` raises is raised. The limit does not count for these ranges.
        """
        self._cache.given(self._name, start, stop)
        found, deadline = self.find(start, stop), time.monotonic() + wait_s
        if found is not None:
            return found
        while (claim := self.claim(start, stop)) is None and time.monotonic() < deadline:
            time.sleep(POLL_S)
        try:
            found = self.find(start, stop)
            if found is not None:
                return found
            data = fetch()
            self._cache.write(self._disk, start, data, is_limited=False)
        finally:
            if claim is not None:
                claim.release()
        found = self.find(start, stop)  # mapped: the memory is shared with the other processes
        return np.frombuffer(data, np.uint8) if found is None else found

    def _pieces(self, start: int, stop: int) -> list[Piece]:
        now = time.monotonic()
        if now - self._touched > _TOUCH_S:
            self._touched = now
            self._disk.touch()
        return self._disk.pieces(start, stop)


@cache
def _shared(folder: str, limit: int | None, _pid: int) -> RangeCache:
    return RangeCache(folder, limit)


# CacheLimit: how many bytes the files of a cache directory may take, counted by all who write there.

_BYTES, _RANGES = ".bytes", ".ranges"
_FORMER = re.compile(r"[0-9a-f]{16}-[0-9a-f]{16}")  # folders with a file a range, as 0.1 kept them
_TOUCH_S = 3600.0
_FULL_S = 60.0  # seconds until a full cache is measured again
_UNUSED_S = 7 * 86_400.0  # objects that nobody opened for so long may go when the limit is reached
_SCANS = 256  # times that the folder is measured while it fills up
_MOST_UNSCANNED = 64 << 20  # bytes that a process may write between two of them
_PAUSE = 20  # it is measured again after so many times the time that measuring took
_DEFAULT_SHARE = 0.9  # of the free space, without a limit


class CacheLimit:
    """
    The limit of one folder, as one process sees it.

    The folder is measured again and again while it fills up, by what its files take on the disk. Several processes
    together may pass the limit by what each writes in between: 1/256 of the limit, and 64 MiB at most. Not safe to
    share between threads.
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
        nobody has opened for a week. What 0.1 kept here is removed at once.
        """
        if time.monotonic() < self._full_until:
            return False
        if self._used is None:
            _remove_former(self._folder)
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
                for suffix in (_RANGES, _BYTES):
                    with suppress(OSError):
                        (self._folder / f"{unused}{suffix}").unlink(missing_ok=True)
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


def _objects(folder: Path) -> dict[str, tuple[int, float]]:
    """Bytes on the disk of each object, by id, and the time of its last use."""
    found: dict[str, tuple[int, float]] = {}
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            name, suffix = os.path.splitext(entry.name)  # noqa: PTH122 - called for every file
            if suffix in (_BYTES, _RANGES):
                with suppress(OSError):
                    status = entry.stat()
                    size, used = found.get(name, (0, 0.0))
                    found[name] = size + 512 * status.st_blocks, max(used, status.st_mtime * (suffix == _RANGES))
    return found


def _used_bytes(folder: Path) -> int:
    return sum(size for size, _ in _objects(folder).values())


def _unused(folder: Path, current: Collection[str]) -> Iterator[str]:
    """Other versions of the current objects, then objects that nobody opened for long, oldest first."""
    urls = {name.partition("-")[0] for name in current}
    others = {name: used for name, (_, used) in _objects(folder).items() if name not in current}
    yield from (name for name in others if name.partition("-")[0] in urls)
    oldest = time.time() - _UNUSED_S
    ages = sorted((used, name) for name, used in others.items() if name.partition("-")[0] not in urls)
    yield from (name for used, name in ages if used < oldest)


def _remove_former(folder: Path) -> None:
    with suppress(OSError):
        for path in folder.iterdir():
            if _FORMER.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
