"""Files of this machine: how they are opened, told apart from others, and complained of."""

from __future__ import annotations

import ctypes
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePath

import numpy as np
from numpy.typing import NDArray

from fastio.errors import FastioError, StoreCorrupt, StoreError, StoreNotFound

__all__ = [
    "AHEAD_BYTES",
    "CHUNK_BYTES",
    "FLAGS",
    "aligned",
    "check_address",
    "check_folder_here",
    "check_identity",
    "check_range",
    "expanded",
    "identity_of",
    "is_local",
    "network_file_system",
    "open_descriptor",
    "path_text",
    "readable",
    "regular_file",
]


# O_NONBLOCK: a FIFO under this name must not hang us before fstat can say what it is.
FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK

# Read before the batch that is begun: two chunks of samples that are looked up, and one more.
AHEAD_BYTES = 48 << 20
# Samples looked up at a time. In the page cache this takes the current chunk and the next one: of whole blocks at most
# 8 times their bytes (see readahead.h), 2 windows = 64 MiB when shuffled.
CHUNK_BYTES = 16 << 20

_ALIGNMENT = 64  # of copies, relative to the file: arrays that are aligned there are aligned here
_SHORTENED = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/(?!/)")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_local(path: str) -> bool:
    """Whether this is a path of the file system, and no URL."""
    return _SCHEME.match(path) is None


def path_text(path: object, expected: str) -> str:
    """
    Return the path that a user gave as text.

    Raises TypeError that says in one line what was ``expected`` instead of a list of paths, None or a number.
    """
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str):
        value = "" if path is None else f"{path!r:.60}: "
        raise TypeError(f"{value}expected {expected}, got {'None' if path is None else type(path).__name__}")
    return text


def expanded(path: str) -> str:
    """Return a path in which ``~`` is the user's home, as in a shell, unless a file has that name."""
    if not path.startswith("~") or os.path.lexists(path):
        return path
    return os.path.expanduser(path)  # noqa: PTH111 - may fail without a home


def check_address(path: str | os.PathLike[str]) -> None:
    """Raise StoreError for what was meant to be a URL and has lost a slash, unless a file has that name."""
    name = os.fspath(path)
    if _SHORTENED.match(name) is None or os.path.lexists(name):
        return
    scheme, _, rest = name.partition(":/")
    is_path = isinstance(path, PurePath)
    advice = (
        "pathlib drops a slash of a URL: pass it as a str" if is_path else f"a URL has two slashes: {scheme}://{rest}"
    )
    raise StoreError(f"{name}: {advice}")


def check_folder_here(path: str | os.PathLike[str]) -> None:
    """Raise StoreError for a URL where a folder of this machine is written to."""
    if not is_local(os.fspath(path)):
        raise StoreError(f"{os.fspath(path)}: expected a folder of this machine, got a URL")


def open_descriptor(path: str) -> int:
    """A descriptor for reading. Raises StoreNotFound for a missing file, StoreError for one that cannot be opened."""
    try:
        return os.open(path, FLAGS)
    except FileNotFoundError as exc:
        raise StoreNotFound(f"{path}: no such file; check the name, or pack the dataset first") from exc
    except OSError as exc:
        raise StoreError(f"{path}: cannot be opened ({exc.strerror}); check its permissions") from exc


def regular_file(path: str, descriptor: int) -> os.stat_result:
    """What the system knows of an open file. Raises StoreError if it is a directory, a FIFO or another special file."""
    with readable(path):
        status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        kind = "directory" if stat.S_ISDIR(status.st_mode) else "special file"
        raise StoreError(f"{path}: expected a regular file, got a {kind}")
    return status


@contextmanager
def readable(path: str) -> Iterator[None]:
    """Turn an OSError of whatever reads the file into one StoreError that names it."""
    try:
        yield
    except FastioError:
        raise  # some are OSErrors too
    except OSError as exc:
        raise StoreError(f"{path}: cannot be read ({exc.strerror or exc}); check the disk, or copy it again") from exc


def identity_of(status: os.stat_result) -> dict[str, int | str]:
    """What tells versions of a local file apart."""
    return {
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "ctime_ns": status.st_ctime_ns,
        "inode": status.st_ino,
    }


def check_identity(path: str, known: Mapping[str, int | str], status: os.stat_result | None = None) -> None:
    """
    Raise StoreError if what lies under the path (or has ``status``) is not the file with the ``known`` identity.

    Neither the inode nor the ctime alone decides: file systems in user space renumber their files, and ``chmod`` or
    another link sets a ctime.
    """
    if status is None:
        try:
            status = Path(path).stat()
        except OSError as exc:
            raise StoreError(f"{path}: can no longer be read ({exc.strerror}): open the store again") from exc
    now = identity_of(status)
    if now["inode"] == known["inode"] and status.st_size < int(known["size"]):
        raise StoreCorrupt(f"{path}: cut off at {status.st_size} bytes, expected {known['size']}; copy or pack again")
    is_other = now["inode"] != known["inode"] and now["ctime_ns"] != known["ctime_ns"]
    if is_other or any(now[name] != known[name] for name in ("size", "mtime_ns")):
        raise StoreError(f"{path}: was replaced or changed since it was opened: open the store again")


def check_range(path: str, start: int, stop: int, size: int) -> None:
    """Raise ValueError unless the range lies in a file of ``size`` bytes."""
    if not 0 <= start <= stop <= size:
        raise ValueError(f"{path}: bytes {start} to {stop} of {size}")


def aligned(start: int, size: int) -> NDArray[np.uint8]:
    """Return memory for ``size`` bytes that begin at ``start`` of a file: arrays aligned there are aligned in it."""
    memory = np.empty(size + 2 * _ALIGNMENT, np.uint8)
    first = (start - memory.ctypes.data) % _ALIGNMENT
    return memory[first : first + size]


# Which files lie on a network file system.

_LIBC = ctypes.CDLL(None, use_errno=True)

# f_type of statfs(2), from linux/magic.h and the sources of the file systems.
_NETWORK = {
    0x6969: "nfs",
    0x517B: "smb",
    0xFF534D42: "cifs",
    0xFE534D42: "smb2",
    0x65735546: "fuse",  # sshfs, gcsfuse, s3 mounts, virtiofs, ...
    0x0BD00BD0: "lustre",
    0x00C36400: "ceph",
    0x47504653: "gpfs",
    0x19830326: "beegfs",
    0x01021997: "9p",
    0x5346414F: "afs",
}


def network_file_system(path: str | os.PathLike[str]) -> str | None:
    """
    Return the kind of network file system that a file or folder is on, or None for a local or unknown one.

    Links are followed.
    """
    answer = (ctypes.c_long * 64)()  # struct statfs begins with f_type and is shorter than this
    if _LIBC.statfs(os.fsencode(path), answer) != 0:
        return None
    return _NETWORK.get(answer[0] & 0xFFFFFFFF)
