"""A bounded number of pieces under way on threads, in order; and the stages that change pictures on the way."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from posixpath import splitext
from typing import TypeVar

import numpy as np

from fastio._native import ThreadPool
from fastio.converters.pictures.jumps import begin_jumps
from fastio.converters.pictures.raw import Raw
from fastio.converters.pictures.transcode import Transcode
from fastio.converters.sources.source import Chunk, Source, Stage
from fastio.errors import StoreCorrupt
from fastio.machine import available_cpus
from fastio.store.jump_tables import JumpRule
from fastio.store.protocol import SampleStore

__all__ = [
    "ShardChunk",
    "begun_ahead",
    "check_jobs",
    "chunks_through",
    "encoders",
    "in_order",
    "is_lossless",
    "pieces_of",
    "read_ahead",
    "recorded",
    "shard_chunks",
    "stages_of",
    "threads",
]


# A piece of work: large enough that Python costs nothing beside it, small enough that memory stays small:
# a handful of pieces is held, see ``read_ahead``, plus what a single larger file needs.
CHUNK_BYTES = 8 << 20
CHUNK_SAMPLES = 512
DEPTH = 3  # pieces that native threads work on while one is being used
MAX_JOBS = 16  # more readers than this only fight for the one writer

_Piece = TypeVar("_Piece")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class ShardChunk:
    """A chunk of a shard, the stage that it went through, and whether it is the shard's last one."""

    chunk: Chunk
    stage: Stage | None
    is_last: bool


def check_jobs(jobs: object) -> None:
    """Raise ValueError for a number of threads or processes that is none; None is one."""
    if jobs is not None and (not isinstance(jobs, int) or jobs < 1):
        raise ValueError(f"jobs={jobs!r}: expected a whole number from 1 on")


def threads(jobs: int | None) -> int:
    """Return how many threads pack: as many as asked for, else the CPUs this process may use, at most 16."""
    return jobs or min(available_cpus(), MAX_JOBS)


def encoders(jobs: int | None) -> int:
    """Return how many threads make samples of a stream: as many as asked for, else the CPUs this process may use."""
    return jobs or available_cpus()


def pieces_of(source: Source) -> Sequence[range]:
    """Return the samples of a source in pieces of work."""
    return source.chunks(CHUNK_BYTES, CHUNK_SAMPLES)


def read_ahead(source: Source, pieces: Iterable[range], pool: ThreadPool) -> Generator[Chunk, None, None]:
    """Yield the chunks of a source in order, while native threads read ``DEPTH`` of them."""
    return begun_ahead(source.begin(piece, pool) for piece in pieces)


def chunks_through(
    source: Source, pieces: Iterable[range], stage: Stage | None, pool: ThreadPool, *, jump: JumpRule | None = None
) -> Generator[Chunk, None, None]:
    """Yield the chunks of a source in order, after the stage if there is one, with start points; all work ahead."""
    with ExitStack() as steps:
        chunks = steps.enter_context(closing(read_ahead(source, pieces, pool)))
        if stage is not None:
            parts = (part for chunk in chunks for part in stage.parts(chunk, source.schema))
            changes = (stage.begin(part, source.schema, pool) for part in parts)
            chunks = steps.enter_context(closing(begun_ahead(changes)))
        if jump is not None:
            stored = source.is_stored
            notes = (begin_jumps(chunk, source.schema, pool, jump, is_stored=stored) for chunk in chunks)
            chunks = steps.enter_context(closing(begun_ahead(notes)))
        yield from chunks


def shard_chunks(
    source: Source,
    shards: Iterable[range],
    stages: Callable[[], Stage] | None,
    pool: ThreadPool,
    *,
    jump: JumpRule | None = None,
) -> Generator[ShardChunk, None, None]:
    """
    Yield the chunks of some ranges of a source in order, the samples of each range through a stage of its own, and with
    start points by ``jump``.

    Threads work ahead across the ends of ranges, so that small shards are packed as fast as large ones.
    """
    pieces = pieces_of(source)
    stops = [piece.stop for piece in pieces]

    def read(piece: range, stage: Stage | None, *, is_last: bool) -> Callable[[], ShardChunk]:
        finish = source.begin(piece, pool)
        return lambda: ShardChunk(finish(), stage, is_last)

    def reads() -> Iterator[Callable[[], ShardChunk]]:
        for samples in shards:
            stage = None if stages is None else stages()
            for piece in _pieces_within(pieces, stops, samples):
                yield read(piece, stage, is_last=piece.stop == samples.stop)

    with ExitStack() as steps:
        chunks = steps.enter_context(closing(begun_ahead(reads())))
        if stages is not None:
            chunks = steps.enter_context(closing(begun_ahead(_changes(source, chunks, pool))))
        if jump is not None:
            chunks = steps.enter_context(closing(begun_ahead(_notes(source, chunks, pool, jump))))
        yield from chunks


