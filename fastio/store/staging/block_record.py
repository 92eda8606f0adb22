"""Which blocks of a file are there: what lets a copy go on after the process was killed.

The record ``.NAME.blocks`` lies beside the copy ``.NAME.partial``:

    offset  size  field        meaning (integers unsigned, little endian)
         0     8  magic        "fioblock"
         8     8  size         bytes of the whole file
        16     4  block_bytes
        20     4  content      CRC-32 that says which content it is the copy of
        24     4  crc          CRC-32 of the 24 bytes before
        28     4  zeros
        32     8  block 0      0: not there; else 1 << 32, plus the CRC-32 of its bytes
        40     8  block 1      ...

A block is written before its entry. Nothing is synced: after a power failure an entry may be there without its bytes,
so whoever goes on compares each block with its CRC-32 first.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path

from fastio._native import crc32
from fastio.store.atomic import pwrite_all

__all__ = ["BlockRecord", "blocks_of"]

_HEADER = struct.Struct("<8sQII")
_ENTRY = struct.Struct("<Q")
_HEADER_BYTES = 32
_MAGIC = b"fioblock"
_THERE = 1 << 32


class BlockRecord:
    """
    The record of one copy: opened, or begun anew if it is of another content. Methods raise OSError.

    Threads may ``note`` different blocks at once.
    """

    def __init__(self, path: Path, *, size: int, block_bytes: int, content: int) -> None:
        self.path = path
        self._size = size
        self._block_bytes = block_bytes
        head = _head(size, block_bytes, content)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        raw = os.pread(self._fd, _HEADER_BYTES + _ENTRY.size * len(self.blocks), 0)
        self.is_new = raw[:_HEADER_BYTES] != head
        if self.is_new:
            os.ftruncate(self._fd, 0)
            pwrite_all(self._fd, head, 0)
            raw = head
        entries = raw[_HEADER_BYTES:].ljust(_ENTRY.size * len(self.blocks), b"\0")
        self._entries = [value for (value,) in _ENTRY.iter_unpack(entries)]

    @property
    def blocks(self) -> Sequence[tuple[int, int]]:
        """Start and stop of each block in the file."""
        starts = range(0, max(self._size, 1), self._block_bytes)
        return [(start, min(start + self._block_bytes, self._size)) for start in starts]

    def checksum(self, block: int) -> int | None:
        """Return the CRC-32 of a block that is there; None for one that is not."""
        entry = self._entries[block]
        return entry & (_THERE - 1) if entry & _THERE else None

    def note(self, block: int, checksum: int) -> None:
        """Say that a block is there."""
        self._write(block, _THERE | checksum)

    def forget(self, block: int) -> None:
        """Say that a block is not there."""
        self._write(block, 0)

    def close(self) -> None:
        """Close the file; twice does no harm."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _write(self, block: int, entry: int) -> None:
        pwrite_all(self._fd, _ENTRY.pack(entry), _HEADER_BYTES + _ENTRY.size * block)
        self._entries[block] = entry


def blocks_of(path: Path, *, size: int, content: int, start: int, stop: int) -> list[tuple[int, int, int]] | None:
    """
    Return start, stop and CRC-32 of the blocks that hold a range of the file, as its record ``path`` says.

    None if one of them is not there, or the record is of another content. Raises OSError. Any process may ask.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        head = os.pread(fd, _HEADER_BYTES, 0)
        if len(head) < _HEADER_BYTES:
            return None
        _, _, block_bytes, _ = _HEADER.unpack_from(head)
        if block_bytes == 0 or head != _head(size, block_bytes, content):
            return None
        first, last = start // block_bytes, -(-stop // block_bytes)
        raw = os.pread(fd, _ENTRY.size * (last - first), _HEADER_BYTES + _ENTRY.size * first)
    finally:
        os.close(fd)
    entries = [value for (value,) in _ENTRY.iter_unpack(raw[: len(raw) // _ENTRY.size * _ENTRY.size])]
    if len(entries) < last - first or not all(entry & _THERE for entry in entries):
        return None
    return [
        (number * block_bytes, min((number + 1) * block_bytes, size), entry & (_THERE - 1))
        for number, entry in enumerate(entries, first)
    ]


def _head(size: int, block_bytes: int, content: int) -> bytes:
    head = _HEADER.pack(_MAGIC, size, block_bytes, content)
    return head + struct.pack("<II", crc32(head), 0)
