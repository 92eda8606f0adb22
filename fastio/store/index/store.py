"""SealedStore, the reader of all formats: a store is a few arrays over mapped files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from fastio._native import SpanIndex, ThreadPool, checksum
from fastio.errors import SchemaError, StoreCorrupt, StoreError
from fastio.store.files import ByteSource, Prefetch, StoreFiles, files_of
from fastio.store.files.late import sizes_of
from fastio.store.index.arrays import FarBlocks, IndexArray, IndexArrays, Keys, key_text
from fastio.store.index.elements import Elements
from fastio.store.index.numbered_keys import NumberedKeys
from fastio.store.index.seal import set_checksum
from fastio.store.index.sealed import Intervals, PlacedIntervals, Shard
from fastio.store.kinds.unpacked import AS_IT_IS, Unpacked
from fastio.types.receipt_sum import MODULUS, sum_indices, sum_samples
from fastio.types.schema import Field, Schema
from fastio.types.spans import Spans, firsts_of, sums_of

if TYPE_CHECKING:
    from fastio.store.index.far_arrays import FarArray, FarIndex
    from fastio.store.index.far_points import FarPoints, FarSpans
    from fastio.store.sets.set_object import SetObject

__all__ = [
    "JoinedIndex",
    "SealedStore",
    "check_set",
    "checked_indices",
    "list_checksums",
    "number_of",
    "number_of_all",
    "unpacked_of",
]


_SHOWN = 10  # numbers of missing shards in a message


@dataclass(frozen=True, slots=True)
class _Content:
    """What an open store holds. Whoever has it has all of it, whenever another thread closes the store."""

    shards: Sequence[Shard]
    index: JoinedIndex
    files: StoreFiles
    intervals: Mapping[str, PlacedIntervals]
    places: Mapping[str, SpanIndex]  # of each payload field
    far_points: FarPoints | None  # those of a store behind a URL

    def interval_spans(self, field: str, shard: NDArray[np.int32], chosen: NDArray[np.int64]) -> Spans | None:
        """Return the restart intervals of some values, as far as they are in memory; None if none are."""
        if field not in self.intervals:
            return None if self.far_points is None else self.far_points.near(field, chosen)
        placed = self.intervals[field]
        return Spans(placed.buffers, shard, placed.starts[chosen], placed.sizes[chosen])


class SealedStore:
    """
    A packed dataset opened for reading; see ``SampleStore`` for the contract.

    Holds mappings and arrays, no descriptors and no handles of other libraries: threads share it, forks inherit it,
    and the same file may be opened any number of times. ``close`` releases the mappings, which end with the last
    array handed out. As with every mapping, a file that is truncated while open kills the process by SIGBUS: replace
    stores, never rewrite them (or see ``hold_index``).
    """

    def __init__(
        self,
        path: str,
        *,
        format_name: str,
        shards: Sequence[Shard],
        opener: Callable[[str], SealedStore],
        index: JoinedIndex | None = None,
        set_object: SetObject | None = None,
        unpacked: Unpacked = AS_IT_IS,
    ) -> None:
        """
        ``index`` is that of ``shards`` if it is known joined already, as that of a set with its object is; ``unpacked``
        is what was said of files that are read in place.
        """
        index = index or JoinedIndex.of(shards)
        self.path = path
        self._opener = opener
        self.format = format_name
        self.unpacked = unpacked
        self.set_object = set_object  # None: one file, shards that know their set, or several stores
        self.schema: Schema = shards[0].schema if set_object is None else set_object.schema
        self.shard_paths = index.paths
        self._ends = np.cumsum(index.counts, dtype=np.int64)
        self._count = int(self._ends[-1])
        self._totals: dict[str, int] = {}
        intervals = {name: PlacedIntervals.of(part, len(index.counts)) for name, part in index.intervals.items()}
        if len(shards) == 1:
            intervals.update(shards[0].noted)
        limits = sizes_of(index.sources)
        places = {field.name: index.places(field, self._ends, limits) for field in self.schema.payload}
        far = _far_points(shards, set_object)
        files = files_of(index.sources)
        for each in index.far():
            each.count_in(files)
        self._content: _Content | None = _Content(shards, index, files, intervals, places, far)

    def __len__(self) -> int:
        return self._count

    @cached_property
    def metadata(self) -> Mapping[str, Any]:
        """What the packer stored besides the samples; parsed on first use."""
        shards = self._opened().shards
        raw = shards[0].metadata if self.set_object is None else self.set_object.metadata
        try:
            parsed = json.loads(raw)
        except (ValueError, RecursionError) as exc:
            raise StoreCorrupt(f"{self.shard_paths[0]}: the metadata is not JSON ({exc}): pack again") from exc
        if not isinstance(parsed, dict):
            raise StoreCorrupt(f"{self.shard_paths[0]}: the metadata is not a JSON object: pack again")
        return MappingProxyType(parsed)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        sources = self._opened().index.sources
        if self.set_object is not None:
            return self.set_object.file.size + int(sizes_of(sources).sum())
        return sum(int(source.identity["size"]) for source in sources)

    @property
    def shards(self) -> Sequence[Shard]:
        """The files of the store, for code that checks or prints them."""
        return self._opened().shards

    @property
    def sources(self) -> Sequence[ByteSource]:
        """The files that spans of this store point into, for code that joins them with others."""
        return self._opened().index.sources

    @property
    def files(self) -> StoreFiles:
        """What brings spans of this store into memory."""
        return self._opened().files

    def keys(self, indices: NDArray[np.int64] | Sequence[int]) -> list[str]:
        """Return the source paths of these samples. Raises IndexError for an index outside 0..len-1."""
        keys = self._opened().index.keys
        chosen = self._checked(np.asarray(indices, np.int64).reshape(-1))
        if len(keys) == 1:
            return [key_text(keys[0][i]) for i in chosen.tolist()]
        which = np.searchsorted(self._ends, chosen, side="right")
        local = chosen - (self._ends - self._opened().index.counts)[which]
        return [key_text(keys[s][i]) for s, i in zip(which.tolist(), local.tolist(), strict=True)]

    def spans(self, field: str, indices: NDArray[np.int64], *, checksums: bool = True) -> Spans:
        """
        Return where a payload field's bytes lie.

        Raises IndexError for an index outside 0..len-1, and SchemaError for a field of lists.
        """
        content = self._with_payload(field)
        if field in content.index.elements:
            raise SchemaError(
                f"{self.path}: field {field!r} holds {self.schema[field]}, several values a sample: only FastDataset, "
                "FastLoader, info, ls, show, verify and merge read such fields yet"
            )
        return self._picked(content, field, self._checked(np.asarray(indices)), checksums=checksums)

    def look_ahead(
        self, field: str, indices: NDArray[np.int64], pool: ThreadPool, *, checksums: bool = True
    ) -> Prefetch | None:
        """Begin to read what ``spans`` will look at of the index: see SampleStore."""
        return self._looked_ahead(self._with_payload(field), field, indices, pool, checksums=checksums)

    def far_points(self, field: str, indices: NDArray[np.int64]) -> FarSpans | None:
        """Return where start points lie that are not in memory: see SampleStore."""
        content = self._with_payload(field)
        if content.far_points is None or field in content.index.elements:
            return None
        return content.far_points.lying(field, self._checked(np.asarray(indices)))

    def elements(self, field: str) -> Elements:
        """Return the elements of a field of lists: see SampleStore."""
        content = self._with_payload(field)
        if field not in content.index.elements:
            raise SchemaError(f"{self.path}: field {field!r} holds {self.schema[field]}, no lists")

        def spans(elements: NDArray[np.int64], *, checksums: bool) -> Spans:
            return self._picked(self._opened(), field, elements, checksums=checksums)

        def look_ahead(elements: NDArray[np.int64], pool: ThreadPool, *, checksums: bool) -> Prefetch | None:
            return self._looked_ahead(self._opened(), field, elements, pool, checksums=checksums)

        return Elements(self, self.schema[field], content.index.elements[field], spans, self.shapes, look_ahead)

    def value_bytes(self, field: str) -> NDArray[np.int64]:
        """Return the bytes of every value of a payload field as stored, of lists together, ``(len,)``, read-only."""
        index = self._with_payload(field).index
        if field not in index.elements:
            return index.sizes[field].all()
        sums = sums_of(index.elements[field], index.sizes[field].all())
        sums.setflags(write=False)
        return sums

    def total_bytes(self, field: str) -> int:
        """Return the bytes of all values of a payload field as stored: see SampleStore."""
        index = self._with_payload(field).index
        if field not in self._totals:
            sizes = index.sizes[field]
            parts = (sizes.part(at, at + _TOGETHER) for at in range(0, len(sizes), _TOGETHER))
            self._totals[field] = index.totals[field] if field in index.totals else sum(int(p.sum()) for p in parts)
        return self._totals[field]

    def column(self, field: str) -> NDArray[Any]:
        """Return a column, ``(len, *shape)``, read-only."""
        columns = self._opened().index.columns
        if field not in columns:
            names = ", ".join(map(repr, sorted(columns))) or "no columns"
            raise SchemaError(f"{self.path}: no column {field!r}; this store has {names}")
        return columns[field].all()

    def shapes(self, field: str) -> NDArray[np.int32]:
        """Return the sizes of pictures, zeros if unknown, or the shapes of arrays: see SampleStore. Read-only."""
        index = self._with_payload(field).index
        known = index.shapes.get(field)
        return _unknown(len(index.starts[field])) if known is None else known.all()

    def receipt(self, fields: Sequence[str] | None = None) -> int | None:
        """Return the number that an epoch of all samples should give: see SampleStore."""
        return number_of_all(self, fields)

    def check_index(self) -> None:
        """Compare the whole index with its checksums now: see SampleStore."""
        index = self._opened().index
        index.compare()
        for name, starts in index.starts.items():
            for first in range(0, len(starts), _TOGETHER):
                values = np.arange(first, min(first + _TOGETHER, len(starts)), dtype=np.int64)
                self._picked(self._opened(), name, values, checksums=False)

    def close(self) -> None:
        """
        Let the files go; twice does no harm. Arrays handed out stay valid, and spans of mapped files.

        Another thread that reads meanwhile gets what it asked for, or StoreError.
        """
        content, self._content = self._content, None
        if content is not None:
            content.files.close()
            for each in content.index.far():
                each.close()
            if content.far_points is not None:
                content.far_points.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{self.format} store {self.path!r}: {self._count} samples, {len(self.shard_paths)} file(s)>"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by path; the receiving process refuses other content under the same name."""
        return _reopen, (self._opener, self.path, self.identity)

    @property
    def identity(self) -> int:
        """A number that identifies the content: see SampleStore."""
        shards = self._opened().shards
        return set_checksum(map(_identity, shards)) if self.set_object is None else self.set_object.identity

    def _with_payload(self, field: str) -> _Content:
        content = self._opened()
        if field not in content.index.starts:
            names = sorted(content.index.starts)
            raise SchemaError(f"{self.path}: no payload field {field!r}, expected one of {names}")
        return content

    def _opened(self) -> _Content:
        content = self._content
        if content is None:
            raise StoreError(f"{self.path}: the store is closed: open it again")
        return content

    def _checked(self, indices: NDArray[Any]) -> NDArray[np.int64]:
        return checked_indices(indices, self._count, path=self.path)

    def _looked_ahead(
        self, content: _Content, field: str, chosen: NDArray[np.int64], pool: ThreadPool, *, checksums: bool
    ) -> Prefetch | None:
        """Begin to read and compare the parts of the index that these values need, or to fetch them where it is far."""
        if content.index.far_arrays(field):
            coming = content.index.coming(field, chosen)
            return None if coming.done else coming
        with_sums = checksums and field in content.index.checksums
        return content.places[field].look_ahead(np.ascontiguousarray(chosen), pool, checksums=with_sums)

    def _picked(self, content: _Content, field: str, chosen: NDArray[np.int64], *, checksums: bool) -> Spans:
        """Return the spans of these values of a field. Raises StoreCorrupt if the index is damaged there."""
        chosen = np.ascontiguousarray(chosen)
        count = len(chosen)
        shard, starts, sizes = np.empty(count, np.int32), np.empty(count, np.int64), np.empty(count, np.int64)
        sums = np.empty(count, np.uint32) if checksums and field in content.index.checksums else None
        content.index.coming(field, chosen).bring()
        bad = content.places[field].pick(chosen, shard, starts, sizes, sums)
        if bad is not None:
            raise content.index.refused(self.schema[field], int(chosen[bad]), with_checksum=sums is not None)
        return Spans(content.files.buffers, shard, starts, sizes, sums, content.interval_spans(field, shard, chosen))


