"""The index arrays of a packed file: their names, dtypes and shapes, and the JSON header that places them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SchemaError, StoreCorrupt, StoreError
from fastio.types.schema import Field, Schema

__all__ = ["IndexHeader", "Place", "byte_view", "check_names", "expected_arrays", "split_keys", "unit_bytes"]

# Version 2: starts and sizes of a flat field count ids, see ``unit_bytes``; written only if there is such a field.
VERSION = 2
_BLOCK_BYTES = 1 << 20  # bytes of keys examined together, which limits temporary memory
_PARTS = ("starts", "sizes", "checksums", "shapes", "interval_counts", "intervals")

Expected = tuple[str, tuple[int | None, ...]]  # dtype and shape; None: of any length


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
        version = VERSION if self.schema.flat else 1
        data = {"fastio": version, "schema": self.schema.to_json(), "base": self.base, "arrays": places}
        return json.dumps(data, separators=(",", ":")).encode("ascii")

    @classmethod
    def from_bytes(cls, data: bytes, *, path: str) -> IndexHeader:
        """Read the header. Raises StoreCorrupt if it is not one of fastio's, StoreError if it is newer."""
        try:
            parsed = json.loads(data)
            version, base = _natural(parsed["fastio"]), _natural(parsed["base"])
            if version > VERSION:
                raise StoreError(f"{path}: header version {version}, this fastio reads up to {VERSION}: upgrade fastio")
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


def expected_arrays(schema: Schema, count: int) -> tuple[dict[str, Expected], dict[str, Expected]]:
    """
    Return the arrays that a file of ``count`` samples must have, and those it may have (without keys and metadata).
    """
    required: dict[str, Expected] = {}
    optional: dict[str, Expected] = {}
    for field in schema.payload:
        required[f"{field.name}_starts"] = ("<i8", (count,))
        required[f"{field.name}_sizes"] = ("<i8", (count,))
        optional[f"{field.name}_checksums"] = ("<u4", (count,))
        if field.traits.is_picture:
            optional[f"{field.name}_shapes"] = ("<i4", (count, 3))
            optional[f"{field.name}_interval_counts"] = ("<u4", (count,))
            optional[f"{field.name}_intervals"] = ("<u4", (None,))
    for field in schema.columns:
        required[field.name] = (field.dtype, (count, *_fixed(field)))
    return required, optional


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
        for name in names:
            if name in taken:
                raise SchemaError(f"field {field.name!r}: the name {name!r} is taken in the index: rename the field")
            taken.add(name)


def byte_view(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bytes of an array in C order, without a copy if it is in that order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def split_keys(array: NDArray[Any], count: int, *, path: str) -> NDArray[np.int64] | None:
    """Return where each NUL-joined key begins, and one past the end; None for keys of fixed width."""
    if array.dtype.kind == "S":
        if len(array) != count:
            raise _miscounted(path, len(array), count)
        return None
    # No bytes mean no keys, because keys are never empty.
    found = min(1, len(array))
    if count > len(array):  # no memory of that size is allocated for a damaged one
        raise _miscounted(path, found + int(np.count_nonzero(array == 0)), count)
    starts = np.zeros(count + 1, np.int64)
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
