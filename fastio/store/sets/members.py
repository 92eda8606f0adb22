"""MemberShards: the shards of a set over the joined index of its set object; ``open_members`` opens their files."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.errors import StoreCorrupt, StoreError, StoreIncomplete, StoreNotFound
from fastio.store.files import ByteSource, Read, kind_of, open_file
from fastio.store.files.late import LateSources, Openings, most_open, sizes_of
from fastio.store.files.local import is_local, readable
from fastio.store.files.remote_options import DEFAULT, Remote
from fastio.store.folders import folder_of
from fastio.store.formats import FORMATS
from fastio.store.formats.format import Format
from fastio.store.index.arrays import IndexArray, IndexArrays, totals_of
from fastio.store.index.numbered_keys import keys_of_index
from fastio.store.index.seal import Seal, counts_name, find_seal
from fastio.store.index.sealed import Intervals, Shard, bytes_from, intervals_of
from fastio.store.index.store import JoinedIndex
from fastio.store.protocol import IN_PLACE
from fastio.store.sets.set_object import SetMember, SetObject
from fastio.types.lazy_sequence import LazySequence
from fastio.types.spans import firsts_of
from fastio.types.units import counted

__all__ = [
    "MemberShards",
    "open_members",
]


class MemberShards(LazySequence[Shard]):
    """
    The shards of ``set_object`` in its order; ``sources`` are their files, ``seals`` those that were read, by number.

    Nothing is made for each shard until somebody looks at it: a set may have hundreds of thousands. Raises StoreCorrupt
    for an index that does not fit the files.
    """

    def __init__(
        self,
        set_object: SetObject,
        sources: Sequence[ByteSource],
        seals: Mapping[int, Seal | None] = MappingProxyType({}),
    ) -> None:
        arrays = set_object.arrays
        lies, totals = arrays.lies, totals_of(arrays)
        fields = [field.name for field in set_object.schema.payload]
        self.set_object = set_object
        self._keys = keys_of_index(lies, len(set_object), path=set_object.path)
        self.joined = JoinedIndex(
            paths=_Paths(sources),
            sources=sources,
            counts=set_object.members.counts,
            starts={name: lies[f"{name}_starts"] for name in fields},
            sizes={name: lies[f"{name}_sizes"] for name in fields},
            checksums={name: lies[f"{name}_checksums"] for name in fields if f"{name}_checksums" in lies},
            shapes={name: lies[f"{name}_shapes"] for name in fields if f"{name}_shapes" in lies},
            intervals=intervals_of(set_object.path, arrays, fields, far=set_object.far_intervals),
            columns={column.name: lies[column.name] for column in set_object.schema.columns},
            keys=[self._keys],
            totals={name: totals[f"{name}_sizes"] for name in fields if f"{name}_sizes" in totals},
            elements={field.name: firsts_of(arrays[counts_name(field.name)]) for field in set_object.schema.lists},
        )
        self._seals = seals
        self._firsts = np.concatenate((np.zeros(1, np.int64), np.cumsum(self.joined.counts)))
        if all(lies[f"{name}_{what}"].is_compared for name in fields for what in ("starts", "sizes")):
            self._check_spans()

    def __len__(self) -> int:
        return len(self.joined.sources)

    def item(self, number: int) -> Shard:
        """See LazySequence."""
        joined, first, stop = self.joined, int(self._firsts[number]), int(self._firsts[number + 1])
        return Shard(
            path=joined.paths[number],
            data=joined.sources[number],
            schema=self.set_object.schema,
            count=stop - first,
            starts=self._parts(joined.starts, first, stop),
            sizes=self._parts(joined.sizes, first, stop),
            checksums=self._parts(joined.checksums, first, stop),
            shapes=self._parts(joined.shapes, first, stop),
            intervals={name: self._intervals(name, *self._values(name, first, stop)) for name in joined.intervals},
            far_intervals={
                name: far.part(*self._values(name, first, stop)) for name, far in self.set_object.far_intervals.items()
            },
            columns=self._parts(joined.columns, first, stop),
            counts={name: np.diff(each[first : stop + 1]).astype(np.uint32) for name, each in joined.elements.items()},
            keys=self._keys.part(first, stop),
            metadata=self.set_object.metadata,
            seal=self._seals.get(number),
            content_crc=int(self.set_object.members.crcs[number]),
            is_member=bool(self.set_object.members.crcs[number] != 0),
        )

    def _values(self, name: str, first: int, stop: int) -> tuple[int, int]:
        """Return which values of a field belong to these samples: as many, or the elements of their lists."""
        elements = self.joined.elements.get(name)
        return (first, stop) if elements is None else (int(elements[first]), int(elements[stop]))

    def _parts(self, arrays: Mapping[str, IndexArray], first: int, stop: int) -> IndexArrays:
        return IndexArrays({name: array.cut(*self._values(name, first, stop)) for name, array in arrays.items()})

    @cached_property
    def _placed(self) -> Mapping[str, NDArray[np.int64]]:
        zero = np.zeros(1, np.int64)
        parts = self.joined.intervals.items()
        return {name: np.concatenate((zero, np.cumsum(part.counts, dtype=np.int64))) for name, part in parts}

    def _intervals(self, name: str, first: int, stop: int) -> Intervals:
        part, placed = self.joined.intervals[name], self._placed[name]
        return Intervals(part.counts[first:stop], part.places[placed[first] : placed[stop]])

    def _check_spans(self) -> None:
        """Check that every span lies inside its file, as ``check_spans`` does for one file."""
        of_samples = np.repeat(sizes_of(self.joined.sources), self.joined.counts)
        for field in self.set_object.schema.payload:
            starts, sizes = self.joined.starts[field.name].all(), self.joined.sizes[field.name].all()
            elements = self.joined.elements.get(field.name)
            ends = of_samples if elements is None else np.repeat(of_samples, np.diff(elements))
            bad = (starts < 0) | (starts > ends) | (sizes < 0) | (sizes > ends - starts)
            bad |= ~field.fits(sizes)
            if bad.any():
                value = int(np.flatnonzero(bad)[0])
                first = value if elements is None else int(np.searchsorted(elements, value, side="right")) - 1
                shard = self.joined.paths[int(np.searchsorted(self._firsts, first, side="right")) - 1]
                raise StoreCorrupt(
                    f"{self.set_object.path}: sample {first}, field {field.name!r}: {sizes[value]} bytes from "
                    f"{starts[value]} do not fit {shard} of {ends[value]} bytes: pack again"
                )


class _Paths(LazySequence[str]):
    """The paths of files."""

    def __init__(self, sources: Sequence[ByteSource]) -> None:
        self._sources = sources

    def __len__(self) -> int:
        return len(self._sources)

    def item(self, number: int) -> str:
        """See LazySequence."""
        return self._sources[number].path


_AT_ONCE = 64  # shards of a set that are opened with it; of more, each when it is first read


def open_members(set_object: SetObject, *, read: Read = "auto", options: Remote = DEFAULT) -> MemberShards:
    """
    Return the shards of a set over its files. Raises StoreIncomplete for a missing shard, and one that is another
    than listed.

    Of files of this machine, sizes are compared, and seals where a file is opened: at once in a small set, otherwise
    when it is first read. What lies behind URLs is not looked at before it is read.
    """
    form = FORMATS.get(set_object.format)
    if form is None and set_object.format != IN_PLACE:
        raise StoreError(f"{set_object.path}: a set of {set_object.format!r} shards, a format that this fastio lacks")
    files = _Files(set_object, form, read, options)
    numbers = range(len(set_object.members))
    sources = files.late_sources() if len(numbers) > _AT_ONCE else [files.source(number) for number in numbers]
    return MemberShards(set_object, sources, files.seals)


class _Files:
    """The files that a set lists, and the seals of those that were opened with it."""

    def __init__(self, set_object: SetObject, form: Format | None, read: Read, options: Remote) -> None:
        self.seals: dict[int, Seal | None] = {}
        self._set_object, self._form, self._read, self._options = set_object, form, read, options
        self._folder, _ = folder_of(set_object.path, options)
        self._kinds: dict[str, str] = {}  # by folder: one kind reads all files of it

    def source(self, number: int) -> ByteSource:
        """Return one of the files. Raises StoreIncomplete for a missing one, and for another than listed."""
        member = self._set_object.members[number]
        path = self._folder.full(member.name)
        if not is_local(path):
            return _remote_source(path, member, self._options)
        file = _opened(path, self._set_object, member, self._read)
        self.seals[number] = self._checked_seal(file, member)
        file.release()
        return file

    def late_sources(self) -> Sequence[ByteSource]:
        """Return all files, those of this machine to be opened when they are read. Raises StoreIncomplete likewise."""
        members = self._set_object.members
        names = members.names()
        if is_local(self._folder.path) and not (members.joined_names == ord("/")).any():  # as of most sets
            self._check_sizes(names, np.arange(len(names)))
            return self._late([self._kind(self._path(0))] * len(names))
        paths = list(map(self._folder.full, names))
        here = np.flatnonzero(list(map(is_local, paths)))
        self._check_sizes([names[number] for number in here.tolist()], here)
        late = self._late(list(map(self._kind, paths)))
        if len(here) == len(paths):
            return late
        return [
            late[number] if is_local(path) else _remote_source(path, members[number], self._options)
            for number, path in enumerate(paths)
        ]

    def _late(self, kinds: Sequence[str]) -> LateSources:
        openings = {kind: Openings(self._opened, most_open(kind)) for kind in set(kinds)}
        return LateSources(self._set_object.members.sizes, kinds, self._path, openings)

    def _path(self, number: int) -> str:
        return self._folder.full(self._set_object.members.name(number))

    def _check_sizes(self, names: Sequence[str], numbers: NDArray[np.int64]) -> None:
        """
        Look at files of this machine by one call: their names, and which members they are. Raises StoreIncomplete for
        the first that differs.
        """
        root = self._folder.path if is_local(self._folder.path) else "/"
        found = np.zeros((len(names), 5), np.int64)
        with readable(root):
            handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _native.stat_files(handle, names, found)
        finally:
            os.close(handle)
        expected = self._set_object.members.sizes[numbers]
        for place in np.flatnonzero((found[:, 0] != 0) | (found[:, 2] != expected))[:1].tolist():
            member, error, size = self._set_object.members[numbers[place]], int(found[place, 0]), int(found[place, 2])
            path = self._folder.full(member.name)
            if error:
                _opened(path, self._set_object, member, self._read)  # which says what is wrong
                raise StoreError(f"{path}: cannot be read ({os.strerror(error)})")
            _compare_size(path, size, self._set_object, member)

    def _opened(self, number: int) -> ByteSource:
        """Open a shard that is read for the first time, or again."""
        member = self._set_object.members[number]
        file = _opened(self._folder.full(member.name), self._set_object, member, self._read)
        self._checked_seal(file, member)
        return file

    def _kind(self, path: str) -> str:
        folder = path.rpartition("/")[0]
        if folder not in self._kinds:
            self._kinds[folder] = kind_of(path, self._read)
        return self._kinds[folder]

    def _checked_seal(self, file: ByteSource, member: SetMember) -> Seal | None:
        assert self._form is not None, "containers of other programs are listed behind URLs alone"
        return _checked_seal(file, self._set_object, member, self._form)


def _remote_source(path: str, member: SetMember, options: Remote) -> ByteSource:
    from fastio.store.files.remote.remote_source import RemoteSource

    content = f"crc:{member.file_crc:08x}" if member.file_crc else ""
    return RemoteSource.known(path, options, size=member.size, content=content)


def _opened(path: str, set_object: SetObject, member: SetMember, read: Read) -> ByteSource:
    try:
        return open_file(path, read)
    except StoreNotFound as exc:
        raise StoreIncomplete(
            f"{path}: is missing; the set {set_object.path} lists it with {counted(member.count, 'sample')}, "
            f"{member.size} bytes: {_repair(set_object)}"
        ) from exc


def _checked_seal(file: ByteSource, set_object: SetObject, member: SetMember, form: Format) -> Seal | None:
    """Return the seal of a shard; None for a foreign file. Raises StoreIncomplete unless it is the one listed."""
    _compare_size(file.path, file.size, set_object, member)
    if member.file_crc == 0:
        return None
    seal = find_seal(file.path, file.size, partial(bytes_from, file), form.seal_at)
    if (seal.file_crc, seal.count) != (member.file_crc, member.count):
        raise StoreIncomplete(
            f"{file.path}: is another shard than the set {set_object.path} lists: expected the CRC-32 "
            f"{member.file_crc:08x} in its seal, got {seal.file_crc:08x}: {_repair(set_object)}"
        )
    return seal


def _compare_size(path: str, size: int, set_object: SetObject, member: SetMember) -> None:
    if size != member.size:
        raise StoreIncomplete(
            f"{path}: expected {member.size} bytes, as the set {set_object.path} lists it, got {size}: "
            f"{_repair(set_object)}"
        )


def _repair(set_object: SetObject) -> str:
    return f"copy it again, or make it anew: fastio repair {shlex.quote(set_object.path)} --against SOURCE"
