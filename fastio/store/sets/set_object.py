"""
The set object ``name.fastio-set``: the one file that makes a set of its shards, written last.

Shards are sealed alone (seal version 2): each is whole or not, but none says whether the others are there. A set is
what its set object lists, in this order, and nothing else. The object also holds the index of all shards, joined, so
that a thousand of them open with two reads: its end, and its arrays.

    arrays    the index of all shards, one shard after the other, each array at a multiple of 64 bytes
                  <field>_starts, <field>_sizes (int64, bytes of the sample's own shard;
                  narrower in a large index), <field>_checksums, ...
                  the columns; keys, UTF-8, joined by NUL; metadata, JSON
                  shard_counts (int64), shard_sizes (int64), shard_crcs (uint32, the seal's file_crc),
                  shard_plans (uint64), shard_names, UTF-8, each ended by NUL; the tables that an index may have, see
                  ``store/index/arrays.py``
    header    JSON: {"fastio_set": 1, "format": "tar", "generation": 1, "schema": ..., "arrays": {name: place}}; version
                  2 where starts, sizes or counts are narrower, or keys a rule
    seal      128 bytes, of the format "set"; see ``store/index/seal.py``

A name is relative to the folder of the set object (that of an added field's shard may begin with ``../``), or absolute:
a path, or a URL. Names are never reused with other content while a set lists them; a set that is replaced becomes
another generation, under other names.

The object of a set of two shards, with a sample each: "a.png" with the bytes "first" and label 0, "b.png" with "2nd"
and label 1 (abridged):

    0000  00 06 00 00 00 00 00 00  00 06 00 00 00 00 00 00   image_starts: byte 600 of either shard
    0040  05 00 00 00 00 00 00 00  03 00 00 00 00 00 00 00   image_sizes
    0080  57 ee 71 92 84 0b 0f 69                            image_checksums
    00c0  00 00 00 00 00 00 00 00  01 00 00 00 00 00 00 00   label
    0100  61 2e 70 6e 67 00 62 2e  70 6e 67                  keys
    0140  7b 7d                                              metadata
    0180  01 00 00 00 00 00 00 00  01 00 00 00 00 00 00 00   shard_counts
    01c0  00 32 00 00 00 00 00 00  00 32 00 00 00 00 00 00   shard_sizes
    0200  91 20 b7 8b 1e 6f 45 e6                            shard_crcs
    0240  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00   shard_plans: no plan
    0280  74 77 6f 2d 30 2e 74 61  72 00 74 77 6f 2d 31 2e   shard_names: "two-0.tar", "two-1.tar"
    0290  74 61 72 00
    0294  7b 22 66 61 73 74 69 6f  5f 73 65 74 22 3a 31 2c   the header
    0685  89 66 61 73 74 69 6f 0a  01 00 00 00 73 65 74 00   the seal, of the format "set"
    0695  02 00 00 00 00 00 00 00  05 07 00 00 00 00 00 00   2 samples; 705 bytes
"""

from __future__ import annotations

import errno
import json
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio._native import crc32
from fastio.errors import SchemaError, StoreCorrupt, StoreError, StoreIncomplete, StoreNotFound
from fastio.store.files import ByteSource, open_file
from fastio.store.files.local import is_local
from fastio.store.files.remote_options import DEFAULT, Remote
from fastio.store.index.arrays import IndexArray, IndexArrays, Tables, has_tables, is_large, narrowest
from fastio.store.index.numbered_keys import KeyRun, NumberedKeys, are_apart, encoded_runs, runs_of
from fastio.store.index.seal import (
    KEY_RUNS,
    SEAL_SIZE,
    Expected,
    Place,
    Seal,
    SealAt,
    always_at,
    checksum_of_columns,
    counts_name,
    expected_arrays,
    find_seal,
    is_compact,
)
from fastio.store.index.sealed import (
    FarIntervals,
    Intervals,
    Shard,
    bytes_from,
    check_array,
    checked_arrays,
    far_intervals_of,
    file_crc,
    hints_of,
    index_arrays,
    seal_of,
)
from fastio.store.write.atomic import PartialFile
from fastio.store.write.keys import UniqueKeys, places_of
from fastio.store.write.spool import Spool, array_bytes, blocks_of, write_parts
from fastio.types.lazy_sequence import LazySequence
from fastio.types.schema import Schema

