"""Columns of Parquet and Arrow files and of Hugging Face ``datasets`` folders: text, or token ids."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastio._native import ThreadPool
from fastio.converters.text.columns import column_documents, kind_of, known_column, sound
from fastio.converters.text.documents import Documents, Limits, TextOptions
from fastio.converters.text.extra import pyarrow
from fastio.converters.text.files import TextFiles
from fastio.converters.text.kind import TextKind
from fastio.converters.text.labels import TableLabels
from fastio.converters.text.row_source import DEFAULT_FIELD, RowSource
from fastio.converters.text.streams import opened, plain_name, seekable
from fastio.errors import FastioError, SourceError

__all__ = ["KINDS", "ArrowSource", "open_arrow", "open_datasets", "open_parquet"]

_PARQUET, _ARROW = (".parquet",), (".arrow", ".feather", ".ipc")
_DATASETS = frozenset(["dataset_info.json", "dataset_dict.json"])  # one of them lies where ``save_to_disk`` wrote
_MAGIC = b"ARROW1"  # of an Arrow file; a stream has none
_END = b"\xff\xff\xff\xff\0\0\0\0"  # of a stream

# A file's schema, and the batches of some of its columns; how far it has been read.
_Batches = tuple[Any, Iterator[Any], Callable[[], int]]


def open_parquet(path: str, options: TextOptions) -> ArrowSource:
    """Open a Parquet file or a folder of them."""
    return _opened("parquet", path, TextFiles.below(path, _PARQUET), options)


def open_arrow(path: str, options: TextOptions) -> ArrowSource:
    """Open an Arrow file or stream, or a folder of them."""
    return _opened("arrow", path, TextFiles.below(path, _ARROW), options)


def open_datasets(path: str, options: TextOptions) -> ArrowSource:
    """Open what ``datasets.Dataset.save_to_disk`` wrote; of a dictionary of splits, one of its folders."""
    splits = Path(path, "dataset_dict.json")
    if splits.is_file():
        ways = ", ".join(f"{path}/{name}" for name in _json(splits).get("splits", ()))
        raise SourceError(f"{path}: holds several splits: pack one of them, {ways}")
    state = _json(Path(path, "state.json"))
    if state.get("_indices_data_files"):
        raise SourceError(f"{path}: holds indices beside its data: save it again after flatten_indices()")
    names = [str(entry.get("filename")) for entry in state.get("_data_files") or ()]
    if not names:
        raise SourceError(f"{path}: state.json names no data files; expected a folder of save_to_disk")
    missing = [name for name in names if not Path(path, name).is_file()]
    if missing:
        raise SourceError(f"{path}: {missing[0]}, which state.json names, is missing: copy the whole folder")
    sizes = [Path(path, name).stat() for name in names]
    total = sum(status.st_size for status in sizes), sum(status.st_blocks * 512 for status in sizes)
    return _opened("datasets", path, TextFiles(path, path, names, *total), options)


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise SourceError(f"{path}: cannot be read as JSON: {exc}") from exc
    if not isinstance(found, dict):
        raise SourceError(f"{path}: expected a JSON object")
    return found


def _opened(kind: str, path: str, files: TextFiles, options: TextOptions) -> ArrowSource:
    """Look at the first file's columns, and at all labels where these are names."""
    options.refuse(path, "split")
    field = options.text_field or DEFAULT_FIELD
    with _reading(kind, files.place(files.names[0]), []) as (schema, _, _):
        is_ids = kind_of(files.place(files.names[0]), schema, field) == "ids"
        labels = None
        if options.label_field is not None:
            labels = _label_rule(files.place(files.names[0]), schema, options.label_field)
    source = ArrowSource(kind, files, options, labels, is_ids=is_ids)
    if labels is not None and labels.known is None:
        try:
            labels.learn(source.labels())
        except SourceError as exc:
            raise SourceError(f"{path}: {exc}") from exc
    return source


