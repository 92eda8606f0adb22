"""Opens Parquet and Arrow files, and reads their batches with checks that Arrow leaves out."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.converters.sources.optional import pyarrow
from fastio.converters.sources.streams import opened, seekable
from fastio.errors import FastioError, SourceError
from fastio.store.kinds.names import ARROW_SUFFIXES, has_columns, plain_name

__all__ = [
    "check_cached",
    "chosen_rows",
    "class_names",
    "feature_at",
    "features_of",
    "groups_of",
    "inner_class_names",
    "inner_feature",
    "is_cached",
    "part_at",
    "plain_array",
    "python_values",
    "reading",
    "saved_features",
    "saved_indices",
    "saved_names",
    "size_bytes",
    "sound",
    "value_bytes",
]


_MAGIC = b"ARROW1"  # of an Arrow file; a stream has none
_END = b"\xff\xff\xff\xff\0\0\0\0"  # of a stream
_BATCH_BYTES, _LEAST_ROWS, _MOST_ROWS = 4 << 20, 16, 8192  # of what is decoded of a Parquet file at a time


@dataclass(frozen=True, slots=True)
class OpenTable:
    """
    An open file: its schema, an iterator over its record batches, and how many of its bytes have been read.

    ``memory`` are all bytes of an Arrow file as one buffer, which those of the batches lie in if the file has them as
    they are; None if it is not mapped. ``footer`` is the metadata of a Parquet file.
    """

    schema: Any
    batches: Iterator[Any]
    position: Callable[[], int]
    memory: Any = None
    footer: Any = None


@contextmanager
def reading(
    kind: str, place: str, columns: Sequence[str] | None = None, *, first_group: int = 0
) -> Iterator[OpenTable]:
    """
    Open a file of the kind "parquet", a chunk of "litdata" (see ``litdata.py``), or any other word for Arrow; of
    Parquet only these columns are read (None: all).

    Batches begin with those of group ``first_group`` (see ``groups_of``). What Arrow raises becomes a SourceError that
    names the file, in one line; so does a table without columns.
    """
    with _opened(kind, place, columns, first_group) as table:
        if not table.schema.names:
            raise SourceError(f"{place}: expected {kind} data: it has no columns; damaged? get it again")
        yield table


@contextmanager
def _opened(kind: str, place: str, columns: Sequence[str] | None, first_group: int) -> Iterator[OpenTable]:
    arrow = pyarrow(f"to read {place}")
    try:
        if kind == "parquet":
            with seekable(place) as file:
                yield _parquet(file, columns, first_group)
        elif kind == "litdata":
            with seekable(place) as file:
                memory = _memory(arrow, file)
                with arrow.ipc.open_file(_table_in_chunk(memory, place)) as reader:
                    yield replace(_arrow_file(reader, memory.size, first_group), memory=memory)
        elif _is_file(place):
            with seekable(place) as file, arrow.ipc.open_file(file) as reader:
                opened_file = _arrow_file(reader, Path(place).stat().st_size, first_group)
                yield replace(opened_file, memory=_memory(arrow, file))
        elif plain_name(place) != place:
            with opened(place) as stream:
                readable = _Readable(stream)
                with arrow.ipc.open_stream(arrow.PythonFile(readable)) as reader:
                    batches = _to_its_end(reader, readable.end, place)
                    yield OpenTable(reader.schema, islice(batches, first_group, None), lambda: stream.position)
        else:
            with seekable(place) as file:
                memory = _memory(arrow, file)
                with arrow.ipc.open_stream(file) as reader:
                    batches = _to_its_end(reader, lambda: _end(file), place)
                    yield OpenTable(reader.schema, islice(batches, first_group, None), file.tell, memory)
    except FastioError:
        raise
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as exc:  # the last of names of columns
        reason = " ".join(str(exc).split()).rstrip(".")
        raise SourceError(f"{place}: expected {kind} data: {reason}; damaged or truncated?") from exc


def _table_in_chunk(memory: Any, place: str) -> Any:
    """The Arrow file within a chunk of LitData, whose size is written behind it."""
    size = int.from_bytes(memory[-12:-8].to_pybytes(), "little") if memory.size >= 12 else 0
    if not size or size + 12 > memory.size:
        raise SourceError(f"{place}: its table has {size:,} bytes, but the chunk {memory.size:,}: get the chunk again")
    return memory.slice(memory.size - 12 - size, size)


def _memory(arrow: Any, file: Any) -> Any:
    """All bytes of a mapped file, without a copy; None of any other. The file is at its beginning afterwards."""
    if not isinstance(file, arrow.MemoryMappedFile):
        return None
    file.seek(0)
    memory = file.read_buffer()
    file.seek(0)
    return memory


def groups_of(kind: str, place: str, columns: Sequence[str]) -> tuple[Any, list[tuple[int, int]]]:
    """
    Return a file's schema, and rows and bytes (decoded, of these columns) of each of its groups.

    A group is what can be read without those before it: a row group of Parquet, a record batch of Arrow.
    """
    with reading(kind, place, columns) as file:
        if kind == "parquet":
            return file.schema, _row_groups(place, columns)
        names = [name for name in columns if name in file.schema.names]
        sizes = [(batch.num_rows, sum(_column_bytes(batch, name) for name in names)) for batch in file.batches]
        return file.schema, sizes


def _column_bytes(batch: Any, name: str) -> int:
    """Bytes of a column's values; Arrow follows the offsets of lists for that, which are checked first."""
    column = batch.column(name)
    return size_bytes(sound(batch, name) if column.type.num_fields else column)


