"""Opens one sealed file: reads its seal, header and index, and checks them before anybody uses them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, starmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio._native import Buffers, crc32
from fastio.errors import StoreCorrupt
from fastio.store.files import ByteSource
from fastio.store.files.local import is_local
from fastio.store.index.arrays import (
    CHECKSUMS,
    IndexArray,
    IndexArrays,
    Keys,
    far_array,
    is_large,
    key_text,
    pieces_by_name,
    pieces_of,
    totals_of,
)
from fastio.store.index.far_arrays import FarIndex
from fastio.store.index.numbered_keys import NumberedKeys, keys_of_index
from fastio.store.index.seal import (
    PACK_AGAIN,
    Expected,
    IndexHeader,
    Place,
    Seal,
    SealAt,
    counts_name,
    expected_arrays,
    find_seal,
    unit_bytes,
    unsealed_regions,
)
from fastio.types.lazy_sequence import LazySequence
from fastio.types.schema import Schema

__all__ = [
    "AllShards",
    "FarIntervals",
    "Intervals",
    "Shard",
    "bytes_from",
    "check_array",
    "check_spans",
    "checked_arrays",
    "far_intervals_of",
    "file_crc",
    "hints_of",
    "index_arrays",
    "intervals_of",
    "read_arrays",
    "read_shard",
    "seal_of",
]


# Index arrays that lie near each other are read together: of those below _TOGETHER_BYTES, with gaps up to _GAP_BYTES. A
# large one is alone, so that its memory can go if it is only needed for a while.
_GAP_BYTES = 64 << 10
_TOGETHER_BYTES = 1 << 20
_NEAR_BYTES = 64 << 10  # arrays up to this size are read when a store is opened, whatever its index is
_CHUNK_BYTES = 16 << 20  # read at a time for the CRC-32 of a file


@dataclass(frozen=True, slots=True)
class Intervals:
    """Where restart intervals of JPEGs begin within each value (see ``Spans``), one value after the other."""

    counts: NDArray[np.uint32]  # a sample
    places: NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class FarIntervals:
    """
    Intervals that were not read with the index: ``counts`` as in Intervals, where their places lie, and their CRC-32,
    unless they are a part.
    """

    file: ByteSource
    start: int
    counts: NDArray[np.uint32]
    crc32: int | None = None

    @property
    def size(self) -> int:
        """Bytes of the places."""
        return 4 * int(self.counts.sum(dtype=np.int64))

    def part(self, first: int, stop: int) -> FarIntervals:
        """Return those of the values from ``first`` up to ``stop``."""
        before = 4 * int(self.counts[:first].sum(dtype=np.int64))
        return FarIntervals(self.file, self.start + before, self.counts[first:stop])

    def read(self) -> Intervals:
        """Read them. Raises StoreError, and StoreCorrupt if they do not match their CRC-32."""
        raw = self.file.read(self.start, self.start + self.size)
        if self.crc32 is not None and crc32(raw) != self.crc32:
            raise StoreCorrupt(f"{self.file.path}: its start points do not match their CRC-32: {PACK_AGAIN}")
        return Intervals(self.counts, raw.view("<u4"))


@dataclass(frozen=True, slots=True)
class PlacedIntervals:
    """Intervals where they lie: a buffer for each shard, and start and size in bytes of each value's."""

    buffers: Buffers
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @classmethod
    def of(cls, intervals: Intervals, shards: int) -> PlacedIntervals:
        """Return the intervals of so many shards, which lie in one array."""
        sizes = 4 * intervals.counts.astype(np.int64)
        return cls(Buffers([intervals.places.view(np.uint8)] * shards), np.cumsum(sizes) - sizes, sizes)


