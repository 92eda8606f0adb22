"""Reads LMDB files of other programs: pictures under keys, Caffe's Datum, text recognition, pickled samples."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.converters.fields.types import FieldChoice
from fastio.converters.fields.values import encode_values
from fastio.converters.labels.pickle import load_pickle
from fastio.converters.sources.listed import (
    Indices,
    ListedSource,
    Read,
    Values,
    begin_in_place,
    names_at,
    read_together,
)
from fastio.converters.sources.lmdb_walk import LmdbValues, read_lmdb
from fastio.converters.sources.options import SourceOptions, source_record
from fastio.errors import SourceError, StoreError
from fastio.store.files import ByteSource, StoreFiles, files_of, open_file
from fastio.store.kinds.scan import Problem, SourcePath, shown
from fastio.types.field_types import field_of
from fastio.types.picture_kinds import UNKNOWN
from fastio.types.schema import RAW, Field, Schema
from fastio.types.spans import Spans

__all__ = [
    "open_lmdb",
]


_KIND = "lmdb"  # of sources
_COUNT = b"num-samples"
_OCR = re.compile(rb"(image|label)-0*(\d+)\Z")
_BOOKKEEPING = re.compile(rb"__\w+__\Z|num[-_]samples\Z|length\Z|keys\Z|_header\Z")  # keys, unless of pictures
_PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_PARTS = ("image", "label")  # of a pickled pair


def open_lmdb(place: SourcePath, options: SourceOptions) -> ListedSource:
    """
    Open an LMDB file, or the one in the folder of an environment, by what its values are.

    * ``num-samples``, ``image-%09d``, ``label-%09d``, as for text recognition: pictures and their texts
    * Caffe's Datum: pictures, or raw pixels with their channels last, or arrays of floats; and labels
    * pickled pairs of picture and label, or arrays: read as data, nothing in them is run
    * anything else: a picture under each key; ``--field NAME=value:TYPE`` says what values are instead

    Keys that are numbers are sorted as numbers. Other keys that hold no sample, such as ``__len__``, are left out.
    """
    path = os.path.join(place.path, "data.mdb") if place.is_folder else place.path  # noqa: PTH118 - as the user wrote it
    try:
        file = open_file(path)
    except StoreError as exc:
        raise SourceError(str(exc)) from exc
    values = read_lmdb(file)
    if b"_seal" in values.keys[-16:] or any(key == b"_seal" for key in values.keys):
        raise SourceError(f"{path}: was packed by fastio, but is damaged: pack its source again")
    pile = _Pile(place, file, values, files_of([file]))
    return _opener(pile, options)(pile, options)


@dataclass(frozen=True, slots=True)
class _Pile:
    """All values of a file."""

    place: SourcePath
    file: ByteSource
    values: LmdbValues
    files: StoreFiles

    def value(self, row: int) -> bytes:
        """The bytes of one value."""
        start = int(self.values.starts[row])
        return self.file.read(start, start + int(self.values.sizes[row])).tobytes()

    def head(self, row: int) -> NDArray[np.uint8]:
        """The first bytes of one value."""
        start = int(self.values.starts[row])
        return self.file.read(start, start + min(64, int(self.values.sizes[row])))

    def is_picture(self, row: int) -> bool:
        """Whether a value is an encoded picture."""
        return _native.image_kind(self.head(row)) != UNKNOWN

    def is_bookkeeping(self, row: int) -> bool:
        """Whether a key tells of the samples, and is none."""
        return _BOOKKEEPING.match(self.values.keys[row]) is not None and not self.is_picture(row)

    def in_place(self, field: Field, rows: NDArray[np.int64]) -> Read:
        """Return how to read a field whose values are those of these rows, where they lie."""
        return _WholeValues(self, field, rows).begin

    def places(self, field: Field, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> Values:
        """Return values of a field that lie in the file; see ``Placer``."""
        spans = Spans(self.files.buffers, np.zeros(len(starts), np.int32), starts, sizes)
        bad = np.flatnonzero(~field.fits(sizes)).tolist()
        problems = {i: f"has {sizes[i]:,} bytes, which are no {field}" for i in bad}
        return Values({field.name: spans}, problems, files={field.name: [self.file.path]})

    def source(
        self,
        rows: NDArray[np.int64],
        fields: Sequence[Field],
        read: Read,
        left_out: Sequence[Problem],
        *,
        problems: Sequence[Problem] = (),
        sizes: NDArray[np.int64] | None = None,
        choices: Sequence[FieldChoice] = (),
    ) -> ListedSource:
        """Return the source of these samples, whose keys are those of ``rows``."""
        place = self.place
        keys = [_text(self.values.keys[row]) for row in rows.tolist()]
        if len(set(keys)) < len(keys):
            keys = [self.values.keys[row].hex() for row in rows.tolist()]
        record = source_record(_KIND, place.name, labels=None, fields=[str(choice) for choice in choices])
        return ListedSource(
            path=place.path,
            kind=_KIND,
            schema=Schema(tuple(fields)),
            metadata={"classes": None, "source": record},
            keys_at=names_at(keys),
            sizes=self.values.sizes[rows] if sizes is None else sizes,
            read=read,
            disk_bytes=Path(self.file.path).stat().st_blocks * 512,
            files_opened=1,
            problems=problems,
            left_out=left_out,
            paths=lambda: [self.file.path],
        )


@dataclass(frozen=True, slots=True)
class _WholeValues:
    """A field whose values are those of some rows, where they lie."""

    pile: _Pile
    field: Field
    rows: NDArray[np.int64]

    def begin(self, indices: Indices, pool: _native.ThreadPool | None) -> Callable[[], Values]:
        """Begin to read some values; see ``ListedSource.read``."""
        field, (starts, sizes) = self.field, self._located(indices)
        wait = begin_in_place(self.pile.files, starts, sizes, pool)

        def finish() -> Values:
            there, unread = wait()
            problems = dict.fromkeys(unread, "cannot be read")
            if field.traits.is_text or field.traits.is_json or field.is_column:
                return _encoded(field, [view.tobytes() for view in there.views()], problems)
            values = self.pile.places(field, starts, sizes)
            return Values({field.name: there}, {**values.problems, **problems})

        return finish

    def places(self, indices: Indices, *, check: bool) -> Values:
        """Say where values lie; see ``Placer``."""
        field = self.field
        if field.traits.is_text or field.traits.is_json or field.is_column:
            return self.begin(indices, None)()
        return self.pile.places(field, *self._located(indices))

    def _located(self, indices: Indices) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        chosen = self.rows[indices]
        return self.pile.values.starts[chosen], self.pile.values.sizes[chosen]


def _opener(pile: _Pile, options: SourceOptions) -> Callable[[_Pile, SourceOptions], ListedSource]:
    """How to open values like these."""
    keys = pile.values.keys
    if options.fields:
        return _asked
    if _COUNT in keys and any(_OCR.match(key) for key in keys):
        return _recognition
    first = next((row for row in range(len(keys)) if not pile.is_bookkeeping(row)), None)
    if first is None:
        raise SourceError(f"{pile.file.path}: holds no sample, only {_text(keys[0])!r}")
    if pile.is_picture(first):
        return _pictures
    value = pile.value(first)
    if value.startswith(_PICKLES):
        return _pickled
    try:
        parse_caffe_sample(value)
    except ValueError as exc:
        raise SourceError(
            f"{pile.file.path}: the value of {_text(keys[first])!r} is neither a picture, a pickle nor Caffe's Datum "
            f"({exc}): say what it is, as in --field image=value:uint8[32,32,3] or --field text=value:text"
        ) from exc
    return _caffe


def _samples(pile: _Pile) -> tuple[NDArray[np.int64], list[Problem]]:
    """The rows that are samples, numbers in their order, and what the others are."""
    rows, others = [], []
    for row, key in enumerate(pile.values.keys):
        if pile.is_bookkeeping(row):
            others.append(Problem(_text(key), "tells how many samples there are, or what they are called"))
        else:
            rows.append(row)
    keys = [pile.values.keys[row] for row in rows]
    if all(key.isdigit() for key in keys):
        rows.sort(key=lambda row: int(pile.values.keys[row]))
    return np.array(rows, np.int64), others


def _pictures(pile: _Pile, _options: SourceOptions) -> ListedSource:
    rows, others = _samples(pile)
    field = field_of("image", "image")
    return pile.source(rows, [field], pile.in_place(field, rows), others)


def _asked(pile: _Pile, options: SourceOptions) -> ListedSource:
    """A single field, whose type the user names."""
    choice = options.fields[0]
    if len(options.fields) > 1 or choice.where != "value" or choice.field is None:
        raise SourceError(
            f"{pile.file.path}: --field {choice}: an LMDB file has one value a key, so name that one and its type, as "
            "in --field image=value:uint8[32,32,3]"
        )
    rows, others = _samples(pile)
    return pile.source(rows, [choice.field], pile.in_place(choice.field, rows), others, choices=[choice])


def _recognition(pile: _Pile, _options: SourceOptions) -> ListedSource:
    """Pictures and texts by number, from 1 on."""
    rows: dict[str, dict[int, int]] = {"image": {}, "label": {}}
    problems: list[Problem] = []
    others: list[Problem] = []
    twice: list[tuple[str, int, int]] = []
    for row, key in enumerate(pile.values.keys):
        match = _OCR.match(key)
        if match is not None:
            kind, number = match[1].decode(), int(match[2])
            if rows[kind].setdefault(number, row) != row:
                twice.append((kind, number, row))
        elif key == _COUNT:
            count = _count(pile, row)
        else:
            others.append(Problem(_text(key), "is neither image-000000001 nor label-000000001"))
    doubles = {row for _, _, row in twice} | {rows[kind][number] for kind, number, _ in twice}
    problems += [Problem(_text(pile.values.keys[row]), "has the number of another key: remove one") for row in doubles]
    for kind, number, _ in twice:
        rows[kind].pop(number, None)
    images, texts = rows["image"], rows["label"]
    numbers = sorted(images.keys() & texts.keys())
    for one, other, what in ((images, texts, "label"), (texts, images, "image")):
        alone = sorted(one.keys() - other)
        problems += [Problem(_text(pile.values.keys[one[n]]), f"has no {what} of its number") for n in alone]
    known = images.keys() | texts.keys()
    if len(known) < count <= 10 * len(pile.values.keys):
        problems += [Problem(f"image-{n:09d}", "is missing") for n in range(1, count + 1) if n not in known]
    elif len(known) != count:
        raise SourceError(f"{pile.file.path}: num-samples is {count:,}, but there are {len(known):,} samples")
    of_images = np.array([images[number] for number in numbers], np.int64)
    of_texts = np.array([texts[number] for number in numbers], np.int64)
    fields = [field_of("image", "image"), field_of("text", "text")]
    read = read_together([pile.in_place(fields[0], of_images), pile.in_place(fields[1], of_texts)])
    sizes = pile.values.sizes
    return pile.source(of_images, fields, read, others, problems=problems, sizes=sizes[of_images] + sizes[of_texts])


def _count(pile: _Pile, row: int) -> int:
    text = pile.value(row) if pile.values.sizes[row] <= 20 else b""
    if not text.strip().isdigit():
        raise SourceError(f"{pile.file.path}: num-samples is {text[:20]!r}, expected a number")
    return int(text)


def _caffe(pile: _Pile, _options: SourceOptions) -> ListedSource:
    """Datums; the first one says what all are."""
    rows, others = _samples(pile)
    first = parse_caffe_sample(pile.value(int(rows[0])))
    channels, height, width = first.shape
    if first.is_encoded or (first.data and _native.image_kind(np.frombuffer(first.data, np.uint8)) != UNKNOWN):
        field = field_of("image", "image")
    elif first.data:
        field = Field("image", RAW, "|u1", (height, width, channels))
    else:
        field = Field("image", RAW, "<f4", (channels, height, width))
    fields = [field] if first.label is None else [field, field_of("label", "label")]

    def values_of(message: bytes) -> list[Any]:
        try:
            sample = parse_caffe_sample(message)
        except ValueError as exc:
            raise ValueError(f"is not a Datum of Caffe: {exc}") from exc
        if (sample.label is None) != (first.label is None):
            has, others = ("no label", "one") if sample.label is None else ("a label", "none")
            raise ValueError(f"is a Datum that has {has}, while the first has {others}")
        return [_picture_of(sample, field), sample.label]

    is_there = field.traits.is_picture or field.is_raw_picture
    unfit = "are numbers that have to be parsed" if len(first.floats) else "have their channels first"
    reader = _Parsed(pile, fields, rows, values_of, _data_at if is_there else None, unfit)
    return pile.source(rows, fields, reader.begin, others)


def _data_at(message: bytes) -> tuple[int, int]:
    """Where the picture of a Datum, encoded or raw, lies in it, and its size."""
    sample = parse_caffe_sample(message)
    return sample.data_at, len(sample.data)


def _picture_of(sample: CaffeSample, field: Field) -> Any:
    if field.traits.is_picture:
        return sample.data
    if np.dtype(field.dtype).kind == "f":
        return sample.floats.reshape(sample.shape) if len(sample.floats) else None
    if not sample.data or sample.is_encoded:
        raise ValueError("is a Datum of another kind than the first")
    return np.moveaxis(np.frombuffer(sample.data, np.uint8).reshape(sample.shape), 0, -1)


def _pickled(pile: _Pile, _options: SourceOptions) -> ListedSource:
    """Pickled pairs, dicts, or single values; the first one says what all are."""
    rows, others = _samples(pile)
    first = _unpickled(pile.value(int(rows[0])))
    fields = [_field_of_value(pile, name, value) for name, value in first.items()]
    names = [field.name for field in fields]

    def values_of(message: bytes) -> list[Any]:
        values = _unpickled(message)
        if list(values) != list(first):
            raise ValueError(f"holds {', '.join(values)}, but the first sample {', '.join(first)}")
        return list(values.values())

    ordered = sorted(fields, key=lambda field: field.is_column)
    order = [names.index(field.name) for field in ordered]
    reader = _Parsed(pile, ordered, rows, lambda message: [values_of(message)[i] for i in order], None, "are pickled")
    return pile.source(rows, ordered, reader.begin, others)


def _unpickled(message: bytes) -> dict[str, Any]:
    """The values of a pickled sample by names. Raises ValueError in words that follow its key."""
    try:
        value = load_pickle(message)
    except SourceError as exc:
        raise ValueError(f"is a pickle that cannot be read: {exc}") from exc
    if isinstance(value, dict):
        return {re.sub(r"[^a-z0-9]+", "_", str(key).lower()).strip("_") or "x": each for key, each in value.items()}
    if isinstance(value, (tuple, list)) and len(value) == len(_PARTS) and isinstance(value[1], int):
        return dict(zip(_PARTS, value, strict=True))
    return {"image": value}


def _field_of_value(pile: _Pile, name: str, value: Any) -> Field:
    """The field of a value that was pickled."""
    if isinstance(value, bytes):
        is_picture = _native.image_kind(np.frombuffer(value, np.uint8)) != UNKNOWN
        return field_of(name, "image" if is_picture else "bytes")
    if isinstance(value, str):
        return field_of(name, "text")
    if isinstance(value, (bool, int, float)):
        return field_of(name, "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "float")
    if isinstance(value, np.ndarray) and value.ndim and value.dtype.kind in "biuf":
        return Field(name, RAW, value.dtype.newbyteorder("<").str, value.shape)
    if isinstance(value, (list, dict, tuple)):
        return field_of(name, "json")
    raise SourceError(f"{pile.file.path}: the first pickle holds {type(value).__name__} as {name!r}: no field holds it")


@dataclass(frozen=True, slots=True)
class _Parsed:
    """
    Samples that are parsed one by one; ``values_of`` raises ValueError in words after the key. ``first_at`` says where
    in a sample the bytes of its first field lie, if they lie there as they are, or, a raw picture, as planes; otherwise
    ``unfit`` says why not.
    """

    pile: _Pile
    fields: Sequence[Field]
    rows: NDArray[np.int64]
    values_of: Callable[[bytes], list[Any]]
    first_at: Callable[[bytes], tuple[int, int]] | None
    unfit: str

    def begin(self, indices: Indices, _pool: _native.ThreadPool | None) -> Callable[[], Values]:
        """Begin to read some samples; see ``ListedSource.read``."""
        return lambda: _parse(self.pile, self.fields, self.rows[indices], self.values_of)

    def places(self, indices: Indices, *, check: bool) -> Values:
        """Say where the values of the first field lie; see ``Placer``."""
        rows, field = self.rows[indices], self.fields[0]
        values = _parse(self.pile, self.fields, rows, self.values_of)
        if self.first_at is None:
            return replace(values, unfit={field.name: self.unfit})
        starts, sizes = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        for i, row in enumerate(rows.tolist()):
            if i not in values.problems:
                at, sizes[i] = self.first_at(self.pile.value(row))
                starts[i] = self.pile.values.starts[row] + at
        there = self.pile.places(field, starts, sizes)
        planar = [field.name] if field.is_raw_picture else []
        return replace(values, spans={**values.spans, **there.spans}, files=there.files, planar=planar)


def _parse(
    pile: _Pile, fields: Sequence[Field], rows: NDArray[np.int64], values_of: Callable[[bytes], list[Any]]
) -> Values:
    problems: dict[int, str] = {}
    samples: list[list[Any]] = []
    for i, row in enumerate(rows.tolist()):
        try:
            samples.append(values_of(pile.value(row)))
        except ValueError as exc:
            problems[i] = str(exc)
            samples.append([None] * len(fields))
    parts = [_encoded(field, [sample[number] for sample in samples], problems) for number, field in enumerate(fields)]
    return Values(
        {name: spans for part in parts for name, spans in part.spans.items()},
        {i: sentence for part in reversed(parts) for i, sentence in part.problems.items()},
        {name: column for part in parts for name, column in part.columns.items()},
    )


def _encoded(field: Field, values: Sequence[Any], problems: dict[int, str]) -> Values:
    encoded = encode_values(field, values)
    merged = {**encoded.problems, **problems}
    if encoded.spans is not None:
        return Values({field.name: encoded.spans}, merged)
    assert encoded.column is not None
    return Values({}, merged, {field.name: encoded.column})


def _text(key: bytes) -> str:
    """A key as text; its bytes in hexadecimal if they are none."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return key.hex()
    return shown(text) if text.isprintable() and text else key.hex()


