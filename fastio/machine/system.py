"""What Linux has and POSIX does not, and what stands in for it on macOS: no other module asks for it."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from functools import cache
from pathlib import Path

__all__ = [
    "MAP_FIXED",
    "MAP_NORESERVE",
    "advise_order",
    "counts_openings",
    "cpus_of",
    "drop_cached",
    "is_opened_once",
    "open_again",
    "open_uncached",
    "shared_file",
    "take_room",
    "unnamed_file",
]

# Flags of mmap(2) that not every mmap of Python names.
MAP_FIXED = 0x10
MAP_NORESERVE = 0x40 if sys.platform == "darwin" else 0x4000

# Commands of macOS's fcntl(2), from its sys/fcntl.h.
_F_RDAHEAD = 45
_F_NOCACHE = 48

_ZEROS = bytes(1 << 20)
_NOT_HERE = (errno.EINVAL, errno.ENOSYS, errno.ESPIPE)


def cpus_of(pid: int) -> int | None:
    """
    Return how many CPUs a process may run on, 0: this one. None where the system binds no process to some of them.
    Raises OSError where this process may not ask.
    """
    return len(os.sched_getaffinity(pid)) if hasattr(os, "sched_getaffinity") else None


def take_room(fd: int, size: int) -> None:
    """Have the disk keep room for ``size`` bytes of a new file, which then has them, as zeros. Raises OSError."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
        return
    for start in range(0, size, len(_ZEROS)):
        os.pwrite(fd, _ZEROS[: size - start], start)


def unnamed_file() -> int:
    """Return the descriptor of an empty file without a name, in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("fastio")
    import tempfile

    with tempfile.TemporaryFile(buffering=0) as file:
        return os.dup(file.fileno())


def shared_file(size: int) -> int:
    """
    Return the descriptor of a new file in memory, of ``size`` zeros: its first opening, see ``is_opened_once``.

    Raises OSError, also where ``counts_openings`` says that the system has no such thing.
    """
    made = unnamed_file()
    try:
        os.ftruncate(made, size)
        return open_again(made)  # the kernel counts what open(2) gave, which `made` is not
    finally:
        os.close(made)


def open_again(fd: int) -> int:
    """
    Open a file once more, to read and to write. Raises OSError.

    Unlike a copy of the descriptor, which dup(2), fork(2) and sending it make, this is another opening of the file.
    """
    return os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)


def is_opened_once(fd: int) -> bool:
    """
    Whether this opening of a file, for writing, is the only one: no process has another, be it as a descriptor, as a
    mapping or on its way through a socket. Raises OSError where the kernel does not tell.
    """
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)  # which the kernel grants to the only one
    except BlockingIOError:
        return False
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return True


@cache
def counts_openings() -> bool:
    """Whether the kernel counts how often a file in memory was opened, tried once."""
    if not hasattr(fcntl, "F_SETLEASE"):
        return False
    try:
        first = shared_file(1)
        try:
            alone = is_opened_once(first)
            second = open_again(first)
            copy = os.dup(second)
            os.close(second)
            together = is_opened_once(first)
            os.close(copy)
            return alone and not together and is_opened_once(first)
        finally:
            os.close(first)
    except OSError:
        return False


def open_uncached(path: str | os.PathLike[str]) -> int:
    """Open a file to read around the page cache, whole pages into memory aligned like them. Raises OSError."""
    if hasattr(os, "O_DIRECT"):
        return os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    fcntl.fcntl(fd, _F_NOCACHE, 1)
    return fd


def drop_cached(path: Path) -> bool:
    """Ask for a file's pages to leave memory, once they are on the disk. False where nobody can be asked."""
    if not hasattr(os, "posix_fadvise"):
        return False
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError as exc:
        if exc.errno in _NOT_HERE:
            return False
        raise
    finally:
        os.close(fd)
    return True


def advise_order(fd: int, *, sequential: bool) -> None:
    """Say in which order a file will be read: ``sequential`` reads far ahead, otherwise nothing is read ahead."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL if sequential else os.POSIX_FADV_RANDOM)
    else:
        fcntl.fcntl(fd, _F_RDAHEAD, int(sequential))
