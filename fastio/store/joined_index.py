"""JoinedIndex: the index of all shards of a store as one, joined in memory or as a set object holds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.store.files import ByteSource
from fastio.store.sealed import Intervals, Shard

__all__ = ["JoinedIndex"]


@dataclass(frozen=True, slots=True)
class JoinedIndex:
    """Arrays as in ``Shard``, one shard after the other; missing entries mean the same as there."""

    paths: Sequence[str]  # of each shard
    sources: Sequence[ByteSource]
    counts: NDArray[np.int64]  # samples
    starts: Mapping[str, NDArray[np.int64]]
    sizes: Mapping[str, NDArray[np.int64]]
    checksums: Mapping[str, NDArray[np.uint32]]
    shapes: Mapping[str, NDArray[np.int32]]
    intervals: Mapping[str, Intervals]
    columns: Mapping[str, NDArray[Any]]

    @classmethod
    def of(cls, shards: Sequence[Shard]) -> JoinedIndex:
        """Join the index of shards of one schema. One shard is not copied; a field without checksums has none."""
        schema = shards[0].schema
        names = [field.name for field in schema.payload]
        sealed = [name for name in names if all(name in shard.checksums for shard in shards)]
        marked = [name for name in names if any(name in shard.intervals for shard in shards)]
        shaped = [name for name in names if any(name in shard.shapes for shard in shards)]
        return cls(
            paths=[shard.path for shard in shards],
            sources=[shard.data for shard in shards],
            counts=np.array([shard.count for shard in shards], np.int64),
            starts={name: _join([shard.starts[name] for shard in shards]) for name in names},
            sizes={name: _join([shard.sizes[name] for shard in shards]) for name in names},
            checksums={name: _join([shard.checksums[name] for shard in shards]) for name in sealed},
            shapes={name: _join([_shapes(shard, name) for shard in shards]) for name in shaped},
            intervals={name: _intervals(shards, name) for name in marked},
            columns={column.name: _join([shard.columns[column.name] for shard in shards]) for column in schema.columns},
        )


def _join(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    if len(parts) == 1:
        return parts[0]
    joined = np.concatenate(parts)
    joined.setflags(write=False)
    return joined


def _shapes(shard: Shard, name: str) -> NDArray[np.int32]:
    known = shard.shapes.get(name)
    return np.zeros((shard.count, 3), np.int32) if known is None else known


def _intervals(shards: Sequence[Shard], name: str) -> Intervals:
    none = np.zeros(0, np.uint32)
    parts = [shard.intervals.get(name) or Intervals(np.zeros(shard.count, np.uint32), none) for shard in shards]
    return Intervals(_join([part.counts for part in parts]), _join([part.places for part in parts]))