__all__ = [
    "SetMember",
    "SetMembers",
    "SetObject",
    "check_keys",
    "check_whole",
    "damage_of",
    "keys_of",
    "open_damaged",
    "read_set",
    "write_set",
]


_FORMAT = "set"
_VERSION = 2  # from 2 on, numbers may be narrow and keys a rule: see ``Expected`` and ``numbered_keys``
_ALIGNMENT = 64
_ADVICE = "copy it again, or, if its shards lie beside it, make it anew by fastio seal"
_KEYS_AT_ONCE = 1 << 16
_LISTING = ("metadata", "shard_counts", "shard_sizes", "shard_crcs", "shard_plans", "shard_names")


@dataclass(frozen=True, slots=True)
class SetMember:
    """One shard as its set lists it. ``file_crc`` and ``plan`` are those of its seal; 0 for a foreign file."""

    name: str
    count: int  # samples
    size: int  # bytes
    file_crc: int
    plan: int = 0


class SetMembers(LazySequence[SetMember]):
    """
    The shards of a set, in its order, as arrays: a set may have hundreds of thousands, of which few are looked at.

    ``counts`` (samples) and ``sizes`` (bytes) are int64, ``crcs`` uint32 and ``plans`` uint64, each ``(n,)`` and as in
    ``SetMember``; ``joined_names`` are UTF-8, each ended by NUL. Two that list the same are equal.
    """

    def __init__(
        self,
        joined_names: NDArray[np.uint8],
        counts: NDArray[np.int64],
        sizes: NDArray[np.int64],
        crcs: NDArray[np.uint32],
        plans: NDArray[np.uint64],
    ) -> None:
        self.joined_names, self.counts, self.sizes, self.crcs, self.plans = joined_names, counts, sizes, crcs, plans
        self._ends = np.flatnonzero(joined_names == 0)

    @classmethod
    def of(cls, members: Iterable[SetMember]) -> SetMembers:
        """Return these members, as they come."""
        if isinstance(members, cls):
            return members
        names = bytearray()
        counts, sizes, crcs, plans = array("q"), array("q"), array("I"), array("Q")
        for member in members:
            names += member.name.encode("utf-8", "surrogateescape") + b"\0"
            counts.append(member.count)
            sizes.append(member.size)
            crcs.append(member.file_crc)
            plans.append(member.plan)
        numbers = (np.array(counts), np.array(sizes), np.array(crcs, np.uint32), np.array(plans, np.uint64))
        return cls(np.frombuffer(names, np.uint8), *numbers)

    def __len__(self) -> int:
        return len(self._ends)

    def item(self, number: int) -> SetMember:
        """See LazySequence."""
        numbers = (int(each[number]) for each in (self.counts, self.sizes, self.crcs, self.plans))
        return SetMember(self.name(number), *numbers)

    def __iter__(self) -> Iterator[SetMember]:
        numbers = (each.tolist() for each in (self.counts, self.sizes, self.crcs, self.plans))
        return map(SetMember, self.names(), *numbers)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SetMembers):
            return NotImplemented
        return all(map(np.array_equal, self._columns(), other._columns()))

    def __hash__(self) -> int:
        return self.checksum

    def name(self, number: int) -> str:
        """Return the name of a member, by its number from 0."""
        start = int(self._ends[number - 1]) + 1 if number else 0
        return self.joined_names[start : int(self._ends[number])].tobytes().decode("utf-8", "surrogateescape")

    def names(self) -> list[str]:
        """Return the names of all members."""
        return self.joined_names.tobytes().decode("utf-8", "surrogateescape").split("\0")[:-1]

    @property
    def samples(self) -> int:
        """How many samples all of them have."""
        return int(self.counts.sum())

    @property
    def checksum(self) -> int:
        """The CRC-32 over (count, size, file_crc) of each, see ``set_checksum``."""
        return checksum_of_columns(self.counts, self.sizes, self.crcs)

    def renamed(self, names: Iterable[str]) -> SetMembers:
        """Return the same members under other names, of which there are as many."""
        joined = b"".join(name.encode("utf-8", "surrogateescape") + b"\0" for name in names)
        return SetMembers(np.frombuffer(joined, np.uint8), self.counts, self.sizes, self.crcs, self.plans)

    def _columns(self) -> tuple[NDArray[Any], ...]:
        return self.joined_names, self.counts, self.sizes, self.crcs, self.plans


