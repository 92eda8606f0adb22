"""Checks a whole batch on its way into a writer, before its first byte is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastio._native import checksum
from fastio.errors import SampleError, SchemaError
from fastio.store.sample_store import SampleBatch
from fastio.types.schema import Field, Schema
from fastio.types.spans import Spans

__all__ = ["CheckedBatch", "check_batch"]


@dataclass(frozen=True, slots=True)
class CheckedBatch:
    """A batch that fits: spans inside their buffers, and its part of the index arrays."""

    keys: Sequence[str]
    joined_keys: bytes  # UTF-8, joined by NUL
    key_sizes: NDArray[np.int64]  # in bytes
    values: dict[str, Spans]
    arrays: dict[str, NDArray[Any]]  # sizes, checksums, shapes, columns


def check_batch(schema: Schema, batch: SampleBatch, *, path: str) -> CheckedBatch:
    """
    Check a batch. Raises SchemaError if it does not fit the schema.

    Values with a checksum (from another store) are compared with it: SampleError if they differ. ``path`` is for
    messages.
    """
    count = len(batch.keys)
    joined, key_sizes = _check_keys(batch.keys)
    _same_names("payload", {f.name for f in schema.payload}, set(batch.spans))
    _same_names("columns", {f.name for f in schema.columns}, set(batch.columns))
    images = {f.name for f in schema.payload if f.traits.is_picture}
    if not set(batch.shapes) <= images:
        raise SchemaError(f"shapes given for {sorted(set(batch.shapes) - images)}, image fields are {sorted(images)}")
    arrays: dict[str, NDArray[Any]] = {}
    for field in schema.payload:
        spans = batch.spans[field.name]
        _check_sizes(field, spans, batch.keys)
        arrays[f"{field.name}_sizes"] = np.array(spans.sizes, np.int64)
        arrays[f"{field.name}_checksums"] = _checksums(field, spans, batch.keys, path=path)
        if field.traits.is_picture:
            shapes = batch.shapes.get(field.name, np.zeros((count, 3), np.int32))
            arrays[f"{field.name}_interval_counts"] = _interval_counts(field, spans)
            arrays[f"{field.name}_shapes"] = _exact(f"{field.name} (shapes)", shapes, dtype="<i4", shape=(count, 3))
    for field in schema.columns:
        shape = (count, *field.shape)
        arrays[field.name] = _exact(field.name, batch.columns[field.name], dtype=field.dtype, shape=shape)
    values = {
        field.name: replace(batch.spans[field.name], checksums=arrays[f"{field.name}_checksums"])
        for field in schema.payload
    }
    return CheckedBatch(batch.keys, joined, key_sizes, values, arrays)


def _check_keys(keys: Sequence[str]) -> tuple[bytes, NDArray[np.int64]]:
    """Return the keys in UTF-8, joined by NUL, and their sizes; keys must not be empty or contain NUL."""
    if not keys:
        return b"", np.empty(0, np.int64)
    try:
        # Names of files that are not UTF-8 arrive with surrogates (os.fsdecode) and are stored as they came.
        joined = "\0".join(keys).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as exc:
        bad = next(key for key in keys if not _is_encodable(key))
        raise SchemaError(f"key {bad!r} cannot be written as UTF-8: rename it") from exc
    ends = np.append(np.flatnonzero(np.frombuffer(joined, np.uint8) == 0), len(joined))
    sizes = np.diff(ends, prepend=-1) - 1
    if len(sizes) != len(keys) or not sizes.all():
        bad = next(key for key in keys if not key or "\0" in key)
        raise SchemaError(f"key {bad!r}: expected at least one character and no NUL")
    return joined, sizes


def _is_encodable(key: str) -> bool:
    try:
        key.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _same_names(what: str, expected: set[str], got: set[str]) -> None:
    if expected != got:
        raise SchemaError(f"{what}: expected fields {sorted(expected)}, got {sorted(got)}")


def _check_sizes(field: Field, spans: Spans, keys: Sequence[str]) -> None:
    if not len(keys) == len(spans) == len(spans.sizes) == len(spans.shard):
        raise SchemaError(f"field {field.name!r}: expected {len(keys)} values, one per key, got {len(spans)}")
    fits = field.fits(spans.sizes)
    if not fits.all():
        bad = int(fits.argmin())
        expected = f"whole {'rows' if field.traits.is_ragged else 'ids'} of {field.unit_bytes} bytes"
        if field.traits.is_array:
            expected = f"{field.nbytes} bytes ({field.dtype} {field.shape})"
        raise SchemaError(f"field {field.name!r} of {keys[bad]!r}: expected {expected}, got {spans.sizes[bad]} bytes")


def _checksums(field: Field, spans: Spans, keys: Sequence[str], *, path: str) -> NDArray[np.uint32]:
    found = np.empty(len(keys), np.uint32)
    try:
        checksum(spans, found).wait()
    except IndexError as exc:
        raise SchemaError(f"field {field.name!r}: a span lies outside its buffer ({exc})") from exc
    if spans.checksums is not None and not np.array_equal(found, spans.checksums):
        index = int(np.flatnonzero(found != spans.checksums)[0])
        raise SampleError(
            f"{path}: sample {index} of the batch ({keys[index]!r}), field {field.name!r}: expected bytes with "
            f"CRC-32 {spans.checksums[index]:08x}, got {found[index]:08x}; the source is damaged: verify it",
            path=path,
            index=index,
            key=keys[index],
            field=field.name,
        )
    return found


def _interval_counts(field: Field, spans: Spans) -> NDArray[np.uint32]:
    """Return how many restart intervals come with each value."""
    if spans.intervals is None:
        return np.zeros(len(spans), np.uint32)
    sizes = spans.intervals.sizes
    if len(sizes) != len(spans) or (sizes % 4).any():
        raise SchemaError(f"field {field.name!r}: expected intervals of 4 bytes for {len(spans)} values, got {sizes}")
    return (sizes // 4).astype(np.uint32)


def _exact(name: str, values: ArrayLike, *, dtype: str, shape: tuple[int | None, ...]) -> NDArray[Any]:
    """Return a copy of the values in this dtype. Raises SchemaError if a value would change or the shape differs."""
    array = np.asarray(values)
    if array.shape != shape:
        raise SchemaError(f"{name!r}: expected shape {shape}, got {array.shape}")
    if array.dtype == np.dtype(dtype):
        return np.array(array, order="C")
    if array.dtype.kind not in "biufSU":
        raise SchemaError(f"{name!r}: expected dtype {dtype}, got {array.dtype}")
    try:
        with np.errstate(all="ignore"):
            cast = array.astype(dtype, order="C")
            changed = (cast != array) & (array == array)  # noqa: PLR0124 - NaN stays NaN
    except (ValueError, TypeError) as exc:  # text that is no number, or not ASCII
        raise SchemaError(f"{name!r}: expected values that fit {dtype}, got {array.dtype} ({exc})") from exc
    if np.any(changed):
        raise SchemaError(f"{name!r}: expected values that fit {dtype}, got {array[changed].ravel()[0]!r}")
    return cast
