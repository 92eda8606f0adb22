"""Chunks of batches: their samples are looked up at once, and read ahead of the batches that are being made."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, pairwise
from typing import Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.errors import StoreError
from fastio.loader.forks import PerProcess
from fastio.samplers.batches import Batches, element_ids
from fastio.store.files import Prefetch
from fastio.store.files.fetch import FetchedFields, fetch_together
from fastio.store.index.store import list_checksums
from fastio.store.protocol import SampleStore, value_spans
from fastio.transforms.pick import Pick
from fastio.types.spans import Spans, distinct, firsts_of

__all__ = [
    "READ_ALONE",
    "CheckedSamples",
    "ChunkElements",
    "ChunkReader",
    "EncodedValues",
    "Proof",
    "SampleChunk",
    "Upcoming",
    "chunk_parts",
    "look_ahead",
]


_MOST_FILES = 4096  # that a chunk takes samples from: all of them are open at once
_SAMPLE_BYTES = 64  # counted for a sample of which nothing but columns is asked for
READ_ALONE = 8  # batches, the first of an epoch: they wait for their own samples, and windows are read behind them
_INDEX_AHEAD = 2  # chunks: the second one has the time of the first, also where each is twice as long as the last

Chunk = TypeVar("Chunk")


def chunk_parts(batches: Batches, cuts: Sequence[int], *, holds: bool) -> Iterator[tuple[Batches, bool]]:
    """
    Yield the batches of each chunk, and whether somebody else has their samples read, by windows. Files that hold what
    was read (``holds``) give the first ones no other way.
    """
    has_windows, batches = batches.windows is not None, replace(batches, windows=None)
    for start, stop in pairwise(cuts):
        yield batches.part(start, stop), has_windows and (holds or start >= READ_ALONE)


class Upcoming(Generic[Chunk]):
    """
    The chunks of an epoch that are still to be looked up, each handed out when what that reads of the index is there.

    ``begin`` has it read and compared, elsewhere: for the next chunks whenever somebody calls ``read``.
    """

    def __init__(self, chunks: Iterator[Chunk], begin: Callable[[Chunk], Sequence[Prefetch]]) -> None:
        self._chunks, self._begin = chunks, begin
        self._coming: deque[tuple[Chunk, PerProcess[Sequence[Prefetch]]]] = deque()

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        if not self._coming:
            return next(self._chunks)
        chunk, reading = self._coming.popleft()
        for each in reading.here():
            each.wait()
        return chunk

    def read(self) -> None:
        """Begin to read for the next chunks; they are held from now on."""
        for chunk in islice(self._chunks, _INDEX_AHEAD - len(self._coming)):
            self._coming.append((chunk, PerProcess(partial(self._begin, chunk))))


def look_ahead(
    store: SampleStore, samples: Mapping[str, NDArray[np.int64]], pool: _native.ThreadPool, *, checksums: bool = True
) -> list[Prefetch]:
    """Have ``pool`` read and compare what look-ups of these samples, of lists their elements, need of the index."""
    found = []
    for name, each in samples.items():
        with suppress(IndexError, StoreError):  # which the look-up raises in its turn
            values = store.elements(name) if store.schema[name].is_list else store
            found.append(values.look_ahead(name, each, pool, checksums=checksums))
    return [each for each in found if each is not None]


@dataclass(frozen=True, slots=True)
class EncodedValues:
    """The encoded values of one field in readable memory; ``unread`` is the status of each, if some have none."""

    spans: Spans
    unread: NDArray[np.int32] | None = None

    def at(self, part: slice | NDArray[np.int64]) -> EncodedValues:
        """Return those of some of the samples, by position."""
        return EncodedValues(self.spans.at(part), None if self.unread is None else self.unread[part])


@dataclass(frozen=True, slots=True)
class ChunkElements:
    """
    The elements that a chunk's samples have in a field of lists, as the samples of ``batches``: random numbers of
    transforms depend on sample and position, those of the first element on the sample alone. ``firsts`` says where the
    elements of each sample begin, ``(samples + 1,)``.
    """

    batches: Batches
    firsts: NDArray[np.int64]

    @classmethod
    def of(cls, store: SampleStore, name: str, batches: Batches) -> Self:
        """Look up the elements of these samples in a field, which has one of each sample if it is none of lists."""
        which, counts = batches.indices, np.ones(len(batches.indices), np.int64)
        if store.schema[name].is_list:
            which, counts = store.elements(name).of(batches.indices)
        firsts = firsts_of(counts)
        ids = element_ids(batches.ids, counts)
        return cls(Batches(which, firsts[batches.cuts], random_ids=ids), firsts)

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many elements each sample has."""
        return np.diff(self.firsts)

    def picked(self, places: NDArray[np.int64], batches: Batches) -> ChunkElements:
        """Return those at these places in the lists of the samples of ``batches``, one of each or none (-1)."""
        is_there = places >= 0
        chosen, firsts = (self.firsts[:-1] + places)[is_there], firsts_of(is_there.astype(np.int64))
        which, ids = self.batches.indices[chosen], self.batches.ids[chosen]
        return ChunkElements(Batches(which, firsts[batches.cuts], random_ids=ids), firsts)


