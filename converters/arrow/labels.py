"""The labels of a table of Arrow as numbers: whole numbers, names that it declares, or names learned from all rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fastio.converters.arrow.buffers import python_values
from fastio.converters.arrow.choose import Column
from fastio.converters.arrow.features import class_names
from fastio.converters.arrow.parts import part_at
from fastio.converters.arrow.rows import TableFiles
from fastio.converters.arrow.values import plain_array
from fastio.converters.extra import pyarrow
from fastio.converters.label_columns import LabelOptions
from fastio.converters.labels import look_like_captions
from fastio.converters.record_values import EncodedField
from fastio.converters.table_labels import TableLabels
from fastio.errors import SourceError

__all__ = ["encode_labels", "label_rule"]


def label_rule(path: str, rows: TableFiles, label: Column, options: LabelOptions) -> TableLabels:
    """
    Return how labels become numbers; where they are names, all rows are read.

    Raises SourceError for numbers among names, and for nearly as many names as samples.
    """
    rule = TableLabels(is_typed=True, known=class_names(label.feature))
    if rule.known is not None or not _has_names(rows, label):
        return rule
    try:
        rule.learn(_labels(rows, label))
    except SourceError as exc:
        raise SourceError(f"{path}: {exc}") from exc
    classes, count = rule.classes or [], int(rows.file_rows.sum())
    if not options.many_classes and look_like_captions(classes, count):
        raise SourceError(
            f"{path}: {count:,} samples have {len(classes):,} different labels, e.g. {classes[0]!r:.60}: captions or "
            f"names rather than classes? Keep them as text with --field caption={label.where}, or add --many-classes "
            "if each is a class"
        )
    return rule


def encode_labels(rule: TableLabels, array: Any, *, where: str) -> EncodedField:
    """Encode the labels of some rows as int64; labels that are missing or unknown are problems."""
    array, arrow = plain_array(array), pyarrow("to read tables")
    column, problems = np.zeros(len(array), np.int64), dict[int, str]()
    if array.null_count == 0 and arrow.types.is_integer(array.type) and not arrow.types.is_uint64(array.type):
        column = array.to_numpy(zero_copy_only=False).astype(np.int64)
        is_known = np.ones(len(column), bool) if rule.known is None else (column >= 0) & (column < len(rule.known))
        if is_known.all():
            return EncodedField(column=column)
    positions = rule.positions()
    for i, label in enumerate(python_values(array)):
        number = rule.number(label, positions)
        if isinstance(number, str):
            problems[i] = f"{number} (column {where!r})"
        else:
            column[i] = number
    return EncodedField(column=column, problems=problems)


def _has_names(rows: TableFiles, label: Column) -> bool:
    """Whether the column holds names, and not numbers."""
    types = pyarrow("to read tables").types
    for _, batch in rows.batches(columns=[label.path[0]]):
        type_ = plain_array(part_at(batch, label.path)).type
        return not (types.is_integer(type_) or types.is_boolean(type_))
    return False


def _labels(rows: TableFiles, label: Column) -> Iterator[tuple[str, object]]:
    for start, batch in rows.batches(columns=[label.path[0]]):
        for row, value in enumerate(python_values(plain_array(part_at(batch, label.path))), start + 1):
            yield f"row {row}", value
