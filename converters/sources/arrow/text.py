"""Columns of Parquet and Arrow files and of Hugging Face ``datasets`` folders: text, or token ids."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastio._native import ThreadPool
from fastio.converters.labels.columns import ALL_OTHERS
from fastio.converters.labels.values import TableLabels
from fastio.converters.sources.arrow.choose import columns_of
from fastio.converters.sources.arrow.reading import (
    ARROW_SUFFIXES,
    PARQUET_SUFFIXES,
    class_names,
    features_of,
    python_values,
    reading,
    saved_names,
    size_bytes,
    sound,
)
from fastio.converters.sources.documents import Documents, Limits, TextFiles, TextOptions
from fastio.converters.sources.text_rows import (
    DEFAULT_FIELD,
    OtherColumns,
    RowSource,
    column_documents,
    kind_of,
    known_column,
)
from fastio.errors import SourceError

__all__ = [
    "ArrowSource",
    "open_arrow",
    "open_datasets",
    "open_parquet",
]


def open_parquet(path: str, options: TextOptions) -> ArrowSource:
    """Open a Parquet file or a folder of them."""
    return _opened("parquet", path, TextFiles.below(path, PARQUET_SUFFIXES), options)


def open_arrow(path: str, options: TextOptions) -> ArrowSource:
    """Open an Arrow file or stream, or a folder of them."""
    return _opened("arrow", path, TextFiles.below(path, ARROW_SUFFIXES), options)


def open_datasets(path: str, options: TextOptions) -> ArrowSource:
    """Open what ``datasets.Dataset.save_to_disk`` wrote; of a dictionary of splits, one of its folders."""
    names = saved_names(path)
    sizes = [Path(path, name).stat() for name in names]
    total = sum(status.st_size for status in sizes), sum(status.st_blocks * 512 for status in sizes)
    return _opened("datasets", path, TextFiles(path, path, names, *total), options)


def _opened(kind: str, path: str, files: TextFiles, options: TextOptions) -> ArrowSource:
    """Look at the first file's columns, and at all labels where these are names."""
    options.refuse(path, "split")
    used = frozenset(filter(None, (options.text_field or DEFAULT_FIELD, options.label_field)))
    field = options.text_field or DEFAULT_FIELD
    first = files.place(files.names[0])
    with reading(kind, first, []) as file:
        schema = file.schema
        columns = columns_of(kind, dict.fromkeys(schema.names, first), schema, options.without)
        others = OtherColumns(columns, used, columns.left_out(used, used))
        is_ids = kind_of(files.place(files.names[0]), schema, field) == "ids"
        labels = None
        if options.label_field is not None:
            labels = _label_rule(files.place(files.names[0]), schema, options.label_field)
    source = ArrowSource(kind, files, options, labels, others, is_ids=is_ids)
    if labels is not None and labels.known is None:
        try:
            labels.learn(source.labels())
        except SourceError as exc:
            raise SourceError(f"{path}: {exc}") from exc
    return source


def _label_rule(place: str, schema: Any, field: str) -> TableLabels:
    """How labels are read; the names that ``datasets`` keeps for a ClassLabel are the classes."""
    known_column(place, schema, field, option="--label-field")
    names = class_names(features_of(place, schema).get(field))
    return TableLabels(is_typed=True, known=names)


@dataclass(frozen=True, slots=True)
class ArrowSource(RowSource):
    """
    Rows of Arrow tables. Satisfies ``TextSource``.

    A document's key is its file's name and the number of its row, counted from 1. Columns of strings or bytes are
    text; columns of lists of integers are token ids.
    """

    def read(self, limits: Limits, pool: ThreadPool | None = None) -> Iterator[Documents]:
        """Yield all rows, in pieces."""
        del pool  # Arrow has threads of its own
        columns = [self.text_field, *([self.options.label_field] if self.options.label_field else ())]
        positions = {} if self.label_rule is None else self.label_rule.positions()
        for name in self.files.names:
            place, position, row = self.files.place(name), 0, 1
            with reading(self.kind, place, columns) as file:
                schema = file.schema
                self._see(place, schema)
                if kind_of(place, schema, self.text_field) != ("ids" if self.is_ids else "text"):
                    raise SourceError(f"{place}: column {self.text_field!r} is of another kind than in the first file")
                if self.options.label_field is not None:
                    known_column(place, schema, self.options.label_field, option="--label-field")
                for batch in file.batches:
                    for part in _slices(batch, limits):
                        found = column_documents(part, self.options, key=self.files.key(name), row=row)
                        row += part.num_rows
                        yield self._labelled(found, part, positions, read_bytes=file.position() - position)
                        position = file.position()

    def _see(self, place: str, schema: Any) -> None:
        """Take the columns of a file that the first one lacks."""
        others = self.others
        further = dict.fromkeys((name for name in schema.names if name not in {*others.used, *others.names}), place)
        if further:
            without = [name for name in self.options.without if name in further or name == ALL_OTHERS]
            others.names.extend(columns_of(self.kind, further, schema, without).left_out((), ()))

    def labels(self) -> Iterator[tuple[str, object]]:
        """Yield key and label of every row."""
        field = self.options.label_field or ""
        for name in self.files.names:
            row = 1
            with reading(self.kind, self.files.place(name), [field]) as file:
                known_column(self.files.place(name), file.schema, field, option="--label-field")
                for batch in file.batches:
                    for label in python_values(sound(batch, field)):
                        yield f"{self.files.key(name)}:{row}", label
                        row += 1

    def _labelled(
        self, found: tuple[Documents, dict[int, str]], part: Any, positions: dict[str, int], *, read_bytes: int
    ) -> Documents:
        """The documents with their labels, without those that have a problem."""
        documents, problems = found
        labels = None
        if self.label_rule is not None and self.options.label_field is not None:
            labels = np.zeros(len(documents.keys), np.int64)
            for i, label in enumerate(python_values(sound(part, self.options.label_field))):
                number = self.label_rule.number(label, positions)
                if isinstance(number, str):
                    problems.setdefault(i, f"{number} (column {self.options.label_field!r})")
                else:
                    labels[i] = number
        whole = Documents(
            keys=documents.keys,
            data=documents.data,
            starts=documents.starts,
            sizes=documents.sizes,
            labels=labels,
            problems=(),
            read_bytes=read_bytes,
        )
        return whole.without(problems)


def _slices(batch: Any, limits: Limits) -> Iterator[Any]:
    """A batch as it came, cut where it is too large for one piece of work."""
    rows = max(batch.num_rows, 1)
    each = max(1, min(limits.block_documents, rows * limits.block_bytes // max(size_bytes(batch), 1)))
    for start in range(0, batch.num_rows, each):
        yield batch.slice(start, each)