@dataclass(frozen=True, slots=True)
class SampleChunk:
    """
    The samples of a few batches, looked up at once: a look-up per batch would cost more than the batch.

    ``is_last`` in the epoch. Of the fields in ``lists``, ``values`` are those of all elements, sample after sample.
    """

    batches: Batches
    values: Mapping[str, EncodedValues]
    is_last: bool
    lists: Mapping[str, ChunkElements] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """
    The samples of a chunk, with the elements that come of their lists; not looked up yet. ``is_read``: somebody else
    has them read ahead.
    """

    batches: Batches
    lists: Mapping[str, ChunkElements]
    is_read: bool

    def of(self, field: str) -> NDArray[np.int64]:
        """Return which values of a field: those of samples, or of lists."""
        return self.lists[field].batches.indices if field in self.lists else self.batches.indices


@dataclass(frozen=True, slots=True)
class _Ahead:
    """The samples of a chunk on their way into memory: into the page cache, or into our own."""

    wanted: _Wanted
    fetched: PerProcess[FetchedFields]


@dataclass(frozen=True, slots=True)
class _Disk:
    """Threads and memory of one process."""

    pool: _native.ThreadPool
    index_pool: _native.ThreadPool  # which waits for the disk, too
    # Copies of the chunk ahead, and of the one before while it is decoded.
    staging: _native.BufferRing = field(default_factory=lambda: _native.BufferRing(2))


