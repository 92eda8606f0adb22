"""Arrow arrays as the bytes, or the column, that a store keeps of a field; without a Python object for each value."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fastio._native import Buffers
from fastio.converters.fields.problems import list_problems
from fastio.converters.fields.values import EncodedField, encode_values
from fastio.converters.sources.arrow.columns import is_bytes, is_list, is_list_of_bytes, is_picture_struct, plain_type
from fastio.converters.sources.arrow.reading import inner_feature, plain_array, python_values, value_bytes
from fastio.converters.sources.column_kinds.kind import ColumnKind, decoded, decoded_elements, field_of_bytes
from fastio.converters.sources.optional import pyarrow
from fastio.errors import SourceError
from fastio.types.bfloat16 import BFLOAT16
from fastio.types.field_types import FIELD_TYPES
from fastio.types.schema import COLUMN, RAGGED, RAW, Field
from fastio.types.spans import Spans

__all__ = [
    "decode_array",
    "encode_array",
    "encode_lists",
    "field_by_type",
    "joined",
    "stays_bytes",
]


_NULL = "has null in the column {}; --without leaves a column out"


def encode_array(field: Field, array: Any, *, where: str) -> EncodedField:
    """
    Encode one value per sample; ``array`` has checked offsets. ``where`` is the column's name, for messages.

    Null is a problem of its sample, except in JSON. The result equals that of ``encode_values`` on the values as Python
    objects, but text is checked to be UTF-8.
    """
    words = _of_dictionary(field, array, where)
    if words is not None:
        return words
    array, missing = plain_array(array), dict[int, str]()
    if is_picture_struct(array.type):
        array, missing = _picture_bytes(array, where)
    nulls = np.flatnonzero(_bits(array.is_null()))
    if len(nulls) == 0 or field.traits.is_json:
        return _encoded(field, array)
    for i in nulls.tolist():
        missing.setdefault(i, _NULL.format(repr(where)))
    present = np.flatnonzero(_bits(array.is_valid()))
    if stays_bytes(field, array.type):  # where they lie, which drop_null would copy
        spans = _encoded(field, array).spans
        assert spans is not None
        values = EncodedField(spans=spans.at(present))
    else:
        values = _encoded(field, array.drop_null())
    return values.among(len(array), present.tolist(), missing)


def _of_dictionary(field: Field, array: Any, where: str) -> EncodedField | None:
    """Values that are the same bytes as those of a dictionary; None for any other column."""
    types = pyarrow("to read tables").types
    if not types.is_dictionary(array.type) or not len(array.dictionary):
        return None
    if not stays_bytes(field, array.dictionary.type):
        return None
    words = encode_array(field, array.dictionary, where=where)
    assert words.spans is not None
    present = np.flatnonzero(_bits(array.indices.is_valid()))
    chosen = array.indices.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)
    if len(chosen) and not 0 <= chosen.min() <= chosen.max() < len(words.spans):
        raise SourceError(
            f"column {where!r}: value {chosen.max():,} of {len(words.spans):,} in its dictionary: damaged"
        )
    missing = dict.fromkeys(np.setdiff1d(np.arange(len(array)), present).tolist(), _NULL.format(repr(where)))
    problems = {i: words.problems[k] for i, k in enumerate(chosen.tolist()) if k in words.problems}
    values = EncodedField(spans=words.spans.at(chosen), problems=problems)
    return values.among(len(array), present.tolist(), missing)


def encode_lists(field: Field, array: Any, *, where: str) -> EncodedField:
    """
    Encode one list of any length per sample, or one value that may be missing; see ``encode_array``.

    A null in place of a list is an empty one. What is wrong with an element is a problem of its sample: none is left
    out of a list.
    """
    array = plain_array(array)
    if field.is_optional:
        is_there = ~_missing(array)
        counts, elements = is_there.astype(np.int64), array.filter(pyarrow("to read tables").array(is_there))
    else:
        lengths = pyarrow("to read tables", "pyarrow.compute").list_value_length(array)
        counts = lengths.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        elements = array.flatten()  # without those below a null
    encoded = encode_array(field.element, elements, where=where)
    assert encoded.spans is not None, "columns are not listable"
    problems = list_problems(counts, encoded.problems, is_optional=field.is_optional)
    return EncodedField(encoded.spans, problems=problems, counts=counts)


def _missing(array: Any) -> NDArray[np.bool_]:
    """Which values are null; of pictures, those with neither bytes nor a path, too."""
    missing: NDArray[np.bool_] = np.array(array.is_null())
    if not is_picture_struct(plain_type(array.type)):
        return missing
    compute = pyarrow("to read tables", "pyarrow.compute")
    parts = [compute.struct_field(array, part).is_null().to_numpy(zero_copy_only=False) for part in ("bytes", "path")]
    missing |= parts[0] & parts[1]
    return missing


def stays_bytes(field: Field, type_: Any) -> bool:
    """Return whether values of this type are bytes that are packed as they are."""
    traits = field.traits
    return is_bytes(type_) and not traits.is_json and (traits.is_picture or not traits.is_plain)


def decode_array(kind: ColumnKind, field: Field, array: Any, *, where: str) -> EncodedField:
    """
    Encode one value, or one list of them, per sample of a column of this kind, ``where``. Damaged values are problems,
    and so is null, but in place of a list.
    """
    values, problems = list[Any](), dict[int, str]()
    for i, value in enumerate(python_values(plain_array(array))):
        if field.is_list:
            elements, problem = decoded_elements(kind, field, value, where)
            values.append(next(iter(elements), None) if field.is_optional else elements)
        else:
            data, problem = decoded(kind, value, where)
            values.append(data)
        if problem:
            problems[i] = problem
    encoded = encode_values(field, values)
    return replace(encoded, problems={**encoded.problems, **problems})


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
    counts = [part.counts for part in parts if part.counts is not None]
    return EncodedField(spans=whole, problems=problems, counts=np.concatenate(counts) if counts else None)


def _count(part: EncodedField) -> int:
    if part.counts is not None:
        return len(part.counts)
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


def _encoded(field: Field, array: Any) -> EncodedField:
    """Values without nulls (JSON may have some)."""
    arrow, traits = pyarrow("to read tables"), field.traits
    if stays_bytes(field, array.type):
        return EncodedField(spans=Spans.of(*value_bytes(arrow, array)))
    if traits.is_text and not array_type(array.type):
        return _text(arrow, field, array)
    if traits.is_plain and not traits.is_text and field.dtype != BFLOAT16:  # which Arrow lacks: rounded one by one
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


# Which field a column of an Arrow type becomes, when the user does not say.

# Where Arrow and NumPy name a type differently. pyarrow's own answer, to_pandas_dtype(), needed pandas once (in 18).
_FLOATS: Final = {"halffloat": "float16", "float": "float32", "double": "float64"}


def field_by_type(name: str, type_: Any, feature: Any, first: Callable[[], bytes | None]) -> Field:
    """
    Return the field called ``name`` for a column of this Arrow type.

    ``feature`` is what Hugging Face ``datasets`` says of it, None if nothing. ``first`` returns the first value of a
    column of bytes: its first bytes tell pictures from other bytes. Raises SourceError, in words that follow the
    column's name, for types that no field can hold.

    * numbers and booleans: a column of that dtype; durations: int64 in their unit
    * strings, dates, times and decimals: text, as Arrow writes them (ISO 8601; every digit)
    * lists of one length: an array; lists of numbers or of such lists: a ragged array; other lists, structs and maps:
      JSON
    * bytes, and structs of bytes and path: pictures (a mask, if the name says so) or bytes; lists of these: lists of
      them
    """
    arrow, declared = pyarrow("to read tables"), _declared_array(feature)
    plain = plain_type(type_)
    if is_bytes(plain):
        declared_picture = isinstance(feature, Mapping) and feature.get("_type") == "Image"
        return field_of_bytes(name, first(), is_picture=declared_picture)
    if is_list_of_bytes(plain):
        inner = inner_feature(feature)
        declared_picture = isinstance(inner, Mapping) and inner.get("_type") == "Image"
        return field_of_bytes(name, first(), is_picture=declared_picture).listed()
    if declared is not None:
        return Field(name, RAW, declared[0], declared[1])
    if _is_text(arrow, plain):
        return Field(name, *FIELD_TYPES["text"])
    if arrow.types.is_duration(plain):
        return Field(name, *FIELD_TYPES["int"])
    array = array_type(plain)
    if array is not None and None not in array[1][1:]:
        dtype, shape = array
        return Field(name, COLUMN if not shape else RAGGED if None in shape else RAW, dtype, shape)
    if arrow.types.is_null(plain):
        raise SourceError("holds nothing but nulls")
    unfit = _not_json(arrow, plain)
    if unfit is not None:
        raise SourceError(f"is {plain}, and {unfit} in it fits no field: name the parts you need with --field")
    return Field(name, *FIELD_TYPES["json"])


def array_type(type_: Any) -> tuple[str, tuple[int | None, ...]] | None:
    """Return dtype and shape of (lists of) numbers, with None for lists of any length; None for anything else."""
    arrow, shape = pyarrow("to read tables"), list[int | None]()
    if isinstance(type_, arrow.FixedShapeTensorType):
        in_order = type_.permutation is None or list(type_.permutation) == sorted(type_.permutation)
        if not in_order:
            return None
        shape, type_ = list(type_.shape), type_.value_type
    while not _is_number(arrow, type_):
        if arrow.types.is_fixed_size_list(type_):
            shape.append(type_.list_size)
        elif is_list(type_):
            shape.append(None)
        else:
            return None
        type_ = plain_type(type_.value_type)
    return np.dtype(_FLOATS.get(str(type_), str(type_))).newbyteorder("<").str, tuple(shape)


def _declared_array(feature: Any) -> tuple[str, tuple[int, ...]] | None:
    """What ``datasets`` says of an Array2D and the like, whose lists have no lengths in Arrow."""
    if not isinstance(feature, Mapping) or not re.match(r"Array[2-5]D\Z", str(feature.get("_type"))):
        return None
    shape = feature.get("shape")
    if not isinstance(shape, list) or not all(isinstance(size, int) for size in shape):
        return None
    return np.dtype(str(feature.get("dtype"))).newbyteorder("<").str, tuple(shape)


def _is_text(arrow: Any, type_: Any) -> bool:
    types = arrow.types
    checks = (types.is_string, types.is_large_string, types.is_string_view, types.is_decimal)
    return any(is_(type_) for is_ in (*checks, types.is_timestamp, types.is_date, types.is_time))


def _is_number(arrow: Any, type_: Any) -> bool:
    types = arrow.types
    return bool(types.is_integer(type_) or types.is_floating(type_) or types.is_boolean(type_))


def _not_json(arrow: Any, type_: Any) -> Any:
    """A type in this one whose values JSON does not have; None if there is none."""
    plain, types = plain_type(type_), arrow.types
    strings = (types.is_string, types.is_large_string, types.is_string_view, types.is_null)
    if _is_number(arrow, plain) or any(is_(plain) for is_ in strings):
        return None
    if types.is_map(plain):
        return _not_json(arrow, plain.key_type) or _not_json(arrow, plain.item_type)
    if types.is_struct(plain):
        return next((unfit for part in plain if (unfit := _not_json(arrow, part.type)) is not None), None)
    if is_list(plain):
        return _not_json(arrow, plain.value_type)
    return plain