@dataclass(frozen=True, slots=True)
class SetObject:
    """A set as its object describes it, and the joined index."""

    path: str
    file: ByteSource
    format: str
    generation: int  # counts from 1; each ``--overwrite`` or ``--append`` makes the next one
    schema: Schema
    members: SetMembers
    count: int  # samples
    metadata: bytes
    identity: int  # CRC-32 over (count, size, file_crc) of the members
    arrays: IndexArrays
    far_intervals: Mapping[str, FarIntervals]  # start points that lie behind a URL

    def __len__(self) -> int:
        return self.count


def write_set(
    file: PartialFile,
    shards: Sequence[Shard],
    members: Sequence[SetMember],
    *,
    form: str,
    generation: int,
    metadata: bytes,
    runs: Sequence[KeyRun] | None = None,
) -> None:
    """
    Write the set object of these shards, in this order, to ``file``; whoever calls publishes it.

    ``shards[i]`` is ``members[i]``, opened; ``runs`` are their keys as runs, if they are known. The same shards,
    metadata and generation give the same bytes. Raises SchemaError if their schemas differ, or only some have
    checksums.
    """
    members = SetMembers.of(members)
    common = _Common.of(shards, file.path)
    places: dict[str, Place] = {}
    data_bytes = int(members.sizes.sum())
    is_narrow = is_large(common.index_bytes)
    is_joined = is_large(common.index_bytes + common.hint_bytes)
    is_with_tables = has_tables(common.index_bytes, data_bytes)
    types = _narrow_types(shards, common, int(members.sizes.max())) if is_narrow else {}
    runs = (runs or _runs_of_shards(shards)) if is_narrow else None
    tables = Tables()
    index = _joined(shards, common) if is_joined else _collected(shards, common, file.path)
    for name, parts in chain(index, _listing(members, metadata)):
        if name == "keys" and runs is not None:
            name, parts = KEY_RUNS, [encoded_runs(runs)]  # noqa: PLW2901
        file.write(bytes(-file.size % _ALIGNMENT))
        if name in types:
            parts = _narrowed(file.path, name, types[name], parts)  # noqa: PLW2901
        places[name] = write_parts(file, tables.through(name, parts) if is_with_tables else parts)
    for name, table in tables.arrays().items() if is_with_tables else ():
        file.write(bytes(-file.size % _ALIGNMENT))
        places[name] = write_parts(file, [table])
    header = _header(form, generation, common.schema, places)
    header_start = file.size
    file.write(header)
    file.flush()
    seal = Seal(
        format=_FORMAT,
        count=members.samples,
        file_size=file.size + SEAL_SIZE,
        seal_start=file.size,
        head_size=0,
        header_start=header_start,
        header_size=len(header),
        set_count=members.samples,
        shard=0,
        shards=1,
        header_crc=crc32(header),
        head_crc=0,
        file_crc=file.crc,
        set_crc=members.checksum,
    )
    file.write(seal.pack())
    file.flush()