def size_bytes(data: Any) -> int:
    """
    Return the bytes of the values of a column or a batch.

    Of views of strings or bytes, which older pyarrow cannot measure, return those of their buffers, which may hold
    more.
    """
    try:
        return int(data.nbytes)
    except pyarrow("to read Arrow").ArrowTypeError:
        return int(data.get_total_buffer_size())


def _row_groups(place: str, columns: Sequence[str]) -> list[tuple[int, int]]:
    with seekable(place) as file:
        metadata = pyarrow("to read Parquet", "pyarrow.parquet").read_metadata(file)
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        leaves = [
            i
            for i in range(metadata.num_columns)
            if any(f"{metadata.schema.column(i).path}.".startswith(f"{name}.") for name in columns)
        ]
        return [(group.num_rows, sum(group.column(i).total_uncompressed_size for i in leaves)) for group in groups]


def _parquet(file: Any, columns: Sequence[str] | None, first_group: int) -> OpenTable:
    parquet = pyarrow("to read Parquet", "pyarrow.parquet").ParquetFile(
        file, pre_buffer=False, page_checksum_verification=True
    )
    groups = range(parquet.metadata.num_row_groups)
    size = sum(parquet.metadata.row_group(i).total_byte_size for i in groups)
    rows = max(parquet.metadata.num_rows, 1)
    batch_rows = int(max(_LEAST_ROWS, min(_MOST_ROWS, rows * _BATCH_BYTES // max(size, 1))))
    done = 0

    def batches() -> Iterator[Any]:
        nonlocal done
        options = {
            "batch_size": batch_rows,
            "columns": None if columns is None else list(columns),
            "use_threads": False,
        }
        for batch in parquet.iter_batches(row_groups=groups[first_group:], **options):
            done += batch.num_rows
            yield batch

    file.seek(0, 2)
    on_disk = file.tell()
    return OpenTable(parquet.schema_arrow, batches(), lambda: on_disk * done // rows, footer=parquet.metadata)


def _arrow_file(reader: Any, size: int, first_group: int) -> OpenTable:
    total = max(reader.num_record_batches, 1)
    done = first_group

    def batches() -> Iterator[Any]:
        nonlocal done
        for done in range(first_group, reader.num_record_batches):
            yield reader.get_batch(done)

    return OpenTable(reader.schema, batches(), lambda: size * (done + 1) // total)


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


# The buffers of Arrow arrays: checked, and as bytes, starts and sizes.


def sound(batch: Any, field: str) -> Any:
    """
    Return a column with checked offsets and indices: in a damaged file they lead anywhere, and Arrow follows them.

    Arrow's exceptions are left to the caller. Strings are treated as bytes: invalid UTF-8 is found later.
    """
    arrow = pyarrow("to read tables")
    column = batch.column(field)
    whole = column.dictionary if arrow.types.is_dictionary(column.type) else column
    for is_, plain in (
        (arrow.types.is_string, arrow.binary()),
        (arrow.types.is_large_string, arrow.large_binary()),
        (arrow.types.is_string_view, arrow.binary_view()),
    ):
        if is_(whole.type):
            whole = whole.view(plain)
    if arrow.types.is_dictionary(column.type):
        whole = arrow.DictionaryArray.from_arrays(column.indices, whole, safe=False)
    whole.validate(full=True)
    return column


def plain_array(array: Any) -> Any:
    """Return the same values without dictionaries, run-end encoding and extension types."""
    arrow = pyarrow("to read tables")
    while True:
        if isinstance(array, arrow.ExtensionArray):
            array = array.storage
        elif arrow.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        elif arrow.types.is_run_end_encoded(array.type):
            array = pyarrow("to read tables", "pyarrow.compute").run_end_decode(array)
        else:
            return array


def part_at(batch: Any, path: Sequence[str]) -> Any:
    """Return the values at a path: a part of a struct, or of each struct in lists, such as ``("objects", "bbox")``."""
    array = batch.column(path[0])
    for part in path[1:]:
        array = _part(plain_array(array), part)
    return array


def _part(array: Any, part: str) -> Any:
    arrow, compute = pyarrow("to read tables"), pyarrow("to read tables", "pyarrow.compute")
    if arrow.types.is_struct(array.type):
        return compute.struct_field(array, part)
    inner = _part(plain_array(array.flatten()), part)
    lengths = compute.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    edges = arrow.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))
    return arrow.ListArray.from_arrays(edges, inner, mask=array.is_null())


def value_bytes(arrow: Any, column: Any) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """
    Return the bytes of strings, and start and size of each; without a copy unless Arrow keeps them in an odd way.
    """
    column = column.cast(arrow.large_binary())
    _, offsets, values = column.buffers()
    if len(column) == 0:
        return np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64)
    edges = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    data = np.zeros(0, np.uint8) if values is None else np.frombuffer(values, np.uint8)[edges[0] : edges[-1]]
    return data, edges[:-1] - edges[0], np.diff(edges)


def python_values(array: Any) -> list[Any]:
    """Return the values as Python objects; bytes of strings that are not UTF-8 become surrogates, as in file names."""
    arrow = pyarrow("to read tables")
    for is_, plain in (
        (arrow.types.is_string, arrow.binary()),
        (arrow.types.is_large_string, arrow.large_binary()),
        (arrow.types.is_string_view, arrow.binary_view()),
    ):
        if is_(array.type):
            values = array.view(plain).to_pylist()
            return [None if value is None else value.decode("utf-8", "surrogateescape") for value in values]
    return list(array.to_pylist())


# What ``datasets.Dataset.save_to_disk`` leaves in a folder: which files hold the data, and the notes on columns.


def saved_names(path: str) -> list[str]:
    """
    Return the names of the data files in ``path``, in order.

    Raises SourceError for a dictionary of splits, and for missing files.
    """
    splits = Path(path, "dataset_dict.json")
    if splits.is_file():
        ways = ", ".join(f"{path}/{name}" for name in _json(splits).get("splits") or ())
        raise SourceError(f"{path}: holds several splits: pack one of them, {ways}, or choose it with --split")
    names = _named_in_state(path, "_data_files")
    if not names:
        raise SourceError(f"{path}: state.json names no data files; expected a folder of save_to_disk")
    return names


def saved_indices(path: str) -> list[str]:
    """
    Return the names of the files in ``path`` with the rows that are the dataset, in order; none if all rows are.

    ``datasets`` left such files for datasets that were shuffled or filtered. Raises SourceError for missing ones.
    """
    return _named_in_state(path, "_indices_data_files")


def chosen_rows(path: str, names: Sequence[str], count: int) -> NDArray[np.int64]:
    """
    Return the rows that these files (see ``saved_indices``) choose of ``count``.

    Raises SourceError for rows that are not there, and for one that is chosen twice: its samples would share a key.
    """
    parts = list[NDArray[Any]]()
    for place in (f"{path}/{name}" for name in names):
        with reading("arrow", place) as file:
            if file.schema.names != ["indices"]:
                raise SourceError(
                    f"{place}: expected a column 'indices', got {', '.join(map(repr, file.schema.names))}"
                )
            parts += [plain_array(batch.column(0)).to_numpy(zero_copy_only=False) for batch in file.batches]
    rows = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    if rows.dtype.kind not in "iu" or (len(rows) and not 0 <= rows.min() <= rows.max() < count):
        raise SourceError(f"{path}: its indices choose other rows than the {count:,} that its data have: copy it again")
    firsts, times = np.unique(rows, return_counts=True)
    if len(firsts) != len(rows):
        raise SourceError(
            f"{path}: its indices choose row {firsts[times.argmax()]:,} {times.max()} times: save it again after "
            "flatten_indices()"
        )
    return rows.astype(np.int64)


def _named_in_state(path: str, entry: str) -> list[str]:
    """The files that state.json names under ``entry``, all of which are there; they have one place each."""
    entries = _json(Path(path, "state.json")).get(entry) or ()
    whole = [each for each in entries if isinstance(each, Mapping) and each.keys() <= {"filename"}]
    if len(whole) != len(entries):
        raise SourceError(f"{path}: state.json names no data files as whole under {entry!r}: save it again")
    names = [str(each.get("filename")) for each in whole]
    outside = [name for name in names if Path(name).name != name]
    if outside:
        raise SourceError(f"{path}: state.json names {outside[0]!r:.80}, which is not a file in this folder")
    missing = [name for name in names if not Path(path, name).is_file()]
    if missing:
        raise SourceError(f"{path}: {missing[0]}, which state.json names, is missing: copy the whole folder")
    return names


def is_cached(path: str) -> bool:
    """Return whether the folder ``path`` is one of a dataset in the cache of ``datasets``: notes beside Arrow files."""
    if not Path(path, "dataset_info.json").is_file() or Path(path, "state.json").is_file():
        return False
    return any(has_columns(name, ARROW_SUFFIXES) for name in os.listdir(path))  # noqa: PTH208 - names alone


def check_cached(folder: str, names: Sequence[str], counts: Sequence[int]) -> None:
    """
    Compare the rows of all files of a split in the cache of ``datasets`` with what its notes count.

    Raises SourceError if there are others, as where a file is of another run, and for files of several splits.
    """
    if not is_cached(folder):
        return
    info = _json(Path(folder, "dataset_info.json"))
    noted, stem = info.get("splits"), f"{info.get('dataset_name')}-"
    splits: Mapping[str, Any] = noted if isinstance(noted, Mapping) else {}
    for name, each in splits.items():
        of_split = re.compile(f"{re.escape(stem + name)}(?:-[0-9]+-of-([0-9]+))?\\.arrow")
        found = [match for file in names if (match := of_split.fullmatch(file))]
        if 0 < len(found) < len(names):
            raise SourceError(f"{folder}: holds several splits, {', '.join(splits)}: choose one with --split")
        is_whole = bool(found) and len(found) == int(found[0][1] or 1)
        expected = each.get("num_examples") if isinstance(each, Mapping) else None
        if is_whole and isinstance(expected, int) and expected != sum(counts):
            raise SourceError(
                f"{folder}: the files of {name!r} have {sum(counts):,} rows, but dataset_info.json counts "
                f"{expected:,}: load the dataset again"
            )


def saved_features(path: str) -> Mapping[str, Any]:
    """Return what ``dataset_info.json`` says of the columns, {} if nothing. Raises SourceError if it cannot be read."""
    features = _json(Path(path, "dataset_info.json")).get("features")
    return features if isinstance(features, Mapping) else {}


def _json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as exc:
        raise SourceError(f"{path}: cannot be read as JSON: {exc}") from exc
    if not isinstance(document, dict):
        raise SourceError(f"{path}: expected a JSON object")
    return document


# What Hugging Face ``datasets`` notes of the columns in a table's schema: names of classes, pictures, arrays.


def features_of(place: str, schema: Any) -> Mapping[str, Any]:
    """Return the notes by column, {} if there are none. Raises SourceError if they cannot be read."""
    raw = (schema.metadata or {}).get(b"huggingface")
    try:
        notes = json.loads(raw) if raw else {}
        features = notes.get("info", {}).get("features") or {}
        if not isinstance(features, Mapping):
            raise TypeError("features are not an object")
    except (ValueError, AttributeError, TypeError) as exc:
        raise SourceError(
            f"{place}: the notes of Hugging Face datasets in it cannot be read ({exc}): save it again"
        ) from exc
    return features


def feature_at(features: Mapping[str, Any], path: Sequence[str]) -> Any:
    """Return what is noted of the column, or part of one, at ``path``; None if nothing is."""
    node: Any = features
    for part in path:
        node = inner_feature(node)
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def class_names(feature: Any) -> list[str] | None:
    """Return the names of a ClassLabel, or of those in a list; None for anything else."""
    feature = inner_feature(feature)
    names = feature.get("names") if isinstance(feature, Mapping) and feature.get("_type") == "ClassLabel" else None
    return [str(name) for name in names] if isinstance(names, list) and names else None


def inner_class_names(feature: Any, prefix: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the path and the names of every ClassLabel in a feature, such as ``objects.category``."""
    names, feature = class_names(feature), inner_feature(feature)
    if names is not None:
        yield prefix, names
    elif isinstance(feature, Mapping) and "_type" not in feature:
        for name, part in feature.items():
            yield from inner_class_names(part, f"{prefix}.{name}")


def inner_feature(feature: Any) -> Any:
    """Return what is in lists: Sequence and List of ``datasets`` wrap it, older notes have a list of one."""
    while True:
        if isinstance(feature, list) and len(feature) == 1:
            feature = feature[0]
        elif (
            isinstance(feature, Mapping) and "_type" in feature and isinstance(feature.get("feature"), (Mapping, list))
        ):
            feature = feature["feature"]
        else:
            return feature
