"""Python values of one field as the bytes, or the column, that a store keeps of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.codec.copied import parse_json
from fastio.converters.fields.arrays import UnfitError, as_array, as_numpy, is_tensor, number_column, unfit
from fastio.converters.fields.problems import element_words
from fastio.converters.fields.types import NamedTwice
from fastio.converters.sources.listed import Indices, Read, Values
from fastio.types.bfloat16 import widened
from fastio.types.npy import npy_file
from fastio.types.schema import Field
from fastio.types.spans import Spans

if TYPE_CHECKING:
    from fastio.converters.text.encode import TextTokens

__all__ = [
    "EncodedField",
    "check_keys",
    "document_problems",
    "elements_in",
    "encode_values",
    "is_document",
    "joined",
    "list_encoder",
    "read_documents",
    "value_encoder",
]


@dataclass(frozen=True, slots=True)
class EncodedField:
    """
    The values of one field for some samples: ``spans`` of a payload field, or ``column`` ``(n, *shape)``.

    Of a field of lists, ``spans`` are all elements, one list behind the other, of which sample i has ``counts[i]``.

    ``problems`` says what is wrong with a value, by position, in words that follow the sample's key; it then counts as
    empty, or zero.
    """

    spans: Spans | None = None
    column: NDArray[Any] | None = None
    problems: Mapping[int, str] = dataclass_field(default_factory=dict)
    counts: NDArray[np.int64] | None = None

    def among(self, count: int, positions: Sequence[int], problems: Mapping[int, str]) -> EncodedField:
        """
        Return these values, of a field without lists, at their ``positions`` among ``count`` samples; the others are
        empty, or zero, and ``problems`` says why.
        """
        at = np.array(positions, np.int64)
        problems = {**problems, **{positions[i]: sentence for i, sentence in self.problems.items()}}
        if self.column is not None:
            column = np.zeros((count, *self.column.shape[1:]), self.column.dtype)
            column[at] = self.column
            return EncodedField(column=column, problems=problems)
        assert self.spans is not None
        shard, starts, sizes = np.zeros(count, np.int32), np.zeros(count, np.int64), np.zeros(count, np.int64)
        shard[at], starts[at], sizes[at] = self.spans.shard, self.spans.starts, self.spans.sizes
        return EncodedField(spans=Spans(self.spans.buffers, shard, starts, sizes), problems=problems)


def encode_values(field: Field, values: Sequence[Any], *, tokenizer: TextTokens | None = None) -> EncodedField:
    """
    Encode one value per sample.

    * pictures and masks: encoded bytes as they are, a path, a PIL image or an array of pixels, see ``picture_bytes``
    * text: ``str`` or UTF-8; JSON: any object that JSON gives back unchanged (but for tuples, which become lists), or
      a document as ``bytes``; bytes: bytes, or a path
    * token ids, arrays and columns: whatever NumPy makes an array of that shape of, if the dtype can hold it, see
      ``as_array``: floats are rounded to the field's dtype, integers never change; text becomes ids by ``tokenizer``
    * for a field of lists, a list or tuple of any of these but columns; for an optional field, one of them or None
    """
    if field.is_list:
        return _encoded_lists(field, values)
    if field.is_column:
        column, problems = number_column(field, values)
        return EncodedField(column=column, problems=problems)
    encode = value_encoder(field)
    if tokenizer is not None and field.traits.is_tokens:
        encode = tokenizer.value_encoder(field)
    parts: list[bytes | str] = []
    unfit_values: dict[int, str] = {}
    for position, value in enumerate(values):
        try:
            parts.append(encode(value))
        except UnfitError as exc:
            unfit_values[position] = exc.sentence(field.name)
            parts.append(b"")
    return joined(field, parts, unfit_values, tokenizer=tokenizer)


def joined(
    field: Field, parts: Sequence[bytes | str], problems: Mapping[int, str], *, tokenizer: TextTokens | None = None
) -> EncodedField:
    """
    Return the values of a payload field one after the other in one array; ``tokenizer`` encodes what is still text.
    """
    if tokenizer is not None and field.traits.is_tokens:
        parts, refused = tokenizer.encoded(field, parts)
        problems = {**refused, **problems}
    return EncodedField(_spans(cast(Sequence[bytes], parts)), problems=problems)


def _spans(parts: Sequence[bytes]) -> Spans:
    sizes = np.fromiter(map(len, parts), np.int64, len(parts))
    return Spans.joined(np.frombuffer(b"".join(parts), np.uint8), sizes)


def value_encoder(field: Field) -> Callable[[Any], bytes | str]:
    """Return the function that makes the bytes of one value of a payload field, or raises UnfitError."""
    traits = field.traits
    if traits.is_picture:
        from fastio.converters.fields.pictures import picture_bytes  # imports Pillow

        return lambda value: value if type(value) is bytes else picture_bytes(field, value)
    if traits.is_text:
        return _text
    if traits.is_json:
        return _json
    if traits.is_npy:
        return lambda value: npy_file(as_array(field, value))
    return (lambda value: _numbers(field, value)) if traits.is_plain else _bytes


def elements_in(field: Field, value: Any) -> Sequence[Any]:
    """Return the elements that a sample has in a field of lists. Raises UnfitError for what is no list."""
    if field.is_optional:
        return () if value is None else (value,)
    if isinstance(value, (list, tuple)):
        return value
    raise UnfitError(f"is of type {type(value).__name__}; expected a list, an empty one where a sample has none")


def list_encoder(field: Field, encode: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that encodes each element of a list, or raises an UnfitError that says which is wrong."""

    def encoded(value: Any) -> tuple[Any, ...]:
        parts: list[Any] = []
        elements = elements_in(field, value)
        for element in elements:
            try:
                parts.append(encode(element))
            except UnfitError as exc:
                words = str(exc)
                if not field.is_optional:
                    words = element_words(len(parts) + 1, len(elements), words)
                raise UnfitError(words) from exc
        return tuple(parts)

    return encoded


