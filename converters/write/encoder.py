"""SampleEncoder: checks and encodes samples one by one, and hands them over as pieces of bounded size."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fastio import _native
from fastio.codec.pillow import pixel_limit
from fastio.converters.fields.arrays import UnfitError, as_array, is_tensor
from fastio.converters.fields.pictures import has_own_file, picture_bytes
from fastio.converters.fields.values import elements_in, list_encoder, value_encoder
from fastio.converters.pictures.probe import header_problems, probe
from fastio.converters.text.encode import TextTokens
from fastio.errors import SchemaError
from fastio.types.picture_kinds import UNKNOWN
from fastio.types.schema import Field, Schema, is_plain_path
from fastio.types.spans import Spans

__all__ = [
    "PIECE_BYTES",
    "PIECE_SAMPLES",
    "KeyRule",
    "Misfit",
    "Piece",
    "SampleEncoder",
    "SampleForm",
    "check_key",
]


# What is gathered before it is written: enough that writing costs little a sample, little enough to stay in memory.
PIECE_BYTES = 4 << 20
PIECE_SAMPLES = 512

_SHOWN = 20  # names of fields in a message


class Misfit(Exception):  # noqa: N818 - becomes an error of the writer, or an entry of its ledger
    """
    A sample that does not fit the schema, in words that follow its key; ``field`` is the wrong one, or "". ``way_out``
    is what could be done about it.
    """

    def __init__(self, sentence: str, field: str = "", way_out: str = "") -> None:
        super().__init__(sentence)
        self.field = field
        self.way_out = way_out


@dataclass(slots=True)
class Piece:
    """
    Some samples: a row for each, its key and then, in the order of the fields, encoded values and numbers; of a field
    of lists, a tuple of encoded elements.

    Texts that wait for a tokenizer are ``str``. ``made_pngs`` counts the values whose pixels became a PNG, because
    they came without a file's bytes.
    """

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    size_bytes: int = 0
    made_pngs: int = 0

    @property
    def is_full(self) -> bool:
        """Whether it is time to write it."""
        return self.size_bytes >= PIECE_BYTES or len(self.rows) >= PIECE_SAMPLES


class SampleEncoder:
    """
    Checks samples of one schema, which are mappings of all its fields, and encodes them.

    ``classes`` gives the names of the classes of a field; their numbers are then checked, and names become numbers.
    """

    def __init__(
        self, schema: Schema, *, tokenizer: TextTokens | None = None, classes: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self.schema = schema
        self._names = {each.name for each in schema.fields}
        self._pictures = [each for each in schema.payload if each.element.traits.is_picture]
        self._encoders = [
            (each.name, _encoder(each, tokenizer, (classes or {}).get(each.name))) for each in schema.fields
        ]
        payload = [(1 + i, each) for i, each in enumerate(schema.fields) if not each.is_column]
        self._payload = [place for place, each in payload if not each.is_list]  # places in a row
        self._lists = [place for place, each in payload if each.is_list]
        self._piece = Piece()

    @property
    def piece(self) -> Piece:
        """The samples since the last ``take``."""
        return self._piece

    def add(self, key: str, sample: Mapping[str, Any]) -> None:
        """Add a sample, all of it or nothing. Raises Misfit. ``check_key`` has checked its key."""
        if sample.keys() != self._names:
            raise self._other_fields(sample)
        name, row = "", list[Any]((key,))
        try:
            for name, encode in self._encoders:
                row.append(encode(sample[name]))
        except UnfitError as exc:
            raise Misfit(exc.sentence(name), name) from exc
        piece = self._piece
        piece.rows.append(tuple(row))
        for place in self._payload:
            piece.size_bytes += len(row[place])
        for place in self._lists:
            piece.size_bytes += sum(map(len, row[place]))
        for each in self._pictures:
            for value in elements_in(each, sample[each.name]) if each.is_list else (sample[each.name],):
                if type(value) is not bytes and _has_pixels(value):
                    piece.made_pngs += 1

    def take(self) -> Piece:
        """Return the piece, and begin the next one."""
        piece, self._piece = self._piece, Piece()
        return piece

    def _other_fields(self, sample: Mapping[str, Any]) -> Misfit:
        expected = [name for name, _ in self._encoders]
        fields = f"expected {_listed(expected)}; got {_listed(sample)}"
        missing = [name for name in expected if name not in sample]
        others = [name for name in sample if name not in self._names]
        if not missing:
            return Misfit(f"has a field {others[0]!r} that the store has not: {fields}", str(others[0]))
        instead = f" and has {others[0]!r}" if others else ""
        return Misfit(f"lacks the field {missing[0]!r}{instead}: {fields}", missing[0])


def _listed(names: Iterable[object]) -> str:
    """Return the names of fields, so many as a line takes."""
    words = list(map(str, names))
    more = f", ... ({len(words) - _SHOWN:,} more)" if len(words) > _SHOWN else ""
    return ", ".join(words[:_SHOWN]) + more if words else "no field"


def check_key(key: object) -> None:
    """Raise Misfit for what cannot be a key."""
    if not isinstance(key, str):
        raise Misfit(f"is a key of type {type(key).__name__}; expected text")
    if not key or "\0" in key:
        raise Misfit("is a key that is empty or holds NUL; expected at least one other character")
    if not is_plain_path(key):
        raise Misfit("is a key that is no plain path below a folder, so that unpack would refuse the store; rename it")
    if not key.isascii():
        try:
            key.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as exc:
            raise Misfit("is a key that cannot be written as UTF-8") from exc


def _encoder(field: Field, tokenizer: TextTokens | None, classes: Sequence[str] | None) -> Callable[[Any], Any]:
    if field.is_list:
        return list_encoder(field, _encoder(field.element, tokenizer, None))
    if field.traits.is_tokens and tokenizer is not None:
        return tokenizer.value_encoder(field)
    if field.traits.is_picture:
        return _picture_encoder(field)
    if not field.is_column:
        return value_encoder(field)
    if classes is not None:
        return _class_encoder(field, classes)
    return _column_encoder(field)


def _picture_encoder(field: Field) -> Callable[[Any], Any]:
    """A function that also refuses what is no picture: in a piece of many, the error would be another sample's."""
    check = PictureCheck(field)

    def checked(value: Any) -> bytes:
        data = value if type(value) is bytes else picture_bytes(field, value)
        problem = check.problem(data)
        if problem:
            raise UnfitError(problem)
        return data

    return checked


