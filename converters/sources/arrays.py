"""Arrays of one length as a source: which of them are fields, and what the others are."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.converters.fields.types import FieldChoice
from fastio.converters.fields.values import encode_values
from fastio.converters.sources.columns import FIRST_VALUES, SourceColumns
from fastio.converters.sources.listed import Indices, ListedSource, Values, begin_in_place, read_together
from fastio.converters.sources.options import SourceOptions, source_record
from fastio.converters.sources.source import check_memory
from fastio.errors import SchemaError, SourceError
from fastio.store.files import ByteSource, files_of
from fastio.store.kinds.scan import Problem, SourcePath, shown
from fastio.types.bfloat16 import dtype_name, is_bfloat16
from fastio.types.field_types import field_of
from fastio.types.picture_kinds import JPEG, PNG, UNKNOWN
from fastio.types.schema import Field, Schema
from fastio.types.spans import Spans

__all__ = [
    "ArraysOf",
    "RowArray",
    "array_source",
]


_SHOWN = 8  # arrays in a message
_SIZE_BYTES = 8  # of the size of a row, in memory


@dataclass(frozen=True, slots=True)
class ArraysOf:
    """
    All arrays of a container, which is ``files``; ``left_out`` says why others are none, by name. ``classes`` names the
    labels.
    """

    kind: str
    arrays: Sequence[RowArray]
    left_out: Sequence[Problem]
    disk_bytes: int
    files: Sequence[str]
    classes: Sequence[str] | None = None


def array_source(place: SourcePath, found: ArraysOf, options: SourceOptions) -> ListedSource:
    """
    Return a source with a sample for each row, named by its number.

    The fields asked for choose arrays by their names in the container. Without any, all arrays become fields if they
    have as many rows and lie in one group; otherwise SourceError says what to choose from. Labels that are text become
    numbers of classes, which are sorted by name.
    """
    path, without = place.path, options.columns.ignore_columns
    if replace(options.columns, ignore_columns=()).names_columns:
        raise SourceError(f"{path}: has no columns: drop the options that name some, and choose by --field NAME=ARRAY")
    wanted = [each for each in found.arrays if each.name not in without]
    fields = _asked(path, found, options.fields) if options.fields else _all(path, wanted)
    count = fields[0].array.shape[0]
    unpacked = _left_out(path, found.arrays, fields, options)
    classes, columns, fields = _classes(path, fields)
    if not any(not each.field.is_column for each in fields):
        raise SourceError(f"{path}: {_numbers_alone(fields)}")
    return ListedSource(
        path=path,
        kind=found.kind,
        schema=Schema(tuple(_in_order([each.field for each in fields]))),
        metadata={"classes": found.classes or classes, "source": _record(place, found.kind, fields, options, unpacked)},
        keys_at=_numbers(count),
        sizes=_sizes(path, fields, count, found.disk_bytes),
        read=read_together([each.begin for each in fields if each.field.name not in columns]),
        disk_bytes=found.disk_bytes,
        files_opened=len(found.files),
        columns=columns,
        left_out=[Problem(shown(each.key), each.problem) for each in found.left_out],
        paths=lambda: found.files,
    )


def _left_out(path: str, arrays: Sequence[RowArray], fields: Sequence[ArrayField], options: SourceOptions) -> list[str]:
    """
    The arrays that are not packed. Raises SourceError for those that hold encoded pictures of the samples.

    Arrays of pixels of other samples, such as those for testing, are only named.
    """
    by_name = {each.name: each for each in arrays}
    count = fields[0].array.shape[0]

    def first_values(name: str) -> list[Any]:
        array = by_name[name]
        if array.dtype.kind not in "OSUT" or array.shape[0] != count:
            return []
        try:
            return list(array.rows(np.arange(min(FIRST_VALUES, count))).tolist())
        except (
            OSError,
            RuntimeError,
            ValueError,
        ):  # damaged, of which the array may have nothing to do with the fields
            return []

    typed = {choice.where.strip("/") for choice in options.fields if choice.field is not None}
    settled = {each.array.name for each in fields if each.field.traits.is_picture or each.array.name in typed}
    columns = SourceColumns(path, list(by_name), first_values, options.columns.ignore_columns, noun="array")
    return columns.left_out({each.array.name for each in fields}, set(by_name) if options.as_recorded else settled)


def _record(
    place: SourcePath, kind: str, fields: Sequence[ArrayField], options: SourceOptions, unpacked: Sequence[str]
) -> dict[str, Any]:
    choices = [
        # Names of classes are not numbers yet: what they are follows from the array again.
        str(FieldChoice(each.field.name, each.array.name, None if _is_text(each.array) else each.field))
        for each in fields
    ]
    turned = [each.field.name for each in fields if each.array.is_turned]
    more: dict[str, Any] = {"channels_moved_last": turned} if turned else {}
    if options.root is not None:
        more["root"] = os.path.relpath(options.root, place.path)
    return source_record(kind, place.name, labels=None, fields=choices, left_out=unpacked, **more)


def _numbers_alone(fields: Sequence[ArrayField]) -> str:
    """What to say of arrays with one number a sample, which token ids are as well."""
    arrays = [each.array for each in fields]
    if len(arrays) == 1 and arrays[0].dtype.kind in "iu" and fields[0].field.name != "label":
        return (
            f"{arrays[0]}: is one long row of numbers; token ids in a .npy or .bin are opened in place by "
            "fastio.TokenStream, and packed with --source-kind tokens"
        )
    have = "has" if len(arrays) == 1 else "have"
    return f"{_list(arrays)}: {have} one number a sample; a sample needs a picture, text or a row of numbers as well"


def _asked(path: str, found: ArraysOf, choices: Sequence[FieldChoice]) -> list[ArrayField]:
    arrays = found.arrays
    by_name = {each.name: each for each in arrays}
    reasons = {each.key: each.problem for each in found.left_out}
    fields: list[ArrayField] = []
    for choice in choices:
        array = by_name.get(choice.where.strip("/")) or by_name.get(choice.where)
        if array is None and choice.where in reasons:
            raise SourceError(f"{path}: --field {choice}: {choice.where} {reasons[choice.where]}")
        if array is None:
            raise SourceError(f"{path}: --field {choice}: there is no array {choice.where!r}; there is {_list(arrays)}")
        if any(each.field.name == choice.name for each in fields):
            raise SourceError(f"{path}: --field {choice.name}: comes twice")
        fields.append(ArrayField(choice.field or suggested_field(array, choice.name), array))
    lengths = {each.array.shape[0] for each in fields}
    if len(lengths) > 1:
        raise SourceError(
            f"{path}: the arrays asked for have different numbers of rows: {_list([each.array for each in fields])}"
        )
    return fields


def _all(path: str, arrays: Sequence[RowArray]) -> list[ArrayField]:
    if not arrays:
        raise SourceError(f"{path}: holds no array with a row for each sample")
    groups = {each.name.rpartition("/")[0] for each in arrays}
    if len({each.shape[0] for each in arrays}) > 1 or len(groups) > 1:
        example = max(arrays, key=lambda each: len(each.shape))
        raise SourceError(
            f"{path}: the arrays lie in different groups or have different numbers of rows: {_list(arrays)}; say which "
            f"belong together, as in --field image={example.name}"
        )
    fields = [ArrayField(_suggested(path, each), each) for each in arrays]
    twice = [name for name, times in Counter(each.field.name for each in fields).items() if times > 1]
    if twice:
        rivals = ", ".join(each.array.name for each in fields if each.field.name == twice[0])
        raise SourceError(f"{path}: {rivals}: would all be the field {twice[0]!r}: name them, as in --field a={rivals}")
    return fields


def _suggested(path: str, array: RowArray) -> Field:
    """As ``suggested_field``; errors name the file, and how to leave the array out."""
    try:
        return suggested_field(array)
    except SourceError as exc:
        if str(exc).startswith(path):  # it could not be read
            raise
        raise SourceError(f"{path}: {exc}; --without {shlex.quote(array.name)} leaves it out") from exc


def _classes(
    path: str, fields: Sequence[ArrayField]
) -> tuple[list[str] | None, dict[str, NDArray[np.int64]], list[ArrayField]]:
    """Labels that are text, as numbers: their names, the column, and all fields with the changed one."""
    for i, each in enumerate(fields):
        if each.field.name != "label" or not each.field.traits.is_text:
            continue
        texts = [_text(path, value) for value in each.array.rows(np.arange(each.array.shape[0])).tolist()]
        classes, numbers = np.unique(np.array(texts, object).astype(str), return_inverse=True)
        changed = ArrayField(field_of("label", "label"), each.array)
        numbers = numbers.astype(np.int64).reshape(-1)
        return classes.tolist(), {"label": numbers}, [*fields[:i], changed, *fields[i + 1 :]]
    return None, {}, list(fields)


def _is_text(array: RowArray) -> bool:
    return array.dtype.kind in "OSUT"


def _text(path: str, value: Any) -> str:
    try:
        return value.decode() if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError as exc:
        raise SourceError(f"{path}: the label {value[:40]!r} is not UTF-8") from exc


def _in_order(fields: Sequence[Any]) -> list[Any]:
    """Pictures first, then other payload, then columns."""
    is_picture = [each.is_raw_picture or (each.traits.is_picture and not each.traits.is_mask) for each in fields]
    ranks = [(each.is_column, not first) for each, first in zip(fields, is_picture, strict=True)]
    return [field for _, field in sorted(zip(ranks, fields, strict=True), key=lambda pair: pair[0])]


def _numbers(count: int) -> Any:
    width = len(str(max(count - 1, 0)))
    return lambda indices: [f"{index:0{width}d}" for index in indices.tolist()]


def _sizes(path: str, fields: Sequence[ArrayField], count: int, disk_bytes: int) -> NDArray[np.int64]:
    """
    Return the bytes of each sample; where they are not known without reading, the average.

    Raises SourceError for more rows than memory can list: a few bytes promise any number of rows that take none.
    """
    known = sum(each.value_bytes for each in fields)
    is_open = any(not each.field.is_column and each.array.dtype.hasobject for each in fields)
    average = max(0, disk_bytes // max(count, 1) - known) if is_open else 0
    try:
        check_memory(count * _SIZE_BYTES)
        return np.full(count, known + average, np.int64)
    except MemoryError as exc:
        raise SourceError(
            f"{path}: {fields[0].array}: there is not enough memory to list {count:,} rows: its header is damaged, or "
            "it was never written"
        ) from exc


def _list(arrays: Sequence[RowArray]) -> str:
    more = f", and {len(arrays) - _SHOWN} more" if len(arrays) > _SHOWN else ""
    return ", ".join(map(str, arrays[:_SHOWN])) + more


# RowArray: an array with one row per sample in somebody's file, and the field that its rows become.

_PICTURE_NAMES: Final = {"x", "image", "images", "img", "imgs", "picture", "pictures", "data", "pixels", "arr_0"}
_MASK_NAMES: Final = {"mask", "masks", "seg", "segmentation", "segmentations"}
_LABEL_NAMES: Final = {"y", "label", "labels", "target", "targets", "class", "classes", "fine_label", "fine_labels"}
_CHANNELS: Final = (1, 3, 4)


@dataclass(frozen=True, slots=True)
class RowArray:
    """
    An array of a container; row i belongs to sample i.

    ``name`` is the one in the container. ``dtype`` is "O" for values of any length: bytes, ``str`` or arrays.
    ``rows(indices)`` returns ``(n, *shape[1:])``. If the rows lie in a file one after the other, in C order and little
    endian, ``file`` is that file and ``start`` the byte of row 0, and nobody needs to copy them. ``located(indices)``
    returns starts and sizes (n,) of rows that lie elsewhere, each in one piece; None if they do not. Row i then lies in
    the file ``containers[numbers[i]]`` (None: the first). ``unfit`` says why rows do not lie in a file of the user's as
    they are.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    rows: Callable[[Indices], NDArray[Any]]
    file: ByteSource | None = None
    start: int = 0
    is_string: bool = False  # bytes are meant to be text
    containers: Sequence[str] = ()
    numbers: NDArray[np.int32] | None = None
    located: Callable[[Indices], tuple[NDArray[np.int64], NDArray[np.int64]] | None] | None = None
    unfit: str = ""

    @property
    def leaf(self) -> str:
        """The last part of the name, in lower case."""
        return self.name.rpartition("/")[2].lower()

    def __str__(self) -> str:
        """Return name, dtype and shape, for messages."""
        dtype = "values of any length" if self.dtype.kind == "O" else self.dtype.name
        return f"{self.name} ({dtype}, {'x'.join(map(str, self.shape))})"

    @property
    def is_turned(self) -> bool:
        """Whether rows are pictures with the channels first, (C, H, W), which are kept with the channels last."""
        rows = self.shape[1:]
        is_picture = self.dtype == np.uint8 and len(rows) == 3
        return is_picture and rows[0] in _CHANNELS and rows[2] not in _CHANNELS

    @property
    def is_picture(self) -> bool:
        """Whether rows look like decoded pictures of 8 bits: grey, or with their channels first or last."""
        rows = self.shape[1:]
        if self.dtype != np.uint8 or 0 in rows:
            return False
        return len(rows) == 2 or (len(rows) == 3 and (self.is_turned or rows[2] in _CHANNELS))


