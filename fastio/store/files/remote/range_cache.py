"""
RangeCache: ranges of objects, kept on a local disk and shared by the processes and jobs of a node.

    <cache_dir>/<object id>/<start>-<stop>    one range; ``range_cache_files`` draws it
    <cache_dir>/<object id>/.lock             held by the process that fetches an index; see ``once``

An object id stands for one version of one URL. Ranges are written until the limit is reached and stay: an epoch reads
every sample once, so a kept fraction f gives f hits in each epoch, whatever the order.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.store.files.local import network_file_system
from fastio.store.files.remote.range_cache_files import (
    LOCK,
    TRAILER_BYTES,
    RangeFolder,
    range_of,
    read_range,
    write_range,
)
from fastio.store.files.remote_options import Remote

__all__ = [
    "Piece",
    "RangeCache",
    "object_id",
]


_LOG = logging.getLogger(__name__)

_POLL_S = 0.02

Piece = tuple[int, int, NDArray[np.uint8] | None]  # start, stop, and the bytes if they are kept


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
    Ranges of objects in one folder; safe to use from threads.

    No method raises because of the disk. If the folder cannot be written, this process says so once and stops writing.
    """

    def __init__(self, folder: str, limit: int | None) -> None:
        self.folder = Path(folder)
        self.hit_bytes = self.kept_bytes = 0
        self._limit = CacheLimit(self.folder, limit)
        self._folders: dict[str, RangeFolder] = {}
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

    def find(self, name: str, start: int, stop: int) -> NDArray[np.uint8] | None:
        """
        Return the bytes from ``start`` up to ``stop`` of the object of this id, read-only; None unless all are there.

        They are compared with their CRC-32 when this process first reads them.
        """
        parts = [data for _, _, data in self._pieces(name, start, stop) if data is not None]
        if sum(map(len, parts)) < stop - start:
            return None
        with self._lock:
            self.hit_bytes += stop - start
        joined = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.uint8), *parts])
        joined.setflags(write=False)
        return joined

    def pieces(self, name: str, start: int, stop: int) -> list[Piece]:
        """Return the range in pieces (start, stop, bytes), in order; the bytes of a gap are None."""
        pieces = self._pieces(name, start, stop)
        with self._lock:
            self.hit_bytes += sum(last - first for first, last, data in pieces if data is not None)
        return pieces

    def keep(self, name: str, start: int, stop: int, data: Any) -> None:
        """Write what is not there yet of a range, if the limit allows; ``data`` is a contiguous buffer."""
        self._keep(name, start, stop, data, is_limited=True)

    def drop(self, name: str, start: int, stop: int) -> None:
        """
        Remove the kept ranges that share bytes with this one: a sample in it does not have its CRC-32.

        The first time, the log says so.
        """
        folder = self._folder(name)
        with self._lock:
            folder.refresh()
            dropped = folder.overlapping(start, stop)
            for kept in dropped:
                folder.remove(kept)
            is_first, self._has_dropped = bool(dropped) and not self._has_dropped, self._has_dropped or bool(dropped)
        if is_first:
            _LOG.warning(
                "%s: holds other bytes than were packed: removed, and fetched again; check the disk, and the network",
                folder.path / f"{dropped[0][0]}-{dropped[0][1]}",
            )

    def once(self, name: str, start: int, stop: int, fetch: Callable[[], Any], *, wait_s: float) -> NDArray[np.uint8]:
        """
        Return a range that all processes of a node need, such as an index: one of them fetches it, the others read it.

        A process that dies while it fetches lets the next one go on. After ``wait_s`` seconds this one fetches itself.
        What ``fetch`` raises is raised. The limit does not count for these ranges.
        """
        with self._lock:
            self._indexes.add((name, start, stop))
        kept = self.find(name, start, stop)
        if kept is not None:
            return kept
        with self._turn(name, wait_s):
            with self._lock:
                self._folders[name].refresh(at_once=True)
            kept = self.find(name, start, stop)
            if kept is not None:
                return kept
            data = fetch()
            self._keep(name, start, stop, data, is_limited=False)
        kept = self.find(name, start, stop)  # mapped: the memory is shared with the other processes
        return np.frombuffer(data, np.uint8) if kept is None else kept

    def forget_indexes(self) -> None:
        """Remove what ``once`` has given to this process: something of it is not what was packed."""
        with self._lock:
            indexes, self._indexes = self._indexes, set()
        for name, start, stop in indexes:
            self.drop(name, start, stop)

    def _folder(self, name: str) -> RangeFolder:
        with self._lock:
            folder = self._folders.get(name)
            if folder is None:
                folder = self._folders[name] = RangeFolder(self.folder / name)
            folder.touch()
            return folder

    def _pieces(self, name: str, start: int, stop: int) -> list[Piece]:
        folder = self._folder(name)
        with self._lock:
            parts = folder.cover(start, stop)
            if any(kept is None for _, _, kept in parts):
                folder.refresh()
                parts = folder.cover(start, stop)
        pieces: list[Piece] = []
        for first, last, kept in parts:
            if kept is None:
                pieces.append((first, last, None))
                continue
            whole = self._read(folder, *kept)
            if whole is None:
                return self._pieces(name, start, stop)  # without the one that was damaged or is gone
            pieces.append((first, last, whole[first - kept[0] : last - kept[0]]))
        return pieces

    def _read(self, folder: RangeFolder, start: int, stop: int) -> NDArray[np.uint8] | None:
        is_verified = (start, stop) in folder.verified
        whole = read_range(folder.path, start, stop, is_verified=is_verified, is_mapped=self._is_mapped)
        with self._lock:
            if whole is None:
                folder.remove((start, stop))
            else:
                folder.verified.add((start, stop))
        return whole

    def _keep(self, name: str, start: int, stop: int, data: Any, *, is_limited: bool) -> None:
        if not self._is_writing or start == stop:
            return
        folder, view = self._folder(name), memoryview(data).cast("B")
        with self._lock:
            folder.refresh()
            gaps = [(first, last) for first, last, kept in folder.cover(start, stop) if kept is None]
        for first, last in gaps:
            size = last - first + TRAILER_BYTES
            with self._lock:
                if is_limited and not self._limit.reserve(size, current=self._folders):
                    return
            try:
                self._write(folder.path, first, last, view[first - start : last - start])
            except OSError as exc:
                with self._lock:
                    self._limit.give_back(size if is_limited else 0)
                self._stop_writing(exc)
                return
            with self._lock:
                folder.add((first, last))
                self.kept_bytes += last - first

    def _write(self, folder: Path, start: int, stop: int, data: memoryview) -> None:
        try:
            write_range(folder, start, stop, data)
        except FileNotFoundError:  # the first range, or somebody removed the folder
            folder.mkdir(parents=True, exist_ok=True)
            write_range(folder, start, stop, data)

    def _stop_writing(self, error: OSError) -> None:
        with self._lock:
            was_writing, self._is_writing = self._is_writing, False
        if was_writing:
            _LOG.warning(
                "%s: nothing more is kept there (%s): free space, or choose another cache_dir",
                self.folder,
                error.strerror or error,
            )

    @contextmanager
    def _turn(self, name: str, wait_s: float) -> Iterator[None]:
        """Wait until no other process fetches for this object, for ``wait_s`` seconds at most."""
        path, deadline = self.folder / name / LOCK, time.monotonic() + wait_s
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as exc:
            self._stop_writing(exc)
            yield
            return
        try:
            while not _locked(fd) and time.monotonic() < deadline:
                time.sleep(_POLL_S)
            yield
        finally:
            os.close(fd)


@cache
def _shared(folder: str, limit: int | None, _pid: int) -> RangeCache:
    return RangeCache(folder, limit)


def _locked(fd: int) -> bool:
    """Lock a file. Returns False while another process holds it, True also where there are no locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


# CacheLimit: how many bytes the files of a range cache may take, counted by all who write there.

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