def read_set(file: ByteSource, *, with_index: bool = True) -> SetObject:
    """
    Read and check a set object; its shards are not looked at. Without the index it has only the list of shards.

    Raises StoreIncomplete, StoreCorrupt, and StoreError for a newer version.
    """
    path = file.path
    seal = find_seal(path, file.size, partial(bytes_from, file), always_at(-SEAL_SIZE), advice=_ADVICE)
    if not seal.is_of(_FORMAT):
        raise StoreCorrupt(f"{path}: sealed as {seal.format!r}, expected a set object: give it the right suffix")
    raw = file.read(seal.header_start, seal.header_start + seal.header_size)
    if crc32(raw) != seal.header_crc:
        raise StoreCorrupt(f"{path}: header: expected CRC-32 {seal.header_crc:08x}, got {crc32(raw):08x}; {_ADVICE}")
    form, generation, schema, places = _parsed(raw.tobytes(), path=path)
    wanted = places if with_index else {name: places[name] for name in _LISTING if name in places}
    arrays = index_arrays(file, wanted, hints=hints_of(schema), advice=_ADVICE)
    file.release()
    _check_listing(path, arrays.lies)
    if with_index:
        arrays = _checked_index(path, arrays, schema, seal.count)
    members = _members(path, arrays)
    if (members.checksum, members.samples) != (seal.set_crc, seal.count):
        raise StoreCorrupt(f"{path}: the list of shards does not match the seal: {_ADVICE}")
    return SetObject(
        path=path,
        file=file,
        format=form,
        generation=generation,
        schema=schema,
        members=members,
        count=seal.count,
        metadata=arrays["metadata"].tobytes() or b"{}",
        identity=seal.set_crc,
        arrays=arrays,
        far_intervals=far_intervals_of(file, wanted, arrays, [field.name for field in schema.payload]),
    )


def current_set(path: str, *, with_index: bool = False) -> SetObject | None:
    """
    Return the set object of this local path, None if there is none; without the index only its list of shards.

    Raises StoreError if it cannot be read.
    """
    try:
        return read_set(open_file(path), with_index=with_index)
    except StoreNotFound:
        return None


@dataclass(frozen=True, slots=True)
class _Common:
    """What the index of a set has, and how many bytes it takes if it is not narrow."""

    schema: Schema
    checked: Collection[str]  # fields with checksums
    listed: Collection[str]  # of lists
    shaped: Collection[str]  # whose shapes are known in some shard
    marked: Collection[str]  # whose start points are
    index_bytes: int  # without start points
    hint_bytes: int  # of these

    @classmethod
    def of(cls, shards: Sequence[Shard], path: str) -> _Common:
        """Look at each shard once. Raises SchemaError."""
        first, shaped, marked, index_bytes, hint_bytes = shards[0], set[str](), set[str](), 0, 0
        for shard in shards:
            if shard.schema != first.schema:
                raise SchemaError(f"{path}: {shard.path} has other fields than {first.path}: one set holds one schema")
            if shard.checksums.keys() != first.checksums.keys():
                without = shard if len(shard.checksums) < len(first.checksums) else first
                raise SchemaError(f"{path}: {without.path} has no checksums, but other shards have: pack it again")
            shaped |= shard.shapes.keys()
            marked |= shard.intervals.keys() | shard.far_intervals.keys()
            hint_bytes += sum(part.places.nbytes for part in shard.intervals.values())
            index_bytes += _index_bytes(shard)
        names = first.checksums.keys(), first.counts.keys()
        return cls(first.schema, *names, shaped, marked, index_bytes, hint_bytes)


_Arrays = Iterator[tuple[str, Iterable[NDArray[Any]]]]  # by name, each in parts