def field_name(words: str) -> str:
    """
    Return a field's name made of another program's: in lower case, any other characters as ``_``.

    >>> field_name("train/Embedding-2"), field_name("7")
    ('train_embedding_2', 'x_7')
    """
    name = re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_") or "unnamed"
    return name if name[0].isalpha() else f"x_{name}"


def suggested_field(array: RowArray, name: str | None = None) -> Field:
    """
    Return the field for an array, called ``name`` if that is given.

    * pictures of 8 bits: raw pixels, channels last; encoded pictures: pictures
    * masks, by their name, of 8 or 16 bits: masks
    * one number per sample: a column; whole numbers called y, label, target, ...: the column ``label``
    * strings: text; arrays of any other shape: raw arrays; arrays of different lengths: ragged ones

    Raises SourceError for what no field can hold.
    """
    leaf, rows, kind = array.leaf, array.shape[1:], array.dtype.kind
    if kind in "OSUT":
        return _of_objects(array, name)
    if kind not in "biufc" and not is_bfloat16(array.dtype):
        raise SourceError(f"{array}: holds {array.dtype}, which is neither numbers nor strings")
    if not rows:
        if leaf in _LABEL_NAMES and kind in "iu":
            return _made(array, name or "label", "int64")
        return _made(array, name or field_name(leaf), dtype_name(array.dtype))
    if leaf in _MASK_NAMES and array.dtype in (np.uint8, np.uint16) and len(rows) == 2 and 0 not in rows:
        return field_of(name or "mask", "mask16" if array.dtype == np.uint16 else "mask")
    shape = (*rows[1:], rows[0]) if array.is_turned else rows
    if name is None:
        name = "image" if array.is_picture and leaf in _PICTURE_NAMES else field_name(leaf)
        if leaf in _LABEL_NAMES:  # several numbers a sample
            return _made(array, "label", f"{dtype_name(array.dtype)}[{','.join(map(str, rows))}] column")
    return field_of(name, (dtype_name(array.dtype), shape))


