"""One range of an object, kept as a file: the bytes, and 16 bytes that tell a whole file from a torn one.

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
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio._native import crc32
from fastio.store.atomic import write_all

__all__ = ["TRAILER_BYTES", "range_of", "read_range", "remove_range", "write_range"]

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
