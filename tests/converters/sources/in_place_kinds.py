"""Containers of other programs that are read in place, each written and read back by the program itself."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

from fastio import Unpacked
from fastio.store.kinds.unpacked import AS_IT_IS
from tests.converters.sources.arrow.picture_tables import (
    picture_table,
    write_file,
    write_parquet,
    write_saved,
    write_stream,
)
from tests.converters.sources.shard_files import dictionary, write_litdata, write_mds
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


def mds(folder: Path, count: int) -> Made:
    """Shards of pictures, arrays of different lengths, captions and labels, columns sorted by name."""
    encodings = {"class": "int", "image": "bytes", "ids": "ndarray:int32", "text": "str", "box": "ndarray:float32:2,2"}
    write_mds(
        folder, encodings, [_values(i, b"\x04" + bytes([i])) for i in range(count)], sizes={"class": 8, "box": 16}
    )
    return Made(folder, list(map(_given, range(count))))


def litdata(folder: Path, count: int) -> Made:
    """The same in chunks of LitData."""
    tree = dictionary(**dict.fromkeys(("class", "image", "ids", "text", "box")))
    samples = [_values(i, struct.pack("<3I", 2, 1, i), struct.pack(">4I", 1, 2, 2, 2)) for i in range(count)]
    write_litdata(folder, ["int", "bytes", "numpy", "str", "tensor"], tree, [tuple(each.values()) for each in samples])
    return Made(folder, list(map(_given, range(count))))


def _values(i: int, head: bytes, box_head: bytes = b"") -> dict[str, bytes]:
    """The bytes of a sample; ``head`` comes before its ``i`` ids."""
    given = _given(i)
    label = struct.pack("<q", given["label"])
    values = {"class": label, "image": given["image"], "ids": head + given["ids"], "text": given["text"]}
    return {**values, "box": box_head + given["box"]}


def _given(i: int) -> dict[str, Any]:
    """A sample as the libraries give it; tests with them compare 1,000."""
    box, ids = np.full(4, i, "<f4").tobytes(), np.arange(i, dtype="<i4").tobytes()
    return {"image": picture(i), "ids": ids, "text": f"é {i}".encode(), "box": box, "label": i % 3}


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table as pyarrow reads them."""
    rows = table.to_pylist()
    return [{"image": row["image"]["bytes"], "caption": row["caption"].encode(), "label": row["label"]} for row in rows]


def _table(count: int) -> pa.Table:
    return picture_table(count, caption=[f"é {i}" for i in range(count)])


def arrow_stream(folder: Path, count: int) -> Made:
    """A stream of several batches, as ``datasets`` writes them."""
    folder.mkdir()
    path = write_stream(folder / "a.arrow", _table(count), 5)
    with pa.memory_map(str(path)) as file:
        return Made(path, _rows(pa.ipc.open_stream(file).read_all()))


def arrow_files(folder: Path, count: int) -> Made:
    """Two Arrow files."""
    folder.mkdir()
    table, half = _table(count), count // 2
    paths = [
        write_file(folder / f"a-{i}.feather", part) for i, part in enumerate((table.slice(0, half), table.slice(half)))
    ]
    return Made(folder, [row for path in paths for row in _rows(pa.feather.read_table(path))])


def saved(folder: Path, count: int) -> Made:
    """A dataset that was saved, of two files."""
    half = count // 2
    write_saved(folder, [_table(count).slice(0, half), _table(count).slice(half)])
    tables = [pa.ipc.open_stream(path).read_all() for path in sorted(folder.glob("*.arrow"))]
    return Made(folder, [row for table in tables for row in _rows(table)])


def parquet(**options: Any) -> Callable[[Path, int], Made]:
    """A Parquet file of several row groups, not compressed."""

    def make(folder: Path, count: int) -> Made:
        folder.mkdir()
        path = write_parquet(folder / "a.parquet", _table(count), 5, compression="none", **options)
        return Made(path, _rows(pq.read_table(path)))

    return make


KINDS: dict[str, Callable[[Path, int], Made]] = {
    "tfrecord": tfrecord,
    "mds": mds,
    "litdata": litdata,
    "arrow-stream": arrow_stream,
    "arrow-files": arrow_files,
    "datasets": saved,
    "parquet": parquet(),
    "parquet-plain": parquet(use_dictionary=False, data_page_version="2.0", write_page_checksum=True),
}