def _far_points(shards: Sequence[Shard], set_object: SetObject | None) -> FarPoints | None:
    """Return the start points of a set, or of one file, that lie behind a URL."""
    holder = set_object or (shards[0] if len(shards) == 1 else None)
    if holder is None or not holder.far_intervals:
        return None
    from fastio.store.index.far_points import FarPoints

    return FarPoints.of(holder.far_intervals)


def checked_indices(indices: NDArray[Any], count: int, *, path: str) -> NDArray[np.int64]:
    """
    Return indices of so many samples as int64: negative ones would silently mean the other end. Raises TypeError for
    what is no 1-D array of integers, IndexError for an index outside.
    """
    if indices.ndim != 1 or (indices.dtype.kind not in "iu" and len(indices)):
        raise TypeError(f"{path}: expected a 1-D array of integers, got {indices.dtype} {indices.shape}")
    if len(indices):
        low, high = int(indices.min()), int(indices.max())
        if low < 0 or high >= count:
            raise IndexError(f"{path}: expected indices in 0..{count - 1}, got {low if low < 0 else high}")
    return indices.astype(np.int64, copy=False)


def check_set(path: str, shards: Sequence[Shard]) -> list[Shard]:
    """Return the shards in order. Raises StoreIncomplete or StoreCorrupt unless they form one complete set."""
    seals = [shard.seal for shard in shards if shard.seal is not None]
    first = seals[0]
    by_number: dict[int, Shard] = {}
    for shard, seal in zip(shards, seals, strict=True):
        if (seal.set_crc, seal.shards, seal.set_count) != (first.set_crc, first.shards, first.set_count):
            raise StoreCorrupt(f"{path}: {shard.path} and {shards[0].path} are of different sets: open only one set")
        if seal.shard in by_number:
            other = by_number[seal.shard].path
            raise StoreCorrupt(f"{path}: {shard.path} and {other} are both shard {seal.shard}: remove one")
        by_number[seal.shard] = shard
    missing = list(islice((i for i in range(first.shards) if i not in by_number), _SHOWN + 1))
    if missing:
        more = ", ..." if len(missing) > _SHOWN else ""
        numbers = ", ".join(map(str, missing[:_SHOWN])) + more
        pattern = re.sub(r"\d+(?=\D*\Z)", "*", Path(shards[0].path).name)
        whole = f"open the whole set, e.g. by {pattern}, or " if len(shards) == 1 and "*" in pattern else ""
        raise StoreCorrupt(
            f"{path}: expected {first.shards} shards, got {len(shards)}; missing (counted from 0): {numbers}: "
            f"{whole}copy the missing ones"
        )
    ordered = [by_number[i] for i in range(first.shards)]
    added = set_checksum(_identity(shard) for shard in ordered), sum(shard.count for shard in ordered)
    if added != (first.set_crc, first.set_count):
        raise StoreCorrupt(f"{path}: the shards' seals do not match their set: copy or pack again")
    if any(shard.schema != ordered[0].schema for shard in ordered):
        raise StoreCorrupt(f"{path}: the shards have different schemas: pack again")
    return ordered


