"""Arrow arrays as the bytes, or the column, that a store keeps of a field; without a Python object for each value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio._native import Buffers
from fastio.converters.arrow.buffers import python_values, value_bytes
from fastio.converters.arrow.types import array_type, is_bytes, is_picture_struct
from fastio.converters.extra import pyarrow
from fastio.converters.record_values import EncodedField, encode_values
from fastio.types.schema import Field
from fastio.types.spans import Spans

__all__ = ["encode_array", "joined", "plain_array"]


def encode_array(field: Field, array: Any, *, where: str) -> EncodedField:
    """
    Encode one value per sample; ``array`` has checked offsets. ``where`` is the column's name, for messages.

    Null is a problem of its sample, except in JSON. The result equals that of ``encode_values`` on the values as Python
    objects, but text is checked to be UTF-8.
    """
    array, missing = plain_array(array), dict[int, str]()
    if is_picture_struct(array.type):
        array, missing = _picture_bytes(array, where)
    nulls = np.flatnonzero(_bits(array.is_null()))
    if len(nulls) == 0 or field.traits.is_json:
        return _encoded(field, array)
    for i in nulls.tolist():
        missing.setdefault(i, f"has null in the column {where!r}; --without leaves a column out")
    present = np.flatnonzero(_bits(array.is_valid()))
    return _scattered(field, _encoded(field, array.drop_null()), present, len(array), missing)


def joined(parts: Sequence[EncodedField]) -> EncodedField:
    """Return the values of all parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    firsts = np.cumsum([0, *map(_count, parts)]).tolist()
    problems = {
        first + i: sentence for first, part in zip(firsts, parts, strict=False) for i, sentence in part.problems.items()
    }
    if parts[0].column is not None:
        columns = [part.column for part in parts if part.column is not None]
        return EncodedField(column=np.concatenate(columns), problems=problems)
    spans = [part.spans for part in parts if part.spans is not None]
    shard = np.repeat(np.arange(len(spans), dtype=np.int32), [len(each) for each in spans])
    whole = Spans(
        Buffers([_buffer(each) for each in spans]),
        shard,
        np.concatenate([each.starts for each in spans]),
        np.concatenate([each.sizes for each in spans]),
    )
    return EncodedField(spans=whole, problems=problems)


def plain_array(array: Any) -> Any:
    """Return the same values without dictionaries, run-end encoding and extension types."""
    arrow = pyarrow("to read tables")
    while True:
        if isinstance(array, arrow.ExtensionArray):
            array = array.storage
        elif arrow.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        elif arrow.types.is_run_end_encoded(array.type):
            array = pyarrow("to read tables", "pyarrow.compute").run_end_decode(array)
        else:
            return array


def _count(part: EncodedField) -> int:
    return len(part.spans) if part.spans is not None else len(part.column) if part.column is not None else 0


def _buffer(spans: Spans) -> NDArray[np.uint8]:
    """The one array that spans of one part lie in."""
    last = spans.starts + spans.sizes
    return spans.buffers.view(0, 0, int(last.max(initial=0)))


def _picture_bytes(array: Any, where: str) -> tuple[Any, dict[int, str]]:
    """The bytes of pictures, and a sentence for those of which there is only a path."""
    compute = pyarrow("to read tables", "pyarrow.compute")
    data, paths = compute.struct_field(array, "bytes"), compute.struct_field(array, "path")
    only_paths = np.flatnonzero(_bits(data.is_null()) & _bits(paths.is_valid()))
    return plain_array(data), {
        i: f"has only the path {str(paths[i].as_py())!r:.80} in the column {where!r}, without the bytes of that file"
        for i in only_paths.tolist()
    }


def _bits(array: Any) -> NDArray[np.bool_]:
    bits: NDArray[np.bool_] = array.to_numpy(zero_copy_only=False)
    return bits


def _scattered(
    field: Field, encoded: EncodedField, present: NDArray[np.int64], count: int, missing: dict[int, str]
) -> EncodedField:
    """The values at the positions ``present`` of ``count``, and nothing at the others."""
    problems = {**missing, **{int(present[i]): sentence for i, sentence in encoded.problems.items()}}
    if encoded.column is not None:
        column = np.zeros((count, *encoded.column.shape[1:]), field.dtype)
        column[present] = encoded.column
        return EncodedField(column=column, problems=problems)
    assert encoded.spans is not None
    shard, starts, sizes = np.zeros(count, np.int32), np.zeros(count, np.int64), np.zeros(count, np.int64)
    shard[present], starts[present] = encoded.spans.shard, encoded.spans.starts
    sizes[present] = encoded.spans.sizes
    return EncodedField(spans=Spans(encoded.spans.buffers, shard, starts, sizes), problems=problems)


