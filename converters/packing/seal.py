"""Makes a set, or the next generation of one, of the shards of a plan, once all of them are there."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from fastio.converters.packing.append import part_of
from fastio.converters.packing.planned_set import set_object_at
from fastio.converters.packing.record import join_records, metadata_of
from fastio.converters.packing.shards import PlannedShard, open_shard
from fastio.errors import StoreCorrupt, StoreError, StoreIncomplete, StoreNotFound
from fastio.store.files.local import is_local
from fastio.store.files.remote_options import DEFAULT, Remote
from fastio.store.folders import folder_of
from fastio.store.index.metadata import DescribedSamples, merged_metadata
from fastio.store.index.sealed import AllShards
from fastio.store.sets.members import open_members
from fastio.store.sets.names import SET_SUFFIX, set_path
from fastio.store.sets.seal import SealedShards, ShardFiles, seal_set
from fastio.store.sets.set_object import SetMember, SetMembers, SetObject, read_set
from fastio.store.store_folder import StoreFolder
from fastio.store.write.atomic import COMPLETE, exists
from fastio.store.write.locks import claimed
from fastio.store.write.target import Target, remove_replaced
from fastio.types.units import counted

__all__ = [
    "seal",
    "seal_appended",
    "seal_shards",
]


_NAMED = 5  # most shards named in a message


def seal(out: str | os.PathLike[str], *, overwrite: bool = False, remote: Remote = DEFAULT) -> SetObject:
    """
    Make a set of the shards that parts have packed to ``out``, such as ``train-%06d.tar``; the source is not needed.

    Returns the set, also if it was sealed before. Raises StoreIncomplete with the names of shards that are missing or
    damaged, and StoreError if shards belong to several plans, or if another set is there and not to be replaced
    (``overwrite``). A set object that is damaged is made anew. Two processes may seal at once.
    """
    target = _target(os.fspath(out), overwrite=overwrite)
    folder, _ = folder_of(target.path, remote)
    is_damaged = _is_damaged(folder, target)
    current = None if is_damaged else set_object_at(folder, target)
    listed = set() if current is None else {member.name for member in current.members}
    names = [name for name in folder.entries() if target.number_of(name) is not None and name not in listed]
    if not names:
        if current is not None:
            return current
        raise StoreIncomplete(f"{target.path}: there are no shards to seal: pack first")
    files = ShardFiles(folder, target.format)
    opened, damaged = _opened(files, names)
    shards = _of_one_plan(target, opened)
    _check_whole(target, names, shards, damaged)
    first = shards[min(shards)]
    base = (target.number_of(first.member.name) or 0) - first.number
    with claimed(set_path(target.path), f"{first.member.plan:016x}-{base}") if is_local(target.path) else nullcontext():
        if is_damaged and _is_damaged(folder, target):
            folder.remove(Path(set_path(target.path)).name)
        return seal_shards(target, files, [shards[number] for number in sorted(shards)], current, remote=remote)


def _is_damaged(folder: StoreFolder, target: Target) -> bool:
    """Whether the set object cannot be read; it is read twice, as bytes may have changed on their way."""
    name = Path(set_path(target.path)).name
    for _ in range(2):
        try:
            read_set(folder.open(name))
        except StoreNotFound:
            return False
        except (StoreCorrupt, StoreIncomplete):
            continue
        return False
    return True


def seal_shards(
    target: Target,
    files: ShardFiles,
    shards: Sequence[PlannedShard],
    current: SetObject | None,
    *,
    remote: Remote = DEFAULT,
) -> SetObject:
    """Make a set of all shards of a plan, in order, in place of ``current``."""
    if current is not None and not target.overwrite:
        raise exists(current.path)
    metadata = joined_metadata(target.path, shards)
    generation = 1 if current is None else current.generation + 1
    members = [shard.member for shard in shards]
    try:
        sealed = seal_set(
            set_path(target.path),
            [member.name for member in members],
            target.format,
            metadata=json.dumps(metadata, separators=(",", ":")).encode("ascii"),
            generation=generation,
            replace=current is not None,
            options=remote,
            opened=(SealedShards(files, members), members),
        )
        if target.overwrite:
            _remove_replaced(target, files.folder, sealed, current)
    except BaseException as exc:
        if _is_sealed(target, files.folder, generation, members):
            exc.add_note(f"{target.path}: {COMPLETE}")
        raise
    return sealed


def _is_sealed(target: Target, folder: StoreFolder, generation: int, members: Sequence[SetMember]) -> bool:
    """Whether these shards are the set now, although sealing them ended with an error or an interrupt."""
    try:
        sealed = set_object_at(folder, target)
    except StoreError:
        return False
    return sealed is not None and (sealed.generation, sealed.members) == (generation, SetMembers.of(members))


def _remove_replaced(target: Target, folder: StoreFolder, sealed: SetObject, current: SetObject | None) -> None:
    """Remove shards that the new set has replaced, unless another set of the folder may list them."""
    if is_local(target.path):
        remove_replaced(target, sealed.members)
        return
    sets = [name for name in folder.entries() if name.endswith(SET_SUFFIX)]
    kept = {member.name for member in sealed.members}
    for member in () if current is None or len(sets) > 1 else current.members:
        if member.name not in kept and target.number_of(member.name) is not None:
            folder.remove(member.name)


def joined_metadata(path: str, shards: Sequence[PlannedShard]) -> dict[str, Any]:
    """Return what one file with the samples of all these shards would say. Raises StoreCorrupt if it cannot be."""
    record = join_records(shard.packed for shard in shards)
    if "stream" in shards[0].plan:
        _check_joins(path, shards)
        source = shards[-1].source
        if source is None:
            raise StoreCorrupt(f"{path}: the last shard does not say that it is: pack again with --overwrite")
        return metadata_of(source, record)
    source, expected = shards[0].source, shards[0].plan["samples"]
    if source is None or record["samples"] + len(record["skipped"]) != expected:
        raise StoreCorrupt(
            f"{path}: the plan has {expected} samples, but the shards hold {record['samples']} and skipped "
            f"{len(record['skipped'])}: pack again with --overwrite"
        )
    return metadata_of(source, record)


def _check_joins(path: str, shards: Sequence[PlannedShard]) -> None:
    """
    Raise StoreError if a shard of a stream does not begin where the one before stops, or not after the same content:
    samples would be lost, doubled, or partly those of another state of the source.
    """
    at, content, before = [0, 0], 0, ""
    for shard in shards:
        contents = shard.plan.get("content") or (content, 0)  # those of older shards are not known
        if (shard.plan["first"], contents[0]) != (at, content):
            where = f"where {before} stops" if before else "at the beginning of the source"
            raise StoreError(
                f"{path}: {shard.member.name} does not begin {where}: the content of the source changed between the "
                "runs that packed them: pack all again with --overwrite (in Python overwrite=True)"
            )
        at, content, before = shard.plan["stop"], contents[1], shard.member.name


def _target(path: str, *, overwrite: bool) -> Target:
    target = Target.of(path, overwrite=overwrite)
    if not target.is_set:
        raise StoreError(
            f"{path}: is the name of one file: name all shards at once, as they were packed, e.g. train-%06d.tar"
        )
    return target


def _opened(files: ShardFiles, names: Sequence[str]) -> tuple[dict[str, PlannedShard], dict[str, str]]:
    """Open all shards; those that are not whole go to the second result, with the reason."""
    shards, damaged = {}, {}
    for name in names:
        try:
            shards[name] = open_shard(files, name)
        except (StoreCorrupt, StoreIncomplete) as exc:
            damaged[name] = str(exc)
    return shards, damaged


def _of_one_plan(target: Target, shards: Mapping[str, PlannedShard]) -> dict[int, PlannedShard]:
    """The shards by their numbers. StoreError if they are of several plans, or one has another's name."""
    plans = Counter(shard.member.plan for shard in shards.values())
    if len(plans) > 1:
        first = {shard.member.plan: name for name, shard in sorted(shards.items(), reverse=True)}
        words = " and ".join(f"{count} such as {first[plan]}" for plan, count in plans.most_common())
        raise StoreError(
            f"{target.path}: its shards belong to {len(plans)} plans: {words}: the source or the options changed "
            "between the parts. Pack all again with --overwrite"
        )
    contents = {shard.plan["contents"]: name for name, shard in sorted(shards.items()) if "contents" in shard.plan}
    if len(contents) > 1:
        words = " and ".join(sorted(contents.values()))
        raise StoreError(
            f"{target.path}: the contents of the source, by its checksums, changed between the parts, such as {words}. "
            "Pack all again with --overwrite"
        )
    bases = {name: (target.number_of(name) or 0) - shard.number for name, shard in shards.items()}
    base = min(bases.values(), default=0)
    for name, other in bases.items():
        if other != base:
            raise StoreError(
                f"{target.path}: {name} is shard {shards[name].number} of its plan under another number; it was "
                "renamed or copied: give it its name again"
            )
    return {shard.number: shard for shard in shards.values()}