def _identity(shard: Shard) -> tuple[int, int, int]:
    return shard.count, shard.data.size, shard.content_crc if shard.seal is None else shard.seal.file_crc


def _reopen(opener: Callable[[str], SealedStore], path: str, identity: int) -> SealedStore:
    store = opener(path)
    if store.identity != identity:
        raise StoreError(f"{path}: was replaced since it was opened: open it again everywhere")
    return store


def _unknown(count: int) -> NDArray[np.int32]:
    zeros = np.zeros((count, 3), np.int32)
    zeros.setflags(write=False)
    return zeros


# JoinedIndex: the index of all shards of a store as one, joined in memory or as a set object holds it.


@dataclass(frozen=True, slots=True)
class JoinedIndex:
    """
    Arrays as in ``Shard``, one shard after the other, compared when they are touched; missing entries mean the same as
    there.

    ``elements`` says where the elements of each sample begin among those of all, ``(n + 1,)``, by field of lists.
    """

    paths: Sequence[str]  # of each shard
    sources: Sequence[ByteSource]
    counts: NDArray[np.int64]  # samples
    starts: Mapping[str, IndexArray]
    sizes: Mapping[str, IndexArray]
    checksums: Mapping[str, IndexArray]
    shapes: Mapping[str, IndexArray]
    intervals: Mapping[str, Intervals]
    columns: Mapping[str, IndexArray]
    keys: Sequence[Keys | NumberedKeys]  # of each shard, or those of all as one
    totals: Mapping[str, int]  # as in Shard
    elements: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)

    def element_ends(self, name: str) -> NDArray[np.int64]:
        """Return where the elements of each shard end among those of all, for a field of lists."""
        return self.elements[name][np.cumsum(self.counts, dtype=np.int64)]

    def places(self, field: Field, ends: NDArray[np.int64], limits: NDArray[np.int64]) -> SpanIndex:
        """
        Return what looks up the values of a payload field; ``ends`` are where the samples of each shard end, ``limits``
        the bytes of its file.
        """
        name, element = field.name, field.element
        starts, sizes, sums = self.starts[name], self.sizes[name], self.checksums.get(name)
        return SpanIndex(
            ends if name not in self.elements else self.element_ends(name),
            limits,
            np.ascontiguousarray(starts.stored),
            np.ascontiguousarray(sizes.stored),
            None if sums is None else np.ascontiguousarray(sums.stored),
            start_pieces=starts.pieces,
            size_pieces=sizes.pieces,
            checksum_pieces=None if sums is None else sums.pieces,
            unit=starts.unit,
            base=starts.base,
            exact=element.nbytes if element.traits.is_array else -1,
            multiple=element.unit_bytes,
        )

    def coming(self, name: str, values: NDArray[np.int64]) -> FarBlocks:
        """
        Begin to fetch what a look-up of these values needs of an index that lies elsewhere, and their checksums, which
        whoever reads the values wants next. Values that do not exist need nothing. Raises StoreError.
        """
        wanted = [(each, far) for each, far in self.far_arrays(name) if not each.is_compared]
        if wanted:
            values = values[(values >= 0) & (values < len(self.starts[name]))]
        return FarBlocks((each, far.blocks_of(values * each.entry_bytes)) for each, far in wanted)

    def far_arrays(self, name: str) -> list[tuple[IndexArray, FarArray]]:
        """Return the arrays of a payload field that lie elsewhere, such as behind a URL."""
        each = (arrays[name] for arrays in (self.starts, self.sizes, self.checksums) if name in arrays)
        return [(array, array.far) for array in each if array.far is not None]

    def refused(self, field: Field, value: int, *, with_checksum: bool) -> StoreCorrupt:
        """Return the error for a value whose entries are damaged, or that is not in its file."""
        each = [self.starts[field.name], self.sizes[field.name]]
        try:
            for array in [*each, *([self.checksums[field.name]] if with_checksum else [])]:
                array.compare(value, value + 1)
        except StoreCorrupt as exc:
            return exc
        start, size = (int(array.part(value, value + 1)[0]) for array in each)
        elements = self.elements.get(field.name)
        sample = value if elements is None else int(np.searchsorted(elements, value, side="right")) - 1
        number = int(np.searchsorted(np.cumsum(self.counts), sample, side="right"))
        path, end = self.paths[number], self.sources[number].size
        return StoreCorrupt(
            f"{path}: sample {sample}, field {field.name!r}: {size} bytes from {start} do not fit a file of {end}: "
            "pack again"
        )

    def far(self) -> set[FarIndex]:
        """Return what fetches arrays that lie elsewhere."""
        return {array.far.index for array in self._arrays() if array.far is not None}

    def _arrays(self) -> Iterator[IndexArray]:
        for arrays in (self.starts, self.sizes, self.checksums, self.shapes, self.columns):
            yield from arrays.values()

    def compare(self) -> None:
        """Compare all arrays with their checksums. Raises StoreCorrupt."""
        for array in self._arrays():
            array.compare(0, len(array))
        for keys in self.keys:
            keys.compare()

    @classmethod
    def of(cls, shards: Sequence[Shard]) -> JoinedIndex:
        """Join the index of shards of one schema. One shard is not copied; a field without checksums has none."""
        schema = shards[0].schema
        names = [field.name for field in schema.payload]
        sealed = [name for name in names if all(name in shard.checksums for shard in shards)]
        marked = [name for name in names if any(name in shard.intervals for shard in shards)]
        shaped = [name for name in names if any(name in shard.shapes for shard in shards)]

        def joined(what: str, name: str) -> IndexArray:
            return _join([IndexArrays.of(getattr(shard, what)).lies[name] for shard in shards])

        return cls(
            paths=[shard.path for shard in shards],
            sources=[shard.data for shard in shards],
            counts=np.array([shard.count for shard in shards], np.int64),
            starts={name: joined("starts", name) for name in names},
            sizes={name: joined("sizes", name) for name in names},
            checksums={name: joined("checksums", name) for name in sealed},
            shapes={name: _join([_shapes(shard, name) for shard in shards]) for name in shaped},
            intervals={name: _intervals(shards, name) for name in marked},
            columns={column.name: joined("columns", column.name) for column in schema.columns},
            keys=[shard.keys for shard in shards],
            totals=shards[0].totals if len(shards) == 1 else {},
            elements={
                each.name: firsts_of(_concatenated([s.counts[each.name] for s in shards])) for each in schema.lists
            },
        )