def _changes(source: Source, chunks: Iterable[ShardChunk], pool: ThreadPool) -> Iterator[Callable[[], ShardChunk]]:
    """Begin to change the pictures of chunks, each by its stage."""

    def change(part: Chunk, stage: Stage, *, is_last: bool) -> Callable[[], ShardChunk]:
        finish = stage.begin(part, source.schema, pool)
        return lambda: ShardChunk(finish(), stage, is_last)

    for each in chunks:
        assert each.stage is not None
        parts = each.stage.parts(each.chunk, source.schema)
        for number, part in enumerate(parts, 1):
            yield change(part, each.stage, is_last=each.is_last and number == len(parts))


def _notes(
    source: Source, chunks: Iterable[ShardChunk], pool: ThreadPool, rule: JumpRule
) -> Iterator[Callable[[], ShardChunk]]:
    """Begin to note where MCUs begin in the pictures of chunks."""

    def note(each: ShardChunk) -> Callable[[], ShardChunk]:
        finish = begin_jumps(each.chunk, source.schema, pool, rule, is_stored=source.is_stored)
        return lambda: replace(each, chunk=finish())

    yield from map(note, chunks)


def _pieces_within(pieces: Sequence[range], stops: Sequence[int], samples: range) -> Iterator[range]:
    """The pieces of a source that lie in a range of its samples, those at its ends cut."""
    for piece in pieces[bisect_right(stops, samples.start) :]:
        if piece.start >= samples.stop:
            return
        yield range(max(piece.start, samples.start), min(piece.stop, samples.stop))


def begun_ahead(works: Iterable[Callable[[], _Result]]) -> Generator[_Result, None, None]:
    """
    Yield the results of works in order, while ``DEPTH`` of them run on native threads.

    There is no Python thread: it would compete with the writer for the GIL, which costs more than it gains.
    """
    waiting: deque[Callable[[], _Result]] = deque()
    for work in works:
        waiting.append(work)
        if len(waiting) > DEPTH:
            yield waiting.popleft()()
    while waiting:
        yield waiting.popleft()()


def in_order(
    work: Callable[[_Piece], _Result], pieces: Iterable[_Piece], *, jobs: int
) -> Generator[_Result, None, None]:
    """
    Yield ``work(piece)`` for every piece, in order, with ``jobs`` of them at a time.

    At most ``jobs + 1`` results wait. Closing the iterator drops the pieces not begun and waits for the others, so no
    thread outlives it; an error of one piece is raised in its turn.
    """
    with ThreadPoolExecutor(jobs, thread_name_prefix="fastio") as threads:
        waiting: deque[Future[_Result]] = deque()
        try:
            for piece in pieces:
                waiting.append(threads.submit(work, piece))
                if len(waiting) > jobs:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


# Makes the stages that change pictures: one for each file that is packed, all with the same results.


def stages_of(pictures: Transcode | Raw, source: Source) -> Callable[[], Stage]:
    """
    Return a function that makes a stage, for one run over any part of ``source``.

    What a stage makes of a sample must not depend on the samples before it, so what it needs to know of the others is
    gathered here: names that a picture cannot take, and the size that all raw pictures have.
    """
    if isinstance(pictures, Raw):
        firsts = pictures.first_pictures(source)
        return lambda: pictures.stage(firsts)
    stems = {} if pictures.is_lossless else shared_stems(source)
    return lambda: pictures.stage(stems)


# The options that a store's pictures were packed with, as the store records them.


def recorded(store: SampleStore) -> Transcode | Raw | None:
    """Return the options that a store's pictures were packed with; None if they were kept unchanged."""
    said = store.metadata.get("packing")
    if not said:
        return None
    try:
        return Raw.from_json(said) if said.get("raw") else Transcode.from_json(said)
    except (AttributeError, TypeError, ValueError) as exc:
        raise StoreCorrupt(f"{store.path}: how it was packed is not recorded in fastio's form ({exc})") from exc


def is_lossless(pictures: Transcode | Raw) -> bool:
    """Return whether pictures stay encoded pictures with the same pixels."""
    return isinstance(pictures, Transcode) and pictures.is_lossless


# Which names of a source's samples differ in their extension alone, so that a picture of another kind may take one.

_BLOCK = 1 << 16


def shared_stems(source: Source) -> Mapping[str, list[str]]:
    """
    Return the keys that are equal without their extensions, sorted, by what they have in common.

    Two passes over the keys, and 8 bytes of memory for each: a dictionary of ten million stems would take gigabytes.
    """
    count = len(source) - len(source.problems)
    blocks = [range(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK)]
    hashes = np.empty(count, np.int64)
    for block in blocks:
        hashes[block.start : block.stop] = [hash(splitext(key)[0]) for key in source.scanned(block).keys]
    values, counts = np.unique(hashes, return_counts=True)
    repeated = values[counts > 1]
    groups: dict[str, list[str]] = {}
    for block in blocks if len(repeated) else ():
        positions = np.flatnonzero(np.isin(hashes[block.start : block.stop], repeated)).tolist()
        keys = source.scanned(block).keys if positions else []
        for position in positions:
            groups.setdefault(splitext(keys[position])[0], []).append(keys[position])
    return {stem: sorted(keys) for stem, keys in groups.items() if len(keys) > 1}