def _joined(shards: Sequence[Shard], common: _Common, before: int = 0) -> _Arrays:
    """
    Yield the arrays of the joined index, each in parts, of which at least one: together they may not fit memory.

    So many samples of the set come ``before`` these shards.
    """
    for name in (field.name for field in common.schema.payload):
        if name in common.listed:
            yield counts_name(name), _blocks(name, (shard.counts for shard in shards))
        yield f"{name}_starts", _blocks(name, (shard.starts for shard in shards))
        yield f"{name}_sizes", _blocks(name, (shard.sizes for shard in shards))
        if name in common.checked:
            yield f"{name}_checksums", _blocks(name, (shard.checksums for shard in shards))
        if name in common.shaped:
            yield f"{name}_shapes", _blocks(name, (_shapes(shard, name) for shard in shards))
        if name in common.marked:
            yield f"{name}_interval_counts", (_interval_counts(shard, name) for shard in shards)
            yield f"{name}_intervals", (_intervals(shard, name).places for shard in shards)
    for column in common.schema.columns:
        yield column.name, _blocks(column.name, (shard.columns for shard in shards))
    yield "keys", _joined_keys(shards, before)


def _collected(shards: Sequence[Shard], common: _Common, path: str) -> _Arrays:
    """As ``_joined`` with one look at each shard, which may be to open it: an index that is not large can wait."""
    spools: dict[str, Spool] = {}
    before = 0
    with ExitStack() as opened:
        for shard in shards:
            for name, parts in _joined([shard], common, before):
                for part in parts:
                    if name not in spools:
                        spools[name] = Spool(part.dtype, part.shape[1:], beside=path)
                        opened.callback(spools[name].close)
                    spools[name].append(part)
            before += shard.count
        for name, spool in spools.items():
            yield name, chain([spool.part(0, 0)], blocks_of(spool))


def _listing(members: SetMembers, metadata: bytes) -> _Arrays:
    """Yield what a set object has besides the index."""
    yield "metadata", [np.frombuffer(metadata, np.uint8)]
    yield "shard_counts", [members.counts]
    yield "shard_sizes", [members.sizes]
    yield "shard_crcs", [members.crcs]
    yield "shard_plans", [members.plans]
    yield "shard_names", [members.joined_names]


def _blocks(name: str, each: Iterable[Mapping[str, NDArray[Any]]]) -> Iterator[NDArray[Any]]:
    """Yield the arrays of this name a block at a time, and an empty part of each, which has their type."""
    for arrays in each:
        array = IndexArrays.of(arrays).lies[name]
        yield np.empty((0, *array.shape[1:]), array.dtype)
        yield from blocks_of(array)


def _index_bytes(shard: Shard) -> int:
    """Return how many bytes the index of a shard takes in a set object that is not narrow, without start points."""
    each = (shard.starts, shard.sizes, shard.checksums, shard.shapes, shard.columns)
    arrays = (array for arrays in each for array in IndexArrays.of(arrays).lies.values())
    counts = sum(part.counts.nbytes for part in shard.intervals.values())
    return sum(map(array_bytes, arrays)) + counts + shard.keys.nbytes


def _narrow_types(shards: Sequence[Shard], common: _Common, longest: int) -> dict[str, np.dtype[Any]]:
    """Return the narrowest types of the numbers of all shards, by array; no value starts behind the longest file."""
    required, optional = expected_arrays(common.schema, 0)
    numbers = {name: np.dtype(each.dtype) for name, each in (required | optional).items() if each.is_number}
    return {
        name: narrowest(numbers[name], parts, most=longest if name.endswith("_starts") else None)
        for name, parts in _joined(shards, common)
        if name in numbers
    }


