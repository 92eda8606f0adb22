"""
What is written beside a copy: which blocks are there, and what was copied, from where.

It tells a copy of ours, which a newer one may replace, from files that the user put there; and a whole copy that nobody
has touched, so that staging it again needs one request.
"""

from __future__ import annotations

import json
import os
import shlex
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fastio._native import crc32
from fastio.store.write.atomic import pwrite_all, writing

__all__ = [
    "BlockRecord",
    "StageRecord",
    "blocks_of",
    "mending_command",
    "stamps",
]


@dataclass(frozen=True, slots=True)
class StageRecord:
    """``files`` are names with size and mtime_ns; size and mtime are 0 until the copy is whole."""

    source: str
    content: int
    is_whole: bool
    files: Sequence[tuple[str, int, int]]

    @classmethod
    def read(cls, folder: Path, name: str) -> StageRecord | None:
        """Return the record of a copy; None without one, or if it is not readable."""
        try:
            parsed = json.loads((folder / f".{name}.staged").read_text("utf-8", "surrogateescape"))
            files = [(str(each), int(size), int(mtime_ns)) for each, size, mtime_ns in parsed["files"]]
            return cls(str(parsed["source"]), int(parsed["content"]), bool(parsed["is_whole"]), files)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, folder: Path, name: str) -> None:
        """Write the record at once. Raises StoreError."""
        path = folder / f".{name}.staged"
        hidden = folder / f".{name}.staged.new"  # there is one writer, by the lock of the folder
        with writing(str(folder / name)):
            hidden.write_text(json.dumps(asdict(self)), "utf-8", "surrogateescape")
            hidden.rename(path)

    @property
    def names(self) -> frozenset[str]:
        """The files that belong to the copy."""
        return frozenset(name for name, _, _ in self.files)

    def holds(self, folder: Path) -> bool:
        """Whether the copy is whole, and its files are as they were left."""
        return self.is_whole and list(self.files) == stamps(folder, [name for name, _, _ in self.files])


def stamps(folder: Path, names: Sequence[str]) -> list[tuple[str, int, int]]:
    """Size and mtime_ns of each file; zeros for one that is not there."""
    found = []
    for name in names:
        try:
            status = (folder / name).stat()
            found.append((name, status.st_size, status.st_mtime_ns))
        except OSError:
            found.append((name, 0, 0))
    return found


def mending_command(path: str) -> str | None:
    """
    Return the command that compares the copy to which a file belongs, and mends it; None for a file that ``stage`` did
    not copy.
    """
    file = Path(path).absolute()
    for record_path in file.parent.glob(".*.staged"):
        result = record_path.name.removeprefix(".").removesuffix(".staged")
        record = StageRecord.read(file.parent, result)
        if record is not None and file.name in record.names:
            return shlex.join(["fastio", "stage", "--check", record.source, str(file.parent)])
    return None


# Which blocks of a file are there: what lets a copy go on after the process was killed.
#
# The record ``.NAME.blocks`` lies beside the copy ``.NAME.partial``:
#
#     offset  size  field        meaning (integers unsigned, little endian)
#          0     8  magic        "fioblock"
#          8     8  size         bytes of the whole file
#         16     4  block_bytes
#         20     4  content      CRC-32 that says which content it is the copy of
#         24     4  crc          CRC-32 of the 24 bytes before
#         28     4  zeros
#         32     8  block 0      0: not there; else 1 << 32, plus the CRC-32 of its bytes
#         40     8  block 1      ...
#
# A block is written before its entry. Nothing is synced: after a power failure an entry may be there without its
# bytes, so whoever goes on compares each block with its CRC-32 first.

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