def _check_whole(
    target: Target, names: Sequence[str], shards: Mapping[int, PlannedShard], damaged: Mapping[str, str]
) -> None:
    """Raise StoreIncomplete if a shard of the plan is missing or damaged."""
    if not shards:
        raise StoreIncomplete(f"{target.path}: none of {counted(len(names), 'shard')} is whole: {damaged[names[0]]}")
    number, shard = next(iter(shards.items()))
    base = (target.number_of(shard.member.name) or 0) - number
    total = max((each.plan.get("shards", 0) for each in shards.values()), default=0)  # of a stream, the last one knows
    if not total:
        raise StoreIncomplete(
            f"{target.path}: {counted(len(shards), 'shard')} {'is' if len(shards) == 1 else 'are'} whole, but the last "
            "one is missing: wait for the parts that pack it, or go on with --resume"
        )
    missing = [Path(target.shard(base + other)).name for other in range(total) if other not in shards]
    if not missing:
        return
    words = [name + (" (damaged)" if name in damaged else "") for name in missing[:_NAMED]]
    more = ", ..." if len(missing) > _NAMED else ""
    raise StoreIncomplete(
        f"{target.path}: {len(shards):,} of {counted(total, 'shard')} {'is' if len(shards) == 1 else 'are'} whole; "
        f"missing: {', '.join(words)}{more}: wait for the parts that pack them, or pack them with --resume"
    )


# Makes the next generation of a set, with the shards of one more plan behind those that it has.


def seal_appended(
    target: Target,
    files: ShardFiles,
    shards: Sequence[PlannedShard],
    current: SetObject,
    source: str,
    *,
    remote: Remote = DEFAULT,
) -> SetObject:
    """Make the next generation of ``current``: its shards, then these. Raises StoreError if it is another one now."""
    new = DescribedSamples(source, joined_metadata(target.path, shards), sum(shard.member.count for shard in shards))
    metadata = merged_metadata([part_of(current), new])
    appended = SealedShards(files, [shard.member for shard in shards])
    members = [*current.members, *appended.members]
    return seal_set(
        current.path,
        [member.name for member in members],
        target.format,
        metadata=json.dumps(metadata, separators=(",", ":")).encode("ascii"),
        generation=current.generation + 1,
        replace=True,
        options=remote,
        opened=(AllShards([open_members(read_set(current.file), options=remote), appended]), members),
    )
