"""Walks the headers of a tar file to find where each member lies, without extracting anything."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastio.errors import StoreCorrupt, StoreError
from fastio.store.files import ByteSource

__all__ = [
    "BLOCK",
    "Member",
    "header_starts",
    "scan",
]


BLOCK = 512
_ZEROS = bytes(BLOCK)
_SUM_HEADERS = 4096  # headers checked at a time
_WINDOW_BYTES = 16 << 10  # read at a time: several small members, and of a large one no more than its header
_TAIL_BYTES = 1 << 20
_MAX_EXTENDED = 1 << 20  # bytes of a PAX header or a long name
_MAX_DIGITS = 20  # most digits of a number in a PAX header
_SPARSE = "GNU.sparse."
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_KINDS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    b"5": "a directory",
    b"6": "a FIFO",
}


@dataclass(frozen=True, slots=True)
class Member:
    """One member: ``kind`` is empty for a regular file, otherwise a description."""

    name: str
    start: int
    size: int
    kind: str


def scan(file: ByteSource) -> list[Member]:
    """
    Return all members of an uncompressed tar (v7, ustar, GNU, PAX), in order.

    Raises StoreCorrupt if the file is truncated or its headers are damaged; StoreError for archives without plain
    bytes to point at: compressed, sparse and multi-volume ones.
    """
    path, window = file.path, _Window(file)
    _refuse_compressed(path, window.read(0, 6))
    headers = _HeaderSums(path)
    members: list[Member] = []
    overall: dict[str, str] = {}  # records of global PAX headers; like ``pax``, only the few that matter here
    pax: dict[str, str] = {}
    long_name: str | None = None
    at = 0
    while True:
        block = window.read(at, at + BLOCK)
        if len(block) < BLOCK:
            raise StoreCorrupt(f"{path}: ends at byte {file.size} without the end of an archive: truncated, copy again")
        if block == _ZEROS:
            break
        headers.add(at, block)
        size = _number(path, at, block[124:136])
        kind, start = block[156:157], at + BLOCK
        if kind in b"xgXLK" and size > _MAX_EXTENDED:
            raise StoreCorrupt(f"{path}: the extended header at byte {at} claims {size} bytes: copy again")
        if kind in (b"x", b"X", b"g"):
            records = _pax_records(path, at, window.read(start, start + size))
            if kind == b"g":
                overall.update(records)
            else:
                pax = records
        elif kind == b"L":
            long_name = _text(window.read(start, start + size))
        elif kind != b"K":
            pax = {**overall, **pax}
            member = _member(path, block, start=start, size=size, name=long_name, pax=pax)
            members.append(member)
            size = member.size
            pax, long_name = {}, None
        at = start + (size + BLOCK - 1) // BLOCK * BLOCK
        if start + size > file.size:
            raise StoreCorrupt(
                f"{path}: the member at byte {start - BLOCK} needs {size} bytes, but the file ends at {file.size}: "
                "it is truncated: copy or pack it again"
            )
    for first in range(at, file.size, _TAIL_BYTES):
        if file.read(first, min(first + _TAIL_BYTES, file.size)).any():
            raise StoreError(f"{path}: bytes follow the end of the archive at {at}: split concatenated archives first")
    headers.check()
    return members


def header_starts(starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where members' headers lie, by their values, which less than a block of the member may precede."""
    return starts // BLOCK * BLOCK - BLOCK


class _Window:
    """Reads a file here and there, mostly forwards, some bytes at a time."""

    def __init__(self, file: ByteSource) -> None:
        self._file = file
        self._start = 0
        self._bytes = b""

    def read(self, start: int, stop: int) -> bytes:
        """The bytes of a range, or as many of them as the file has."""
        first = start - self._start
        if first < 0 or stop > self._start + len(self._bytes):
            size = self._file.size
            self._start, first = min(start, size), 0
            self._bytes = self._file.read(self._start, min(max(stop, start + _WINDOW_BYTES), size)).tobytes()
        return self._bytes[first : first + stop - start]


