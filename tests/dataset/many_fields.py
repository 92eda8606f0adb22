"""Samples with a field of every type, and a store of them in any format."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fastio.converters.fields.values import encode_values
from fastio.store import SampleBatch, create_store
from fastio.types.field_types import FieldType, field_of
from fastio.types.schema import COLUMN, Field, Schema

TYPES: dict[str, FieldType] = {
    "image": "image",
    "depth": "mask16",
    "mask": "mask",
    "caption": "text",
    "objects": "json",
    "sound": "bytes",
    "tokens": "tokens",
    "embedding": "float32[4]",
    "boxes": "xyxy",
    "points": "points[3]",
    "kinds": "int64[*] per boxes",
    "thumbnail": "uint8[4,5,3]",
    "label": "label",
    "weight": "float32",
    "count": Field("count", COLUMN, "|u1", ()),
    "is_day": "bool",
    "place": "float32[2] column",
    "city": Field("city", COLUMN, "<U7", ()),
}


CITIES = ("Kyïv", "Cambrai")


def make_samples(count: int = 5, *, seed: int = 0) -> list[dict[str, Any]]:
    """Samples as ``FastDataset`` gives them, pictures as arrays ``(H, W[, C])``; sample 1 has no rows and no tokens."""
    rng = np.random.default_rng(seed)
    samples = []
    for index in range(count):
        rows = 0 if index == 1 else index
        height, width = 90 + index, 70
        samples.append(
            {
                "image": rng.integers(0, 256, (height, width, 3), np.uint8),
                "depth": rng.integers(0, 65536, (height, width), np.uint16),
                "mask": rng.integers(0, 5, (height, width), np.uint8),
                "caption": f"Bild {index}: zwölf Boxkämpfer",
                "objects": {"id": index, "polygons": [[1.5, 2.0]] * rows},
                "sound": bytes(range(index)),
                "tokens": np.arange(rows, dtype=np.int64) + 1000 * index,
                "embedding": rng.random(4, np.float32),
                "boxes": rng.random((rows, 4), np.float32),
                "points": rng.random((rows, 3, 2), np.float32),
                "kinds": np.arange(rows, dtype=np.int64),
                "thumbnail": rng.integers(0, 256, (4, 5, 3), np.uint8),
                "label": index % 3,
                "weight": float(np.float32(index / 3)),
                "count": 250 + index,
                "is_day": index % 2 == 0,
                "place": rng.random(2, np.float32),
                "city": CITIES[index % 2],
            }
        )
    return samples


def palette_png(mask: Any) -> bytes:
    """A mask as people have it: a PNG of palette indices."""
    image, file = Image.fromarray(mask), io.BytesIO()
    image.putpalette([0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 9, 9])
    image.save(file, "PNG")
    return file.getvalue()


def write_fields(
    path: Path,
    samples: Sequence[Mapping[str, Any]],
    types: Mapping[str, FieldType] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Path:
    """Write a store of these samples, keys ``a/0000``, ...; ``types`` without an entry for a field leaves it out."""
    fields = [field_of(name, kind) for name, kind in (TYPES if types is None else types).items()]
    schema = Schema((*(f for f in fields if not f.is_column), *(f for f in fields if f.is_column)))
    spans, columns = {}, {}
    for field in schema.fields:
        values = [sample[field.name] for sample in samples]
        if field.is_column:
            columns[field.name] = np.array(values, field.dtype).reshape(len(values), *field.shape)
            continue
        if field.name == "mask":
            values = [value if isinstance(value, bytes) else palette_png(value) for value in values]
        encoded = encode_values(field, values)
        assert encoded.spans is not None
        assert not encoded.problems
        spans[field.name] = encoded.spans
    with create_store(path, schema) as writer:
        writer.append(SampleBatch([f"a/{index:04d}" for index in range(len(samples))], spans, columns))
        writer.close(metadata)
    return path


def plain(value: Any) -> Any:
    """A value as arrays and Python objects that can be compared: pictures and tensors become arrays."""
    if isinstance(value, Image.Image):
        return np.array(value)
    return value.numpy() if hasattr(value, "numpy") else value


def assert_equal(expected: Mapping[str, Any], sample: Mapping[str, Any]) -> None:
    """A sample has these values: the same arrays, dtypes included, and equal objects of the same type."""
    assert list(sample) == list(expected)
    for name, value in expected.items():
        got = plain(sample[name])
        if isinstance(value, np.ndarray):
            assert (got.dtype, got.shape) == (value.dtype, value.shape), name
            assert np.array_equal(value, got), name
        else:
            assert (type(got), got) == (type(value), value), name
