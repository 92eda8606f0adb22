"""Writes a store from a source: native threads read ahead, one writer takes the pieces in their order."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal

from fastio import _native
from fastio.converters.ahead import read_ahead
from fastio.converters.base import Chunk, Problem, Source
from fastio.converters.describe import store_bytes
from fastio.converters.scan import shown
from fastio.errors import SourceError
from fastio.machine import available_cpus
from fastio.store import create_store, open_store

__all__ = ["PackReport", "pack"]

# A piece of work: large enough that Python costs nothing beside it, small enough that memory stays small:
# a handful of pieces is held, see ``read_ahead``, plus what a single larger file needs.
CHUNK_BYTES = 8 << 20
CHUNK_SAMPLES = 512
MAX_JOBS = 16  # more readers than this only fight for the one writer


@dataclass(frozen=True, slots=True)
class PackReport:
    """What a run of ``pack`` did. ``found`` is always ``packed`` and the skipped ones together."""

    path: str
    format: str
    found: int
    packed: int
    skipped: Sequence[Problem]
    payload_bytes: int  # the encoded bytes that went into the store
    source_disk_bytes: int  # what the files take on disk, in blocks
    store_bytes: int
    shards: int
    files_opened: int
    seconds: float

    @property
    def overhead_bytes(self) -> float:
        """Bytes a sample that the store takes beyond the sample itself."""
        return (self.store_bytes - self.payload_bytes) / self.packed


def pack(
    source: Source,
    out: str | os.PathLike[str],
    *,
    jobs: int | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    shard_bytes: int | None = None,
    overwrite: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> PackReport:
    """
    Pack all samples of ``source`` into the store ``out``, whose format its suffix names.

    ``jobs`` native threads read ahead (default: the CPUs this process may use, 16 at most). A bad sample stops the run
    (``raise``) or is left out and kept in the store's ledger, ``metadata["skipped"]``
    (``skip``). The result does not depend on ``jobs``. Whatever fails, nothing lies
    under the final name. ``progress(samples, bytes)`` is told of every piece written.
    """
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error={on_error!r}: expected 'raise' or 'skip'")
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs={jobs}: expected at least 1")
    begun = time.perf_counter()
    skipped = list(source.problems)
    if on_error == "raise" and skipped:
        raise _stop(source, skipped[0], of=len(skipped))
    if len(source) == len(skipped):
        raise _nothing_left(source, skipped)
    packed, payload_bytes = 0, 0
    with create_store(out, source.schema, overwrite=overwrite, shard_bytes=shard_bytes) as writer:
        for chunk in _read(source, jobs):
            if chunk.problems and on_error == "raise":
                raise _stop(source, chunk.problems[0], of=1)
            skipped += chunk.problems
            if not chunk.batch.keys:
                continue
            writer.append(chunk.batch)
            size = sum(int(spans.sizes.sum()) for spans in chunk.batch.spans.values())
            packed += len(chunk.batch.keys)
            payload_bytes += size
            if progress is not None:
                progress(len(chunk.batch.keys), size)
        skipped.sort(key=lambda problem: problem.key)
        if not packed:
            raise _nothing_left(source, skipped)
        if packed + len(skipped) != len(source):
            raise _miscounted(source, packed, len(skipped))
        writer.close(_metadata(source, skipped))
    seconds = time.perf_counter() - begun
    return _report(source, os.fspath(out), skipped, packed=packed, payload_bytes=payload_bytes, seconds=seconds)


def _report(
    source: Source, out: str, skipped: Sequence[Problem], *, packed: int, payload_bytes: int, seconds: float
) -> PackReport:
    """What was done, and the size of the store as it now lies there and opens."""
    with open_store(out) as store:
        return PackReport(
            path=out,
            format=store.format,
            found=len(source),
            packed=packed,
            skipped=skipped,
            payload_bytes=payload_bytes,
            source_disk_bytes=source.disk_bytes,
            store_bytes=store_bytes(store),
            shards=len(store.shard_paths),
            files_opened=source.files_opened,
            seconds=seconds,
        )


def _read(source: Source, jobs: int | None) -> Iterator[Chunk]:
    """The source's chunks in order; when the packer leaves early, the threads end before its files are removed."""
    pieces = source.chunks(CHUNK_BYTES, CHUNK_SAMPLES)
    with (
        closing(_native.ThreadPool(jobs or min(available_cpus(), MAX_JOBS))) as pool,
        closing(read_ahead(source, pieces, pool)) as chunks,
    ):
        yield from chunks


def _metadata(source: Source, skipped: Sequence[Problem]) -> dict[str, Any]:
    ledger = [{"key": problem.key, "problem": problem.problem} for problem in skipped]
    return {**source.metadata, "skipped": ledger}


def _stop(source: Source, problem: Problem, *, of: int) -> SourceError:
    more = f" (the first of {of} problems)" if of > 1 else ""
    return SourceError(
        f"{shown(source.path)}/{problem.key}: {problem.problem}{more}; "
        f"correct it, or leave such samples out with --on-error skip"
    )


def _miscounted(source: Source, packed: int, skipped: int) -> SourceError:
    return SourceError(
        f"{shown(source.path)}: {len(source)} samples were found, {packed} packed and {skipped} skipped; "
        f"the source gave others than it announced: nothing is kept, report this"
    )


def _nothing_left(source: Source, skipped: Sequence[Problem]) -> SourceError:
    if not skipped:
        return SourceError(f"{shown(source.path)}: nothing to pack, the source is empty")
    first = skipped[0]
    return SourceError(
        f"{shown(source.path)}: nothing left to pack, all {len(skipped)} have problems; "
        f"the first: {first.key} {first.problem}"
    )