def _label_rule(place: str, schema: Any, field: str) -> TableLabels:
    """How labels are read; the names that ``datasets`` keeps for a ClassLabel are the classes."""
    known_column(place, schema, field, option="--label-field")
    raw = (schema.metadata or {}).get(b"huggingface")
    try:
        said = json.loads(raw) if raw else {}
        feature = said.get("info", {}).get("features", {}).get(field)
        names = feature.get("names") if isinstance(feature, dict) else None
    except (ValueError, AttributeError) as exc:
        raise SourceError(
            f"{place}: the notes of Hugging Face datasets in it cannot be read ({exc}): save it again"
        ) from exc
    return TableLabels(is_typed=True, known=[str(name) for name in names] if names else None)


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
            with _reading(self.kind, place, columns) as (schema, batches, at):
                if kind_of(place, schema, self.text_field) != ("ids" if self.is_ids else "text"):
                    raise SourceError(f"{place}: column {self.text_field!r} is of another kind than in the first file")
                if self.options.label_field is not None:
                    known_column(place, schema, self.options.label_field, option="--label-field")
                for batch in batches:
                    for part in _slices(batch, limits):
                        found = column_documents(part, self.options, key=self.files.key(name), row=row)
                        row += part.num_rows
                        yield self._labelled(found, part, positions, read_bytes=at() - position)
                        position = at()

    def labels(self) -> Iterator[tuple[str, object]]:
        """Yield key and label of every row."""
        field = self.options.label_field or ""
        for name in self.files.names:
            row = 1
            with _reading(self.kind, self.files.place(name), [field]) as (schema, batches, _):
                known_column(self.files.place(name), schema, field, option="--label-field")
                for batch in batches:
                    for label in sound(batch, field).to_pylist():
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
            for i, label in enumerate(sound(part, self.options.label_field).to_pylist()):
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
    each = max(1, min(limits.block_documents, rows * limits.block_bytes // max(batch.nbytes, 1)))
    for start in range(0, batch.num_rows, each):
        yield batch.slice(start, each)


@contextmanager
def _reading(kind: str, place: str, columns: Sequence[str]) -> Iterator[_Batches]:
    """A file's schema and batches; what Arrow raises becomes a SourceError that names the file."""
    arrow = pyarrow(f"to read {place}")
    try:
        if kind == "parquet":
            with seekable(place) as file:
                yield _parquet(file, columns)
        elif _is_file(place):
            with seekable(place) as file, arrow.ipc.open_file(file) as reader:
                size = Path(place).stat().st_size
                total = max(reader.num_record_batches, 1)
                done = 0

                def batches() -> Iterator[Any]:
                    nonlocal done
                    for done in range(reader.num_record_batches):
                        yield reader.get_batch(done)

                yield reader.schema, batches(), lambda: size * (done + 1) // total
        elif plain_name(place) != place:
            with opened(place) as stream:
                readable = _Readable(stream)
                with arrow.ipc.open_stream(arrow.PythonFile(readable)) as reader:
                    yield reader.schema, _to_its_end(reader, readable.end, place), lambda: stream.position
        else:
            with seekable(place) as file, arrow.ipc.open_stream(file) as reader:
                yield reader.schema, _to_its_end(reader, lambda: _end(file), place), file.tell
    except FastioError:
        raise
    except (arrow.ArrowException, OSError) as exc:
        raise SourceError(f"{place}: expected {kind} data: {exc}; damaged or truncated?") from exc


def _parquet(file: Any, columns: Sequence[str]) -> _Batches:
    parquet = pyarrow("to read Parquet", "pyarrow.parquet").ParquetFile(
        file, pre_buffer=False, page_checksum_verification=True
    )
    groups = parquet.metadata.num_row_groups
    size = sum(parquet.metadata.row_group(i).total_byte_size for i in range(groups))
    rows = max(parquet.metadata.num_rows, 1)
    each = int(max(16, min(8192, rows * (4 << 20) // max(size, 1))))
    done = 0

    def batches() -> Iterator[Any]:
        nonlocal done
        for batch in parquet.iter_batches(batch_size=each, columns=list(columns), use_threads=False):
            done += batch.num_rows
            yield batch

    file.seek(0, 2)
    on_disk = file.tell()
    return parquet.schema_arrow, batches(), lambda: on_disk * done // rows


def _to_its_end(reader: Any, end: Callable[[], bytes], place: str) -> Iterator[Any]:
    """
    The batches of a stream. ``end`` is what its last bytes are, and the byte behind them.

    A stream without its mark may have lost some, and what stands behind the mark is not read: Arrow says nothing.
    """
    yield from reader
    found = end()
    if found[: len(_END)] != _END:
        raise SourceError(f"{place}: the Arrow stream has no end mark: it is truncated or was not closed; get it again")
    if found != _END:
        raise SourceError(
            f"{place}: bytes follow the end of the Arrow stream, perhaps a second one: write one per file"
        )


def _end(file: Any) -> bytes:
    """The last bytes that were read of a file, and the next one."""
    file.seek(file.tell() - len(_END))
    return bytes(file.read(len(_END) + 1))


def _is_file(place: str) -> bool:
    """Whether this is an Arrow file, which has an index at its end, and not a stream."""
    with opened(place) as stream:
        return stream.read(len(_MAGIC)) == _MAGIC


class _Readable:
    """A stream as pyarrow reads from Python objects."""

    closed = False

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._tail = b""  # the last bytes read

    def read(self, size: int = -1) -> bytes:
        """Bytes, fewer only at the end."""
        data = bytes(self._stream.read(size if size >= 0 else 1 << 62))
        self._tail = (self._tail + data[-len(_END) :])[-len(_END) :]
        return data

    def end(self) -> bytes:
        """The last bytes that were read, and the next one."""
        return self._tail + bytes(self._stream.read(1))

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """The stream belongs to whoever opened it."""


KINDS = (
    TextKind(name="parquet", open=open_parquet, suffixes=_PARQUET),
    TextKind(name="arrow", open=open_arrow, suffixes=_ARROW),
    TextKind(name="datasets", open=open_datasets, marks=_DATASETS),
)