@dataclass(frozen=True, slots=True)
class Shard:
    """
    One file of a store, and its index: arrays that the file's kind has mapped or copied.

    Those of a large index are compared with their checksums when they are asked for: see ``IndexArrays``. ``counts``
    says how many elements each sample has in each field of lists; ``starts``, ``sizes``, ``checksums``, ``shapes`` and
    ``intervals`` of such a field have an entry per element.
    """

    path: str
    data: ByteSource  # what the spans point into
    schema: Schema
    count: int
    starts: Mapping[str, NDArray[np.int64]]
    sizes: Mapping[str, NDArray[np.int64]]
    checksums: Mapping[str, NDArray[np.uint32]]  # no entry: the store has none
    shapes: Mapping[str, NDArray[np.int32]]  # no entry: unknown
    intervals: Mapping[str, Intervals]  # no entry: unknown
    columns: Mapping[str, NDArray[Any]]
    keys: Keys | NumberedKeys
    metadata: bytes
    seal: Seal | None = field(default=None)  # None: a foreign file
    content_crc: int = 0  # what identifies the content of a foreign file; of a member the file_crc that its set lists
    far_intervals: Mapping[str, FarIntervals] = field(default_factory=dict)  # those that lie behind a URL
    points_file: ByteSource | None = None  # the sidecar that the start points are from, see ``jump_tables``
    counts: Mapping[str, NDArray[np.uint32]] = field(default_factory=dict)
    totals: Mapping[str, int] = field(default_factory=dict)  # bytes of all values of a field, where the index says it
    is_member: bool = False  # whether a set object lists it by its seal, which is not read for remote files
    noted: Mapping[str, PlacedIntervals] = field(default_factory=dict)  # which grow while the file is open

    def values(self, name: str) -> int:
        """Return how many values a payload field has: one per sample, or per element of its lists."""
        return len(IndexArrays.of(self.starts).lies[name])

    def owner(self, name: str, value: int) -> int:
        """Return the sample that a value of a payload field belongs to."""
        if name not in self.counts:
            return value
        return int(np.searchsorted(np.cumsum(self.counts[name], dtype=np.int64), value, side="right"))

    @property
    def is_sealed(self) -> bool:
        """Whether fastio packed the file, so that all its bytes can be compared with checksums."""
        return self.seal is not None or self.is_member

    def key(self, index: int) -> str:
        """Return the key of a sample."""
        return key_text(self.keys[index])


class AllShards(LazySequence[Shard]):
    """The shards of several stores, one store after the other."""

    def __init__(self, of_stores: Sequence[Sequence[Shard]]) -> None:
        self._of_stores = of_stores
        self._ends = list(accumulate(map(len, of_stores)))

    def __len__(self) -> int:
        return self._ends[-1]

    def item(self, number: int) -> Shard:
        """See LazySequence."""
        which = bisect_right(self._ends, number)
        return self._of_stores[which][number - self._ends[which] + len(self._of_stores[which])]


def read_shard(file: ByteSource, *, format_name: str, seal_at: SealAt, payload: ByteSource | None = None) -> Shard:
    """
    Read and check the seal and the index of ``file``; spans point into it, or into ``payload``.

    Only the seal, the head, the header and the index are read; of a large index that is mapped nothing yet: see
    ``index_arrays``. Raises what ``Seal.unpack`` raises, and StoreCorrupt.
    """
    path = file.path
    seal = find_seal(path, file.size, partial(bytes_from, file), seal_at)
    if not seal.is_of(format_name):
        raise StoreCorrupt(f"{path}: sealed as {seal.format!r}, expected {format_name!r}: give it the right suffix")
    _check_head(file, seal)
    raw = file.read(seal.header_start, seal.header_start + seal.header_size)
    if crc32(raw) != seal.header_crc:
        raise StoreCorrupt(
            f"{path}: header: expected CRC-32 {seal.header_crc:08x}, got {crc32(raw):08x}; copy or pack again"
        )
    header = IndexHeader.from_bytes(raw.tobytes(), path=path)
    arrays = index_arrays(file, header.places, hints=hints_of(header.schema))
    arrays, counts = checked_arrays(path, arrays, header.schema, seal.count)
    units, totals = unit_bytes(header.schema), totals_of(arrays)
    fields = list(units)
    lies = arrays.lies
    far = far_intervals_of(file, header.places, arrays, fields)
    shard = Shard(
        path=path,
        data=payload or file,
        schema=header.schema,
        count=seal.count,
        starts=IndexArrays({name: lies[f"{name}_starts"].in_bytes(units[name], header.base) for name in fields}),
        sizes=IndexArrays({name: lies[f"{name}_sizes"].in_bytes(units[name], 0) for name in fields}),
        checksums=_of_fields(lies, fields, "checksums"),
        shapes=_of_fields(lies, fields, "shapes"),
        intervals=intervals_of(path, arrays, fields, far=far),
        columns=IndexArrays({f.name: lies[f.name] for f in header.schema.columns}),
        keys=keys_of_index(lies, seal.count, path=path),
        metadata=arrays.get("metadata", np.empty(0, np.uint8)).tobytes() or b"{}",
        seal=seal,
        counts=counts,
        totals={name: totals[f"{name}_sizes"] * units[name] for name in fields if f"{name}_sizes" in totals},
        far_intervals=far,
    )
    if is_compared(shard):
        check_spans(shard)
    return shard