def _of_objects(array: RowArray, name: str | None) -> Field:
    """The field of values of any length, by the first of them."""
    if name is None and array.leaf in _LABEL_NAMES:
        name = "label"
    if array.shape[1:]:
        raise SourceError(f"{array}: expected one value a sample, got {array.shape[1:]}")
    if not array.shape[0]:
        return field_of(name or field_name(array.leaf), "bytes")
    value = array.rows(np.zeros(1, np.int64))[0]
    if isinstance(value, str):
        return field_of(name or field_name(array.leaf), "text")
    if isinstance(value, np.ndarray) and value.dtype != np.uint8:
        if value.ndim != 1 or value.dtype.kind not in "biufc":
            raise SourceError(f"{array}: holds {value.dtype} {value.shape}, expected numbers of one dimension")
        return field_of(name or field_name(array.leaf), (value.dtype.newbyteorder("<").name, (None,)))
    data = np.frombuffer(value, np.uint8) if isinstance(value, bytes) else value
    if not isinstance(data, np.ndarray):
        raise SourceError(f"{array}: holds values of type {type(value).__name__}, expected bytes, text or numbers")
    kind = _native.image_kind(np.ascontiguousarray(data))
    if array.dtype.kind == "S" and kind not in (JPEG, PNG):  # whose files end with another byte than zero
        return field_of(name or field_name(array.leaf), "text")
    if kind == UNKNOWN:
        return field_of(name or field_name(array.leaf), "text" if array.is_string else "bytes")
    return field_of(name or ("image" if array.leaf in _PICTURE_NAMES else field_name(array.leaf)), "image")


