"""Packs a stream into the shards of a set: a shard ends where it is full, and says where in the stream that is."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from fastio import _native
from fastio.converters.packing.append import check_new_keys, is_appended, known_keys
from fastio.converters.packing.options import Part
from fastio.converters.packing.pipeline import encoders, threads
from fastio.converters.packing.plan import StreamPlan
from fastio.converters.packing.planned_set import PlannedSet
from fastio.converters.packing.record import PackRecord, stop_at
from fastio.converters.packing.shards import PlannedShard, Position, stream_metadata
from fastio.converters.pictures.counts import LossyMasks
from fastio.converters.sources.source import Chunk, StreamedSource, StreamPiece, is_streamed
from fastio.errors import StoreError
from fastio.store.protocol import SampleBatch, SampleWriter
from fastio.store.write.atomic import writing
from fastio.store.write.destination import ShardDestination
from fastio.store.write.keys import UniqueNames

__all__ = ["StreamShards"]


@dataclass(frozen=True, slots=True)
class _Share:
    """Samples of one piece of the stream that belong to one shard. What is counted belongs to the first of them."""

    number: int
    first: Position
    stop: Position
    chunk: Chunk


@dataclass(slots=True)
class _Open:
    """A shard that is being written."""

    number: int
    writer: SampleWriter
    record: PackRecord
    first: Position
    stop: Position


class StreamShards:
    """
    The shards of a set that a stream is packed to: those that are there already, and those that ``pack`` makes.

    Pieces of the stream that only shards have that are there are read, since it cannot be entered elsewhere, but no
    samples are made of them. With a ``part`` of several, its shards are every so many-th one.
    """

    def __init__(self, planned: PlannedSet, kept: Mapping[int, PlannedShard]) -> None:
        assert isinstance(planned.plan, StreamPlan)
        assert is_streamed(planned.source)
        self.count: int | None = None  # of all shards, once the stream has ended
        self._planned, self._kept = planned, kept
        self._plan: StreamPlan = planned.plan
        self._source: StreamedSource = planned.source
        self._part = planned.options.part or Part(0, 1)
        self._content = [0]  # the CRC-32 of the first so many pieces
        self._known: dict[
            int, list[tuple[int, PlannedShard]]
        ] = {}  # and what it was when shards that are there were made
        for shard in kept.values():
            for bound, checksum in zip(("first", "stop"), shard.plan.get("content", ()), strict=False):
                self._known.setdefault(_pieces_read(shard.plan[bound]), []).append((checksum, shard))
        self._gaps = () if self._plan.by_text else tuple(_gaps(kept))

    def pack(self) -> Generator[int, None, None]:
        """
        Pack the shards that are missing, and yield the number of each when it is finished, under its name.

        Raises SourceError for a bad document unless ``on_error`` is "skip", and SchemaError for a key that the set to
        which is appended has already.
        """
        planned, plan = self._planned, self._plan
        if not (plan.by_text or self._gaps):
            self.count = len(self._kept)
            return
        with (
            ShardDestination(planned.folder, shard_bytes=plan.shard_bytes) as destination,
            closing(_native.ThreadPool(threads(planned.options.jobs))) as pool,
            closing(self._shares(pool, encoders(planned.options.jobs))) as shares,
        ):
            closed: list[int] = []  # but not yielded yet
            try:
                yield from self._written(shares, destination, closed)
                destination.wait()
            except Exception:  # whoever counts or removes what was made must learn of these, too
                destination.join()
                yield from planned.finished(closed, destination)
                raise
            yield from closed

    def _written(
        self, shares: Iterator[_Share], destination: ShardDestination, closed: list[int]
    ) -> Generator[int, None, None]:
        planned, known = self._planned, self._known_keys()
        shard: _Open | None = None
        try:
            for share in shares:
                if shard is not None and share.number != shard.number:
                    yield from self._finish(shard, destination, closed, is_last=False)
                    shard = None
                if share.number in self._kept:
                    self._check_bounds(share)
                    continue
                if share.chunk.problems and planned.options.on_error == "raise":
                    raise stop_at(self._source, share.chunk.problems[0])
                if known is not None and planned.current is not None:
                    with writing(planned.current.path):
                        check_new_keys(known, share.chunk.batch.keys, self._source.path, planned.current)
                shard = shard or self._begin(share, destination)
                self._add(shard, share)
            if shard is not None:
                yield from self._finish(shard, destination, closed, is_last=shard.number + 1 == self.count)
        except BaseException:
            if shard is not None:
                shard.writer.abort()
            raise
        finally:
            if known is not None:
                known.close()

    def _known_keys(self) -> UniqueNames | None:
        """Return the keys of the set to which is appended; None where there is none, or the shards are its own."""
        current, options = self._planned.current, self._planned.options
        if current is None or not options.append or is_appended(current, self._plan):
            return None
        return known_keys(current, options.remote)

    def _begin(self, share: _Share, destination: ShardDestination) -> _Open:
        planned, name = self._planned, self._planned.name(share.number)
        writer = destination.writer(
            name,
            self._plan.schema,
            plan=self._plan.digest,
            number=share.number,
            overwrite=name in planned.present,
        )
        return _Open(share.number, writer, PackRecord(LossyMasks(self._plan.schema)), share.first, share.stop)

    def _add(self, shard: _Open, share: _Share) -> None:
        chunk, progress = share.chunk, self._planned.options.progress
        if chunk.batch.keys:
            shard.writer.append(chunk.batch)
        shard.record.add(chunk)
        shard.stop = share.stop
        if progress is not None:
            read_bytes = 0 if chunk.documents is None else chunk.documents.read_bytes  # counted with the first part
            progress(len(chunk.batch.keys), read_bytes)

    def _finish(
        self, shard: _Open, destination: ShardDestination, closed: list[int], *, is_last: bool
    ) -> Generator[int, None, None]:
        source = self._source if is_last else None
        content = self._content[_pieces_read(shard.first)], self._content[_pieces_read(shard.stop)]
        metadata = stream_metadata(self._plan, shard.number, (shard.first, shard.stop), content, shard.record, source)
        self._planned.close(shard.writer, metadata, shard.number)
        closed.append(shard.number)
        yield from self._planned.finished(closed, destination)

    def _check_bounds(self, share: _Share) -> None:
        """Raise StoreError if a shard that is there does not begin where the stream says that it does."""
        shard = self._kept[share.number]
        first, stop = tuple(shard.plan["first"]), tuple(shard.plan["stop"])
        if not first <= share.first or not share.stop <= stop:
            raise self._changed(shard)

    def _changed(self, shard: PlannedShard) -> StoreError:
        """The error for a shard that is not where the stream has it now: what tells plans apart may be the same."""
        return StoreError(
            f"{self._planned.folder.full(shard.member.name)}: was packed from other content of the source, although "
            "its files have the same sizes: pack all again with --overwrite (in Python overwrite=True)"
        )

    def _shares(self, pool: _native.ThreadPool, jobs: int) -> Generator[_Share, None, None]:
        """The samples that are made, in order; all pieces are read, or until the rest is there."""
        pieces = self._by_text(pool) if self._plan.by_text else self._by_samples(pool)
        with closing(self._source.encoded(pieces, jobs)) as encoded:
            if self._plan.by_text:
                for (index, number), chunk in encoded:
                    yield _Share(number, (index, 0), (index + 1, 0), chunk)
            else:
                yield from self._divided(encoded)

    def _pieces(self, pool: _native.ThreadPool) -> Iterator[StreamPiece]:
        """The pieces of the stream. Raises StoreError where their content is not that of shards that are there."""
        for piece in self._source.pieces(pool):
            self._content.append(piece.checksum(self._content[-1]))
            for checksum, shard in self._known.get(len(self._content) - 1, ()):
                if checksum != self._content[-1]:
                    raise self._changed(shard)
            yield piece

    def _by_text(self, pool: _native.ThreadPool) -> Iterator[tuple[tuple[int, int], StreamPiece]]:
        """The pieces of shards that are to be made, with their own numbers and those of their shards."""
        number, filled, index = 0, 0, -1
        for index, piece in enumerate(self._pieces(pool)):
            size = piece.text_bytes
            if filled and filled + size > self._plan.shard_bytes:
                number, filled = number + 1, 0
            filled += size
            if number % self._part.count == self._part.index and number not in self._kept:
                yield (index, number), piece
            else:
                self._pass_over(piece)
        self.count = 0 if index < 0 else number + 1

    def _by_samples(self, pool: _native.ThreadPool) -> Iterator[tuple[tuple[int, int], StreamPiece]]:
        """The pieces in gaps between shards that are there; the second number of a tag is -1, not known yet."""
        stop = self._gaps[-1].last_piece
        for index, piece in enumerate(self._pieces(pool)):
            if any(gap.has(index) for gap in self._gaps):
                yield (index, -1), piece
            else:
                self._pass_over(piece)
            if stop is not None and index >= stop:
                self.count = max(self._kept) + 1
                return
        # The shard that ends with the stream is the last one; ``_divided`` counts up to it.

    def _divided(self, encoded: Iterator[tuple[tuple[int, int], Chunk]]) -> Iterator[_Share]:
        """Divide chunks where a shard is full; where pieces were passed over, a shard begins in the next one."""
        form, schema, limit = self._planned.target.format, self._plan.schema, self._plan.shard_bytes
        assert form.sample_bytes is not None, f"{form.name} has no shards"
        begins = {gap.first[0]: gap for gap in reversed(self._gaps)}
        number, filled, before = 0, 0, -2
        for (index, _), chunk in encoded:
            start = 0
            if index != before + 1:
                number, (_, start), filled = begins[index].number, begins[index].first, 0
            before = index
            count = len(chunk.batch.keys)
            if start and start >= count:
                raise self._changed(self._kept[number - 1])
            sizes = {name: np.asarray(spans.sizes, np.int64) for name, spans in chunk.batch.spans.items()}
            ends = np.cumsum(form.sample_bytes(schema, sizes, count)) if count else np.empty(0, np.int64)
            while True:
                done = int(ends[start - 1]) if start else 0
                stop = int(np.searchsorted(ends, done + limit - filled, side="right"))
                stop = max(stop, start + 1 if not filled else start)
                if stop >= count:
                    filled += int(ends[-1]) - done if start < count else 0
                    yield _Share(number, (index, start), (index + 1, 0), _part(chunk, start, count))
                    break
                if stop > start:
                    yield _Share(number, (index, start), (index, stop), _part(chunk, start, stop))
                number, filled, start = number + 1, 0, stop
        if self.count is None:
            self.count = number + 1

    def _pass_over(self, piece: StreamPiece) -> None:
        if self._planned.options.progress is not None:
            self._planned.options.progress(0, piece.read_bytes)


@dataclass(frozen=True, slots=True)
class _Gap:
    """Shards that are missing: the number of the first of them, where it begins, and the last piece that has some."""

    number: int
    first: Position
    last_piece: int | None  # None: up to the end of the stream

    def has(self, piece: int) -> bool:
        return self.first[0] <= piece and (self.last_piece is None or piece <= self.last_piece)


def _pieces_read(position: Sequence[int]) -> int:
    """How many pieces have been read, also in part, up to a position."""
    piece, sample = position
    return piece + (sample > 0)


def _gaps(kept: Mapping[int, PlannedShard]) -> Iterator[_Gap]:
    """The gaps between shards that are there, in order."""
    number, at = 0, (0, 0)
    for other in sorted(kept):
        record = kept[other].plan
        if other > number:
            yield _Gap(number, at, record["first"][0])
        number, at = other + 1, (record["stop"][0], record["stop"][1])
    if not kept or "shards" not in kept[max(kept)].plan:
        yield _Gap(number, at, None)


def _part(chunk: Chunk, start: int, stop: int) -> Chunk:
    """Samples of a chunk; what is counted or wrong goes with the first of them."""
    batch = chunk.batch
    if (start, stop) == (0, len(batch.keys)):
        return chunk
    part = SampleBatch(
        keys=batch.keys[start:stop],
        spans={name: spans.part(start, stop) for name, spans in batch.spans.items()},
        columns={name: column[start:stop] for name, column in batch.columns.items()},
    )
    if start:
        return Chunk(part, ())
    return replace(chunk, batch=part)
