"""
DiskObject: what is there of an object on a disk of this machine, for a cache directory and for a stage.

Each version of an object is a sparse file that holds its bytes where they are there, and a record of what is there:

    offset  size  field      meaning (integers unsigned, little endian)
         0     8  magic      "fiorange"
         8     8  size       bytes of the object
        16     8  content    BLAKE2b of what tells this version
        24     8  inode      of the sparse file
        32     8  token      drawn when the record was begun
        40     4  crc        CRC-32 of the 40 bytes before
        44    20  zeros
        64    32  entry      start (8), stop (8), kind (4): 1 there, 2 gone; CRC-32 of the bytes (4), zeros (4),
                             CRC-32 of the header's CRC-32 and the 28 bytes before (4)
        96    32  entry      ...

An entry is appended once its bytes were written, by whoever has the writer's lock of the record. Nothing is synced:
each process compares a range with its CRC-32 before it reads it for the first time. A cache directory has
``<id>.bytes`` and ``<id>.ranges``; a stage ``.NAME.partial`` and ``.NAME.ranges``, until the file gets its name.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import mmap
import os
import secrets
import struct
import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fastio._native import crc32
from fastio.store.files.local import aligned
from fastio.store.write.atomic import pwrite_all

__all__ = [
    "POLL_S",
    "Claim",
    "DiskObject",
    "LocalBytes",
    "Piece",
    "Range",
    "gaps_of",
]


POLL_S = 0.01  # between looks whether another one has fetched a range

Range = tuple[int, int]  # start and stop
Piece = tuple[int, int, NDArray[np.uint8] | None]  # start, stop, and the bytes if they are there

_HEADER = struct.Struct("<8sQ8sQ8s")
_HEADER_BYTES = 64
_MAGIC = b"fiorange"
_ENTRY = struct.Struct("<QQIII")
_ENTRY_BYTES = 32
_THERE, _GONE = 1, 2
_WRITER = 1 << 62  # the byte whose lock lets one write; those of ranges are the ranges themselves
_WRITER_WAIT_S = 1.0  # longer is only a whole file being checked, which needs no more bytes
_ATTEMPTS = 10


class Entry(NamedTuple):
    """A range that was written, with its CRC-32."""

    start: int
    stop: int
    crc: int


class LocalBytes(Protocol):
    """What is there of one object on this machine. Safe to share between threads; nothing raises."""

    def pieces(self, start: int, stop: int) -> list[Piece]:
        """Return the range in pieces (start, stop, bytes), in order; the bytes of a gap are None."""
        ...

    def claim(self, start: int, stop: int) -> Claim | None:
        """Return the right to fetch a range, to be released; None while another one fetches some of it."""
        ...

    def keep(self, start: int, data: Any) -> None:
        """Write what is not there yet of bytes that were fetched, if there is room."""
        ...

    def drop(self, start: int, stop: int) -> None:
        """Read no more what shares bytes with this range: a sample in it does not have its CRC-32."""
        ...


def gaps_of(pieces: Iterable[Piece]) -> list[Range]:
    """Return the ranges that are not there."""
    return [(start, stop) for start, stop, data in pieces if data is None]


class Claim:
    """
    The right to fetch a range. It ends with the process that has it, and where nobody holds it any more: a request may
    be cancelled in the moment in which a thread gets the right for it.
    """

    _getpid = staticmethod(os.getpid)

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._process = self._getpid()

    def release(self) -> None:
        """Let others fetch; twice does no harm."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            _close(fd)

    def __del__(self) -> None:
        if self._process == self._getpid():  # a fork has a copy of the descriptor, but not the right
            self.release()


