"""PlannedShard: a shard that was packed by a plan, as it lies there; and which plan that is, in its own words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastio.converters.pack_record import PackRecord, source_metadata
from fastio.converters.planned.plan import PackPlan
from fastio.converters.source import Source
from fastio.errors import StoreCorrupt, StoreError, StoreIncomplete
from fastio.store.format import Format
from fastio.store.sealed import Shard
from fastio.store.set_object import SetMember
from fastio.store.sets import read_member
from fastio.store.store_folder import StoreFolder

__all__ = ["PlannedShard", "is_foreign", "open_shard", "shard_metadata"]


@dataclass(frozen=True, slots=True)
class PlannedShard:
    """One whole shard: its index, how a set lists it, and what its metadata says."""

    shard: Shard
    member: SetMember
    plan: Mapping[str, Any]  # ``PackPlan.record``, and "shard", "first", "stop": its number and its samples
    packed: Mapping[str, Any]  # ``PackRecord.to_json``
    source: Mapping[str, Any] | None  # ``source_metadata``: only the first shard of a set has it

    @property
    def number(self) -> int:
        """Which shard of its plan this is."""
        assert self.shard.seal is not None
        return self.shard.seal.shard


def shard_metadata(plan: PackPlan, number: int, source: Source, record: PackRecord) -> dict[str, Any]:
    """
    Return the metadata of a shard.

    What is known of the whole source stands in the first shard alone: thousands of copies of thousands of class names
    would cost more than they are worth, as nothing but the whole set can be opened.
    """
    samples = plan.samples_of(number)
    place = {"shard": number, "first": samples.start, "stop": samples.stop}
    metadata = {"plan": {**plan.record, **place}, "packed": record.to_json()}
    return metadata if number else {**metadata, "source": source_metadata(source)}


def open_shard(folder: StoreFolder, name: str, form: Format) -> PlannedShard:
    """
    Open a shard. Its seal and its index are checked, not the bytes of its samples: each of them is compared with its
    checksum when it is read, and ``fastio verify`` compares all.

    Raises StoreIncomplete or StoreCorrupt if it is not whole, and StoreError if it was not packed by a plan.
    """
    shard, member = read_member(folder, name, form)
    if shard.seal is None or not shard.seal.is_alone or not shard.seal.plan:
        raise StoreError(
            f"{folder.full(name)}: is a whole file that was not packed by a plan; choose another name, or replace it "
            "with --overwrite (in Python overwrite=True)"
        )
    metadata = json.loads(shard.metadata)
    if not {"plan", "packed"} <= metadata.keys():
        raise StoreError(
            f"{folder.full(name)}: is a shard of another kind of run, which cannot be continued here: choose another "
            "name, or --overwrite"
        )
    return PlannedShard(shard, member, metadata["plan"], metadata["packed"], metadata.get("source"))


def is_foreign(folder: StoreFolder, name: str, form: Format) -> bool:
    """Return whether a file without a seal is a whole one of another program, not one of ours that was cut off."""
    if form.foreign is None:
        return False
    file = folder.open(name)
    try:
        form.foreign.open(file)
    except (StoreIncomplete, StoreCorrupt):
        return False
    except StoreError:
        return True
    finally:
        file.release()
    return True
