"""What Linux has and POSIX does not, and what stands in for it on macOS: no other module asks for it."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from pathlib import Path

__all__ = [
    "MAP_FIXED",
    "MAP_NORESERVE",
    "advise_order",
    "cpus_of",
    "drop_cached",
    "open_uncached",
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
