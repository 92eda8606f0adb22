"""
Where the values of a table lie in its files, for those who read them there.

Arrow: whatever encoding a batch leaves as bytes of its mapped file lies there, at its address less that of the file.
Parquet: the pages of its column chunks say it, see ``pages.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.converters.sources.arrow.columns import is_bytes, is_picture_struct, plain_type, type_at
from fastio.converters.sources.arrow.pages import REMEDY, ColumnChunk, NotPlainError, places_of
from fastio.converters.sources.arrow.reading import part_at, reading
from fastio.converters.sources.arrow.rows import TableFiles
from fastio.converters.sources.arrow.values import encode_array, stays_bytes
from fastio.converters.sources.optional import pyarrow
from fastio.errors import SourceError
from fastio.store.kinds.names import plain_name
from fastio.types.schema import Field
from fastio.types.spans import Spans

__all__ = ["PlacedColumn", "PlacedField", "in_arrow", "in_parquet"]

_UNCOMPRESSED = "UNCOMPRESSED"


@dataclass(frozen=True, slots=True)
class PlacedColumn:
    """A column whose values may lie in the files: the field that it becomes, and the path to it, also in words."""

    field: Field
    path: tuple[str, ...]
    where: str


@dataclass(slots=True)
class PlacedField:
    """
    Where the values of a field lie: number of the file, start and size of each row, (n,); what is wrong with some.

    ``unfit`` says why they do not lie in the files, "" if they do.
    """

    files: NDArray[np.int32]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    problems: dict[int, str] = field(default_factory=dict)
    unfit: str = ""

    @classmethod
    def of(cls, count: int) -> PlacedField:
        """Return places to be filled in for so many rows."""
        return cls(np.zeros(count, np.int32), np.zeros(count, np.int64), np.zeros(count, np.int64))


def in_arrow(rows: TableFiles, columns: Sequence[PlacedColumn]) -> dict[str, PlacedField]:
    """Return where the values of these columns of Arrow files lie, by the names of their fields."""
    found = {each.field.name: PlacedField.of(int(rows.file_rows.sum())) for each in columns}
    for piece in rows.pieces(columns=[each.path[0] for each in columns]):
        for column in columns:
            placed = found[column.field.name]
            if placed.unfit:
                continue
            encoded = encode_array(column.field, part_at(piece.batch, column.path), where=column.where)
            lying = _lying(encoded.spans, piece.memory)
            if lying is None:
                placed.unfit = _why(rows.places[piece.file], part_at(piece.batch, column.path).type)
                continue
            at = slice(piece.start, piece.start + piece.batch.num_rows)
            placed.files[at], placed.starts[at], placed.sizes[at] = piece.file, lying.starts, lying.sizes
            placed.problems |= {piece.start + i: words for i, words in encoded.problems.items()}
        if all(placed.unfit for placed in found.values()):
            break
    return found


def _lying(spans: Spans | None, memory: Any) -> Spans | None:
    """Return the spans as places in the file whose bytes ``memory`` is; None if they lie elsewhere."""
    if spans is None:
        return None
    stop = int((spans.starts + spans.sizes).max(initial=0))
    if stop == 0:
        return spans
    if memory is None:
        return None
    first = spans.buffers.view(0, 0, stop).ctypes.data - memory.address
    if not 0 <= first <= first + stop <= memory.size:
        return None
    return Spans(spans.buffers, spans.shard, np.where(spans.sizes > 0, spans.starts + first, 0), spans.sizes)


def _why(place: str, type_: Any) -> str:
    """Why the values of a column of this type are not those bytes of its file that packing gives."""
    if plain_name(place) != place:
        return _whole_file(place)
    types = pyarrow("to read tables").types
    odd = (types.is_run_end_encoded, types.is_binary_view, types.is_string_view)
    if any(is_(type_) for is_ in odd):
        return f"are of the type {type_}, which keeps them in another form"
    plain = plain_type(type_)
    if not is_bytes(type_) and not types.is_string(plain) and not types.is_large_string(plain):
        return "are not kept as fields of samples are"
    return "are compressed in the record batches (LZ4 or Zstandard; compression=None of the writer avoids that)"


def _whole_file(place: str) -> str:
    return f"lie in {Path(place).name}, which is compressed as a whole"


def in_parquet(rows: TableFiles, columns: Sequence[PlacedColumn], *, check: bool) -> dict[str, PlacedField]:
    """
    Return the same for those columns of Parquet files that hold bytes; with ``check``, compare the checksums of pages.

    Raises SourceError for damage.
    """
    found: dict[str, PlacedField] = {}
    for number, place in enumerate(rows.places):
        with reading("parquet", place, []) as file:
            schema, footer = file.schema, file.footer
        if number == 0:  # the others have the same types
            columns = [each for each in columns if stays_bytes(each.field, type_at(place, schema, each.path))]
            found = {each.field.name: PlacedField.of(int(rows.file_rows.sum())) for each in columns}
        if plain_name(place) != place:
            for placed in found.values():
                placed.unfit = placed.unfit or _whole_file(place)
            continue
        data = np.memmap(place, np.uint8, "r")
        start = int(rows.file_starts[number])
        for column in columns:
            placed = found[column.field.name]
            if not placed.unfit:
                try:
                    _fill(placed, data, start, number, _chunks(place, schema, footer, column), check=check)
                except NotPlainError as exc:
                    placed.unfit = str(exc)
                _add_problems(placed, place, schema, column, start)
    return found


def _fill(
    placed: PlacedField, data: NDArray[np.uint8], start: int, file: int, chunks: Iterator[ColumnChunk], *, check: bool
) -> None:
    for chunk in chunks:
        there = places_of(data, chunk, check=check)
        at = slice(start, start + chunk.count)
        placed.files[at], placed.starts[at], placed.sizes[at] = file, there.starts, there.sizes
        placed.problems |= dict.fromkeys((np.flatnonzero(~there.is_there) + start).tolist(), "")
        start += chunk.count


def _chunks(place: str, schema: Any, footer: Any, column: PlacedColumn) -> Iterator[ColumnChunk]:
    """Yield the chunks of a column. Raises NotPlainError for one that is compressed."""
    inner = (*column.path, "bytes") if is_picture_struct(type_at(place, schema, column.path)) else column.path
    name = ".".join(inner)
    words = f"column {name!r}"
    leaves = [i for i in range(footer.num_columns) if footer.schema.column(i).path == name]
    if len(leaves) != 1:  # names may have dots
        raise NotPlainError(f"lie in one of {len(leaves)} columns with the path {name!r}")
    leaf, of = leaves[0], footer.schema.column(leaves[0])
    if of.max_repetition_level:
        raise NotPlainError(f"lie in lists ({words})")
    width = of.length if of.physical_type == "FIXED_LEN_BYTE_ARRAY" else 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        chunk = group.column(leaf)
        if chunk.compression != _UNCOMPRESSED:
            raise NotPlainError(f"are compressed with {chunk.compression} ({words}; {REMEDY})")
        where = f"{place}: {words}, row group {number}"
        first = chunk.data_page_offset
        if chunk.has_dictionary_page and chunk.dictionary_page_offset:
            first = min(first, chunk.dictionary_page_offset)
        if chunk.num_values != group.num_rows:
            raise SourceError(f"{where}: {chunk.num_values:,} values for {group.num_rows:,} rows: damaged")
        size, levels = chunk.total_compressed_size, of.max_definition_level
        yield ColumnChunk(where, words, first, size, chunk.num_values, levels, width)


def _add_problems(placed: PlacedField, place: str, schema: Any, column: PlacedColumn, start: int) -> None:
    """Say what is wrong with the rows of a file, from ``start`` on, without a value, in the words of packing."""
    rows = [row for row, words in placed.problems.items() if not words]
    if not rows or placed.unfit:
        return
    arrow = pyarrow("to read Parquet")
    nulls = arrow.nulls(len(rows), arrow.binary())
    if is_picture_struct(type_at(place, schema, column.path)):
        with reading("parquet", place, [f"{column.where}.path"]) as file:
            paths = [path for batch in file.batches for path in part_at(batch, (*column.path, "path")).to_pylist()]
        type_ = arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())])
        nulls = arrow.array([{"bytes": None, "path": paths[row - start]} for row in rows], type_)
    encoded = encode_array(column.field, nulls, where=column.where)
    placed.problems |= {rows[i]: words for i, words in encoded.problems.items()}
