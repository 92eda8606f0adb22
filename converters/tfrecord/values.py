"""Features of examples as the bytes, or the column, that a store keeps of a field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastio.converters.record_values import EncodedField, encode_values
from fastio.converters.tfrecord.choose import FeatureField
from fastio.converters.tfrecord.example import BYTES_LIST, KINDS, Feature, NotAnExampleError
from fastio.types.schema import Field
from fastio.types.spans import Spans

__all__ = ["encode_features", "feature_value"]

_Example = Mapping[str, Feature]


def encode_features(chosen: FeatureField, examples: Sequence[_Example], spans: Spans) -> EncodedField:
    """
    Encode one feature of each example; ``spans`` are those of the records, which the values of bytes lie in.

    A feature that is not there is an empty ragged array or list, as for TensorFlow, and a problem in any other field.
    """
    field, name = chosen.field, chosen.feature
    if not field.is_column and not field.traits.is_plain and not field.traits.is_json:
        return _in_records(name, examples, spans)
    problems = dict[int, str]()
    values = list[Any]()
    good = list[int]()
    for i, example in enumerate(examples):
        try:
            values.append(_value(chosen, example.get(name)))
            good.append(i)
        except NotAnExampleError as exc:
            problems[i] = f"{exc} (feature {name!r})"
    encoded = encode_values(field, values)
    positions = np.array(good, np.int64)
    problems |= {good[i]: sentence for i, sentence in encoded.problems.items()}
    if encoded.column is not None:
        column = np.zeros((len(examples), *encoded.column.shape[1:]), encoded.column.dtype)
        column[positions] = encoded.column
        return EncodedField(column=column, problems=problems)
    assert encoded.spans is not None
    starts, sizes = np.zeros(len(examples), np.int64), np.zeros(len(examples), np.int64)
    starts[positions], sizes[positions] = encoded.spans.starts, encoded.spans.sizes
    shard = np.zeros(len(examples), np.int32)
    return EncodedField(spans=Spans(encoded.spans.buffers, shard, starts, sizes), problems=problems)


def feature_value(feature: Feature | None) -> Any:
    """Return a feature as a Python value: one number or text, or a list of several; None if it is not there."""
    if feature is None:
        return None
    if feature.kind == BYTES_LIST:
        values: list[Any] = [value.decode("utf-8", "surrogateescape") for value in feature.bytes_values()]
    else:
        values = feature.numbers().tolist()
    return values[0] if len(values) == 1 else values


def _in_records(name: str, examples: Sequence[_Example], spans: Spans) -> EncodedField:
    """Values of bytes where they lie in their files."""
    starts, sizes = np.zeros(len(examples), np.int64), np.zeros(len(examples), np.int64)
    problems = dict[int, str]()
    for i, example in enumerate(examples):
        feature = example.get(name)
        if feature is None:
            problems[i] = f"has no feature {name!r}"
        elif feature.kind != BYTES_LIST:
            problems[i] = f"has {KINDS[feature.kind]} in the feature {name!r}, expected bytes"
        elif len(feature.parts) != 1:
            problems[i] = f"has {len(feature.parts)} values in the feature {name!r}, expected one"
        else:
            starts[i], sizes[i] = feature.parts[0][0], feature.parts[0][1] - feature.parts[0][0]
    return EncodedField(spans=Spans(spans.buffers, spans.shard, starts, sizes), problems=problems)


def _value(chosen: FeatureField, feature: Feature | None) -> Any:
    """What ``encode_values`` takes. Raises NotAnExampleError, in words that follow the key, for what is missing."""
    field = chosen.field
    if feature is None:
        if field.traits.is_json and chosen.is_list:
            return []
        if field.traits.is_ragged or field.traits.is_tokens:
            return np.zeros((0, *field.shape[1:]), field.dtype)
        raise NotAnExampleError("has no such feature")
    if field.traits.is_json:
        return _list_of(feature) if chosen.is_list else _document(feature)
    if field.traits.is_text:
        values = _only_bytes(feature)
        return values[0] if len(values) == 1 else values
    if feature.kind == BYTES_LIST:
        return _packed_array(field, _only_bytes(feature))
    return _shaped(field, feature.numbers())


def _list_of(feature: Feature) -> list[Any]:
    value = feature_value(feature)
    return value if isinstance(value, list) else [value]


def _document(feature: Feature) -> bytes:
    values = _only_bytes(feature)
    if len(values) != 1:
        raise NotAnExampleError(f"has {len(values)} values, expected one JSON document")
    return values[0]


def _only_bytes(feature: Feature) -> list[bytes]:
    if feature.kind != BYTES_LIST:
        raise NotAnExampleError(f"has {KINDS[feature.kind]} where bytes are expected")
    return feature.bytes_values()


def _packed_array(field: Field, values: Sequence[bytes]) -> Any:
    """An array whose elements are kept as bytes, as ``tf.io.decode_raw`` takes them."""
    dtype = np.dtype(field.dtype)
    if len(values) != 1 or len(values[0]) % dtype.itemsize:
        sizes = ", ".join(str(len(value)) for value in values[:3])
        raise NotAnExampleError(f"has {len(values)} values of {sizes} bytes, expected one array of {dtype.name}")
    return _shaped(field, np.frombuffer(values[0], dtype))


def _shaped(field: Field, flat: Any) -> Any:
    """Numbers, which a feature has in one row, in the shape of the field."""
    shape = [-1 if size is None else size for size in field.shape]
    if not shape:
        return flat[0] if len(flat) == 1 else flat
    known = int(np.prod([size for size in shape if size >= 0]))
    fits = len(flat) % max(known, 1) == 0 if -1 in shape else len(flat) == known
    return flat.reshape(shape) if fits else flat