def _of_fields(lies: Mapping[str, IndexArray], fields: Sequence[str], what: str) -> IndexArrays:
    """Return an array of each field that has it."""
    return IndexArrays({name: lies[f"{name}_{what}"] for name in fields if f"{name}_{what}" in lies})


def is_compared(shard: Shard) -> bool:
    """Whether all that says where values lie was found right when the shard was opened."""
    each = (IndexArrays.of(arrays).lies.values() for arrays in (shard.starts, shard.sizes))
    return all(array.is_compared for arrays in each for array in arrays)


def checked_arrays(
    path: str, arrays: IndexArrays, schema: Schema, count: int, *, advice: str = PACK_AGAIN
) -> tuple[IndexArrays, dict[str, NDArray[np.uint32]]]:
    """
    Return the arrays of an index of so many samples, which hand out the types that they should have, and how many
    elements each sample has, by field of lists. Raises StoreCorrupt unless they are what samples of this schema need.
    """
    required, optional = expected_arrays(schema, count)
    counts = {}
    for each in schema.lists:
        name = counts_name(each.name)
        check_array(path, arrays.lies, name, required[name], advice=advice)
        counts[each.name] = arrays.of_types({name: required[name].dtype})[name]
    required, optional = expected_arrays(schema, count, counts)
    for name, expected in required.items():
        check_array(path, arrays.lies, name, expected, advice=advice)
    for name in optional.keys() & arrays.keys():
        check_array(path, arrays.lies, name, optional[name], advice=advice)
    return arrays.of_types({name: expected.dtype for name, expected in (required | optional).items()}), counts


def bytes_from(file: ByteSource, start: int, size: int) -> bytes:
    """So many bytes, or as many as the file has."""
    return file.read(min(start, file.size), min(start + size, file.size)).tobytes()


def seal_of(file: ByteSource, seal_at: SealAt) -> Seal:
    """Read and check the seal. Raises StoreIncomplete and StoreCorrupt."""
    return find_seal(file.path, file.size, partial(bytes_from, file), seal_at)


def file_crc(file: ByteSource, seal: Seal) -> int:
    """Return what the seal's ``file_crc`` ought to be."""
    crc = 0
    regions = unsealed_regions(file_size=seal.file_size, seal_start=seal.seal_start, head_size=seal.head_size)
    for start, stop in regions:
        for at in range(start, stop, _CHUNK_BYTES):
            crc = crc32(file.read(at, min(at + _CHUNK_BYTES, stop)), crc)
    return crc


def _check_head(file: ByteSource, seal: Seal) -> None:
    """Check the part that plain libraries start from: a changed LMDB or HDF5 file differs here."""
    head, crc = file.read(0, seal.head_size), 0
    for start, stop in unsealed_regions(file_size=seal.head_size, seal_start=seal.seal_start, head_size=0):
        crc = crc32(head[start:stop], crc)
    if crc != seal.head_crc:
        raise StoreCorrupt(
            f"{file.path}: the first {seal.head_size} bytes have CRC-32 {crc:08x}, expected {seal.head_crc:08x}; "
            f"damaged, or changed after it was sealed: pack again"
        )


def hints_of(schema: Schema) -> frozenset[str]:
    """Return the names of the arrays that tell decoders where they may start, see ``read_arrays``."""
    return frozenset(f"{field.name}_intervals" for field in schema.payload)


def read_arrays(
    file: ByteSource, index: Mapping[str, Place], *, hints: Collection[str] = (), advice: str = PACK_AGAIN
) -> dict[str, NDArray[Any]]:
    """
    Return the index arrays by name; those that lie near each other in the file are read together.

    Behind a URL, where each read is a request, they are whatever their size, and all requests are sent at once.
    ``hints`` are larger than all others together, and nothing needs them: they are not read there (see
    ``FarIntervals``). Here they are not compared with
    their checksum, for which they would have to be read: decoders compare those of a sample with a checksum of their
    own. Raises StoreCorrupt, which ends with ``advice``.
    """
    if not is_local(file.path):
        index = {name: place for name, place in index.items() if name not in hints}
    dtypes = {name: _dtype(file.path, name, place, advice) for name, place in index.items()}
    stops = {name: _stop(file, name, place, dtypes[name], advice) for name, place in index.items()}
    arrays: dict[str, NDArray[Any]] = {}
    most = _TOGETHER_BYTES if is_local(file.path) else file.size
    groups = list(_neighbours({name: (place.start, stops[name]) for name, place in index.items()}, most))
    ranges = [(index[names[0]].start, max(stops[name] for name in names)) for names in groups]
    for names, (start, _), together in zip(groups, ranges, _all_read(file, ranges), strict=True):
        for name in names:
            place = index[name]
            arrays[name] = _array(
                file.path,
                name,
                place,
                together[place.start - start : stops[name] - start],
                advice,
                is_checked=name not in hints,
            )
    return {name: arrays[name] for name in index}