def _column_encoder(field: Field) -> Callable[[Any], Any]:
    dtype = np.dtype(field.dtype)
    if not field.shape and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        low, high = int(limits.min), int(limits.max)
        return lambda value: value if type(value) is int and low <= value <= high else _row(field, value)
    if not field.shape and dtype == np.float64:
        return lambda value: value if type(value) is float else _row(field, value)
    return lambda value: _row(field, value)


def _row(field: Field, value: Any) -> NDArray[Any]:
    return as_array(field, value).copy()  # the caller may use its array again before the piece is written


def _class_encoder(field: Field, classes: Sequence[str]) -> Callable[[Any], Any]:
    """A function that takes numbers below that of the classes, -1 for "none", and their names."""
    numbers = {name: number for number, name in enumerate(classes)}
    if field.shape or np.dtype(field.dtype).kind not in "iu":
        raise SchemaError(f"field {field.name!r}: only whole numbers have names of classes, got {field}")
    encode = _column_encoder(field)

    def number_of(value: Any) -> Any:
        if isinstance(value, str):
            if value not in numbers:
                raise UnfitError(f"is {value!r}; expected one of the {len(numbers)} classes: {', '.join(numbers)[:60]}")
            return numbers[value]
        number = encode(value)
        if not -1 <= number < len(numbers):
            raise UnfitError(f"is class {int(number)}; expected 0 to {len(numbers) - 1}, or -1 for none")
        return number

    return number_of


def _has_pixels(value: Any) -> bool:
    """Whether a picture came as pixels, not as a file."""
    if isinstance(value, Image.Image):
        return not has_own_file(value)
    return (isinstance(value, np.ndarray) or is_tensor(value)) and value.ndim > 1


# PictureCheck: header and end of one encoded picture, checked at once, so that an error belongs to its own sample.

_COPIED_BYTES = 1 << 14  # up to here, copying a picture costs less than describing where it lies


class PictureCheck:
    """
    Checks encoded pictures, or masks, of one field; one thread at a time.

    Small pictures are copied to one place, whose spans are made once: that takes half the time.
    """

    def __init__(self, field: Field) -> None:
        self._field = field
        place = bytearray(_COPIED_BYTES)
        self._place = memoryview(place)
        self._size = np.zeros(1, np.int64)
        self._spans = Spans.of(np.frombuffer(place, np.uint8), np.zeros(1, np.int64), self._size)
        self._row = np.zeros((1, 5), np.int32)
        self._is_mask = field.traits.is_mask

    def problem(self, data: bytes) -> str:
        """Return what header and end show to be wrong, as a sentence of ``header_problems``; "" if nothing."""
        size, spans, row = len(data), self._spans, self._row
        if size <= _COPIED_BYTES:
            self._place[:size] = data
            self._size[0] = size
        else:
            spans = Spans.of(np.frombuffer(data, np.uint8), np.zeros(1, np.int64), np.array([size]))
        if not self._is_mask:  # a good picture, in a third of the time of ``probe``
            _native.probe_images(spans, row, verify=True).wait()
            limit = pixel_limit()
            if row.item(0) == _native.OK and (limit is None or row.item(1) * row.item(2) <= limit):
                return ""
        return header_problems(probe(spans, self._field, check_end=True), self._field).get(0, "")


