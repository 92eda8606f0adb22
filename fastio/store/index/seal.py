"""
The seal and the header of a packed file: what it must be, down to the bit, and where its index arrays lie.

    offset  size  field         meaning (integers unsigned, little endian)
         0     8  magic         89 "fastio" 0a
         8     4  version       1; 2 if sealed alone, for a set object; a reader refuses what is newer
        12     4  format        the format's name, padded with NUL; of a longer name its CRC-32
        16     8  count         samples in this file
        24     8  file_size     bytes of this file
        32     8  seal_start    where this seal lies
        40     8  head_size     bytes before the payload (LMDB meta pages, HDF5 superblock and root group; tar: 0)
        48     8  header_start  where the JSON header lies
        56     8  header_size
        64     8  set_count     samples in all shards of the set; version 2: in this file
        72     4  shard         which shard this is, from 0
        76     4  shards        of how many; version 2: 0, a set object says so (see ``set_object``)
        80     4  header_crc    CRC-32 of the header
        84     4  head_crc      CRC-32 of the first head_size bytes without the seal
        88     4  file_crc      CRC-32 of the file without the seal: first all from head_size on, then the head
        92     4  set_crc       CRC-32 over (count, file_size, file_crc) of every shard of the set; version 2: 0
        96     8  plan          version 2: which division of which source this shard belongs to; 0: none
       104    20  zeros
       124     4  seal_crc      CRC-32 of the 124 bytes before

The order of file_crc lets a writer compute it while the payload streams by, although the head is known last.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio._native import crc32
from fastio.errors import SchemaError, StoreCorrupt, StoreError, StoreIncomplete
from fastio.types.schema import Field, Schema

__all__ = [
    "KEY_RUNS",
    "MAGIC",
    "NARROW",
    "PACK_AGAIN",
    "SEAL_SIZE",
    "Expected",
    "IndexHeader",
    "Place",
    "ReadBytes",
    "Seal",
    "SealAt",
    "always_at",
    "byte_view",
    "check_names",
    "checksum_of_columns",
    "counts_name",
    "expected_arrays",
    "find_seal",
    "format_mark",
    "is_compact",
    "read_seal",
    "set_checksum",
    "split_keys",
    "unit_bytes",
    "unsealed_regions",
]


MAGIC = b"\x89fastio\n"
SEAL_SIZE = 128
PACK_AGAIN = "copy or pack again"  # what to do about a damaged file, unless its reader knows better
VERSION = 2
MAX_HEAD = 1 << 20

_BODY = struct.Struct("<8sI4sQQQQQQQIIIIIIQ20x")
_CRC = struct.Struct("<I")
_SHARD = np.dtype([("count", "<u8"), ("file_size", "<u8"), ("file_crc", "<u4")])

ReadBytes = Callable[[int, int], bytes]  # ``read(start, size)``; returns fewer bytes at the end of the file
SealAt = Callable[[int, ReadBytes], int]  # finds the seal in a file of this size, of which it may read a little


@dataclass(frozen=True, slots=True)
class Seal:
    """What a packed file must be; see the module's docstring for each field. ``format`` is a name or its tag."""

    format: str
    count: int
    file_size: int
    seal_start: int
    head_size: int
    header_start: int
    header_size: int
    set_count: int
    shard: int
    shards: int
    header_crc: int
    head_crc: int
    file_crc: int
    set_crc: int
    plan: int = 0

    @property
    def is_alone(self) -> bool:
        """Whether the file was sealed without knowing its set: version 2."""
        return self.shards == 0

    def pack(self) -> bytes:
        """Return the 128 bytes."""
        body = _BODY.pack(
            MAGIC,
            2 if self.is_alone else 1,
            format_mark(self.format),
            self.count,
            self.file_size,
            self.seal_start,
            self.head_size,
            self.header_start,
            self.header_size,
            self.set_count,
            self.shard,
            self.shards,
            self.header_crc,
            self.head_crc,
            self.file_crc,
            self.set_crc,
            self.plan,
        )
        return body + _CRC.pack(crc32(body))

    @classmethod
    def unpack(cls, data: bytes, *, path: str, start: int, file_size: int, advice: str = PACK_AGAIN) -> Seal:
        """
        Read and check the seal at ``start`` of a file of ``file_size`` bytes. ``advice`` ends messages about damage.

        Raises StoreIncomplete if there is none, StoreError if it is newer, StoreCorrupt if it contradicts itself or
        the file.
        """
        if file_size == 0:
            raise StoreIncomplete(f"{path}: the file is empty: {advice}")
        if len(data) != SEAL_SIZE or data[: len(MAGIC)] != MAGIC:
            raise StoreIncomplete(
                f"{path}: is not a complete fastio store: it was not packed by fastio, or packing or copying was "
                f"interrupted (no seal at byte {start} of {file_size}): {advice}"
            )
        body, (crc,) = data[:-4], _CRC.unpack(data[-4:])
        if crc32(body) != crc:
            raise StoreCorrupt(
                f"{path}: the seal is damaged: expected CRC-32 {crc:08x}, got {crc32(body):08x}: {advice}"
            )
        _, version, name, *numbers = _BODY.unpack(body)
        if version > VERSION:
            raise StoreError(
                f"{path}: packed by version {version} of the format, but this fastio only reads up to {VERSION}: "
                "upgrade fastio"
            )
        seal = cls(name.rstrip(b"\0").decode("latin-1"), *numbers)
        seal._check(path, start, file_size, advice)
        return seal

    def is_of(self, format_name: str) -> bool:
        """Return whether the file was sealed as one of this format."""
        return format_mark(self.format) == format_mark(format_name)

    def _check(self, path: str, start: int, file_size: int, advice: str) -> None:
        if self.file_size != file_size:
            raise StoreCorrupt(
                f"{path}: expected {self.file_size} bytes, got {file_size}; truncated or changed: {advice}"
            )
        fits = (
            self.seal_start == start
            and self.head_size <= min(file_size, MAX_HEAD)
            and self.header_start <= file_size
            and self.header_size <= file_size - self.header_start
            and (self.is_alone or self.shard < self.shards)
            and self.count <= self.set_count
        )
        if not fits:
            raise StoreCorrupt(f"{path}: the seal contradicts itself ({self}): {advice}")