def _made(array: RowArray, name: str, type_: str) -> Field:
    try:
        return field_of(name, type_)
    except SchemaError as exc:
        raise SourceError(f"{array}: {exc}") from exc


@dataclass(frozen=True, slots=True)
class ArrayField:
    """The rows of an array as the values of a field."""

    field: Field
    array: RowArray

    @property
    def is_in_place(self) -> bool:
        """Whether the rows are, byte for byte, the values, and lie in a file."""
        return self.array.file is not None and self._keeps_bytes and not self.array.is_turned

    @property
    def value_bytes(self) -> int:
        """Bytes of one value; 0 if they differ."""
        field, dtype = self.field, self.array.dtype
        if field.is_column:
            return 0
        return field.nbytes if field.traits.is_array else 0 if dtype.hasobject else math.prod(self.array.shape[1:])

    def begin(self, indices: Indices, pool: _native.ThreadPool | None) -> Callable[[], Values]:
        """Begin to read some rows; see ``ListedSource.read``."""
        if self.is_in_place and self.array.file is not None:
            return _begin_rows(self, self.array.file, indices, pool)
        return partial(self._read, indices)

    def places(self, indices: Indices, *, check: bool) -> Values:
        """Say where rows lie in their file; see ``Placer``."""
        field, array = self.field, self.array
        places: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
        paths = array.containers
        if self._keeps_bytes and array.file is not None and not array.unfit:
            paths = [array.file.path]
            places = array.start + indices * field.nbytes, np.full(len(indices), field.nbytes, np.int64)
        elif array.located is not None and self._keeps_bytes:
            places = array.located(indices)
        if places is None:
            values = self._read(indices)
            return values if field.is_column else replace(values, unfit={field.name: self._unfit})
        starts, sizes = places
        which = np.zeros(len(indices), np.int32) if array.numbers is None else array.numbers[indices]
        spans = Spans(_native.Buffers([0] * len(paths)), which, starts, sizes)
        bad = np.flatnonzero(~field.fits(sizes)).tolist()
        problems = {i: f"has a field {field.name!r} of {sizes[i]:,} bytes, which are no {field}" for i in bad}
        planar = [field.name] if array.is_turned else []
        return Values({field.name: spans}, problems, files={field.name: paths}, planar=planar)

    @property
    def _keeps_bytes(self) -> bool:
        """Whether the bytes of a row are, as they are or as planes, a value of the field."""
        field, array = self.field, self.array
        if array.dtype.kind == "O":
            return field.traits.is_picture or not (field.is_column or field.traits.is_plain or field.traits.is_json)
        rows = array.shape[1:]
        is_same = field.dtype == array.dtype.str and field.shape == ((*rows[1:], rows[0]) if array.is_turned else rows)
        return field.traits.is_array and is_same

    @property
    def _unfit(self) -> str:
        """Why rows do not lie in a file as values of the field, in words that follow "its values"."""
        array = self.array
        if array.unfit:
            return array.unfit
        if array.dtype.str.startswith(">"):
            return "are big-endian"
        return "have to be turned into others to be read"

    def _read(self, indices: Indices) -> Values:
        try:
            rows = self.array.rows(indices)
        except SourceError:  # not of these rows alone
            raise
        except (LookupError, OSError, RuntimeError, TypeError, ValueError) as exc:  # h5py says so of a damaged chunk
            if len(indices) == 1:
                return self._nothing(f"has a field {self.field.name!r} that cannot be read: {_one_line(exc)}")
            return self._one_by_one(indices)
        field = self.field
        if self.array.is_turned:
            rows = np.moveaxis(rows, 1, -1)
        if field.traits.is_array and rows.dtype.kind not in "OSUT" and rows.shape[1:] == field.shape:
            plain = np.ascontiguousarray(rows, field.dtype) if _holds(field, rows.dtype) else None
            if plain is not None:
                data = plain.reshape(-1).view(np.uint8)
                return Values({field.name: Spans.joined(data, np.full(len(indices), field.nbytes, np.int64))})
        encoded = encode_values(field, _values(field, rows))
        if encoded.spans is None:
            assert encoded.column is not None
            return Values({}, encoded.problems, {field.name: encoded.column})
        return Values({field.name: encoded.spans}, encoded.problems)

    def _one_by_one(self, indices: Indices) -> Values:
        """Read each row by itself, so that those that can be read are not lost with the others."""
        parts = [self._read(indices[i : i + 1]) for i in range(len(indices))]
        problems = {i: part.problems[0] for i, part in enumerate(parts) if 0 in part.problems}
        name = self.field.name
        if self.field.is_column:
            return Values({}, problems, {name: np.concatenate([part.columns[name] for part in parts])})
        return Values({name: _joined([part.spans[name].view(0).tobytes() for part in parts])}, problems)

    def _nothing(self, sentence: str) -> Values:
        """A row with a problem."""
        name, shape = self.field.name, tuple(size or 0 for size in self.field.shape)
        if self.field.is_column:
            return Values({}, {0: sentence}, {name: np.zeros((1, *shape), self.field.dtype)})
        return Values({name: _joined([b""])}, {0: sentence})


