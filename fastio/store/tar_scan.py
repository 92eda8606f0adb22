"""Walks the headers of a tar file: where each member lies, without extracting anything."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastio.errors import StoreCorrupt, StoreError

__all__ = ["BLOCK", "Member", "scan"]

BLOCK = 512
_ZEROS = bytes(BLOCK)
_SUM_HEADERS = 4096  # checked at a time
_MAX_EXTENDED = 1 << 20  # bytes of a PAX header or a long name
_MAX_DIGITS = 20  # of a number in a PAX header
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
    """One member: ``kind`` is empty for a regular file, otherwise what it is, in words."""

    name: str
    start: int
    size: int
    kind: str


def scan(path: str, data: NDArray[np.uint8]) -> list[Member]:
    """
    All members of an uncompressed tar (v7, ustar, GNU, PAX), in order.

    StoreCorrupt for a file that is cut off or whose headers are damaged; StoreError for what
    has no plain bytes to point at: compressed, sparse and multi-volume archives.
    """
    _refuse_compressed(path, data)
    raw = data.data
    members: list[Member] = []
    headers: list[int] = []
    overall: dict[str, str] = {}  # of global PAX headers; like ``pax``, only the few records that matter here
    pax: dict[str, str] = {}
    long_name: str | None = None
    at = 0
    while True:
        block = bytes(raw[at : at + BLOCK])
        if len(block) < BLOCK:
            raise StoreCorrupt(f"{path}: ends at byte {len(data)} without the end of an archive: cut off, copy again")
        if block == _ZEROS:
            break
        headers.append(at)
        size = _number(path, at, block[124:136])
        kind, start = block[156:157], at + BLOCK
        if kind in b"xgXLK" and size > _MAX_EXTENDED:
            raise StoreCorrupt(f"{path}: the extended header at byte {at} claims {size} bytes; copy again")
        if kind in (b"x", b"X", b"g"):
            records = _pax_records(path, at, bytes(raw[start : start + size]))
            if kind == b"g":
                overall.update(records)
            else:
                pax = records
        elif kind == b"L":
            long_name = _text(bytes(raw[start : start + size]))
        elif kind != b"K":
            pax = {**overall, **pax}
            member = _member(path, block, start=start, size=size, name=long_name, pax=pax)
            members.append(member)
            size = member.size
            pax, long_name = {}, None
        at = start + (size + BLOCK - 1) // BLOCK * BLOCK
        if start + size > len(data):
            raise StoreCorrupt(
                f"{path}: the member at byte {start - BLOCK} needs {size} bytes, the file ends at {len(data)}: cut off"
            )
    if data[at:].any():
        raise StoreError(f"{path}: bytes follow the end of the archive at {at}: split concatenated archives first")
    _check_sums(path, data, headers)
    return members


def _member(path: str, block: bytes, *, start: int, size: int, name: str | None, pax: dict[str, str]) -> Member:
    kind = block[156:157]
    if name is None:
        name = _text(block[:100])
        if block[257:263] == b"ustar\0" and block[345]:
            name = f"{_text(block[345:500])}/{name}"
    name = pax.get("path", name)
    if kind == b"S" or _SPARSE in pax:
        raise StoreError(f"{path}: {name!r} is sparse; pack the archive again without --sparse")
    if kind == b"M":
        raise StoreError(f"{path}: {name!r} continues from another volume; join the archive first")
    if "size" in pax:
        size = _number(path, start - BLOCK, pax["size"].encode("ascii", "replace"), base=10)
    if kind in _KINDS:
        return Member(name, start, 0, _KINDS[kind])  # no bytes follow, whatever the size says
    if kind in (b"0", b"\0", b"7"):
        return Member(name, start, size, "a directory" if name.endswith("/") and kind != b"7" else "")
    return Member(name, start, size, f"a member of type {kind!r}")


def _number(path: str, at: int, digits: bytes, *, base: int = 8) -> int:
    """An octal field, or GNU's base-256 where the first bit is set."""
    if base == 8 and digits[0] & 0x80:
        return int.from_bytes(bytes([digits[0] & 0x7F]) + digits[1:], "big")
    text = digits.split(b"\0")[0].strip()
    if not text:
        return 0
    if not text.isdigit() or len(text) > _MAX_DIGITS or (base == 8 and (b"8" in text or b"9" in text)):
        raise StoreCorrupt(
            f"{path}: no tar header at byte {at}: expected a size, got {text[:40]!r}; damaged, copy again"
        )
    return int(text, base)


def _pax_records(path: str, at: int, data: bytes) -> dict[str, str]:
    """``<length> <keyword>=<value>\\n`` records: ``path``, ``size``, and whether any says that the member is sparse."""
    records: dict[str, str] = {}
    start, stop = 0, len(data.rstrip(b"\0"))
    while start < stop:
        blank = data.find(b" ", start, start + _MAX_DIGITS + 1)
        digits = data[start : max(start, blank)]
        if not digits.isdigit() or not len(digits) + 1 < int(digits) <= len(data) - start:
            raise StoreCorrupt(f"{path}: the PAX header at byte {at} is malformed; damaged, copy again")
        keyword, _, value = data[blank + 1 : start + int(digits)].removesuffix(b"\n").partition(b"=")
        if keyword in (b"path", b"size"):
            records[keyword.decode("ascii")] = value.decode("utf-8", "surrogateescape")
        elif keyword.startswith(_SPARSE.encode("ascii")):
            records[_SPARSE] = ""
        start += int(digits)
    return records


def _text(field: bytes) -> str:
    return field.split(b"\0")[0].decode("utf-8", "surrogateescape")


def _refuse_compressed(path: str, data: NDArray[np.uint8]) -> None:
    first = data[:6].tobytes()
    for magic, name in _COMPRESSED.items():
        if first.startswith(magic):
            raise StoreError(f"{path}: compressed with {name}; members cannot be mapped: decompress it first")


def _check_sums(path: str, data: NDArray[np.uint8], headers: list[int]) -> None:
    """Header checksums, many at a time; old tars summed signed bytes."""
    blocks = data[: len(data) // BLOCK * BLOCK].reshape(-1, BLOCK)
    for i in range(0, len(headers), _SUM_HEADERS):
        chunk = headers[i : i + _SUM_HEADERS]
        rows = blocks[np.array(chunk) // BLOCK].copy()
        stored = [_number(path, at, field.tobytes()) for at, field in zip(chunk, rows[:, 148:156], strict=True)]
        rows[:, 148:156] = ord(" ")
        unsigned = rows.sum(axis=1, dtype=np.int64)
        signed = rows.view(np.int8).sum(axis=1, dtype=np.int64)
        expected = np.array(stored)
        bad = np.flatnonzero((unsigned != expected) & (signed != expected))
        if len(bad):
            raise StoreCorrupt(
                f"{path}: the tar header at byte {chunk[bad[0]]} has checksum {unsigned[bad[0]]}, "
                f"expected {stored[bad[0]]}: damaged, copy again"
            )
