"""Containers of other programs that are read in place, each written and read back by the program itself."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastio import Unpacked
from fastio.store.kinds.unpacked import AS_IT_IS
from tests.converters.sources.tfrecord.records import example, write_records
from tests.converters.trees import picture

__all__ = ["KINDS", "Made"]


@dataclass(frozen=True)
class Made:
    """
    What a kind has written: ``path`` opens it, as ``unpacked`` says.

    ``samples`` are its values by field, as the program's own reader gives them: bytes of payload fields, else numbers.
    """

    path: Path
    samples: Sequence[Mapping[str, Any]]
    unpacked: Unpacked = AS_IT_IS


def tfrecord(folder: Path, count: int) -> Made:
    """Two files of pictures, labels and captions."""
    folder.mkdir()
    halves = [range(count // 2), range(count // 2, count)]
    for number, half in enumerate(halves):
        written = [{"image": picture(i), "caption": f"é {i}", "label": i % 3} for i in half]
        write_records(folder / f"train-0000{number}-of-00002", map(example, written))
    return Made(folder, [each for path in sorted(folder.iterdir()) for each in _examples(path.read_bytes())])


def _examples(data: bytes) -> Iterator[dict[str, Any]]:
    """The features of each record, read by the letter of the format: first values alone."""
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        features = _message(_message(data[at + 12 : at + 12 + size])[0][1])
        entries = [_message(entry) for _, entry in features]
        values = {entry[0][1].decode(): _message(entry[1][1])[0] for entry in entries}
        yield {name: _message(each)[0][1] if kind == 1 else _number(each) for name, (kind, each) in values.items()}
        at += 12 + size + 4


def _message(data: bytes) -> list[tuple[int, Any]]:
    """Fields with a size, and their numbers."""
    fields, at = [], 0
    while at < len(data):
        number, at = _varint(data, at)
        size, at = _varint(data, at)
        fields.append((number >> 3, data[at : at + size]))
        at += size
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value, shift, at = value | (data[at] & 0x7F) << shift, shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at


def _number(data: bytes) -> int:
    """A packed list of a single integer."""
    return _varint(_message(data)[0][1], 0)[0]


KINDS: dict[str, Callable[[Path, int], Made]] = {"tfrecord": tfrecord}
