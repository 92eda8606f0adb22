"""
The records of a TFRecord file: where each lies, and whether its checksums are right.

A file is one record behind the other, all numbers little endian:

    uint64 size | uint32 masked CRC-32C of the size | the record's bytes | uint32 masked CRC-32C of these

masked(crc) is the CRC rotated right by 15 bits, plus 0xa282ead8.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio._native import ExampleFault
from fastio.errors import SourceError
from fastio.types.spans import Spans

__all__ = [
    "Example",
    "Feature",
    "NotAnExampleError",
    "RecordFile",
    "begins_like_records",
    "masked",
    "parse_examples",
    "scan_records",
]


HEAD_BYTES, FOOT_BYTES = 12, 4
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class RecordFile:
    """A mapped file; ``starts`` and ``sizes`` (n,) int64 are those of its records' bytes."""

    place: str
    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @property
    def end(self) -> int:
        """The byte behind the last record."""
        return int(self.starts[-1] + self.sizes[-1]) + FOOT_BYTES if len(self.starts) else 0


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
    places = _native.record_places(np.asarray(data))
    found = RecordFile(place, data, np.ascontiguousarray(places[:, 0]), np.ascontiguousarray(places[:, 1]))
    _check_sizes(found)
    end = found.end
    if end != len(data):
        where = f"record {len(places)} begins at byte {end:,}"
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


def _check_sizes(file: RecordFile) -> None:
    """SourceError for the first record whose size differs from its checksum."""
    heads = file.starts - HEAD_BYTES
    if file.end + HEAD_BYTES <= len(file.data):  # the head of a record that seems to lead out of the file
        heads = np.append(heads, file.end)
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


# The features of a tf.train.Example, whose bytes native code takes apart.

BYTES_LIST, FLOAT_LIST, INT64_LIST = 1, 2, 3  # the numbers of these fields in a message Feature
KINDS = {BYTES_LIST: "bytes", FLOAT_LIST: "floats", INT64_LIST: "integers"}
_EXAMPLES_AT_ONCE = 4096
_FAULTS = {
    ExampleFault.ENDLESS: "is not a tf.train.Example: a number without an end",
    ExampleFault.OUTSIDE: "is not a tf.train.Example: a field leads out of its message",
    ExampleFault.TYPE: "is not a tf.train.Example: a field of the unknown type {type}",
    ExampleFault.SEQUENCE: (
        "is a tf.train.SequenceExample, which fastio does not read: write its records as tf.train.Example"
    ),
}


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
            return _integers(raw)
        if len(raw) % 4:
            raise NotAnExampleError("is not a tf.train.Example: packed floats of an odd size")
        return np.frombuffer(raw, "<f4")


Example = Mapping[str, Feature]


def parse_examples(spans: Spans, views: Sequence[Any]) -> Iterator[Example | NotAnExampleError]:
    """
    Yield the features of each Example, those that have values, or why it is none. ``views`` is the memory of each
    buffer of the spans.
    """
    for start in range(0, len(spans), _EXAMPLES_AT_ONCE):
        yield from _parse(spans.part(start, min(start + _EXAMPLES_AT_ONCE, len(spans))), views)


def _parse(spans: Spans, views: Sequence[Any]) -> list[Example | NotAnExampleError]:
    faults, features, parts, names = _native.parse_examples(spans)
    titles, memory = list(map(_title, names)), [views[shard] for shard in spans.shard.tolist()]
    bounds = list(map(tuple, parts.tolist()))
    found: list[dict[str, Feature]] = [{} for _ in memory]
    problems = dict[int, str]()
    at = 0
    for example, name, kind, count in features.tolist():
        title = titles[name]
        if title is None:
            problems[example] = "is not a tf.train.Example: the name of a feature is not UTF-8"
        elif count:
            found[example][title] = Feature(memory[example], kind, tuple(bounds[at : at + count]))
        else:
            found[example].pop(title, None)
        at += count
    for i in np.flatnonzero(faults[:, 0]).tolist():
        problems[i] = _FAULTS[ExampleFault(int(faults[i, 0]))].format(type=faults[i, 1])
    return [NotAnExampleError(problems[i]) if i in problems else each for i, each in enumerate(found)]


def _title(name: bytes) -> str | None:
    """The name of a feature; None if it is not UTF-8."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return None


def _integers(raw: bytes) -> NDArray[np.int64]:
    """Varints, one after the other, as int64."""
    try:
        return _native.read_varints(np.frombuffer(raw, np.uint8))
    except ValueError as exc:
        raise NotAnExampleError(_FAULTS[ExampleFault.ENDLESS]) from exc