class _HeaderSums:
    """Compares the checksums of tar headers, many at a time; old tars summed signed bytes."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._places: list[int] = []
        self._blocks: list[bytes] = []

    def add(self, at: int, block: bytes) -> None:
        """A header, and where it lies."""
        self._places.append(at)
        self._blocks.append(block)
        if len(self._blocks) == _SUM_HEADERS:
            self.check()

    def check(self) -> None:
        """Raise StoreCorrupt for the first header added since the last call that is damaged."""
        rows = np.frombuffer(b"".join(self._blocks), np.uint8).reshape(-1, BLOCK).copy()
        fields = [row[148:156].tobytes() for row in rows]
        stored = [_number(self._path, at, field) for at, field in zip(self._places, fields, strict=True)]
        rows[:, 148:156] = ord(" ")
        unsigned = rows.sum(axis=1, dtype=np.int64)
        signed = rows.view(np.int8).sum(axis=1, dtype=np.int64)
        expected = np.array(stored, np.int64)
        bad = np.flatnonzero((unsigned != expected) & (signed != expected))
        if len(bad):
            raise StoreCorrupt(
                f"{self._path}: the tar header at byte {self._places[bad[0]]} has checksum {unsigned[bad[0]]}, "
                f"expected {stored[bad[0]]}: damaged, copy again"
            )
        self._places.clear()
        self._blocks.clear()


def _member(path: str, block: bytes, *, start: int, size: int, name: str | None, pax: dict[str, str]) -> Member:
    kind = block[156:157]
    if name is None:
        name = _text(block[:100])
        if block[257:263] == b"ustar\0" and block[345]:
            name = f"{_text(block[345:500])}/{name}"
    name = pax.get("path", name)
    if kind == b"S" or _SPARSE in pax:
        raise StoreError(f"{path}: {name!r} is sparse: create the archive again without --sparse")
    if kind == b"M":
        raise StoreError(f"{path}: {name!r} continues from another volume: join the archive first")
    if "size" in pax:
        size = _number(path, start - BLOCK, pax["size"].encode("ascii", "replace"), base=10)
    if kind in _KINDS:
        return Member(name, start, 0, _KINDS[kind])  # no bytes follow, whatever the size says
    if kind in (b"0", b"\0", b"7"):
        return Member(name, start, size, "a directory" if name.endswith("/") and kind != b"7" else "")
    return Member(name, start, size, f"a member of type {kind!r}")


def _number(path: str, at: int, digits: bytes, *, base: int = 8) -> int:
    """Parse an octal field, or GNU's base-256 if the first bit is set."""
    if base == 8 and digits[0] & 0x80:
        return int.from_bytes(bytes([digits[0] & 0x7F]) + digits[1:], "big")
    text = digits.split(b"\0")[0].strip()
    if not text:
        return 0
    if not text.isdigit() or len(text) > _MAX_DIGITS or (base == 8 and (b"8" in text or b"9" in text)):
        raise StoreCorrupt(
            f"{path}: no tar header at byte {at}: expected a size, got {text[:40]!r}; damaged: copy again"
        )
    return int(text, base)


def _pax_records(path: str, at: int, data: bytes) -> dict[str, str]:
    """
    Parse ``<length> <keyword>=<value>\\n`` records: ``path``, ``size``, and whether any says that the member is
    sparse.
    """
    records: dict[str, str] = {}
    start, stop = 0, len(data.rstrip(b"\0"))
    while start < stop:
        blank = data.find(b" ", start, start + _MAX_DIGITS + 1)
        digits = data[start : max(start, blank)]
        if not digits.isdigit() or not len(digits) + 1 < int(digits) <= len(data) - start:
            raise StoreCorrupt(f"{path}: the PAX header at byte {at} is malformed; damaged: copy again")
        keyword, _, value = data[blank + 1 : start + int(digits)].removesuffix(b"\n").partition(b"=")
        if keyword in (b"path", b"size"):
            records[keyword.decode("ascii")] = value.decode("utf-8", "surrogateescape")
        elif keyword.startswith(_SPARSE.encode("ascii")):
            records[_SPARSE] = ""
        start += int(digits)
    return records


def _text(field: bytes) -> str:
    return field.split(b"\0")[0].decode("utf-8", "surrogateescape")


def _refuse_compressed(path: str, first: bytes) -> None:
    for magic, name in _COMPRESSED.items():
        if first.startswith(magic):
            raise StoreError(f"{path}: compressed with {name}, so members cannot be mapped: decompress it first")
