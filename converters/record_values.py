"""Python values of one field as the bytes, or the column, that a store keeps of them."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fastio.codec.json_text import parse_json
from fastio.types.field_types import type_of
from fastio.types.schema import Field
from fastio.types.spans import Spans

__all__ = ["EncodedField", "encode_values"]

_SHOWN = 60  # characters of a value in a message


@dataclass(frozen=True, slots=True)
class EncodedField:
    """
    The values of one field for some samples: ``spans`` of a payload field, or ``column`` ``(n, *shape)``.

    ``problems`` says what is wrong with a value, by position, in words that follow the sample's key; it then counts as
    empty, or zero.
    """

    spans: Spans | None = None
    column: NDArray[Any] | None = None
    problems: Mapping[int, str] = dataclass_field(default_factory=dict)


def encode_values(field: Field, values: Sequence[Any]) -> EncodedField:
    """
    Encode one value per sample.

    * pictures and masks: encoded bytes as they are, a path, a PIL image or an array of pixels (both become PNGs), or
      ``{"bytes": ..., "path": ...}`` as Hugging Face has them
    * text: ``str`` or UTF-8; JSON: any object, or a document as ``bytes``; bytes: bytes, or a path
    * token ids, arrays and columns: whatever NumPy makes an array of that shape of, if the dtype can hold it: floats
      are rounded to the field's dtype, integers never change
    """
    if field.is_column:
        return _column(field, values)
    encode = _encoder(field)
    parts: list[bytes] = []
    problems: dict[int, str] = {}
    for position, value in enumerate(values):
        try:
            parts.append(encode(field, value))
        except _UnfitError as exc:
            problems[position] = f"has a field {field.name!r} that {exc}"
            parts.append(b"")
    sizes = np.array([len(part) for part in parts], np.int64)
    return EncodedField(Spans.joined(np.frombuffer(b"".join(parts), np.uint8), sizes), problems=problems)


class _UnfitError(Exception):
    """A value that is not of its field's type, in words that follow "that"."""


def _column(field: Field, values: Sequence[Any]) -> EncodedField:
    shape = tuple(size for size in field.shape if size is not None)
    column, problems = np.zeros((len(values), *shape), field.dtype), {}
    for position, value in enumerate(values):
        try:
            column[position] = _array(field, value, shape)
        except _UnfitError as exc:
            problems[position] = f"has a field {field.name!r} that {exc}"
    return EncodedField(column=column, problems=problems)


def _encoder(field: Field) -> Callable[[Field, Any], bytes]:
    traits = field.traits
    if traits.is_picture:
        return _picture
    if traits.is_text:
        return _text
    if traits.is_json:
        return _json
    return _numbers if traits.is_plain else _bytes


def _picture(field: Field, value: Any) -> bytes:
    data = _file_or_bytes(value)
    if data is not None:
        return data
    if isinstance(value, Mapping) and {"bytes", "path"} & set(value):
        return _of_mapping(field, value)
    if isinstance(value, Image.Image):
        return _png(value)
    if isinstance(value, np.ndarray):
        return _png(_as_image(field, value))
    raise _unfit(field, value, "encoded bytes, a path, a PIL image or an array of pixels")


def _of_mapping(field: Field, value: Mapping[str, Any]) -> bytes:
    """What Hugging Face keeps of a picture: its bytes, or the path of its file."""
    data = value.get("bytes")
    if data is not None:
        return bytes(data)
    if value.get("path"):
        return _read(value["path"])
    raise _unfit(field, value, "bytes or a path in it")


def _as_image(field: Field, pixels: NDArray[Any]) -> Image.Image:
    plain = pixels[:, :, 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    is_picture = plain.ndim == 2 or (plain.ndim == 3 and plain.shape[2] in (3, 4))
    dtypes = ("uint8", "bool", "uint16") if field.traits.is_mask and plain.ndim == 2 else ("uint8",)
    if not is_picture or 0 in plain.shape or plain.dtype.name not in dtypes:
        raise _UnfitError(
            f"is an array {pixels.dtype} {pixels.shape}; expected {' or '.join(dtypes)}, (H, W) or (H, W, 1, 3 or 4)"
        )
    return Image.fromarray(np.ascontiguousarray(plain.astype(np.uint8) if plain.dtype == np.bool_ else plain))


def _png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def _text(field: Field, value: Any) -> bytes:
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as exc:
            raise _UnfitError(f"cannot be written as UTF-8: character {exc.start} is a lone surrogate") from exc
    if isinstance(value, bytes):
        try:
            value.decode()
        except UnicodeDecodeError as exc:
            raise _UnfitError(f"is not UTF-8: byte {exc.start} is 0x{value[exc.start]:02x}") from exc
        return value
    raise _unfit(field, value, "text")


def _json(_field: Field, value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
        try:
            parse_json(data)
        except ValueError as exc:
            raise _UnfitError(f"is not a JSON document in UTF-8: {exc}") from exc
        return data
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
        return text.encode()
    except (TypeError, ValueError, RecursionError) as exc:
        raise _UnfitError(f"cannot be kept as JSON: {exc}") from exc


def _plain(value: Any) -> Any:
    """What JSON takes for NumPy's numbers and arrays."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    raise TypeError(f"a value of type {type(value).__name__} is in it")


def _bytes(field: Field, value: Any) -> bytes:
    data = _file_or_bytes(value)
    if data is None:
        raise _unfit(field, value, "bytes or a path")
    return data


def _numbers(field: Field, value: Any) -> bytes:
    return _array(field, value, field.shape).tobytes()


_KINDS: Final = {"b": "b", "i": "biu", "u": "biu", "f": "biuf", "c": "biufc"}


def _array(field: Field, value: Any, shape: Sequence[int | None]) -> NDArray[Any]:
    """The value in the field's dtype and shape; integers are compared with what they became."""
    dtype = np.dtype(field.dtype)
    if value is None:
        raise _unfit(field, value, "a value")
    try:
        given = np.asarray(value)
    except (ValueError, TypeError, OverflowError) as exc:  # lists of different lengths
        raise _UnfitError(f"is no array: {exc}; expected {type_of(field)}") from exc
    if given.size == 0 and given.ndim <= 1 and len(shape) >= 1 and shape[0] is None:
        given = given.reshape(0, *(size or 0 for size in shape[1:])).astype(dtype)
    fits = given.ndim == len(shape) and all(size in (None, got) for size, got in zip(shape, given.shape, strict=True))
    if not fits or given.dtype.kind not in _KINDS.get(dtype.kind, given.dtype.kind):
        raise _unfit(field, value, type_of(field), got=f"{given.dtype} {given.shape}")
    with np.errstate(all="ignore"):
        cast = given.astype(dtype, order="C")
    if dtype.kind in "iu" and not np.array_equal(cast, given):
        raise _UnfitError(f"holds {given[cast != given].ravel()[0]}, which {dtype.name} cannot hold")
    return cast


def _file_or_bytes(value: Any) -> bytes | None:
    """The bytes given, or those of the file whose path is given; None for anything else."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    return _read(value) if isinstance(value, (str, os.PathLike)) else None


def _read(path: str | os.PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as exc:
        raise _UnfitError(f"cannot be read: {os.fspath(path)}: {exc.strerror}") from exc


def _unfit(field: Field, value: Any, expected: str, *, got: str = "") -> _UnfitError:
    text = repr(value)
    text = text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
    return _UnfitError(f"is {got or type(value).__name__} ({text}); expected {expected}")
