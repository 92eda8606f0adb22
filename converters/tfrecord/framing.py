"""
The records of a TFRecord file: where each lies, and whether its checksums are right.

A file is one record behind the other, all numbers little endian:

    uint64 size | uint32 masked CRC-32C of the size | the record's bytes | uint32 masked CRC-32C of these

masked(crc) is the CRC rotated right by 15 bits, plus 0xa282ead8.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.errors import SourceError
from fastio.types.spans import Spans

__all__ = ["RecordFile", "begins_like_records", "is_gzip", "masked", "scan_records"]

HEAD_BYTES, FOOT_BYTES = 12, 4
_GZIP = b"\x1f\x8b"
_SIZE = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class RecordFile:
    """A mapped file; ``starts`` and ``sizes`` (n,) int64 are those of its records' bytes."""

    place: str
    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]


def scan_records(place: str) -> RecordFile:
    """
    Find the records of a file, and check the checksums of their sizes.

    Raises SourceError if one is wrong, or if the file ends within a record: nobody knows then where the next begins.
    """
    try:
        with Path(place).open("rb") as file:
            if file.read(2) == _GZIP:
                raise SourceError(f"{place}: is compressed with gzip: decompress it first (gunzip), then pack it")
        data = np.memmap(place, np.uint8, "r") if Path(place).stat().st_size else np.empty(0, np.uint8)
    except OSError as exc:
        raise SourceError(f"{place}: cannot be read: {exc.strerror or exc}") from exc
    starts, sizes, end = _walk(data.data)
    found = RecordFile(place, data, np.array(starts, np.int64), np.array(sizes, np.int64))
    _check_sizes(found)
    if end != len(data):
        where = f"record {len(starts)} begins at byte {end:,}"
        raise SourceError(f"{place}: {where}, but the file ends within it at byte {len(data):,}: get it again")
    return found


def masked(checksums: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return CRC-32Cs as TFRecord stores them."""
    return ((checksums >> np.uint32(15)) | (checksums << np.uint32(17))) + np.uint32(0xA282EAD8)


def begins_like_records(place: str) -> bool:
    """Return whether the first bytes of a file are a record's size and its checksum."""
    try:
        with Path(place).open("rb") as file:
            head = np.frombuffer(file.read(HEAD_BYTES), np.uint8)
    except OSError:
        return False
    if len(head) < HEAD_BYTES:
        return False
    checksum = np.zeros(1, np.uint32)
    _native.checksum_crc32c(Spans.of(head, np.zeros(1, np.int64), np.array([8], np.int64)), checksum).wait()
    return bool(masked(checksum)[0] == head[8:].view("<u4")[0])


def is_gzip(place: str) -> bool:
    """Return whether a file is compressed with gzip."""
    try:
        with Path(place).open("rb") as file:
            return file.read(2) == _GZIP
    except OSError:
        return False


def _walk(view: Any) -> tuple[list[int], list[int], int]:
    """Start and size of each record, also of a last one whose size is wrong; the end of the whole records."""
    starts, sizes, at, total = list[int](), list[int](), 0, len(view)
    unpack = _SIZE.unpack_from
    while at + HEAD_BYTES <= total:
        size = unpack(view, at)[0]
        next_at = at + HEAD_BYTES + size + FOOT_BYTES
        if next_at > total:
            break
        starts.append(at + HEAD_BYTES)
        sizes.append(size)
        at = next_at
    return starts, sizes, at


def _check_sizes(file: RecordFile) -> None:
    """SourceError for the first record whose size differs from its checksum."""
    heads = file.starts - HEAD_BYTES
    end = int(heads[-1] + HEAD_BYTES + file.sizes[-1] + FOOT_BYTES) if len(heads) else 0
    if end + HEAD_BYTES <= len(file.data):  # the head of a record that seems to lead out of the file
        heads = np.append(heads, end)
    if len(heads) == 0:
        return
    expected = np.zeros(len(heads), np.uint32)
    _native.checksum_crc32c(Spans.of(file.data, heads, np.full(len(heads), 8)), expected).wait()
    stored = file.data[(heads + 8)[:, None] + np.arange(4)].view("<u4").reshape(-1)
    wrong = np.flatnonzero(masked(expected) != stored)
    if len(wrong):
        number, at = int(wrong[0]), int(heads[wrong[0]])
        reason = "is no TFRecord file" if number == 0 else "is damaged, and where the next record begins is unknown"
        raise SourceError(
            f"{file.place}: record {number} (at byte {at:,}): its size differs from its checksum: the file {reason}"
        )