# Caffe's Datum: the message of Protocol Buffers that its LMDB files hold, read by its wire format.

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_CHANNELS, _HEIGHT, _WIDTH, _DATA, _LABEL, _FLOATS, _ENCODED = 1, 2, 3, 4, 5, 6, 7
_WIRES = {_CHANNELS: {0}, _HEIGHT: {0}, _WIDTH: {0}, _DATA: {2}, _LABEL: {0}, _FLOATS: {2, 5}, _ENCODED: {0}}


@dataclass(frozen=True, slots=True)
class CaffeSample:
    """
    A picture and its label.

    ``data`` is an encoded picture if ``is_encoded``, else ``channels * height * width`` bytes, channels first (blue,
    green, red if OpenCV read them), from the byte ``data_at`` of the message on. ``floats`` are as many numbers
    instead. ``label`` is None if there is none.
    """

    channels: int
    height: int
    width: int
    data: bytes
    label: int | None
    floats: NDArray[np.float32]
    is_encoded: bool
    data_at: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        return self.channels, self.height, self.width


def parse_caffe_sample(message: bytes) -> CaffeSample:
    """Parse a Datum. Raises ValueError that says what is wrong, in words that follow "is not a Datum of Caffe: "."""
    numbers: dict[int, int] = {}
    data, floats, data_at = b"", [b""], 0
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, wire = tag >> 3, tag & 7
        if number not in _WIRES or wire not in _WIRES[number]:
            raise ValueError(f"it has a field {number} of wire type {wire}")
        if wire == _VARINT:
            numbers[number], at = _varint(message, at)
            continue
        size, at = (4, at) if wire == _FIXED32 else _varint(message, at)
        if at + size > len(message):
            raise ValueError("it is cut off")
        value, start, at = message[at : at + size], at, at + size
        if number == _DATA:
            data, data_at = value, start
        else:
            floats.append(value)
    joined = b"".join(floats)
    if len(joined) % 4:
        raise ValueError("its floats are cut off")
    label = numbers.get(_LABEL)
    sample = CaffeSample(
        numbers.get(_CHANNELS, 0),
        numbers.get(_HEIGHT, 0),
        numbers.get(_WIDTH, 0),
        data,
        None if label is None else _signed(label),
        np.frombuffer(joined, "<f4"),
        bool(numbers.get(_ENCODED, 0)),
        data_at,
    )
    _check(sample)
    return sample


def _check(sample: CaffeSample) -> None:
    count = sample.channels * sample.height * sample.width
    if sample.is_encoded:
        if not sample.data:
            raise ValueError("it has no picture")
    elif len(sample.data or sample.floats) != count or not count:
        raise ValueError(f"it has {len(sample.data or sample.floats)} values for {sample.shape}")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise ValueError("it is cut off")
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _signed(value: int) -> int:
    """A label of 32 bits; negative ones are written in 64."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value