# SampleForm: makes a mapping of fields of whatever a dataset calls a sample: a dict, a tuple, one value.

# The field that holds the key of a sample, or a function of the sample.
KeyRule = str | Callable[[Any], str] | None


@dataclass(frozen=True, slots=True)
class SampleForm:
    """The names of the values of a tuple, or of the only one; None where samples are dicts. ``key`` finds its key."""

    names: Sequence[str] | None
    key: KeyRule = None
    is_key_kept: bool = False

    @classmethod
    def of(cls, sample: Any, names: Sequence[str] | None, key: KeyRule) -> SampleForm:
        """
        Return the form of samples like this one; ``names`` are the fields that the user has named.

        Without names, a pair with a whole number is a value and its label, and the value is called "image", "text",
        "bytes" or "array" by its type. Raises SchemaError for other tuples.
        """
        is_key_kept = isinstance(key, str) and names is not None and key in names
        if _is_mapping(sample):
            return cls(None, key, is_key_kept)
        if isinstance(key, str):
            raise SchemaError(
                f"key={key!r}: samples are no dicts, but {type(sample).__name__}: give a function of these"
            )
        if names is not None:
            return cls(names, key)
        values = sample if isinstance(sample, tuple) else (sample,)
        if len(values) == 2 and _is_whole(values[1]):
            return cls((_name_of(values[0]), "label"), key)
        if len(values) != 1:
            raise SchemaError(
                f"samples are tuples of {len(values)} values: name these, as in fields={{'image': None, 'mask': None}} "
                "(None: inferred)"
            )
        return cls((_name_of(values[0]),), key)

    def mapping(self, sample: Any) -> Mapping[str, Any]:
        """Return the sample's values by field. Raises Misfit for another form than the first sample's."""
        if self.names is None:
            if not _is_mapping(sample):
                raise Misfit(f"is of type {type(sample).__name__}; expected a dict, as the first sample is")
            named: Mapping[str, Any] = sample if isinstance(sample, Mapping) else sample._asdict()
            if isinstance(self.key, str) and not self.is_key_kept:
                return {name: value for name, value in named.items() if name != self.key}
            return named
        is_one = len(self.names) == 1 and not (isinstance(sample, tuple) and len(sample) == 1)
        values = (sample,) if is_one else sample
        if not isinstance(values, (tuple, list)) or len(values) != len(self.names):
            size = f" of {len(values)} values" if isinstance(values, (tuple, list)) else ""
            raise Misfit(f"is of type {type(sample).__name__}{size}; expected a tuple of {', '.join(self.names)}")
        return dict(zip(self.names, values, strict=True))

    def key_of(self, sample: Any, default: str) -> Any:
        """Return the sample's key; numbers count as text. Raises Misfit if it has none."""
        if self.key is None:
            return default
        if callable(self.key):
            key = self.key(sample)
        else:
            named = sample if isinstance(sample, Mapping) else sample._asdict()
            if self.key not in named:
                raise Misfit(f"lacks the field {self.key!r}, its key", self.key)
            key = named[self.key]
        return str(int(key)) if _is_whole(key) else key


def _is_mapping(sample: Any) -> bool:
    return isinstance(sample, Mapping) or (isinstance(sample, tuple) and hasattr(sample, "_asdict"))


def _is_whole(value: Any) -> bool:
    """Whether this is one whole number, of Python, NumPy or torch."""
    if isinstance(value, (int, np.integer)):
        return not isinstance(value, bool)
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "iu"
    return is_tensor(value) and value.ndim == 0 and not value.dtype.is_floating_point and not value.dtype.is_complex


def _name_of(value: Any) -> str:
    if isinstance(value, str):
        return "text"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "image" if _native.image_kind(np.frombuffer(value, np.uint8)) != UNKNOWN else "bytes"
    if isinstance(value, (Image.Image, os.PathLike)):
        return "image"
    if isinstance(value, np.ndarray) or is_tensor(value):
        return "array"
    raise SchemaError(f"samples are of type {type(value).__name__}: yield dicts of fields, or name one in fields=")
