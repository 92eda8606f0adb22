"""Writes a store from a source: native threads read ahead, one writer takes the pieces in order."""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Literal

from fastio import _native
from fastio.converters.ahead import check_jobs, chunks_through, pieces_of, threads
from fastio.converters.lossy_masks import LossyMasks
from fastio.converters.pack_problems import check_pictures, miscounted, nothing_left, stop_at
from fastio.converters.pack_record import (
    PackRecord,
    chunk_bytes,
    join_records,
    metadata_of,
    sorted_problems,
    source_metadata,
)
from fastio.converters.pack_report import PackReport
from fastio.converters.planned.options import PackOptions, Progress
from fastio.converters.planned.part import Part
from fastio.converters.raw import Raw
from fastio.converters.source import Chunk, Source, Stage
from fastio.converters.stages import stages_of
from fastio.converters.transcode import Transcode
from fastio.errors import StoreError
from fastio.store import SampleWriter, check_target, create_store, open_store
from fastio.store.files.local import path_text
from fastio.store.files.remote_options import DEFAULT, RemoteOptions
from fastio.store.formats import shard_suffixes
from fastio.store.jump_tables import JumpRule
from fastio.store.target import NUMBER, target_format

__all__ = ["check_one_file", "pack"]


def pack(  # noqa: PLR0913 - an option of the command each
    source: Source,
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
    remote: RemoteOptions = DEFAULT,
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
    if not hasattr(source, "chunks"):
        raise TypeError(
            f"{source!r:.60}: expected a source, got {type(source).__name__}: pack(open_source('data'), 'out.lmdb') "
            "packs files; fastio.pack takes datasets"
        )
    if on_error == "raise" and source.problems:
        raise stop_at(source, source.problems[0], of=len(source.problems))
    if pictures is not None:
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
    check_one_file(out, resume=resume, append=append, part=part)
    if NUMBER.search(Path(out).name):
        from fastio.converters.planned.pack_set import pack_set

        return pack_set(source, out, pictures, options)
    return _pack_file(source, out, pictures, options)


def check_one_file(out: str, *, resume: bool, append: bool, part: Part | None) -> None:
    """Raise StoreError if ``out`` is a single file and an option is given that only sets of shards have."""
    option = "--resume" if resume else "--append" if append else "--part" if part is not None else None
    if option is None or NUMBER.search(Path(out).name):
        return
    raise StoreError(
        f"{out}: is a single file, which is packed as a whole, so {option} has nothing to go by: pack shards, named "
        f"like name-%06d{shard_suffixes()[0]}"
    )


def _pack_file(source: Source, out: str, pictures: Transcode | Raw | None, options: PackOptions) -> PackReport:
    """Pack everything into one file."""
    begun = time.perf_counter()
    check_target(out, overwrite=options.overwrite, shard_bytes=options.shard_bytes)
    stage = None if pictures is None else stages_of(pictures, source)()
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
                if options.progress is not None:
                    options.progress(len(chunk.batch.keys), chunk_bytes(chunk))
            record.add(chunk)
        skipped = sorted_problems([*source.problems, *record.skipped])
        if writer is None:
            raise nothing_left(source, skipped)
        if record.samples + len(skipped) != len(source):
            raise miscounted(source, expected=len(source), packed=record.samples, skipped=len(skipped))
        writer.close(metadata_of(source_metadata(source), join_records([record.to_json()])))
        # From here on, an error has the writer's note that the store is complete.
        with open_store(out) as store:
            return PackReport(
                path=out,
                format=store.format,
                found=len(source) + len(source.left_out),
                packed=record.samples,
                skipped=skipped,
                left_out=source.left_out,
                left_out_columns=(source.metadata.get("source") or {}).get("left_out") or (),
                payload_bytes=record.payload_bytes,
                source_bytes=record.payload_bytes if stage is None else stage.source_bytes,
                packing={} if stage is None else stage.record,
                source_disk_bytes=source.disk_bytes,
                store_bytes=store.size_bytes,
                shards=1,
                files_opened=source.files_opened,
                seconds=time.perf_counter() - begun,
            )


def _chunks(
    source: Source, stage: Stage | None, jobs: int | None, *, jump: JumpRule | None
) -> Generator[Chunk, None, None]:
    """
    The source's chunks in order, after the stage if there is one, with start points by ``jump``.

    When the packer leaves early, the threads end before its files are removed.
    """
    with (
        closing(_native.ThreadPool(threads(jobs))) as pool,
        closing(chunks_through(source, pieces_of(source), stage, pool, jump=jump)) as chunks,
    ):
        yield from chunks
