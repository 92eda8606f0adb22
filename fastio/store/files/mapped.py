"""Maps a file read-only into memory and lets its descriptor go."""

from __future__ import annotations

import ctypes
import mmap
import os
import stat
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.errors import FastioError, StoreError, StoreNotFound

__all__ = ["map_file", "readable"]

# Python's own mmap keeps a duplicate of the descriptor for as long as the mapping lives: a thousand shards would
# be a thousand open files, above the usual limit.
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_LIBC.munmap.restype = ctypes.c_int
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value


def map_file(path: str) -> NDArray[np.uint8]:
    """
    The bytes of a regular file, read-only and shared with the page cache.

    The mapping ends with the last array over it; no descriptor stays open. A missing file is
    StoreNotFound, anything else that cannot be mapped is StoreError.
    """
    fd = _opened(path)
    with readable(path):
        try:
            return _mapped(path, fd)
        finally:
            os.close(fd)


@contextmanager
def readable(path: str) -> Iterator[None]:
    """Turn an OSError of whatever reads the file into one StoreError that names it."""
    try:
        yield
    except FastioError:
        raise  # some are OSErrors too
    except OSError as exc:
        raise StoreError(f"{path}: cannot be read ({exc.strerror or exc}); check the disk, or copy it again") from exc


def _opened(path: str) -> int:
    try:
        # O_NONBLOCK: a FIFO under this name must not hang us before fstat can say what it is.
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError as exc:
        raise StoreNotFound(f"{path}: no such file; check the name, or pack the dataset first") from exc
    except OSError as exc:
        raise StoreError(f"{path}: cannot be opened ({exc.strerror}); check its permissions") from exc


def _mapped(path: str, fd: int) -> NDArray[np.uint8]:
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        raise StoreError(f"{path}: expected a regular file, got a {_kind(info.st_mode)}")
    if info.st_size == 0:
        return _read_only(np.empty(0, np.uint8))
    address = _LIBC.mmap(None, info.st_size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    if address is None or address == _FAILED:
        problem = os.strerror(ctypes.get_errno())
        raise StoreError(f"{path}: {info.st_size} bytes cannot be mapped ({problem}); raise ulimit -v")
    holder: Any = (ctypes.c_uint8 * info.st_size).from_address(address)
    # Not at exit: native threads may still be reading then.
    weakref.finalize(holder, _LIBC.munmap, address, info.st_size).atexit = False
    return _read_only(np.frombuffer(holder, np.uint8))


def _read_only(array: NDArray[np.uint8]) -> NDArray[np.uint8]:
    array.setflags(write=False)
    return array


def _kind(mode: int) -> str:
    return "directory" if stat.S_ISDIR(mode) else "special file"