def always_at(place: int) -> SealAt:
    """Return the finder for a seal at a fixed position, which counts from the end of the file if negative."""
    return lambda file_size, _read: place if place >= 0 else file_size + place


def find_seal(path: str, file_size: int, read: ReadBytes, seal_at: SealAt, *, advice: str = PACK_AGAIN) -> Seal:
    """Read and check the seal of a file. Raises the errors of ``Seal.unpack``."""
    start = min(max(0, seal_at(file_size, read)), file_size)
    return Seal.unpack(read(start, SEAL_SIZE), path=path, start=start, file_size=file_size, advice=advice)


def read_seal(path: str, seal_at: SealAt) -> Seal | None:
    """Return the seal of a file; None if it has none that can be read."""
    try:
        with Path(path).open("rb") as file:
            fd = file.fileno()
            return find_seal(path, os.fstat(fd).st_size, lambda start, size: os.pread(fd, size, start), seal_at)
    except (OSError, StoreError):
        return None


def set_checksum(shards: Iterable[tuple[int, int, int]]) -> int:
    """
    Return the CRC-32 over (count, file_size, file_crc) of each shard, in order: tells sets apart that were packed
    alike.
    """
    return crc32(np.fromiter(shards, _SHARD).view(np.uint8))


def checksum_of_columns(counts: NDArray[Any], file_sizes: NDArray[Any], file_crcs: NDArray[Any]) -> int:
    """Return the ``set_checksum`` of shards that are given as arrays, ``(n,)``."""
    table = np.empty(len(counts), _SHARD)
    table["count"], table["file_size"], table["file_crc"] = counts, file_sizes, file_crcs
    return crc32(table.view(np.uint8))


def unsealed_regions(*, file_size: int, seal_start: int, head_size: int) -> Sequence[tuple[int, int]]:
    """
    Return the half-open byte ranges that file_crc covers, in its order.

    >>> unsealed_regions(file_size=1000, seal_start=0, head_size=400)
    [(400, 1000), (128, 400)]
    >>> unsealed_regions(file_size=1000, seal_start=800, head_size=0)
    [(0, 800), (928, 1000)]
    """
    regions: list[tuple[int, int]] = []
    for start, stop in ((head_size, file_size), (0, head_size)):
        before = (start, min(stop, seal_start))
        after = (max(start, seal_start + SEAL_SIZE), stop)
        regions += [r for r in (before, after) if r[0] < r[1]]
    return regions


