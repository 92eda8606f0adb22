"""Arrays of one length as a source: which of them are fields, and what the others are."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.converters.containers.row_array import ArrayField, RowArray, suggested_field
from fastio.converters.fields_asked import FieldChoice
from fastio.converters.kind import SourceOptions, SourcePath, source_record
from fastio.converters.listed import ListedSource
from fastio.converters.parts import read_together
from fastio.converters.scan import shown
from fastio.converters.source import Problem
from fastio.converters.source_columns import FIRST_VALUES, SourceColumns
from fastio.errors import SourceError
from fastio.store.other_libraries import ROWS_OF_IDS
from fastio.types.field_types import field_of
from fastio.types.schema import Schema

__all__ = ["ArraysOf", "array_source"]

_SHOWN = 8  # arrays in a message


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
        sizes=_sizes(fields, count, found.disk_bytes),
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
        return f"{arrays[0]}: is one long row of numbers; {ROWS_OF_IDS}"
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
    fields = [ArrayField(suggested_field(each), each) for each in arrays]
    twice = [name for name, times in Counter(each.field.name for each in fields).items() if times > 1]
    if twice:
        rivals = ", ".join(each.array.name for each in fields if each.field.name == twice[0])
        raise SourceError(f"{path}: {rivals}: would all be the field {twice[0]!r}: name them, as in --field a={rivals}")
    return fields


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


def _sizes(fields: Sequence[ArrayField], count: int, disk_bytes: int) -> NDArray[np.int64]:
    """Bytes of each sample; where they are not known without reading, the average."""
    known = sum(each.value_bytes for each in fields)
    is_open = any(not each.field.is_column and each.array.dtype.hasobject for each in fields)
    average = max(0, disk_bytes // max(count, 1) - known) if is_open else 0
    return np.full(count, known + average, np.int64)


def _list(arrays: Sequence[RowArray]) -> str:
    more = f", and {len(arrays) - _SHOWN} more" if len(arrays) > _SHOWN else ""
    return ", ".join(map(str, arrays[:_SHOWN])) + more