def _encoded_lists(field: Field, values: Sequence[Any]) -> EncodedField:
    encode = list_encoder(field, value_encoder(field.element))
    parts, counts, problems = list[bytes](), np.zeros(len(values), np.int64), dict[int, str]()
    for position, value in enumerate(values):
        try:
            encoded = encode(value)
        except UnfitError as exc:
            problems[position] = exc.sentence(field.name)
        else:
            parts += encoded
            counts[position] = len(encoded)
    return EncodedField(_spans(parts), problems=problems, counts=counts)


def _text(value: Any) -> bytes:
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as exc:
            raise UnfitError(f"cannot be written as UTF-8: character {exc.start} is a lone surrogate") from exc
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
        try:
            data.decode()
        except UnicodeDecodeError as exc:
            raise UnfitError(f"is not UTF-8: byte {exc.start} is 0x{data[exc.start]:02x}") from exc
        return data
    raise unfit(value, "text")


def _json(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
        try:
            parse_json(data)
        except ValueError as exc:
            raise UnfitError(f"is not a JSON document in UTF-8: {exc}") from exc
        return data
    try:
        check_keys(value)
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
        return text.encode()
    except (TypeError, ValueError, RecursionError) as exc:
        raise UnfitError(f"cannot be kept as JSON: {exc}") from exc


def check_keys(value: Any) -> None:
    """
    TypeError for a key that is not text: json would make it text, and 1 and "1" one key; and for one that comes twice.
    """
    if isinstance(value, NamedTwice):
        raise TypeError(f"it {value.words}")
    if isinstance(value, dict):
        for key, member in value.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is not text")
            check_keys(member)
    elif isinstance(value, (list, tuple)):
        for member in value:
            check_keys(member)


def _plain(value: Any) -> Any:
    """What JSON takes for the numbers and arrays of NumPy and torch."""
    if isinstance(value, (np.ndarray, np.generic)):
        return widened(np.asarray(value)).tolist()
    if is_tensor(value):
        try:
            return widened(as_numpy(value, expected="an array")).tolist()
        except UnfitError as exc:
            raise TypeError(f"a value in it {exc}") from exc
    raise TypeError(f"a value of type {type(value).__name__} is in it")


def _bytes(value: Any) -> bytes:
    from fastio.converters.fields.pictures import file_or_bytes  # imports Pillow

    data = file_or_bytes(value)
    if data is None:
        raise unfit(value, "bytes or a path")
    return data


def _numbers(field: Field, value: Any) -> bytes:
    if field.traits.is_tokens and isinstance(value, str):
        raise unfit(value, "token ids, or a tokenizer for text")
    return as_array(field, value).tobytes()


# Checks texts and JSON documents, as they are stored, for being UTF-8 and JSON.


def is_document(field: Field) -> bool:
    """Return whether the values of a payload field are texts or JSON."""
    return not field.is_column and (field.traits.is_text or field.traits.is_json)


def document_problems(spans: Spans, field: Field) -> dict[int, str]:
    """Return what is wrong with texts or JSON documents, by position, in words that follow the field's name."""
    check = value_encoder(field)
    problems: dict[int, str] = {}
    for position, value in enumerate(spans.views()):
        try:
            check(value.tobytes())
        except UnfitError as exc:
            problems[position] = str(exc)
    return problems


def read_documents(read: Read, fields: Sequence[Field]) -> Read:
    """Make a ``Read`` that also checks the documents of these fields; wrong ones are problems of their samples."""
    documents = [field for field in fields if is_document(field)]
    if not documents:
        return read

    def begin(indices: Indices, pool: _native.ThreadPool | None) -> Callable[[], Values]:
        wait = read(indices, pool)
        return lambda: _checked(wait(), documents)

    return begin


def _checked(values: Values, fields: Sequence[Field]) -> Values:
    problems = dict(values.problems)
    for field in fields:
        for i, text in document_problems(values.spans[field.name], field).items():
            problems.setdefault(i, f"has a field {field.name!r} that {text}")
    return replace(values, problems=problems)