class ChunkReader:
    """
    Reads the values of these ``fields`` of a store, each chunk with one fetch, in threads of its own; of those that
    ``picks`` draw from, what an epoch draws with this ``seed``.

    A chunk is fetched when the first batch of the one before it begins.
    """

    def __init__(self, store: SampleStore, fields: Sequence[str], *, picks: Sequence[Pick] = (), seed: int = 0) -> None:
        self._picks, self._seed = picks, seed
        self._store = store
        self._fields = tuple(fields)
        self._disk = PerProcess(partial(_disk, store.files.threads))

    @property
    def buffer_bytes(self) -> int:
        """Bytes of copies of the samples, where they are not decoded in place."""
        return self._disk.here().staging.allocated_bytes

    def close(self) -> None:
        """Join the threads."""
        disk = self._disk.own
        if disk is not None:
            disk.pool.close()
            disk.index_pool.close()

    def chunks(self, batches: Batches, *, epoch: int = 0) -> Iterator[SampleChunk]:
        """Yield the chunks of an epoch, while the next one is read ahead."""
        if len(batches) == 0:
            return
        cuts = [*self.chunk_starts(batches).tolist(), len(batches)]
        parts = chunk_parts(batches, cuts, holds=self._store.files.holds)
        wanted = (_Wanted(part, self._lists(part, epoch), is_read) for part, is_read in parts)
        upcoming = Upcoming(wanted, self._look_ahead)
        ahead: _Ahead | None = self._begin(next(upcoming))
        while ahead is not None:
            now, following = ahead, next(upcoming, None)
            ahead = None if following is None else self._begin(following)
            upcoming.read()
            arrived = now.fetched.here().wait()
            values = {name: EncodedValues(*arrived[name]) for name in self._fields}
            yield SampleChunk(now.wanted.batches, values, is_last=ahead is None, lists=now.wanted.lists)

    def chunk_starts(self, batches: Batches) -> NDArray[np.int64]:
        """
        Return the first batch of each chunk, by the size of samples, and of very many files by how many files have
        them: those of the first batches stand for all.

        The first chunk has few batches, since the first one waits for all of these: one, where files are held.
        """
        some = replace(batches, windows=None).part(0, 4)
        each = [value_spans(self._store, f, some.indices, checksums=False)[0] for f in self._fields]
        size_bytes = sum(int(spans.sizes.sum()) for spans in each)
        size_bytes = max(size_bytes, _SAMPLE_BYTES * len(some.indices))
        step = max(1, self._store.files.chunk_bytes * len(some) // size_bytes)
        if len(self._store.shard_paths) > _MOST_FILES:
            files = max(len(distinct(spans.shard)) for spans in each)
            step = min(step, max(1, _MOST_FILES * len(some) // max(1, files)))
        few = 1 if self._store.files.holds else min(step, READ_ALONE)
        return np.append(0, np.arange(few, len(batches), step, dtype=np.int64))[: len(batches)]

    def _lists(self, batches: Batches, epoch: int) -> dict[str, ChunkElements]:
        """Return the elements of all fields of lists, of those that are picked from the picked ones."""
        picked = {name: pick for pick in self._picks for name in pick.fields if name in self._fields}
        names = [name for name in self._fields if self._store.schema[name].is_list or name in picked]
        lists = {name: ChunkElements.of(self._store, name, batches) for name in names}
        for name, pick in picked.items():
            places = pick.places(batches.ids, lists[name].counts, seed=self._seed, epoch=epoch)
            lists[name] = lists[name].picked(places, batches)
        return lists

    def _look_ahead(self, wanted: _Wanted) -> list[Prefetch]:
        samples = {name: wanted.of(name) for name in self._fields}
        return look_ahead(self._store, samples, self._disk.here().index_pool)

    def _spans(self, wanted: _Wanted) -> dict[str, Spans]:
        spans = {}
        for name in self._fields:
            store = self._store.elements(name) if self._store.schema[name].is_list else self._store
            spans[name] = store.spans(name, wanted.of(name))
        return spans

    def _begin(self, wanted: _Wanted) -> _Ahead:
        """Begin to bring these samples into memory."""
        return _Ahead(wanted, PerProcess(partial(self._fetch, self._spans(wanted), is_near=wanted.is_read)))

    def _fetch(self, spans: Mapping[str, Spans], *, is_near: bool) -> FetchedFields:
        disk = self._disk.here()
        return fetch_together(self._store.files, spans, pool=disk.pool, ring=disk.staging, is_near=is_near)


def _disk(threads: int) -> _Disk:
    return _Disk(_native.ThreadPool(threads), _native.ThreadPool(1))


# CheckedSamples: the samples of some batches as they were looked up and compared, which a receipt sums over.


@dataclass(frozen=True, slots=True)
class CheckedSamples:
    """
    The ``indices`` of samples, int64, as a producer looked them up.

    ``checksums`` has for each payload field the CRC-32s ``(n,)``, uint32, that their bytes were compared with: those
    that came with the spans of these very bytes. None: they were not compared.
    """

    indices: NDArray[np.int64]
    checksums: Mapping[str, NDArray[np.uint32]] | None

    @classmethod
    def of(
        cls,
        indices: NDArray[np.int64],
        spans: Mapping[str, Spans],
        *,
        verify: bool,
        firsts: Mapping[str, NDArray[np.int64]] | None = None,
    ) -> Self:
        """
        Return what is known of samples with these spans by field, if ``verify`` compares them.

        ``firsts`` says, for fields of lists, where the elements of each sample begin among their spans.
        """
        known = {name: values.checksums for name, values in spans.items() if values.checksums is not None}
        known |= {
            name: list_checksums(known[name], np.diff(each)) for name, each in (firsts or {}).items() if name in known
        }
        return cls(indices, known if verify and len(known) == len(spans) else None)

    @classmethod
    def kept(cls, indices: NDArray[np.int64], compared: Mapping[str, NDArray[np.uint32]]) -> Self:
        """Return samples that were read before, and ``compared`` with checksums then (see CacheContents)."""
        return cls(indices, {name: sums[indices] for name, sums in compared.items()} if compared else None)

    @classmethod
    def bad(cls, index: int, fields: Iterable[str]) -> Self:
        """Return one sample that could not be read: receipts leave it out, by its error."""
        return cls(np.array([index], np.int64), {name: np.zeros(1, np.uint32) for name in fields})

    @classmethod
    def joined(cls, parts: Sequence[CheckedSamples]) -> Self:
        """Return the samples of several, of which each has the same fields; unverified if one is."""
        indices = np.concatenate([part.indices for part in parts])
        known = [part.checksums for part in parts if part.checksums is not None]
        if len(known) < len(parts):
            return cls(indices, None)
        return cls(indices, {name: np.concatenate([sums[name] for sums in known]) for name in known[0]})


# Batches of samples that were looked up together: number k has those from position cuts[k] up to cuts[k + 1].
Proof = tuple[CheckedSamples, Sequence[int] | NDArray[np.int64]]
