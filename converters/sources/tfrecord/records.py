"""
The records of a TFRecord file: where each lies, and whether its checksums are right.

A file is one record behind the other, all numbers little endian:

    uint64 size | uint32 masked CRC-32C of the size | the record's bytes | uint32 masked CRC-32C of these

masked(crc) is the CRC rotated right by 15 bits, plus 0xa282ead8.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.errors import SourceError
from fastio.types.spans import Spans

__all__ = [
    "Feature",
    "NotAnExampleError",
    "RecordFile",
    "begins_like_records",
    "is_gzip",
    "masked",
    "parse_example",
    "scan_records",
]


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


# The features of a tf.train.Example, read from the bytes of its protocol buffer message.
#
#     Example { Features features = 1; }                     Features { map<string, Feature> feature = 1; }
#     Feature { oneof { BytesList = 1; FloatList = 2; Int64List = 3; } }
#     each list { repeated value = 1; }                      floats and integers packed, or one by one
#
# A message is a sequence of tag (number << 3 | type) and value: 0 a varint, 1 eight bytes, 2 a size and so many bytes,
# 5 four bytes.

BYTES_LIST, FLOAT_LIST, INT64_LIST = 1, 2, 3
KINDS = {BYTES_LIST: "bytes", FLOAT_LIST: "floats", INT64_LIST: "integers"}
_VARINT, _EIGHT, _SIZED, _FOUR = 0, 1, 2, 5
_LONGEST_VARINT = 10


class NotAnExampleError(Exception):
    """A record that is not a tf.train.Example, in words that follow its key."""


@dataclass(frozen=True, slots=True)
class Feature:
    """
    A feature's values, still encoded: ``kind`` is BYTES_LIST, FLOAT_LIST or INT64_LIST.

    ``parts`` are start and stop in ``view`` of each value of bytes, or of each run of packed numbers.
    """

    view: Any
    kind: int
    parts: tuple[tuple[int, int], ...]

    def bytes_values(self) -> list[bytes]:
        """Return the values of bytes."""
        return [bytes(self.view[start:stop]) for start, stop in self.parts]

    def numbers(self) -> NDArray[Any]:
        """Return numbers as float32 or int64. Raises NotAnExampleError for what are no such numbers."""
        raw = b"".join(bytes(self.view[start:stop]) for start, stop in self.parts)
        if self.kind == INT64_LIST:
            return _integers(np.frombuffer(raw, np.uint8))
        if len(raw) % 4:
            raise NotAnExampleError("is not a tf.train.Example: packed floats of an odd size")
        return np.frombuffer(raw, "<f4")


def parse_example(view: Any, start: int, stop: int) -> dict[str, Feature]:
    """
    Return the features of the Example in ``view[start:stop]``; those without values are not there.

    Raises NotAnExampleError for anything else, and for a SequenceExample.
    """
    features: dict[str, Feature] = {}
    for number, at, end in _sized(view, start, stop):
        if number == 2:
            raise NotAnExampleError(
                "is a tf.train.SequenceExample, which fastio does not read: write its records as tf.train.Example"
            )
        if number == 1:
            for inner, entry, entry_end in _sized(view, at, end):
                if inner == 1:
                    name, feature = _entry(view, entry, entry_end)
                    if feature is None:
                        features.pop(name, None)
                    else:
                        features[name] = feature
    return features


def _entry(view: Any, start: int, stop: int) -> tuple[str, Feature | None]:
    name, feature = "", None
    for number, at, end in _sized(view, start, stop):
        if number == 1:
            try:
                name = bytes(view[at:end]).decode()
            except UnicodeDecodeError as exc:
                raise NotAnExampleError("is not a tf.train.Example: the name of a feature is not UTF-8") from exc
        elif number == 2:
            feature = _feature(view, at, end)
    return name, feature


def _feature(view: Any, start: int, stop: int) -> Feature | None:
    """The list of values; if there are several of one kind they are one, else the last counts."""
    kind, parts = 0, list[tuple[int, int]]()
    for number, at, end in _sized(view, start, stop):
        if number in KINDS:
            parts = parts if number == kind else []
            kind = number
            parts += _values(view, at, end, kind)
    return Feature(view, kind, tuple(parts)) if parts else None


def _values(view: Any, start: int, stop: int, kind: int) -> Iterator[tuple[int, int]]:
    """Where the values of a list lie; numbers may be packed or single."""
    single = {FLOAT_LIST: _FOUR, INT64_LIST: _VARINT}.get(kind)
    for number, type_, at, end in _fields(view, start, stop):
        if number == 1 and type_ in (_SIZED, single) and (end > at or kind == BYTES_LIST):
            yield at, end


def _sized(view: Any, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Number, start and stop of the fields with a size; others are skipped."""
    for number, type_, at, end in _fields(view, start, stop):
        if type_ == _SIZED:
            yield number, at, end


def _fields(view: Any, start: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
    """Number, type, and start and stop of the value, of every field of a message."""
    at = start
    while at < stop:
        tag, at = _varint(view, at, stop)
        type_, end = tag & 7, at
        if type_ == _SIZED:
            size, at = _varint(view, at, stop)
            end = at + size
        elif type_ == _VARINT:
            end = _varint(view, at, stop)[1]
        elif type_ in (_EIGHT, _FOUR):
            end = at + (8 if type_ == _EIGHT else 4)
        else:
            raise NotAnExampleError(f"is not a tf.train.Example: a field of the unknown type {type_}")
        if end > stop or tag < 8:
            raise NotAnExampleError("is not a tf.train.Example: a field leads out of its message")
        yield tag >> 3, type_, at, end
        at = end


def _varint(view: Any, at: int, stop: int) -> tuple[int, int]:
    value = shift = 0
    while at < stop and shift < 7 * _LONGEST_VARINT:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise NotAnExampleError("is not a tf.train.Example: a number without an end")


def _integers(raw: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Varints, one after the other, as int64: the lower seven bits of each byte, the lowest first."""
    ends = np.flatnonzero(raw < 0x80) + 1
    starts = np.concatenate(([0], ends[:-1]))
    lengths = ends - starts
    if len(raw) and (not len(ends) or ends[-1] != len(raw) or lengths.max() > _LONGEST_VARINT):
        raise NotAnExampleError("is not a tf.train.Example: a number without an end")
    values = np.zeros(len(ends), np.uint64)
    for place in range(int(lengths.max(initial=0))):
        has = lengths > place
        values[has] |= (raw[starts[has] + place] & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * place)
    return values.view(np.int64)