class DiskObject:
    """
    What is there of one version of an object, in a file and its record that any number of processes share.

    ``content`` tells the version. With ``makes``, files that are missing, or of another version, are begun anew. Has no
    lock in memory: threads share it, and a forked process may go on with it.
    """

    def __init__(
        self, path: Path, record: Path, *, size: int, content: str, makes: bool = False, is_mapped: bool = False
    ) -> None:
        self.path = path
        self.record = record
        self._size = size
        self._content = hashlib.blake2b(content.encode("utf-8", "surrogateescape"), digest_size=8).digest()
        self._makes = makes
        self._is_mapped = is_mapped
        self._known = _NOTHING
        self._verified: set[Entry] = set()
        self._refused: set[Entry] = set()  # damaged, and the record cannot be written
        self._held = -1  # the record, while nobody else may write

    def pieces(self, start: int, stop: int) -> list[Piece]:
        """See LocalBytes. What lies side by side is one piece."""
        if start == stop:
            return []
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return [(start, stop, None)]
        try:
            return [
                (first, last, self._bytes(fd, first, last) if is_there else None)
                for first, last, is_there in self._verified_parts(fd, start, stop)
            ]
        except OSError:
            return [(start, stop, None)]
        finally:
            os.close(fd)

    def opened(self, start: int, stop: int) -> int | None:
        """Return a descriptor of the file if it may be mapped and all of a range is there, to be closed."""
        if not self._is_mapped:
            return None
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        with suppress(OSError):
            if all(is_there for _, _, is_there in self._verified_parts(fd, start, stop)):
                return fd
        os.close(fd)
        return None

    def gaps(self, start: int, stop: int) -> list[Range]:
        """Return what is not there of a range, or not right. Raises OSError."""
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return [(first, last) for first, last, is_there in self._verified_parts(fd, start, stop) if not is_there]
        finally:
            os.close(fd)

    def missing(self, start: int, stop: int) -> int | None:
        """Return how many bytes of a range are not there, as the record says; None while there is none."""
        try:
            known = self._now()
        except OSError:
            return None
        parts = known.cover(start, stop, self._refused)
        return sum(last - first for first, last, found in parts if found is None) if known.inode else None

    def claim(self, start: int, stop: int) -> Claim | None:
        """See LocalBytes."""
        try:
            fd = self._open_record()
        except OSError:
            return Claim(-1)  # nobody can be kept from it
        if _is_locked(fd, start, max(1, stop - start)):
            return Claim(fd)
        os.close(fd)
        return None

    def make(self) -> None:
        """Begin the files unless they are there. Raises OSError."""
        with self._writing():
            pass

    def write(self, start: int, data: Any) -> int:
        """
        Write what is not there yet of bytes from ``start`` on, and return how many that were. Raises OSError.

        Nothing is written without files of this version, and while another process has them for itself.
        """
        view, written = memoryview(data).cast("B"), 0
        with self._writing() as record:
            if record < 0:
                return 0
            known = self._read(record)
            gaps = [part[:2] for part in known.cover(start, start + len(view), self._refused) if part[2] is None]
            if not gaps:
                return 0
            fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                for first, last in gaps:
                    part = view[first - start : last - start]
                    pwrite_all(fd, part, first)
                    entry = Entry(first, last, crc32(part))
                    self._append(record, known, entry, _THERE)
                    self._refused.discard(entry)
                    self._verified.add(entry)
                    known = self._read(record)
                    written += last - first
            finally:
                os.close(fd)
        return written

    def drop(self, start: int, stop: int) -> bool:
        """Forget the ranges that share bytes with this one; returns whether there are any."""
        try:
            known = self._now()
            dropped = [entry for entry in known.overlapping(start, stop) if entry not in self._refused]
            if not dropped:
                return False
            self._refused.update(dropped)
            with self._writing() as record:
                if record >= 0:
                    self._append(record, self._read(record), Entry(start, stop, 0), _GONE)
                    self._read(record)
                    self._refused.difference_update(dropped)
        except OSError:
            return bool(self._refused)
        return True

    def hold(self, wait_s: float) -> None:
        """Let nobody else write, until ``release``. Raises OSError if somebody does so for too long."""
        if self._held < 0:
            self._held = self._locked_record(wait_s)
            if self._held < 0:
                raise BlockingIOError(errno.EWOULDBLOCK, "another process writes to it", str(self.path))

    def release(self) -> None:
        """Let others write again; twice does no harm."""
        fd, self._held = self._held, -1
        if fd >= 0:
            _close(fd)

    def touch(self) -> None:
        """Note on the record that it is in use."""
        with suppress(OSError):  # not there yet, or not ours: it only looks older than it is
            os.utime(self.record)

    def _verified_parts(self, fd: int, start: int, stop: int) -> list[tuple[int, int, bool]]:
        """The range in parts that are there or not, in order; what is there has its CRC-32."""
        while True:
            known, status = self._now(), os.fstat(fd)
            if (known.inode, self._size) != (status.st_ino, status.st_size):
                return [(start, stop, False)]
            cover = known.cover(start, stop, self._refused)
            if len(cover) == 1 and cover[0][2] in self._verified:
                return [(start, stop, True)]
            wrong = [entry for _, _, entry in cover if entry is not None and not self._is_right(fd, entry)]
            if not wrong:
                break
            for entry in wrong:
                self.drop(entry.start, entry.stop)
        parts: list[tuple[int, int, bool]] = []
        for first, last, found in cover:
            if parts and parts[-1][2] == (found is not None):
                parts[-1] = parts[-1][0], last, parts[-1][2]
            else:
                parts.append((first, last, found is not None))
        return parts

    def _is_right(self, fd: int, entry: Entry) -> bool:
        if entry not in self._verified:
            data = self._bytes(fd, entry.start, entry.stop)
            if crc32(data) != entry.crc:
                return False
            self._verified.add(entry)
        return True

    def _bytes(self, fd: int, start: int, stop: int) -> NDArray[np.uint8]:
        """The bytes of a range, read-only. Raises OSError."""
        if self._is_mapped:
            before = start % mmap.ALLOCATIONGRANULARITY
            flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
            mapping = mmap.mmap(fd, stop - start + before, flags=flags, prot=mmap.PROT_READ, offset=start - before)
            return np.frombuffer(mapping, np.uint8)[before:]
        data, done = aligned(start, stop - start), 0
        while done < len(data):
            got = os.preadv(fd, [data[done:].data], start + done)
            if got == 0:
                raise OSError(errno.EIO, "cut off", str(self.path))
            done += got
        data.setflags(write=False)
        return data

    def _now(self) -> _Known:
        """What the record says by now. Raises OSError."""
        status = os.stat(self.record)  # noqa: PTH116 - called for every range
        if self._known.stamp != _stamp(status):
            fd = os.open(self.record, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return self._read(fd)
            finally:
                os.close(fd)
        return self._known

    def _read(self, record: int) -> _Known:
        """Read what is new in a record. Raises OSError."""
        status = os.fstat(record)
        head = os.pread(record, _HEADER_BYTES, 0)
        before = self._known
        if before.head != head or before.read_to > status.st_size:
            inode = self._inode_of(head)
            before = _Known(_NOTHING.stamp, head, inode, _HEADER_BYTES if inode else 0, [], 0)
            self._verified, self._refused = set(), set()
        known = before
        if before.inode:
            raw = os.pread(record, max(0, status.st_size - before.read_to), before.read_to)
            known = before.read_on(raw, self._verified)
        self._known = known = known._replace(stamp=_stamp(status))
        return known

    def _inode_of(self, head: bytes) -> int:
        """The inode of the sparse file as a header says; 0 if it is torn, or of another version."""
        if len(head) < _HEADER_BYTES or crc32(head[:40]) != int.from_bytes(head[40:44], "little"):
            return 0
        magic, size, content, inode, _ = _HEADER.unpack_from(head)
        return inode if (magic, size, content) == (_MAGIC, self._size, self._content) else 0

    def _append(self, record: int, known: _Known, entry: Entry, kind: int) -> None:
        raw = _ENTRY.pack(entry.start, entry.stop, kind, entry.crc, 0)
        raw += crc32(raw, crc32(known.head)).to_bytes(4, "little")
        pwrite_all(record, raw, known.read_to)  # over what a crash has left of an entry

    @contextmanager
    def _writing(self) -> Iterator[int]:
        """Hold the writer's lock; yields the record, or -1 if nothing can be written. Raises OSError."""
        if self._held >= 0:
            yield self._held
            return
        fd = self._locked_record(_WRITER_WAIT_S)
        try:
            yield fd
        finally:
            if fd >= 0:
                _close(fd)

    def _locked_record(self, wait_s: float) -> int:
        deadline = time.monotonic() + wait_s
        for _ in range(_ATTEMPTS):
            try:
                fd = self._open_record()
            except FileNotFoundError:
                if self._makes:
                    raise
                return -1
            is_ours = False
            try:
                while not _is_locked(fd, _WRITER, 1):
                    if time.monotonic() > deadline:
                        return -1
                    time.sleep(POLL_S / 10)
                if not _is_under(self.record, fd):
                    continue
                is_ours = self._is_of_this_version(fd) or (self._makes and self._begin(fd))
                if is_ours or not self._makes:
                    return fd if is_ours else -1
                self.record.unlink()  # others may still read it: a new one is another file
            finally:
                if not is_ours:
                    _close(fd)
        return -1

    def _open_record(self) -> int:
        return os.open(self.record, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if self._makes else 0), 0o666)

    def _is_of_this_version(self, record: int) -> bool:
        inode = self._inode_of(os.pread(record, _HEADER_BYTES, 0))
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return False
        return inode == status.st_ino and status.st_size == self._size

    def _begin(self, record: int) -> bool:
        """Begin the sparse file and an empty record; False if it is not empty."""
        if os.fstat(record).st_size:
            return False
        self.path.unlink(missing_ok=True)
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            os.ftruncate(fd, self._size)
            head = _HEADER.pack(_MAGIC, self._size, self._content, os.fstat(fd).st_ino, secrets.token_bytes(8))
        finally:
            os.close(fd)
        pwrite_all(record, (head + crc32(head).to_bytes(4, "little")).ljust(_HEADER_BYTES, b"\0"), 0)
        return True