def _all_read(file: ByteSource, ranges: Sequence[tuple[int, int]]) -> Iterable[NDArray[np.uint8]]:
    """Return the bytes of these ranges: one after the other, or at once where each is a request."""
    at_once: Callable[..., list[NDArray[np.uint8]]] | None = getattr(file, "read_at_once", None)  # of RemoteSource
    return starmap(file.read, ranges) if at_once is None else at_once(ranges)


def index_arrays(
    file: ByteSource, index: Mapping[str, Place], *, hints: Collection[str] = (), advice: str = PACK_AGAIN
) -> IndexArrays:
    """
    As ``read_arrays``, but of an index that has checksums of pieces, a piece is compared when it is touched, unless all
    of it lies on this machine and is compared in milliseconds.

    Where the file is not mapped, small arrays are read, and those of more than 64 KiB fetched where they are touched.
    """
    stops = {name: _stop(file, name, at, _dtype(file.path, name, at, advice), advice) for name, at in index.items()}
    sizes = {name: stops[name] - at.start for name, at in index.items()}
    is_near = is_local(file.path) and not is_large(sum(size for name, size in sizes.items() if name not in hints))
    if is_near or CHECKSUMS not in index:
        return IndexArrays.of(read_arrays(file, index, hints=hints, advice=advice))
    stays = index.keys() - {CHECKSUMS}  # where it is
    if file.memory is None:
        stays = {name for name in stays - set(hints) if sizes[name] > _NEAR_BYTES and _is_aligned(index[name])}
    near = {name: at for name, at in index.items() if name not in stays}
    read = read_arrays(file, near, hints=hints, advice=advice)
    sums = pieces_by_name(sizes, read.pop(CHECKSUMS), path=file.path)
    far_index = FarIndex(file)

    def lying(name: str) -> IndexArray:
        place = index[name]
        if file.memory is None:
            far = far_array(far_index, place.start, sizes[name], sums[name])
            raw, pieces = far.data, far.pieces
        else:
            far, raw = None, file.read(place.start, stops[name])
            pieces = pieces_of(raw, sums[name])
        array = _array(file.path, name, place, raw, advice, is_checked=False)
        kept = None if name in hints else pieces  # what tells where decoders may start is compared by these
        return IndexArray(array, pieces=kept, far=far, path=file.path, name=name, start=place.start, advice=advice)

    return IndexArrays(
        {name: lying(name) if name in stays else IndexArray(read[name]) for name in sums if name in stays | read.keys()}
    )


def _is_aligned(place: Place) -> bool:
    """Whether an array is one in memory as it lies in the file."""
    return place.start % np.dtype(place.dtype).itemsize == 0


def _neighbours(ranges: Mapping[str, tuple[int, int]], most: int) -> Iterator[list[str]]:
    """Yield names of ranges with only small gaps between them, ``most`` bytes at a time, in the order of the file."""
    group: list[str] = []
    first = end = 0
    for name in sorted(ranges, key=lambda name: ranges[name]):
        start, stop = ranges[name]
        if group and (start > end + _GAP_BYTES or stop > first + most):
            yield group
            group = []
        first, end = (first, max(end, stop)) if group else (start, stop)
        group.append(name)
    if group:
        yield group


def _dtype(path: str, name: str, place: Place, advice: str) -> np.dtype[Any]:
    try:
        dtype = np.dtype(place.dtype)
    except (TypeError, ValueError, SyntaxError) as exc:  # SyntaxError: "(,)f4" is parsed as Python
        raise StoreCorrupt(f"{path}: index array {name!r}: {place.dtype!r} is not a dtype: {advice}") from exc
    return dtype


