"""
A container for tests, complete in one file: ``FORMAT`` as an entry of FORMATS is all that fastio needs.

    0      "TOY STORE"
    ...    values, index arrays and header, each at a multiple of 8
    ...    the seal
    last   8 bytes: where the seal begins
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fastio._native import crc32
from fastio.store import FORMATS
from fastio.store.formats.format import Columns, Ending, Format, Lists, Sizes, Values, all_values, sample_order
from fastio.store.index.seal import SEAL_SIZE, Place, ReadBytes
from fastio.store.write.atomic import PartialFile
from fastio.store.write.spool import Rows, write_array
from fastio.types.schema import Schema

__all__ = ["FORMAT", "register"]

_MAGIC = b"TOY STORE"
_ALIGNMENT = 8


class ToyWriter:
    """Writes values one after the other. Satisfies ``fastio.store.formats.format.ShardWriter``."""

    base = 0

    def __init__(self, file: PartialFile, schema: Schema) -> None:
        self._file = file
        self._fields = schema.payload
        self._starts: dict[str, list[int]] = {field.name: [] for field in schema.payload}
        file.write(_MAGIC)

    def append(self, keys: Sequence[str], values: Values, columns: Columns, lists: Lists) -> None:
        """Write samples."""
        every = all_values(self._fields, values, lists)
        for field, position, _ in sample_order(self._fields, values, lists):
            self._starts[field.name].append(self._write(every[field.name].view(position)))

    def take_starts(self) -> dict[str, NDArray[np.int64]]:
        """Where values lie: known when they are appended."""
        taken = {name: np.array(starts, np.int64) for name, starts in self._starts.items()}
        self._starts = {name: [] for name in taken}
        return taken

    def end_payload(self) -> None:
        """Nothing is gathered."""

    def finish(self, arrays: Mapping[str, Rows], header: Callable[[Mapping[str, Place]], bytes]) -> Ending:
        """Write the index, leave room for the seal, and say where that is."""
        places: dict[str, Place] = {}
        for name, array in arrays.items():
            self._align()
            places[name] = write_array(self._file, array)
        encoded = header(places)
        header_start = self._write(np.frombuffer(encoded, np.uint8))
        self._file.flush()
        seal_start = self._file.size
        self._file.skip(SEAL_SIZE)
        self._file.write(seal_start.to_bytes(8, "little"))
        self._file.flush()
        return Ending(
            file_size=self._file.size,
            seal_start=seal_start,
            head_size=0,
            header_start=header_start,
            header_size=len(encoded),
            header_crc=crc32(encoded),
            head_crc=0,
            file_crc=self._file.crc,
        )

    def release(self) -> None:
        """There are no temporary files."""

    def _write(self, value: NDArray[np.uint8]) -> int:
        """Write bytes at the next multiple of 8; where they begin."""
        self._align()
        start = self._file.size
        self._file.write(value)
        return start

    def _align(self) -> None:
        self._file.write(bytes(-self._file.size % _ALIGNMENT))


def _seal_at(file_size: int, read: ReadBytes) -> int:
    return int.from_bytes(read(max(0, file_size - 8), 8), "little")


def _sample_bytes(schema: Schema, sizes: Sizes, count: int) -> NDArray[np.int64]:
    total = np.zeros(count, np.int64)
    for field in schema.payload:
        total += -(-sizes[field.name] // _ALIGNMENT) * _ALIGNMENT
    return total


def _plain_reader(schema: Schema) -> str:
    """The values, without a look at the index: of files of one size."""
    return f"samples = open(path, 'rb').read()  # {len(schema.payload)} values a sample\n"


FORMAT = Format(
    name="toycontainer",
    suffixes=(".toybox", ".toy"),
    file="a toy container",
    good_for="tests",
    writer=ToyWriter,
    seal_at=_seal_at,
    overhead=lambda _schema: "the toy container pads values to 8 bytes",
    plain_reader=_plain_reader,
    marks=((0, _MAGIC),),
    sample_bytes=_sample_bytes,
)


def register() -> None:
    """The one line."""
    FORMATS["toycontainer"] = FORMAT