def _narrowed(path: str, name: str, dtype: np.dtype[Any], parts: Iterable[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    """Yield numbers as this type. Raises StoreCorrupt for what it does not hold: a start behind the end of its file."""
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    for part in parts:
        low, high = int(part.min(initial=0)), int(part.max(initial=0))
        if low < least or high > most:
            raise StoreCorrupt(
                f"{path}: {name!r} of a shard has {low if low < least else high}, which is no place in its file: pack "
                "that shard again"
            )
        yield part.astype(dtype, copy=False)


def _shapes(shard: Shard, name: str) -> Mapping[str, NDArray[np.int32]]:
    """Return the shapes of a field's pictures; zeros if they are not known."""
    return shard.shapes if name in shard.shapes else {name: np.zeros((shard.values(name), 3), np.int32)}


def _interval_counts(shard: Shard, name: str) -> NDArray[np.uint32]:
    """Return how many restart intervals are known of each of a field's pictures."""
    far = shard.far_intervals.get(name)
    return _intervals(shard, name).counts if name in shard.intervals or far is None else far.counts


def _intervals(shard: Shard, name: str) -> Intervals:
    """Return where the restart intervals of a field's pictures begin; none if they are not known."""
    if name in shard.intervals:
        return shard.intervals[name]
    if name in shard.far_intervals:
        return shard.far_intervals[name].read()
    return Intervals(np.zeros(shard.values(name), np.uint32), np.zeros(0, np.uint32))


def _joined_keys(shards: Iterable[Shard], before: int) -> Iterator[NDArray[np.uint8]]:
    """Yield the keys of all samples, joined by NUL, also to so many keys ``before`` them."""
    yield np.empty(0, np.uint8)
    for number, piece in enumerate(keys_of(shards)):
        yield np.frombuffer(b"\0" + piece if number or before else piece, np.uint8)


def _header(form: str, generation: int, schema: Schema, places: Mapping[str, Place]) -> bytes:
    arrays = {
        name: {"start": p.start, "dtype": p.dtype, "shape": list(p.shape), "crc32": p.crc32}
        for name, p in places.items()
    }
    data = {
        "fastio_set": 2 if is_compact(schema, places) else 1,
        "format": form,
        "generation": generation,
        "schema": schema.to_json(),
        "arrays": arrays,
    }
    return json.dumps(data, separators=(",", ":")).encode("ascii")


def _parsed(raw: bytes, *, path: str) -> tuple[str, int, Schema, dict[str, Place]]:
    try:
        parsed = json.loads(raw)
        if int(parsed["fastio_set"]) > _VERSION:
            raise StoreError(
                f"{path}: set version {parsed['fastio_set']}, this fastio reads up to {_VERSION}: upgrade fastio"
            )
        places = {
            str(name): Place(int(p["start"]), str(p["dtype"]), tuple(map(int, p["shape"])), int(p["crc32"]))
            for name, p in parsed["arrays"].items()
        }
        return str(parsed["format"]), int(parsed["generation"]), Schema.from_json(parsed["schema"]), places
    except SchemaError as exc:
        raise StoreError(f"{path}: {exc}") from exc
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as exc:
        raise StoreCorrupt(f"{path}: the header is not one that fastio writes ({exc!r}): {_ADVICE}") from exc


def _check_listing(path: str, arrays: Mapping[str, IndexArray]) -> None:
    for name in ("metadata", "shard_names"):
        check_array(path, arrays, name, Expected("|u1", (None,)), advice=_ADVICE)
    shards = len(arrays.get("shard_counts", ()))
    for name, dtype in (("shard_counts", "<i8"), ("shard_sizes", "<i8"), ("shard_crcs", "<u4"), ("shard_plans", "<u8")):
        check_array(path, arrays, name, Expected(dtype, (shards,)), advice=_ADVICE)


def _checked_index(path: str, arrays: IndexArrays, schema: Schema, count: int) -> IndexArrays:
    arrays, _ = checked_arrays(path, arrays, schema, count, advice=_ADVICE)
    name = KEY_RUNS if KEY_RUNS in arrays else "keys"
    check_array(path, arrays.lies, name, Expected("|u1", (None,)), advice=_ADVICE)
    return arrays


def _members(path: str, arrays: Mapping[str, NDArray[Any]]) -> SetMembers:
    numbers = [arrays[name] for name in ("shard_counts", "shard_sizes", "shard_crcs", "shard_plans")]
    members = SetMembers(arrays["shard_names"], *numbers)
    if len(members) != len(numbers[0]) or not members:
        raise StoreCorrupt(f"{path}: lists {len(members)} names of {len(numbers[0])} shards: {_ADVICE}")
    return members


# Checks that no key comes twice in the shards of a set.


def check_keys(path: str, shards: Sequence[Shard]) -> Sequence[KeyRun] | None:
    """
    Return the keys of shards as runs, None if these are no shorter. Raises SchemaError that names the key and both
    shards if a key comes twice.

    Runs that lie apart have no key in common, and keys that ascend from shard to shard are unique by that; for others,
    memory and a temporary file are needed meanwhile, see ``UniqueKeys``. May raise OSError.
    """
    runs = _runs_of_shards(shards)
    if runs is not None and are_apart(runs):
        return runs
    earlier = 0
    with closing(UniqueKeys(lambda: islice(keys_of(shards), earlier), beside=path)) as keys:
        for piece in keys_of(shards):
            twice = keys.add(piece)
            if twice is not None:
                raise _repeated(path, shards, piece.split(b"\0")[twice])
            earlier += 1
        key = keys.repeated()
        if key is not None:
            raise _repeated(path, shards, key)
    return runs


def keys_of(shards: Iterable[Shard]) -> Iterator[bytes]:
    """Yield the keys of shards, joined by NUL, some at a time."""
    for shard in shards:
        for start in range(0, shard.count, _KEYS_AT_ONCE):
            yield shard.keys.joined(start, min(start + _KEYS_AT_ONCE, shard.count))


def _runs_of_shards(shards: Iterable[Shard]) -> Sequence[KeyRun] | None:
    """Return the keys of shards as runs: those of rules as they are, others as ``runs_of`` finds them."""
    each = (shard.keys.runs if isinstance(shard.keys, NumberedKeys) else keys_of([shard]) for shard in shards)
    return runs_of(chain.from_iterable(each))


def _repeated(path: str, shards: Sequence[Shard], key: bytes) -> SchemaError:
    """Return the error for a key that comes twice in these shards."""
    stops = np.cumsum([shard.count for shard in shards])
    first, second = (shards[number] for number in np.searchsorted(stops, places_of(key, keys_of(shards)), "right"))
    where = f"twice in {second.path}" if first is second else f"in {first.path} and in {second.path}"
    name = key.decode("utf-8", "surrogateescape")
    return SchemaError(f"{path}: key {name!r} is {where}; keys must be unique: pack one of them with other keys")


# Whether a file still is the shard that its set lists, down to the last byte.


def damage_of(error: StoreError) -> str | None:
    """
    Return what is wrong with a file that raised this error, or None if the error says nothing about its bytes: a
    refused or failed request.
    """
    if isinstance(error, StoreNotFound):
        return "missing"
    is_unreadable = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EIO
    if isinstance(error, StoreCorrupt | StoreIncomplete) or is_unreadable:
        return str(error)
    return None


def open_damaged(path: str, remote: Remote = DEFAULT) -> ByteSource:
    """Open a file that a failing disk may not read to its end: by pread, where a mapping would end the process."""
    return open_file(path, "pread" if is_local(path) else "auto", remote)


def check_whole(file: ByteSource, member: SetMember, seal_at: SealAt) -> None:
    """
    Compare all bytes of a file with what a set lists. Raises StoreCorrupt or StoreIncomplete if they differ, and
    StoreError if they cannot be read.
    """
    try:
        file.check()
        if file.size != member.size:
            raise StoreCorrupt(f"{file.path}: expected {member.size} bytes, got {file.size}")
        seal = seal_of(file, seal_at)
        if (seal.count, seal.file_crc, seal.plan) != (member.count, member.file_crc, member.plan):
            raise StoreCorrupt(
                f"{file.path}: is another shard: the set lists one of {member.count} samples and CRC-32 "
                f"{member.file_crc:08x}, its seal has {seal.count} and {seal.file_crc:08x}"
            )
        crc = file_crc(file, seal)
        if crc != seal.file_crc:
            raise StoreCorrupt(f"{file.path}: expected CRC-32 {seal.file_crc:08x}, got {crc:08x}")
    finally:
        file.release()