def _joined(values: Sequence[bytes]) -> Spans:
    sizes = np.fromiter(map(len, values), np.int64, len(values))
    return Spans.joined(np.frombuffer(b"".join(values), np.uint8), sizes)


def _begin_rows(
    of: ArrayField, file: ByteSource, indices: Indices, pool: _native.ThreadPool | None
) -> Callable[[], Values]:
    name, size = of.field.name, of.field.nbytes
    starts = of.array.start + indices * size
    wait = begin_in_place(files_of([file]), starts, np.full(len(indices), size, np.int64), pool)

    def finish() -> Values:
        there, unread = wait()
        return Values({name: there}, dict.fromkeys(unread, f"has a field {name!r} that cannot be read: check the disk"))

    return finish


def _holds(field: Field, dtype: np.dtype[Any]) -> bool:
    """Whether the field's dtype holds every value of the other."""
    return np.can_cast(dtype, np.dtype(field.dtype), "equiv") or dtype.newbyteorder("<") == np.dtype(field.dtype)


def _values(field: Field, rows: NDArray[Any]) -> Sequence[Any]:
    """The rows as Python values that ``encode_values`` takes."""
    if rows.dtype.kind in "SUT":
        return rows.tolist() if rows.ndim == 1 else list(rows)
    if rows.dtype.kind != "O":
        return list(rows)
    is_bytes = not (field.is_column or field.traits.is_plain or field.traits.is_npy)
    as_bytes = [each.tobytes() if is_bytes and isinstance(each, np.ndarray) else each for each in rows.tolist()]
    return [each.item() if isinstance(each, np.generic) else each for each in as_bytes]


def _one_line(exc: BaseException) -> str:
    return " ".join(str(exc).split())[:200] or type(exc).__name__
