"""Writes a store from a source: native threads read ahead, one writer takes the pieces in order."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any, Literal

from fastio import _native
from fastio.converters.ahead import chunks_through
from fastio.converters.describe import store_bytes
from fastio.converters.lossy_masks import LossyMasks
from fastio.converters.raw import Raw
from fastio.converters.scan import shown
from fastio.converters.source import Chunk, Problem, Source, Stage
from fastio.converters.transcode import Transcode
from fastio.errors import SourceError
from fastio.machine import available_cpus
from fastio.store import SampleWriter, check_target, create_store, open_store
from fastio.types.schema import POINTS

__all__ = ["PackReport", "pack"]

# A piece of work: large enough that Python costs nothing beside it, small enough that memory stays small:
# a handful of pieces is held, see ``read_ahead``, plus what a single larger file needs.
CHUNK_BYTES = 8 << 20
CHUNK_SAMPLES = 512
MAX_JOBS = 16  # more readers than this only fight for the one writer


@dataclass(frozen=True, slots=True)
class PackReport:
    """What a run of ``pack`` did. ``found`` is always the sum of ``packed``, skipped and left out."""

    path: str
    format: str
    found: int
    packed: int
    skipped: Sequence[Problem]
    left_out: Sequence[Problem]  # files that are no samples, and what the user's filters leave out
    payload_bytes: int  # the samples' bytes that went into the store
    source_bytes: int  # the same samples' bytes in the source
    packing: Mapping[str, Any]  # what was done to the pictures, as the store records it; empty: nothing
    source_disk_bytes: int  # what the files take on disk, in blocks
    store_bytes: int
    shards: int
    files_opened: int
    seconds: float

    @property
    def overhead_bytes(self) -> float:
        """Bytes per sample that the store takes beyond the sample itself."""
        return (self.store_bytes - self.payload_bytes) / self.packed


def pack(
    source: Source,
    out: str | os.PathLike[str],
    *,
    pictures: Transcode | Raw | None = None,
    jobs: int | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    shard_bytes: int | None = None,
    overwrite: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> PackReport:
    """
    Pack all samples of ``source`` into the store ``out``, whose suffix names the format.

    Bytes are kept unchanged unless ``pictures`` says how to change them; the store's ``metadata["packing"]`` then
    records it. ``jobs`` native threads work ahead (default: the CPUs this process may use, at most 16). A bad sample
    stops the run (``raise``), or is left out and listed in the store's ledger ``metadata["skipped"]`` (``skip``). The
    result does not depend on ``jobs``. Whatever fails, the old content of the final name stays until the store is
    complete. ``progress(samples, bytes)`` is called for every piece written.
    """
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error={on_error!r}: expected 'raise' or 'skip'")
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs={jobs}: expected at least 1")
    begun = time.perf_counter()
    if on_error == "raise" and source.problems:
        raise _stop(source, source.problems[0], of=len(source.problems))
    if pictures is not None:
        _check_pictures(source, pictures)
    check_target(out, overwrite=overwrite, shard_bytes=shard_bytes)
    stage = None if pictures is None else pictures.stage()
    done = _Done(list(source.problems), LossyMasks(source.schema))
    with ExitStack() as writers, closing(_chunks(source, stage, jobs)) as chunks:
        writer: SampleWriter | None = None
        for chunk in chunks:
            if chunk.problems and on_error == "raise":
                raise _stop(source, chunk.problems[0], of=1)
            if chunk.batch.keys and writer is None:  # only now a stage knows what it makes
                schema = source.schema if stage is None else stage.schema(source.schema)
                writer = create_store(out, schema, overwrite=overwrite, shard_bytes=shard_bytes)
                writers.enter_context(writer)
            done.write(chunk, writer, progress)
        if writer is None:
            raise _nothing_left(source, done.skipped)
        if done.samples + len(done.skipped) != len(source):
            raise _miscounted(source, done)
        writer.close(_metadata(source, stage, done))
        # Here, an error has the writer's note that the store is complete.
        return _report(source, stage, os.fspath(out), done, seconds=time.perf_counter() - begun)


@dataclass(slots=True)
class _Done:
    """What has been written so far, and what has not."""

    skipped: list[Problem]
    lossy_masks: LossyMasks
    misnamed: list[Problem] = field(default_factory=list)
    samples: int = 0
    size_bytes: int = 0

    def write(self, chunk: Chunk, writer: SampleWriter | None, progress: Callable[[int, int], object] | None) -> None:
        self.skipped += chunk.problems
        if chunk.misnamed:
            bad = {problem.key for problem in chunk.problems}
            self.misnamed += [each for each in chunk.misnamed if each.key not in bad]
        if writer is None or not chunk.batch.keys:
            return
        writer.append(chunk.batch)
        self.lossy_masks.count(chunk.batch)
        size = sum(int(spans.sizes.sum()) for spans in chunk.batch.spans.values())
        self.samples += len(chunk.batch.keys)
        self.size_bytes += size
        if progress is not None:
            progress(len(chunk.batch.keys), size)


def _report(source: Source, stage: Stage | None, out: str, done: _Done, *, seconds: float) -> PackReport:
    """What was done, and the size of the store as it now lies there and opens."""
    with open_store(out) as store:
        return PackReport(
            path=out,
            format=store.format,
            found=len(source) + len(source.left_out),
            packed=done.samples,
            skipped=_sorted(done.skipped),
            left_out=source.left_out,
            payload_bytes=done.size_bytes,
            source_bytes=done.size_bytes if stage is None else stage.source_bytes,
            packing={} if stage is None else stage.record,
            source_disk_bytes=source.disk_bytes,
            store_bytes=store_bytes(store),
            shards=len(store.shard_paths),
            files_opened=source.files_opened,
            seconds=seconds,
        )


def _chunks(source: Source, stage: Stage | None, jobs: int | None) -> Generator[Chunk, None, None]:
    """
    The source's chunks in order, after the stage where there is one.

    When the packer leaves early, the threads end before its files are removed.
    """
    pieces = source.chunks(CHUNK_BYTES, CHUNK_SAMPLES)
    with (
        closing(_native.ThreadPool(jobs or min(available_cpus(), MAX_JOBS))) as pool,
        closing(chunks_through(source, pieces, stage, pool)) as chunks,
    ):
        yield from chunks


def _metadata(source: Source, stage: Stage | None, done: _Done) -> dict[str, Any]:
    packing = {} if stage is None else {"packing": stage.record}
    ledgers = {"left_aside": source.left_out, "misnamed": done.misnamed}
    listed = {name: _ledger(problems) for name, problems in ledgers.items() if problems}
    return {**source.metadata, **packing, **listed, **done.lossy_masks.metadata, "skipped": _ledger(done.skipped)}


def _ledger(problems: Sequence[Problem]) -> list[dict[str, str]]:
    return [{"key": problem.key, "problem": problem.problem} for problem in _sorted(problems)]


def _sorted(problems: Sequence[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda problem: problem.key)


def _check_pictures(source: Source, pictures: Transcode | Raw) -> None:
    """
    SourceError where there is nothing that could be decoded or written anew (it would be on record as done), or where
    other fields hold positions in pictures whose size would change.
    """
    tied = [field for field in source.schema.payload if field.traits.is_mask or field.is_box or field.role == POINTS]
    if tied and _changes_sizes(pictures):
        raise SourceError(
            f"{shown(source.path)}: has {', '.join(map(str, tied))}, which would no longer fit pictures of other "
            "sizes: drop the options that change sizes (--short-side, --max-side, --resize), and resize while loading: "
            "transforms move masks, boxes and points along"
        )
    if not any(field.traits.is_image for field in source.schema.payload):
        raise SourceError(
            f"{shown(source.path)}: holds no encoded pictures, but "
            f"{', '.join(map(str, source.schema.payload))}: drop the options that change pictures (--restart, "
            "--short-side, --max-side, --resize, --raw)"
        )


def _changes_sizes(pictures: Transcode | Raw) -> bool:
    return pictures.resize is not None or (isinstance(pictures, Transcode) and pictures.side is not None)


def _stop(source: Source, problem: Problem, *, of: int) -> SourceError:
    more = f" (the first of {of} problems)" if of > 1 else ""
    path = shown(source.path)
    folder, slash, name = path.rpartition("/")
    where = f"{folder}{slash}{problem.key}" if problem.key.startswith(f"{name}:") else f"{path}/{problem.key}"
    return SourceError(f"{where}: {problem.problem}{more}; correct it, or skip such samples with --on-error skip")


def _miscounted(source: Source, done: _Done) -> SourceError:
    return SourceError(
        f"{shown(source.path)}: {len(source)} samples were found, but {done.samples} packed and "
        f"{len(done.skipped)} skipped; the source yielded other samples than it announced. Nothing was kept; please "
        "report this"
    )


def _nothing_left(source: Source, skipped: Sequence[Problem]) -> SourceError:
    if not skipped:
        left = f"; {len(source.left_out)} files are not samples, or are left out" if source.left_out else ""
        return SourceError(f"{shown(source.path)}: nothing to pack, the source has no samples{left}")
    first = _sorted(skipped)[0]
    return SourceError(
        f"{shown(source.path)}: nothing left to pack, all {len(skipped)} have problems; "
        f"the first: {first.key} {first.problem}"
    )