def format_mark(format_name: str) -> bytes:
    """Return the 4 bytes that stand for a format: its name, or the CRC-32 of a longer name."""
    name = format_name.encode("latin-1")
    return name.ljust(4, b"\0") if len(name) <= 4 else crc32(name).to_bytes(4, "little")


# The index arrays of a packed file: their names, dtypes and shapes, and the JSON header that places them.

# Version 2: starts and sizes of a flat field count ids, see ``unit_bytes``. Version 3: numbers may be narrow, see
# ``Expected``, and keys a rule, see ``numbered_keys``. Each is written only where it is needed.
HEADER_VERSION = 3
_BLOCK_BYTES = 1 << 20  # bytes of keys examined together, which limits temporary memory
_PARTS = ("starts", "sizes", "checksums", "shapes", "interval_counts", "intervals")

KEY_RUNS = "index.key_runs"  # see ``numbered_keys``
NARROW = ("|u1", "<u2", "<u4")  # what numbers of a large index may be kept as


@dataclass(frozen=True, slots=True)
class Expected:
    """
    An index array that a file may have: its dtype and shape, with None for an axis of any length.

    ``is_number`` marks what is looked up a few at a time or added up (starts, sizes, counts), which a large index keeps
    in the narrowest unsigned integers that hold all of it.
    """

    dtype: str
    shape: tuple[int | None, ...]
    is_number: bool = False

    def fits(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
        """Whether an array of this dtype and shape is such a one."""
        is_narrow = self.is_number and dtype.str in NARROW and dtype.itemsize < np.dtype(self.dtype).itemsize
        if dtype.str != self.dtype and not is_narrow:
            return False
        return len(shape) == len(self.shape) and all(n in (None, m) for n, m in zip(self.shape, shape, strict=True))


@dataclass(frozen=True, slots=True)
class Place:
    """Where an index array lies in its file, and how to read it."""

    start: int
    dtype: str
    shape: tuple[int, ...]
    crc32: int


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """The JSON header of one file: what the samples are, and where each index array lies."""

    schema: Schema
    base: int  # added to every ``starts``
    places: Mapping[str, Place]

    def to_bytes(self) -> bytes:
        """Return compact JSON, the same bytes for the same content."""
        places = {
            name: {"start": p.start, "dtype": p.dtype, "shape": list(p.shape), "crc32": p.crc32}
            for name, p in self.places.items()
        }
        version = 3 if is_compact(self.schema, self.places) else 2 if self.schema.flat else 1
        data = {"fastio": version, "schema": self.schema.to_json(), "base": self.base, "arrays": places}
        return json.dumps(data, separators=(",", ":")).encode("ascii")

    @classmethod
    def from_bytes(cls, data: bytes, *, path: str) -> IndexHeader:
        """Read the header. Raises StoreCorrupt if it is not one of fastio's, StoreError if it is newer."""
        try:
            parsed = json.loads(data)
            version, base = _natural(parsed["fastio"]), _natural(parsed["base"])
            if version > HEADER_VERSION:
                raise StoreError(
                    f"{path}: header version {version}, this fastio reads up to {HEADER_VERSION}: upgrade fastio"
                )
            places = {
                str(name): Place(
                    start=_natural(p["start"]),
                    dtype=str(p["dtype"]),
                    shape=tuple(_natural(s) for s in p["shape"]),
                    crc32=_natural(p["crc32"]),
                )
                for name, p in parsed["arrays"].items()
            }
            return cls(schema=Schema.from_json(parsed["schema"]), base=base, places=places)
        except SchemaError as exc:
            raise StoreError(f"{path}: {exc}") from exc
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as exc:
            raise StoreCorrupt(f"{path}: the header is not one that fastio writes ({exc!r}): pack again") from exc


def expected_arrays(
    schema: Schema, count: int, counts: Mapping[str, NDArray[Any]] | None = None
) -> tuple[dict[str, Expected], dict[str, Expected]]:
    """
    Return the arrays that a file of ``count`` samples must have, and those it may have (without keys and metadata).

    ``counts`` are the elements of each sample by field of lists, as many as the arrays of that field must have; without
    them, those may be of any length.
    """
    required: dict[str, Expected] = {}
    optional: dict[str, Expected] = {}
    for field in schema.payload:
        values: int | None = count
        if field.is_list:
            required[counts_name(field.name)] = Expected("<u4", (count,), is_number=True)
            values = None if counts is None else int(counts[field.name].sum(dtype=np.int64))
        required[f"{field.name}_starts"] = Expected("<i8", (values,), is_number=True)
        required[f"{field.name}_sizes"] = Expected("<i8", (values,), is_number=True)
        optional[f"{field.name}_checksums"] = Expected("<u4", (values,))
        if field.element.traits.is_picture:
            optional[f"{field.name}_shapes"] = Expected("<i4", (values, 3))
            optional[f"{field.name}_interval_counts"] = Expected("<u4", (values,), is_number=True)
            optional[f"{field.name}_intervals"] = Expected("<u4", (None,))
        if field.element.traits.is_npy:
            required[f"{field.name}_shapes"] = Expected("<i4", (values, len(field.shape)))
    for field in schema.columns:
        required[field.name] = Expected(field.dtype, (count, *_fixed(field)))
    return required, optional


def is_compact(schema: Schema, places: Mapping[str, Place]) -> bool:
    """Whether numbers of an index are kept in narrower integers than they are handed out in, or its keys as a rule."""
    required, optional = expected_arrays(schema, 0)
    expected = {name: each.dtype for name, each in (required | optional).items()}
    is_narrow = any(name in expected and place.dtype != expected[name] for name, place in places.items())
    return is_narrow or KEY_RUNS in places


def counts_name(field: str) -> str:
    """Return the name of the array that says how many elements each sample has in a field of lists."""
    return f"{field}_counts"


def unit_bytes(schema: Schema) -> dict[str, int]:
    """
    Return the unit of a field's ``starts`` and ``sizes`` in the file: the size of an id for a flat array of ids, else
    1.
    """
    return {f.name: np.dtype(f.dtype).itemsize if f is schema.flat else 1 for f in schema.payload}


def check_names(schema: Schema) -> None:
    """Refuse field names that clash in the index, with each other or with reserved names."""
    taken = {"data", "header", "keys", "metadata", "seal"}
    for field in schema.fields:
        names = [field.name]
        if not field.is_column:
            names += [f"{field.name}_{part}" for part in _PARTS]
        if field.is_list:
            names.append(counts_name(field.name))
        for name in names:
            if name in taken:
                raise SchemaError(f"field {field.name!r}: the name {name!r} is taken in the index: rename the field")
            taken.add(name)


def byte_view(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bytes of an array in C order, without a copy if it is in that order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def split_keys(
    array: NDArray[Any], count: int, *, path: str, out: NDArray[np.int64] | None = None
) -> NDArray[np.int64] | None:
    """
    Return where each NUL-joined key begins, and one past the end ``(count + 1,)``; None for keys of fixed width.

    ``out``, zeros, is filled and returned if it is given.
    """
    if array.dtype.kind == "S":
        if len(array) != count:
            raise _miscounted(path, len(array), count)
        return None
    # No bytes mean no keys, because keys are never empty.
    found = min(1, len(array))
    if count > len(array):  # no memory of that size is allocated for a damaged one
        raise _miscounted(path, found + int(np.count_nonzero(array == 0)), count)
    starts = np.zeros(count + 1, np.int64) if out is None else out
    for at in range(0, len(array), _BLOCK_BYTES):
        ends = np.flatnonzero(array[at : at + _BLOCK_BYTES] == 0)
        if found + len(ends) <= count:
            np.add(ends, at + 1, out=starts[found : found + len(ends)])
        found += len(ends)
    if found != count:
        raise _miscounted(path, found, count)
    if count:
        starts[-1] = len(array) + 1
    return starts


def _miscounted(path: str, found: int, count: int) -> StoreCorrupt:
    return StoreCorrupt(f"{path}: the index has {found} keys, expected {count}: pack again")


def _fixed(field: Field) -> tuple[int, ...]:
    return tuple(size for size in field.shape if size is not None)


def _natural(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r} is not a count")
    return value
