"""Packs a set of shards by its plan: all of it, what is missing, or one part."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from fastio.converters.pack_problems import nothing_left
from fastio.converters.pack_record import join_records, sorted_problems
from fastio.converters.pack_report import PackReport
from fastio.converters.planned.append import check_classes, classes_at
from fastio.converters.planned.newer_files import warn_of_newer_files
from fastio.converters.planned.options import PackOptions
from fastio.converters.planned.plan import PackPlan, plan_of
from fastio.converters.planned.planned_set import PlannedSet, set_object_at
from fastio.converters.planned.seal import seal_shards
from fastio.converters.planned.seal_append import seal_appended
from fastio.converters.planned.shards import PlannedShard, open_shard
from fastio.converters.raw import Raw
from fastio.converters.relabelled import relabelled
from fastio.converters.source import Problem, Source
from fastio.converters.transcode import Transcode
from fastio.errors import SampleError, SchemaError, SourceError, StoreError
from fastio.store.folders import folder_of
from fastio.store.formats import shard_suffixes
from fastio.store.jump_tables import JumpRule
from fastio.store.publish import COMPLETE
from fastio.store.target import target_format
from fastio.store.write_target import Target
from fastio.types.units import counted

__all__ = ["Make", "pack_here", "pack_set", "plan_for"]

SHARD_BYTES = 1 << 30


# Makes these shards of a set, and yields the number of each when it is finished.
Make = Callable[[PlannedSet, Sequence[int]], Iterable[int]]


def pack_here(planned: PlannedSet, numbers: Sequence[int]) -> Iterable[int]:
    """Make shards in this process, one after the other."""
    return planned.pack(numbers, planned.options.progress)


def pack_set(
    source: Source, out: str, pictures: Transcode | Raw | None, options: PackOptions, *, make: Make = pack_here
) -> PackReport:
    """
    Pack a source to shards; ``pack`` says how. ``make`` may have the shards made elsewhere: the rest, what is kept,
    refused, removed and sealed, stays the same.
    """
    begun = time.perf_counter()
    check_set(out, options.shard_bytes)
    if options.append:
        classes = classes_at(out, options.remote)
        check_classes(source, classes, out, new_classes=options.new_classes)
        source = relabelled(source, classes)
    plan = plan_for(source, out, pictures, options)
    if options.resume or options.part is not None:
        plan = _as_begun(plan, out, options)
    with PlannedSet.begin(plan, source, out, options) as planned:
        return _packed(planned, make, begun)


def _packed(planned: PlannedSet, make: Make, begun: float) -> PackReport:
    """Make the shards that are missing, and the set once all are there."""
    source, plan, options = planned.source, planned.plan, planned.options
    numbers = range(len(plan)) if options.part is None else options.part.numbers(len(plan))
    kept = planned.existing(numbers) if options.resume or options.part is not None else {}
    if options.resume or options.part is not None:
        warn_of_newer_files(planned, kept)
    if kept and options.progress is not None:
        options.progress(sum(shard.member.count for shard in kept.values()), 0)
    made = _made(planned, [number for number in numbers if number not in kept], make, kept=len(kept))
    opened = {number: open_shard(planned.folder, planned.name(number), planned.target.format) for number in made}
    shards = {**kept, **opened}
    missing: Sequence[int] = ()
    if options.part is None:
        if not _has_samples(shards):
            planned.remove(made)
            raise nothing_left(source, _problems(source, shards))
        _seal(planned, shards)
    elif not planned.is_sealed:
        others, missing = _of_others(planned, shards)
        if not missing:
            _seal(planned, {**others, **shards})
    try:
        return _report(planned, shards, kept=kept, missing=missing, seconds=time.perf_counter() - begun)
    except BaseException as exc:  # an interrupt
        if not missing:
            exc.add_note(f"{planned.target.path}: {COMPLETE}")
        raise


def check_set(out: str, shard_bytes: int | None) -> None:
    """Raise StoreError if shards cannot be named so, or not be of this size; the folder is not looked at."""
    form = target_format(out)
    if not form.has_shards:
        others = " or ".join(shard_suffixes())
        raise StoreError(f"{out}: {form.name} stores are one file: drop the number, or pack to {others}")
    if shard_bytes is not None and (not isinstance(shard_bytes, int) or shard_bytes < 1):
        raise StoreError(f"{out}: expected a shard size in bytes, a whole number from 1 on, got {shard_bytes!r}")


def plan_for(source: Source, out: str, pictures: Transcode | Raw | None, options: PackOptions) -> PackPlan:
    """Return the plan by which ``source`` is packed to ``out``. Raises SourceError if there is nothing to pack."""
    shard_bytes = options.shard_bytes or SHARD_BYTES
    plan = plan_of(source, target_format(out), shard_bytes=shard_bytes, pictures=pictures)
    if not len(plan):
        raise nothing_left(source, source.problems)
    return plan if options.jump is False else plan.with_jump(JumpRule())


def _as_begun(plan: PackPlan, out: str, options: PackOptions) -> PackPlan:
    """
    Return the plan by which shards of this source are there, where it is another one in its start points alone: those
    of older versions of fastio have none, or also in small pictures. What ``options.jump`` asks for is kept.
    """
    rules = [None, JumpRule(0)] if options.jump is None else [JumpRule(0)] if options.jump else []
    others = {other.digest: other for other in map(plan.with_jump, rules)}
    if others.keys() <= {plan.digest}:
        return plan
    target = Target(out, target_format(out), options.overwrite)
    folder, _ = folder_of(out, options.remote)
    current = set_object_at(folder, target)
    listed = {} if current is None else {member.name: member.plan for member in current.members}
    digests = set(listed.values())
    if plan.digest in digests:
        return plan
    for digest in digests & others.keys():
        return others[digest]
    for name in sorted(folder.entries()):
        if target.number_of(name) is None or name in listed:
            continue
        try:
            digest = open_shard(folder, name, target.format).member.plan
        except StoreError:
            continue
        return others.get(digest, plan)
    return plan


def _made(planned: PlannedSet, numbers: Sequence[int], make: Make, *, kept: int) -> list[int]:
    """
    Have these shards made, and return their numbers.

    A bad sample ends a pack from the beginning, and what it made is removed; whatever else ends a pack leaves finished
    shards, which are whole, and the error says so in a note.
    """
    made: list[int] = []
    options = planned.options
    try:
        for number in make(planned, numbers):
            made.append(number)
    except (SourceError, SampleError, SchemaError) as exc:
        if options.resume or options.part is not None:
            _note(exc, planned, len(made) + kept)
        else:
            planned.remove(made)
        raise
    except BaseException as exc:
        _note(exc, planned, len(made) + kept)
        raise
    return made


def _note(error: BaseException, planned: PlannedSet, finished: int) -> None:
    if finished:
        total = counted(len(planned.plan), "shard")
        verbs = "is finished and stays" if finished == 1 else "are finished and stay"
        error.add_note(f"{planned.target.path}: {finished:,} of {total} {verbs}: go on with --resume")


def _has_samples(shards: Mapping[int, PlannedShard]) -> bool:
    return any(shard.member.count for shard in shards.values())


def _problems(source: Source, shards: Mapping[int, PlannedShard]) -> list[Problem]:
    """All problems of these shards, and those of the scan if the first one is among them."""
    entries = [entry for shard in shards.values() for entry in shard.packed["skipped"]]
    of_scan = source.problems if 0 in shards else ()
    return sorted_problems([*of_scan, *(Problem(entry["key"], entry["problem"]) for entry in entries)])


def _of_others(planned: PlannedSet, shards: Mapping[int, PlannedShard]) -> tuple[dict[int, PlannedShard], list[int]]:
    """The shards beside these, as they are now, and which are missing; if any is, nothing is opened."""
    names = planned.folder.entries()
    others = [number for number in range(len(planned.plan)) if number not in shards]
    missing = [number for number in others if planned.name(number) not in names]
    if missing:
        return {}, missing
    opened = planned.existing(others, names)
    return opened, [number for number in others if number not in opened]


def _seal(planned: PlannedSet, shards: Mapping[int, PlannedShard]) -> None:
    """Make the set, unless it is one already."""
    if planned.is_sealed:
        return
    ordered = [shards[number] for number in sorted(shards)]
    try:
        if planned.options.append:
            assert planned.current is not None, "checked"
            name = str(planned.source.metadata.get("source", {}).get("name"))
            seal_appended(planned.target, ordered, planned.current, name, remote=planned.options.remote)
        else:
            seal_shards(planned.target, planned.folder, ordered, planned.current, remote=planned.options.remote)
    except BaseException as exc:
        if not any(COMPLETE in note for note in getattr(exc, "__notes__", ())):
            _note(exc, planned, len(ordered))
        raise


def _report(
    planned: PlannedSet,
    shards: Mapping[int, PlannedShard],
    *,
    kept: Mapping[int, PlannedShard],
    missing: Sequence[int],
    seconds: float,
) -> PackReport:
    source, record = planned.source, join_records(shards[number].packed for number in sorted(shards))
    skipped = _problems(source, shards)
    left_out = source.left_out if 0 in shards else ()
    packing = record["packing"] or {}
    return PackReport(
        path=planned.target.path,
        format=planned.target.format.name,
        found=record["samples"] + len(skipped) + len(left_out),
        packed=record["samples"],
        skipped=skipped,
        left_out=left_out,
        left_out_columns=(source.metadata.get("source") or {}).get("left_out") or (),
        payload_bytes=record["payload_bytes"],
        source_bytes=packing.get("source_bytes", record["payload_bytes"]),
        packing=packing,
        source_disk_bytes=source.disk_bytes,
        store_bytes=sum(shard.member.size for shard in shards.values()),
        shards=len(shards),
        files_opened=source.files_opened,
        seconds=seconds,
        kept_shards=len(kept),
        kept_samples=sum(shard.member.count for shard in kept.values()),
        missing=missing,
    )