def _join(parts: Sequence[IndexArray]) -> IndexArray:
    return parts[0] if len(parts) == 1 else IndexArray(_concatenated([part.all() for part in parts]))


def _concatenated(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    if len(parts) == 1:
        return parts[0]
    joined = np.concatenate(parts)
    joined.setflags(write=False)
    return joined


def _shapes(shard: Shard, name: str) -> IndexArray:
    known = IndexArrays.of(shard.shapes).lies.get(name)
    return IndexArray(np.zeros((shard.values(name), 3), np.int32)) if known is None else known


def _intervals(shards: Sequence[Shard], name: str) -> Intervals:
    none = np.zeros(0, np.uint32)
    parts = [shard.intervals.get(name) or Intervals(np.zeros(shard.values(name), np.uint32), none) for shard in shards]
    return Intervals(_concatenated([part.counts for part in parts]), _concatenated([part.places for part in parts]))


# The number of samples of a store, from its index: what the receipt of an epoch should be.

_TOGETHER = 1 << 20  # samples looked up at a time


class _Indexed(Protocol):
    """A store, of which only the index is needed."""

    @property
    def schema(self) -> Schema: ...

    def __len__(self) -> int: ...

    def spans(self, field: str, indices: NDArray[np.int64], *, checksums: bool = True) -> Spans: ...

    def elements(self, field: str) -> Elements: ...


def number_of(store: _Indexed, fields: Sequence[str], indices: NDArray[np.int64]) -> int | None:
    """
    Return the sum over these samples and payload fields (see Receipt); None if the store has no checksums.

    An index that comes several times counts as often. Without fields, it is the sum over the indices.
    """
    if not fields:
        return sum_indices(indices)
    total = 0
    for name in fields:
        sum_of = _sum_of_lists if store.schema[name].is_list else _sum_of
        for start in range(0, len(indices), _TOGETHER):
            summed = sum_of(store, name, np.ascontiguousarray(indices[start : start + _TOGETHER]))
            if summed is None:
                return None
            total += summed
    return total % MODULUS


def _sum_of(store: _Indexed, field: str, chosen: NDArray[np.int64]) -> int | None:
    checksums = store.spans(field, chosen).checksums
    return None if checksums is None else sum_samples(field, chosen, checksums)


def _sum_of_lists(store: _Indexed, field: str, chosen: NDArray[np.int64]) -> int | None:
    """As ``_sum_of``, of lists, whose checksums are those of their elements' checksums."""
    elements = store.elements(field)
    which, counts = elements.of(chosen)
    checksums = elements.spans(field, which).checksums
    return None if checksums is None else sum_samples(field, chosen, list_checksums(checksums, counts))


def unpacked_of(store: object) -> Unpacked:
    """Return what a store was told of the files that it reads where they lie; nothing for all others."""
    return store.unpacked if isinstance(store, SealedStore) else AS_IT_IS


def list_checksums(checksums: NDArray[np.uint32], counts: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Return one number per list for receipts, ``(n,)``: the CRC-32 of the CRC-32s of its elements."""
    found = np.empty(len(counts), np.uint32)
    checksum(Spans.joined(np.ascontiguousarray(checksums).view(np.uint8), 4 * counts), found).wait()
    return found


def number_of_all(store: _Indexed, fields: Sequence[str] | None = None) -> int | None:
    """Return the sum over all samples of a store, in all payload fields or in these."""
    names = [field.name for field in store.schema.payload] if fields is None else fields
    return number_of(store, names, np.arange(len(store), dtype=np.int64))