class _Known(NamedTuple):
    """What a record said when it was read: ``ranges`` are sorted."""

    stamp: tuple[int, int, int]
    head: bytes
    inode: int  # of the sparse file; 0: nothing is there
    read_to: int
    ranges: list[Entry]
    longest: int

    def read_on(self, raw: bytes, verified: set[Entry]) -> _Known:
        """Return what is known with the entries that follow; those that are gone are no longer ``verified``."""
        if len(raw) < _ENTRY_BYTES:
            return self
        seed, ranges, longest = crc32(self.head), list(self.ranges), self.longest
        for at in range(0, len(raw) - _ENTRY_BYTES + 1, _ENTRY_BYTES):
            body = raw[at : at + _ENTRY_BYTES - 4]
            if crc32(body, seed) != int.from_bytes(raw[at + _ENTRY_BYTES - 4 : at + _ENTRY_BYTES], "little"):
                continue
            start, stop, kind, crc, _ = _ENTRY.unpack(body)
            if kind == _THERE:
                insort(ranges, Entry(start, stop, crc))
                longest = max(longest, stop - start)
            elif kind == _GONE:
                gone = set(self._replace(ranges=ranges, longest=longest).overlapping(start, stop))
                ranges = [entry for entry in ranges if entry not in gone]
                verified.difference_update(gone)
        read_to = self.read_to + len(raw) // _ENTRY_BYTES * _ENTRY_BYTES
        return self._replace(read_to=read_to, ranges=ranges, longest=longest)

    def overlapping(self, start: int, stop: int) -> list[Entry]:
        """Return the ranges that share bytes with this one."""
        first = bisect_left(self.ranges, (start - self.longest, 0, 0))
        last = bisect_left(self.ranges, (stop, 0, 0))
        return [entry for entry in self.ranges[first:last] if entry.stop > start]

    def cover(self, start: int, stop: int, refused: Collection[Entry]) -> list[tuple[int, int, Entry | None]]:
        """
        Divide a range into parts that entries hold, and gaps; as few parts as possible.

        >>> known = _NOTHING._replace(ranges=[Entry(0, 10, 0), Entry(20, 40, 0)], longest=20)
        >>> [(start, stop, found is not None) for start, stop, found in known.cover(5, 30, ())]
        [(5, 10, True), (10, 20, False), (20, 30, True)]
        """
        candidates = [entry for entry in self.overlapping(start, stop) if entry not in refused]
        if len(candidates) == 1 and candidates[0].start <= start and stop <= candidates[0].stop:
            return [(start, stop, candidates[0])]  # as in every epoch with the same windows
        starts = [entry.start for entry in candidates]
        parts: list[tuple[int, int, Entry | None]] = []
        at = start
        while at < stop:
            reached = bisect_right(starts, at)
            best = max(candidates[:reached], key=lambda entry: entry.stop, default=None)
            if best is not None and best.stop > at:
                end = min(best.stop, stop)
                parts.append((at, end, best))
            else:
                end = starts[reached] if reached < len(starts) else stop
                parts.append((at, end, None))
            at = end
        return parts


_NOTHING = _Known((0, 0, 0), b"", 0, 0, [], 0)


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_mtime_ns, status.st_size


def _is_under(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except FileNotFoundError:
        return False


def _is_locked(fd: int, start: int, size: int) -> bool:
    """
    Lock some bytes, for this descriptor and its copies in forked processes. Returns False while others have a lock
    there, True also where there are no such locks.
    """
    if not hasattr(fcntl, "F_OFD_SETLK"):
        return True
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _flock(fcntl.F_WRLCK, start, size))
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return True
    return True


def _close(fd: int) -> None:
    """Close a descriptor, whose locks end even if a forked process has it too."""
    if hasattr(fcntl, "F_OFD_SETLK"):
        with suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _flock(fcntl.F_UNLCK, 0, 0))
    os.close(fd)


def _flock(kind: int, start: int, size: int) -> bytes:
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, start, size, 0)
