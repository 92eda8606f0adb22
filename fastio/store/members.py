"""MemberShards: the shards of a set over the joined index of its set object, each made when it is looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from fastio.errors import StoreCorrupt
from fastio.store.arrays import split_keys
from fastio.store.files import ByteSource
from fastio.store.joined_index import JoinedIndex
from fastio.store.seal import Seal
from fastio.store.sealed import Intervals, Shard, intervals_of
from fastio.store.set_object import SetObject

__all__ = ["MemberShards"]


class MemberShards(Sequence[Shard]):
    """
    The shards of ``set_object`` in its order; ``sources`` are their files, ``seals`` what was read of their seals.

    Nothing is made for each shard until somebody looks at it: a set may have ten thousand. Raises StoreCorrupt for an
    index that does not fit the files.
    """

    def __init__(
        self, set_object: SetObject, sources: Sequence[ByteSource], seals: Sequence[Seal | None] | None = None
    ) -> None:
        arrays = set_object.arrays
        fields = [field.name for field in set_object.schema.payload]
        self.set_object = set_object
        self.joined = JoinedIndex(
            paths=[source.path for source in sources],
            sources=sources,
            counts=np.array([member.count for member in set_object.members], np.int64),
            starts={name: arrays[f"{name}_starts"] for name in fields},
            sizes={name: arrays[f"{name}_sizes"] for name in fields},
            checksums={name: arrays[f"{name}_checksums"] for name in fields if f"{name}_checksums" in arrays},
            shapes={name: arrays[f"{name}_shapes"] for name in fields if f"{name}_shapes" in arrays},
            intervals=intervals_of(set_object.path, arrays, fields),
            columns={column.name: arrays[column.name] for column in set_object.schema.columns},
        )
        self._seals = seals
        self._firsts = np.concatenate((np.zeros(1, np.int64), np.cumsum(self.joined.counts)))
        self._check_spans()

    def __len__(self) -> int:
        return len(self.joined.sources)

    @overload
    def __getitem__(self, number: int) -> Shard: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Shard]: ...
    def __getitem__(self, number: int | slice) -> Shard | Sequence[Shard]:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        number = range(len(self))[number]
        joined, first, stop = self.joined, int(self._firsts[number]), int(self._firsts[number + 1])
        key_starts = self._key_starts
        return Shard(
            path=joined.paths[number],
            data=joined.sources[number],
            schema=self.set_object.schema,
            count=stop - first,
            starts=_parts(joined.starts, first, stop),
            sizes=_parts(joined.sizes, first, stop),
            checksums=_parts(joined.checksums, first, stop),
            shapes=_parts(joined.shapes, first, stop),
            intervals={name: self._intervals(name, first, stop) for name in joined.intervals},
            columns=_parts(joined.columns, first, stop),
            keys=self.set_object.arrays["keys"][key_starts[first] : max(key_starts[first], key_starts[stop] - 1)],
            key_starts=key_starts[first : stop + 1] - key_starts[first],
            metadata=self.set_object.metadata,
            seal=None if self._seals is None else self._seals[number],
            content_crc=self.set_object.members[number].file_crc,
            is_member=self.set_object.members[number].file_crc != 0,
        )

    @cached_property
    def _key_starts(self) -> NDArray[np.int64]:
        starts = split_keys(self.set_object.arrays["keys"], len(self.set_object), path=self.set_object.path)
        assert starts is not None
        return starts

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
        ends = np.repeat(np.array([source.size for source in self.joined.sources], np.int64), self.joined.counts)
        for field in self.set_object.schema.payload:
            starts, sizes = self.joined.starts[field.name], self.joined.sizes[field.name]
            bad = (starts < 0) | (starts > ends) | (sizes < 0) | (sizes > ends - starts)
            bad |= ~field.fits(sizes)
            if bad.any():
                first = int(np.flatnonzero(bad)[0])
                shard = self.joined.paths[int(np.searchsorted(self._firsts, first, side="right")) - 1]
                raise StoreCorrupt(
                    f"{self.set_object.path}: sample {first}, field {field.name!r}: {sizes[first]} bytes from "
                    f"{starts[first]} do not fit {shard} of {ends[first]} bytes: pack again"
                )


def _parts(arrays: Mapping[str, NDArray[Any]], first: int, stop: int) -> dict[str, NDArray[Any]]:
    return {name: array[first:stop] for name, array in arrays.items()}