def _stop(file: ByteSource, name: str, place: Place, dtype: np.dtype[Any], advice: str) -> int:
    """Where an index array ends; StoreCorrupt if that is not in the file."""
    size = dtype.itemsize
    for length in place.shape:
        size *= length
    if dtype.hasobject or dtype.itemsize == 0 or place.start > file.size or size > file.size - place.start:
        raise StoreCorrupt(
            f"{file.path}: index array {name!r}: expected {size} bytes of {dtype} at {place.start}, "
            f"the file has {file.size}; {advice}"
        )
    return place.start + size


def _array(
    path: str, name: str, place: Place, raw: NDArray[np.uint8], advice: str, *, is_checked: bool
) -> NDArray[Any]:
    dtype = np.dtype(place.dtype)
    crc = crc32(raw) if is_checked else place.crc32
    if crc != place.crc32:
        raise StoreCorrupt(
            f"{path}: index array {name!r} (bytes {place.start} to {place.start + len(raw)}): CRC-32 is {crc:08x}, "
            f"expected {place.crc32:08x}; damaged: {advice}"
        )
    array: NDArray[Any] = np.frombuffer(raw, np.uint8).view(dtype) if len(raw) else np.empty(0, dtype)
    try:
        array = array.reshape(place.shape)
    except ValueError as exc:  # an empty one with too many or too long dimensions
        raise StoreCorrupt(f"{path}: index array {name!r}: no array has the shape {place.shape}; {advice}") from exc
    if not array.flags.aligned:
        array = array.copy()
    array.setflags(write=False)
    return array


def check_array(
    path: str,
    arrays: Mapping[str, NDArray[Any]] | Mapping[str, IndexArray],
    name: str,
    expected: Expected,
    *,
    advice: str = PACK_AGAIN,
) -> None:
    """Raise StoreCorrupt unless there is an array of this name with the dtype and shape expected."""
    array = arrays.get(name)
    if array is None or not expected.fits(array.dtype, array.shape):
        got = "none" if array is None else f"{array.dtype.str} {array.shape}"
        raise StoreCorrupt(
            f"{path}: index array {name!r}: expected {expected.dtype} {expected.shape}, got {got}; {advice}"
        )


def intervals_of(
    path: str, arrays: Mapping[str, NDArray[Any]], fields: Sequence[str], *, far: Collection[str] = ()
) -> dict[str, Intervals]:
    """Those of the fields that have any; as many places as the counts add up to. ``far`` are those not read."""
    found = {}
    for name in fields:
        counts, places = arrays.get(f"{name}_interval_counts"), arrays.get(f"{name}_intervals")
        if name in far or (counts is None and places is None):
            continue
        if counts is None or places is None or int(counts.sum(dtype=np.int64)) != len(places):
            raise _differ(path, name)
        found[name] = Intervals(counts, places)
    return found


def far_intervals_of(
    file: ByteSource, index: Mapping[str, Place], arrays: Mapping[str, NDArray[Any]], fields: Sequence[str]
) -> dict[str, FarIntervals]:
    """Return the intervals in the ``index`` of a file that are not among its ``arrays``, which were read."""
    found = {}
    for name in fields:
        place = index.get(f"{name}_intervals")
        if place is None or f"{name}_intervals" in arrays or f"{name}_interval_counts" not in arrays:
            continue
        counts = arrays[f"{name}_interval_counts"]
        if (place.dtype, place.shape) != ("<u4", (int(counts.sum(dtype=np.int64)),)):
            raise _differ(file.path, name)
        _stop(file, f"{name}_intervals", place, np.dtype("<u4"), PACK_AGAIN)
        found[name] = FarIntervals(file, place.start, counts, place.crc32)
    return found


def _differ(path: str, name: str) -> StoreCorrupt:
    return StoreCorrupt(f"{path}: index arrays '{name}_intervals' and '_interval_counts' differ; {PACK_AGAIN}")


def check_spans(shard: Shard) -> None:
    """Check that every span lies inside the file: native calls rely on that, and this message has a name."""
    end = shard.data.size
    for field_ in shard.schema.payload:
        starts, sizes = shard.starts[field_.name], shard.sizes[field_.name]
        bad = (starts < 0) | (starts > end) | (sizes < 0) | (sizes > end - starts)
        bad |= ~field_.fits(sizes)
        if bad.any():
            index = int(np.flatnonzero(bad)[0])
            sample = shard.owner(field_.name, index)
            raise StoreCorrupt(
                f"{shard.path}: sample {sample}, field {field_.name!r}: {sizes[index]} bytes from {starts[index]} do "
                f"not fit a file of {end}: pack again"
            )
