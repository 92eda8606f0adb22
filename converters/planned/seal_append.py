"""Makes the next generation of a set, with the shards of one more plan behind those that it has."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fastio.converters.planned.append import part_of
from fastio.converters.planned.seal import joined_metadata
from fastio.converters.planned.shards import PlannedShard
from fastio.store.files.remote_options import DEFAULT, RemoteOptions
from fastio.store.joined_metadata import DescribedSamples, merged_metadata
from fastio.store.members import open_members
from fastio.store.set_object import SetObject, read_set
from fastio.store.sets import seal_set
from fastio.store.write_target import Target

__all__ = ["seal_appended"]


def seal_appended(
    target: Target,
    shards: Sequence[PlannedShard],
    current: SetObject,
    source: str,
    *,
    remote: RemoteOptions = DEFAULT,
) -> SetObject:
    """Make the next generation of ``current``: its shards, then these. Raises StoreError if it is another one now."""
    new = DescribedSamples(source, joined_metadata(target.path, shards), sum(shard.member.count for shard in shards))
    metadata = merged_metadata([part_of(current), new])
    old = zip(open_members(read_set(current.file), options=remote), current.members, strict=True)
    opened = [*old, *((shard.shard, shard.member) for shard in shards)]
    return seal_set(
        current.path,
        [member.name for _, member in opened],
        target.format,
        metadata=json.dumps(metadata, separators=(",", ":")).encode("ascii"),
        generation=current.generation + 1,
        replace=True,
        options=remote,
        opened=opened,
    )
