"""SampleEncoder: checks and encodes samples one by one, and hands them over as pieces of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fastio.converters.record_arrays import as_array, is_tensor
from fastio.converters.record_pictures import has_own_file, picture_bytes
from fastio.converters.record_problem import UnfitError
from fastio.converters.record_tokens import TextTokens
from fastio.converters.record_values import value_encoder
from fastio.converters.write.picture_check import PictureCheck
from fastio.errors import SchemaError
from fastio.types.keys import is_plain_path
from fastio.types.schema import Field, Schema

__all__ = ["PIECE_BYTES", "PIECE_SAMPLES", "Misfit", "Piece", "SampleEncoder", "check_key"]

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
    Some samples: a row for each, its key and then, in the order of the fields, encoded values and numbers.

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
        self._pictures = [each.name for each in schema.payload if each.traits.is_picture]
        self._encoders = [
            (each.name, _encoder(each, tokenizer, (classes or {}).get(each.name))) for each in schema.fields
        ]
        self._payload = [1 + i for i, each in enumerate(schema.fields) if not each.is_column]  # places in a row
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
        for name in self._pictures:
            value = sample[name]
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