def _encoded(field: Field, array: Any) -> EncodedField:
    """Values without nulls (JSON may have some)."""
    arrow, traits = pyarrow("to read tables"), field.traits
    if is_bytes(array.type) and not traits.is_json and (traits.is_picture or not traits.is_plain):
        return EncodedField(spans=Spans.of(*value_bytes(arrow, array)))
    if traits.is_text and not array_type(array.type):
        return _text(arrow, field, array)
    if traits.is_plain and not traits.is_text:
        numbers = _numbers(arrow, field, array)
        if numbers is not None:
            return numbers
    if traits.is_json and (arrow.types.is_string(array.type) or arrow.types.is_large_string(array.type)):
        array = array.cast(arrow.large_binary())  # documents in a column of text
    return encode_values(field, python_values(array))


def _text(arrow: Any, field: Field, array: Any) -> EncodedField:
    """Strings as they are; dates, times and decimals as Arrow writes them."""
    types = arrow.types
    if not (types.is_string(array.type) or types.is_large_string(array.type) or is_bytes(array.type)):
        array = array.cast(arrow.large_string())
    data, starts, sizes = value_bytes(arrow, array)
    problems = dict[int, str]()
    if not _is_utf8(data, starts, sizes):
        for i, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
            try:
                data[start : start + size].tobytes().decode()
            except UnicodeDecodeError as exc:
                byte = data[start + exc.start]
                problems[i] = f"has a field {field.name!r} that is not UTF-8: byte {exc.start} is 0x{byte:02x}"
    return EncodedField(spans=Spans.of(data, starts, sizes), problems=problems)


def _is_utf8(data: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> bool:
    """Whether all values are UTF-8: together they are, and none begins within a character."""
    try:
        data.tobytes().decode()
    except UnicodeDecodeError:
        return False
    firsts = data[starts[sizes > 0]]
    return not bool(((firsts & 0xC0) == 0x80).any())


def _numbers(arrow: Any, field: Field, array: Any) -> EncodedField | None:
    """(Lists of) numbers that the field can hold; None if something is odd: ``encode_values`` then says what."""
    if arrow.types.is_duration(array.type):
        array = array.cast(arrow.int64())
    if array_type(array.type) is None:
        return None
    flattened = _flattened(arrow, field, array)
    flat = None if flattened is None else _cast(flattened[0].to_numpy(zero_copy_only=False), np.dtype(field.dtype))
    if flat is None or flattened is None:
        return None
    sizes = [size for size in field.shape if size is not None]
    if field.is_column:
        return EncodedField(column=flat.reshape(len(array), *sizes))
    row_bytes = math.prod(sizes) * flat.itemsize
    return EncodedField(spans=Spans.joined(np.ascontiguousarray(flat).view(np.uint8), flattened[1] * row_bytes))


def _flattened(arrow: Any, field: Field, array: Any) -> tuple[Any, NDArray[np.int64]] | None:
    """The numbers in lists of the field's shape, and the size of the first axis where that is open, else 1."""
    lengths_of = pyarrow("to read tables", "pyarrow.compute").list_value_length
    shape, rows = field.shape, np.ones(len(array), np.int64)
    is_tensor = arrow.types.is_fixed_size_list(array.type) and len(shape) > 1 and None not in shape
    if is_tensor and not _is_nested(array) and array.type.list_size == math.prod(size or 0 for size in shape):
        shape = (array.type.list_size,)  # arrow.fixed_shape_tensor keeps its elements in one list
    for axis, size in enumerate(shape):
        if not hasattr(array, "flatten") or arrow.types.is_struct(array.type):
            return None
        lengths = lengths_of(array).to_numpy(zero_copy_only=False).astype(np.int64)
        if size is None and axis == 0:
            rows = lengths
        elif (lengths != size).any():
            return None
        array = plain_array(array.flatten())
        if array.null_count:
            return None
    return None if hasattr(array, "flatten") else (array, rows)


def _is_nested(array: Any) -> bool:
    return hasattr(plain_array(array.values), "flatten")


def _cast(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """The numbers in another dtype: floats are rounded, integers must not change; None if they would."""
    if values.dtype == dtype:
        return values
    if dtype.kind == "f" and values.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            return values.astype(dtype)
    if dtype.kind in "iu" and values.dtype.kind in "biu":
        with np.errstate(all="ignore"):
            cast = values.astype(dtype)
        return cast if np.array_equal(cast, values) else None
    return None
