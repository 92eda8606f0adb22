"""Packs a source into one file or a set of shards: native threads read ahead, one writer takes the pieces in order."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Literal, Protocol

from fastio import _native
from fastio.converters.packing.append import check_classes, classes_at, relabelled
from fastio.converters.packing.options import PackOptions, Part, Progress
from fastio.converters.packing.pipeline import check_jobs, chunks_through, encoders, pieces_of, stages_of, threads
from fastio.converters.packing.plan import PackPlan, StreamPlan, plan_of, plan_of_stream
from fastio.converters.packing.planned_set import PlannedSet, set_object_at, warn_of_newer_files
from fastio.converters.packing.record import (
    PackRecord,
    PackReport,
    check_pictures,
    found_of,
    join_records,
    metadata_of,
    miscounted,
    nothing_left,
    progress_bytes,
    sorted_problems,
    source_metadata,
    stop_at,
)
from fastio.converters.packing.seal import seal_appended, seal_shards
from fastio.converters.packing.shards import PlannedShard, open_shard
from fastio.converters.packing.stream import StreamShards
from fastio.converters.pictures.counts import LossyMasks
from fastio.converters.pictures.raw import Raw
from fastio.converters.pictures.transcode import Transcode
from fastio.converters.sources.places import joined_places
from fastio.converters.sources.source import Chunk, Source, Stage, StreamedSource, is_streamed
from fastio.errors import SampleError, SchemaError, SourceError, StoreError
from fastio.store import SampleWriter, check_target, create_store
from fastio.store.address import target_format
from fastio.store.files.local import is_local, path_text
from fastio.store.files.remote_options import DEFAULT, Remote
from fastio.store.folders import folder_of
from fastio.store.formats import shard_suffixes
from fastio.store.jump_tables import JumpRule
from fastio.store.kinds.registry import SOURCES
from fastio.store.kinds.scan import Problem
from fastio.store.sets.names import NumberedName
from fastio.store.sets.seal import ShardFiles
from fastio.store.write.atomic import COMPLETE
from fastio.store.write.target import Target
from fastio.types.units import counted

__all__ = [
    "check_one_file",
    "pack",
    "pack_set",
    "plan_for",
    "plan_for_stream",
]


def pack(  # noqa: PLR0913 - an option of the command each
    source: Source | StreamedSource,
    out: str | os.PathLike[str],
    *,
    pictures: Transcode | Raw | None = None,
    jobs: int | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    shard_bytes: int | None = None,
    overwrite: bool = False,
    resume: bool = False,
    append: bool = False,
    new_classes: bool = False,
    jump: bool | None = None,
    part: Part | None = None,
    progress: Progress | None = None,
    remote: Remote = DEFAULT,
) -> PackReport:
    """
    Pack all samples of ``source`` into the store ``out``, whose suffix names the format.

    Bytes are kept unchanged unless ``pictures`` says how to change them; the store's ``metadata["packing"]`` then
    records it. ``jobs`` native threads work ahead (default: the CPUs this process may use, at most 16). A bad sample
    stops the run (``raise``), or is left out and listed in the store's ledger ``metadata["skipped"]`` (``skip``). The
    result does not depend on ``jobs``. Whatever fails, the old content of the final name stays until the store is
    complete. ``progress(samples, bytes)`` is called for every piece written.

    A set of shards (``out-%06d.tar``) is packed shard by shard, by a plan that is made of the source. ``resume`` packs
    only the shards that are missing or damaged; ``part`` packs only those of one part, and makes the set if they were
    the last. Both raise StoreError if ``out`` is a single file, or if its shards are those of another plan. ``append``
    adds the samples to the set that is there, as its next generation, with the numbers that it has for the names of
    their classes, and raises SchemaError if they have other fields, keys that it has already, or classes that it lacks;
    with ``new_classes``, those come behind its own. ``out`` may be a URL, reached as ``remote`` says: each shard is a
    file in TMPDIR until it is uploaded.

    All codes of baseline JPEGs are read once (see ``JumpRule`` for which): damaged ones are bad samples, and the index
    keeps where their MCUs begin, so that crops decode faster. ``jump=False`` leaves both out. By default, shards that
    are there already decide for those that ``resume`` and ``part`` add. What is copied from a store stays,
    also damaged.
    """
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error={on_error!r}: expected 'raise' or 'skip'")
    check_jobs(jobs)
    if not hasattr(source, "chunks") and not is_streamed(source):
        raise TypeError(
            f"{source!r:.60}: expected a source, got {type(source).__name__}: pack(open_source('data'), 'out.lmdb') "
            "packs files; fastio.pack takes datasets"
        )
    if on_error == "raise" and source.problems:
        raise stop_at(source, source.problems[0], of=len(source.problems))
    if pictures is not None:
        if is_streamed(source):
            raise SourceError(f"{source.path}: is text: pictures= is for samples that have some")
        check_pictures(source, pictures)
    out = path_text(out, "the name of one store to write, such as 'out.lmdb' or 'out-%06d.tar'")
    options = PackOptions(
        jobs,
        on_error,
        shard_bytes,
        overwrite,
        resume,
        part,
        progress,
        remote,
        append=append,
        new_classes=new_classes,
        jump=jump,
    )
    target_format(out)
    _check_outside(source, out)
    check_one_file(out, resume=resume, append=append, part=part)
    if NumberedName.parse(Path(out).name) is not None:
        return pack_set(source, out, pictures, options)
    return _pack_file(source, out, pictures, options)


def _check_outside(source: Source | StreamedSource, out: str) -> None:
    """Raise SourceError for a store that would lie among the files that it is packed from, and be one the next time."""
    kind = SOURCES.get(source.kind)
    if kind is None or not (kind.takes_all_files and is_local(out) and Path(source.path).is_dir()):
        return
    folder, above = os.path.realpath(source.path), os.path.realpath(Path(out).parent)
    if above == folder or above.startswith(f"{folder}/"):
        raise SourceError(
            f"{out}: lies in {source.path}, where it would be one of the files to pack the next time; write it beside "
            f"that folder, as {os.path.relpath(Path(folder).parent / Path(out).name)}"
        )


def check_one_file(out: str, *, resume: bool, append: bool, part: Part | None) -> None:
    """Raise StoreError if ``out`` is a single file and an option is given that only sets of shards have."""
    option = "--resume" if resume else "--append" if append else "--part" if part is not None else None
    if option is None or NumberedName.parse(Path(out).name) is not None:
        return
    raise StoreError(
        f"{out}: is a single file, which is packed as a whole, so {option} has nothing to go by: pack shards, named "
        f"like name-%06d{shard_suffixes()[0]}"
    )


def _pack_file(
    source: Source | StreamedSource, out: str, pictures: Transcode | Raw | None, options: PackOptions
) -> PackReport:
    """Pack everything into one file."""
    begun = time.perf_counter()
    check_target(out, overwrite=options.overwrite, shard_bytes=options.shard_bytes)
    stage = None if pictures is None or is_streamed(source) else stages_of(pictures, source)()
    record = PackRecord(LossyMasks(source.schema), stage)
    jump = None if options.jump is False or isinstance(pictures, Raw) else JumpRule()
    with ExitStack() as writers, closing(_chunks(source, stage, options.jobs, jump=jump)) as chunks:
        writer: SampleWriter | None = None
        for chunk in chunks:
            if chunk.problems and options.on_error == "raise":
                raise stop_at(source, chunk.problems[0])
            if chunk.batch.keys and writer is None:  # only now a stage knows what it makes
                schema = source.schema if stage is None else stage.schema(source.schema)
                writer = create_store(out, schema, overwrite=options.overwrite)
                writers.enter_context(writer)
            if writer is not None and chunk.batch.keys:
                writer.append(chunk.batch)
            if options.progress is not None and (chunk.batch.keys or chunk.documents is not None):
                options.progress(len(chunk.batch.keys), progress_bytes(chunk))
            record.add(chunk)
        skipped = [*source.problems, *record.skipped]
        skipped = skipped if is_streamed(source) else sorted_problems(skipped)
        if writer is None:
            raise nothing_left(source, skipped)
        if not is_streamed(source) and record.samples + len(skipped) != len(source):
            raise miscounted(source, expected=len(source), packed=record.samples, skipped=len(skipped))
        writer.close(metadata_of(source_metadata(source), join_records([record.to_json()])))
        # From here on, an error has the writer's note that the store is complete.
        return PackReport(
            path=out,
            format=target_format(out).name,
            found=found_of(source, record.samples, skipped, record.documents),
            packed=record.samples if record.documents is None else record.documents.documents,
            skipped=skipped,
            left_out=source.left_out,
            left_out_columns=(source.metadata.get("source") or {}).get("left_out") or (),
            payload_bytes=record.payload_bytes,
            source_bytes=record.payload_bytes if stage is None else stage.source_bytes,
            packing={} if stage is None else stage.record,
            source_disk_bytes=source.disk_bytes,
            store_bytes=Path(out).stat().st_size,
            shards=1,
            files_opened=source.files_opened,
            seconds=time.perf_counter() - begun,
            documents=record.documents,
            blank_lines=joined_places(record.blank_lines),
            cut=joined_places(record.cut),
        )


def _chunks(
    source: Source | StreamedSource, stage: Stage | None, jobs: int | None, *, jump: JumpRule | None
) -> Generator[Chunk, None, None]:
    """
    The source's chunks in order, after the stage if there is one, with start points by ``jump``.

    When the packer leaves early, the threads end before its files are removed.
    """
    if is_streamed(source):
        with (
            closing(_native.ThreadPool(threads(jobs))) as pool,
            closing(source.samples(pool, encoders(jobs))) as chunks,
        ):
            yield from chunks
        return
    with (
        closing(_native.ThreadPool(threads(jobs))) as pool,
        closing(chunks_through(source, pieces_of(source), stage, pool, jump=jump)) as chunks,
    ):
        yield from chunks


# Packs a set of shards by its plan: all of it, what is missing, or one part.

SHARD_BYTES = 1 << 30


# Makes these shards of a set, and yields the number of each when it is finished.
PackShards = Callable[[PlannedSet, Sequence[int]], Iterable[int]]


class MissingShards(Protocol):
    """Makes the shards of a stream that are missing: see ``StreamShards``."""

    count: int | None

    def pack(self) -> Iterable[int]:
        """Yield the number of each shard when it is finished."""
        ...


PackStream = Callable[[PlannedSet, Mapping[int, PlannedShard]], MissingShards]  # with those that are there


def pack_here(planned: PlannedSet, numbers: Sequence[int]) -> Iterable[int]:
    """Make shards in this process, one after the other."""
    return planned.pack(numbers, planned.options.progress)


def pack_set(
    source: Source | StreamedSource,
    out: str,
    pictures: Transcode | Raw | None,
    options: PackOptions,
    *,
    make: PackShards = pack_here,
    stream: PackStream | None = None,
) -> PackReport:
    """
    Pack a source to shards; ``pack`` says how. ``make`` may have the shards made elsewhere, and ``stream`` those of a
    stream, by parts: the rest, what is kept, refused, removed and sealed, stays the same.
    """
    begun = time.perf_counter()
    check_set(out, options.shard_bytes)
    if options.append:
        classes = classes_at(out, options.remote)
        check_classes(source, classes, out, new_classes=options.new_classes)
        source = relabelled(source, classes)
    plan: PackPlan | StreamPlan
    if is_streamed(source):
        plan = plan_for_stream(source, out, options, by_text=options.part is not None or stream is not None)
    else:
        plan = plan_for(source, out, pictures, options)
    if options.resume or options.part is not None:
        plan = _as_begun(plan, out, options)
    with PlannedSet.begin(plan, source, out, options) as planned:
        if is_streamed(source):
            return _packed_stream(planned, stream or StreamShards, begun)
        return _packed(planned, make, begun)


def _packed_stream(planned: PlannedSet, stream_of: PackStream, begun: float) -> PackReport:
    """Make the shards of a stream that are missing, and the set once all are there."""
    source, options = planned.source, planned.options
    part = options.part or Part(0, 1)
    goes_on = options.resume or options.part is not None
    numbers = [number for number in planned.numbers_there() if number % part.count == part.index] if goes_on else []
    kept = planned.existing(numbers)
    if goes_on:
        warn_of_newer_files(planned, kept)
    if kept and options.progress is not None:
        options.progress(sum(shard.member.count for shard in kept.values()), 0)
    stream = stream_of(planned, kept)
    made = _made(planned, stream.pack(), kept=len(kept))
    opened = {number: open_shard(planned.files, planned.name(number)) for number in made}
    shards = {**kept, **opened}
    missing: Sequence[int] = ()
    others: Mapping[int, PlannedShard] = {}
    assert stream.count is not None, "the stream has ended"
    if part.count > 1 and not planned.is_sealed:
        others, missing = _of_others(planned, shards, stream.count)
    if not missing and not planned.is_sealed:
        if not _has_samples({**others, **shards}):
            planned.remove(made)
            raise nothing_left(source, _problems(source, shards))
        _seal(planned, {**others, **shards})
    return _reported(planned, shards, kept=kept, missing=missing, begun=begun)


def _packed(planned: PlannedSet, make: PackShards, begun: float) -> PackReport:
    """Make the shards that are missing, and the set once all are there."""
    (plan, source), options = planned.divided, planned.options
    numbers = range(len(plan)) if options.part is None else options.part.numbers(len(plan))
    kept = planned.existing(numbers) if options.resume or options.part is not None else {}
    if options.resume or options.part is not None:
        warn_of_newer_files(planned, kept)
    if kept and options.progress is not None:
        options.progress(sum(shard.member.count for shard in kept.values()), 0)
    absent = [number for number in numbers if number not in kept]
    made = _made(planned, make(planned, absent), kept=len(kept))
    opened = {number: open_shard(planned.files, planned.name(number)) for number in made}
    shards = {**kept, **opened}
    missing: Sequence[int] = ()
    if options.part is None:
        if not _has_samples(shards):
            planned.remove(made)
            raise nothing_left(source, _problems(source, shards))
        _seal(planned, shards)
    elif not planned.is_sealed:
        others, missing = _of_others(planned, shards, len(plan))
        if not missing:
            _seal(planned, {**others, **shards})
    return _reported(planned, shards, kept=kept, missing=missing, begun=begun)


def _reported(
    planned: PlannedSet,
    shards: Mapping[int, PlannedShard],
    *,
    kept: Mapping[int, PlannedShard],
    missing: Sequence[int],
    begun: float,
) -> PackReport:
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
    plan = plan_of(source, target_format(out), shard_bytes=shard_bytes, pictures=pictures, beside=out)
    if not len(plan):
        raise nothing_left(source, source.problems)
    return plan if options.jump is False else plan.with_jump(JumpRule())


def plan_for_stream(source: StreamedSource, out: str, options: PackOptions, *, by_text: bool) -> StreamPlan:
    """Return the plan by which a stream is packed to ``out``; ``by_text`` for parts."""
    shard_bytes = options.shard_bytes or SHARD_BYTES
    return plan_of_stream(source, target_format(out), shard_bytes=shard_bytes, by_text=by_text)


def _as_begun(plan: PackPlan | StreamPlan, out: str, options: PackOptions) -> PackPlan | StreamPlan:
    """
    Return the plan by which shards of this source are there, where it is another one in its start points alone: those
    of older versions of fastio have none, or also in small pictures. What ``options.jump`` asks for is kept. Of a
    stream that parts have begun, it is theirs.
    """
    others: dict[int, PackPlan | StreamPlan]
    if isinstance(plan, StreamPlan):
        of_parts = plan.divided(by_text=True)
        others = {of_parts.digest: of_parts}
    else:
        rules = [None, JumpRule(0)] if options.jump is None else [JumpRule(0)] if options.jump else []
        others = {other.digest: other for other in map(plan.with_jump, rules)}
    if others.keys() <= {plan.digest}:
        return plan
    target = Target.of(out, overwrite=options.overwrite)
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
            digest = open_shard(ShardFiles(folder, target.format), name).member.plan
        except StoreError:
            continue
        return others.get(digest, plan)
    return plan


def _made(planned: PlannedSet, making: Iterable[int], *, kept: int) -> list[int]:
    """
    Return the numbers of the shards that are made.

    A bad sample ends a pack from the beginning, and what it made is removed; whatever else ends a pack leaves finished
    shards, which are whole, and the error says so in a note.
    """
    made: list[int] = []
    options = planned.options
    try:
        for number in making:
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
    """Say what is kept and how to go on, unless the error itself says that these shards cannot be used."""
    if finished and "--overwrite" not in str(error):
        count = planned.plan.count
        total = "the shards" if count is None else counted(count, "shard")
        verbs = "is finished and stays" if finished == 1 else "are finished and stay"
        error.add_note(f"{planned.target.path}: {finished:,} of {total} {verbs}: go on with --resume")


def _has_samples(shards: Mapping[int, PlannedShard]) -> bool:
    return any(shard.member.count for shard in shards.values())


def _problems(source: Source | StreamedSource, shards: Mapping[int, PlannedShard]) -> list[Problem]:
    """All problems of these shards, and those of the scan if the first one is among them."""
    entries = [entry for shard in shards.values() for entry in shard.packed["skipped"]]
    of_scan = source.problems if 0 in shards else ()
    problems = [*of_scan, *(Problem(entry["key"], entry["problem"]) for entry in entries)]
    return problems if is_streamed(source) else sorted_problems(problems)


def _of_others(
    planned: PlannedSet, shards: Mapping[int, PlannedShard], count: int
) -> tuple[dict[int, PlannedShard], list[int]]:
    """The shards beside these, as they are now, and which are missing; if any is, nothing is opened."""
    names = planned.folder.entries()
    others = [number for number in range(count) if number not in shards]
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
            seal_appended(planned.target, planned.files, ordered, planned.current, name, remote=planned.options.remote)
        else:
            seal_shards(planned.target, planned.files, ordered, planned.current, remote=planned.options.remote)
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
        found=found_of(source, record["samples"], skipped, record["documents"], left_out),
        packed=record["samples"] if record["documents"] is None else record["documents"].documents,
        documents=record["documents"],
        blank_lines=record["blank_lines"],
        cut=record["cut"],
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
