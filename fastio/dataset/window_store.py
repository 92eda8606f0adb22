"""WindowStore: windows of token streams as the samples of a store, found by arithmetic; nothing of them is stored."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.errors import SchemaError, StoreError
from fastio.store.files import ByteSource, StoreFiles, files_of
from fastio.store.index.elements import Elements
from fastio.types.schema import TOKENS, Field, Schema
from fastio.types.spans import Spans, numbers_within

if TYPE_CHECKING:
    from fastio.store.index.far_points import FarSpans

__all__ = ["Documents", "Draw", "LocatedWindows", "Pieces", "TokenRuns", "WindowRule", "WindowStore"]

Documents = Literal["cross", "mask", "inside"]

_FIELD = "tokens"
_SEED = 0xD1B54A32D192ED03  # starts of windows share no random numbers with orders
_LARGEST = (1 << 31) - 1  # of a signed type: above it, an id was negative
_LOOKED_AT = 1 << 16  # bytes at both ends of a file that tell it from others


@dataclass(frozen=True)
class TokenRuns:
    """
    A stream of ids: runs of bytes, one after the other, and where documents begin in it.

    Run i has the ids ``ends[i - 1]`` up to ``ends[i]``, from byte ``starts[i]`` of source ``shard[i]`` on; none is
    empty. ``checksums`` are the CRC-32s of whole runs, None if there are none. ``documents`` are ids of the stream,
    int64, ascending, the first 0; None if it is not known where documents begin. ``content`` is a number that says
    what the files hold, whatever their paths.
    """

    path: str
    sources: Sequence[ByteSource]
    dtype: np.dtype[Any]
    ends: NDArray[np.int64]
    shard: NDArray[np.int32]
    starts: NDArray[np.int64]
    checksums: NDArray[np.uint32] | None
    documents: NDArray[np.int64] | None
    vocab_size: int | None
    metadata: Mapping[str, Any]
    content: int

    def __len__(self) -> int:
        return int(self.ends[-1])

    @cached_property
    def files(self) -> StoreFiles:
        """What brings the ids into memory."""
        return files_of(self.sources)

    @cached_property
    def firsts(self) -> NDArray[np.int64]:
        """The first id of each run."""
        return np.append(0, self.ends[:-1])

    @property
    def vocabulary(self) -> int:
        """Ids from here on are wrong; 0: none is. In a signed type, no id may be negative."""
        if self.vocab_size is not None:
            return self.vocab_size
        return 0 if self.dtype.kind == "u" else min(_LARGEST, int(np.iinfo(self.dtype).max)) + 1

    def place(self, token: int) -> str:
        """Return in words which id of which file this one of the stream is."""
        run = int(np.searchsorted(self.ends, token, side="right"))
        first = int(np.searchsorted(self.shard, self.shard[run]))
        return f"{self.sources[int(self.shard[run])].path}, token {token - int(self.firsts[first])}"

    @classmethod
    def joined(cls, members: Sequence[TokenRuns], *, knows_documents: bool) -> TokenRuns:
        """Return one stream behind the other. Raises SchemaError for streams of different ids."""
        first = members[0]
        for other in members[1:]:
            if other.dtype != first.dtype or other.vocab_size != first.vocab_size:
                raise SchemaError(
                    f"{other.path}: ids are {_ids_in_words(other)}, but in {first.path} they are "
                    f"{_ids_in_words(first)}: streams of one loader need the same dtype and vocab_size"
                )
            if (other.checksums is None) != (first.checksums is None):
                without, with_ = (first, other) if first.checksums is None else (other, first)
                raise SchemaError(
                    f"{without.path}: has no checksums, but {with_.path} has, so damage would be noticed in only one "
                    f"of them: seal it, too (fastio pack {without.path} NAME.lmdb)"
                )
        tokens = np.append(0, np.cumsum([len(each) for each in members]))
        files = np.append(0, np.cumsum([len(each.sources) for each in members])).astype(np.int32)
        documents = [
            each.documents + start for each, start in zip(members, tokens, strict=False) if each.documents is not None
        ]
        checksums = [each.checksums for each in members if each.checksums is not None]
        return cls(
            " + ".join(each.path for each in members),
            [source for each in members for source in each.sources],
            first.dtype,
            np.concatenate([each.ends + start for each, start in zip(members, tokens, strict=False)]),
            np.concatenate([each.shard + start for each, start in zip(members, files, strict=False)]),
            np.concatenate([each.starts for each in members]),
            np.concatenate(checksums) if checksums else None,
            np.concatenate(documents) if knows_documents else None,
            first.vocab_size,
            first.metadata,
            zlib.crc32(json.dumps([each.content for each in members]).encode()),
        )


def _ids_in_words(runs: TokenRuns) -> str:
    return f"{runs.dtype} of {'an unknown' if runs.vocab_size is None else f'a vocab_size of {runs.vocab_size:,}'}"


def content_of(source: ByteSource) -> int:
    """Return a number for what a file holds, from its size and both of its ends."""
    head = source.read(0, min(source.size, _LOOKED_AT))
    tail = source.read(max(0, source.size - _LOOKED_AT), source.size)
    return _native.crc32(tail, _native.crc32(head, source.size & 0xFFFFFFFF))


@dataclass(frozen=True, slots=True)
class WindowRule:
    """
    Which windows a stretch of a stream has: of ``size`` ids, each ``stride`` behind the one before; or with a stride of
    0 anywhere, as many as it has without overlap. A stretch is a stream, or with documents="inside" a document.
    """

    size: int
    stride: int
    documents: Documents

    @property
    def is_random(self) -> bool:
        """Whether windows begin anywhere."""
        return self.stride == 0

    def counts(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many windows stretches of these lengths have. Each document has one at least."""
        if self.is_random:
            counts = lengths // self.size
        elif self.documents == "inside":
            counts = -(-(lengths - max(0, self.size - self.stride)) // self.stride)
        else:
            counts = (lengths - self.size) // self.stride + 1
        return np.maximum(counts, 1 if self.documents == "inside" else 0)

    def offsets(
        self,
        lengths: NDArray[np.int64],
        counts: NDArray[np.int64],
        numbers: NDArray[np.int64],
        draws: NDArray[np.float64],
    ) -> NDArray[np.int64]:
        """
        Return where windows begin within their stretches: those with these numbers, of as many as ``counts``.

        Random windows are drawn one from each of as many parts of a stretch's possible starts as it has windows.
        """
        if not self.is_random:
            return numbers * self.stride
        starts = np.maximum(lengths - self.size + 1, 1)
        whole, rest = np.divmod(starts, counts)
        low = numbers * whole + numbers * rest // counts
        high = (numbers + 1) * whole + (numbers + 1) * rest // counts
        offsets: NDArray[np.int64] = low + np.floor(draws * (high - low)).astype(np.int64)
        return offsets


@dataclass(frozen=True, slots=True)
class Draw:
    """What the starts of random windows depend on: ``ids`` has one number for each, as ``Batches.ids``."""

    seed: int
    epoch: int
    ids: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Pieces:
    """
    Windows of several pieces, for ``_native.TokenFiller.batches``: window i has the pieces ``cuts[i]`` up to
    ``cuts[i + 1]``, each ``sizes`` bytes from byte ``starts`` of its span on. ``origins`` are the positions of their
    first ids, 0 where a document begins. All are int64.
    """

    cuts: NDArray[np.int64]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    origins: NDArray[np.int64]

    def at(self, windows: NDArray[np.int64]) -> tuple[Pieces, NDArray[np.int64]]:
        """Return the pieces of some windows, and which these are."""
        counts = np.diff(self.cuts)[windows]
        cuts = np.append(0, np.cumsum(counts))
        chosen = np.repeat(self.cuts[windows] - cuts[:-1], counts) + np.arange(cuts[-1])
        return Pieces(cuts, self.starts[chosen], self.sizes[chosen], self.origins[chosen]), chosen


@dataclass(frozen=True, slots=True)
class LocatedWindows:
    """
    Where windows lie: the ids ``firsts`` up to ``stops`` of the stream, in the bytes of ``spans``. Without ``pieces``,
    span i is window i.
    """

    firsts: NDArray[np.int64]
    stops: NDArray[np.int64]
    spans: Spans
    pieces: Pieces | None

    def at(self, windows: NDArray[np.int64]) -> tuple[LocatedWindows, NDArray[np.int64]]:
        """Return some of the windows, and which spans they have."""
        pieces, chosen = (None, windows) if self.pieces is None else self.pieces.at(windows)
        return LocatedWindows(self.firsts[windows], self.stops[windows], self.spans.at(chosen), pieces), chosen

    def emptied(self, is_good: NDArray[np.bool_]) -> LocatedWindows:
        """Return the windows, of which the bad ones have no ids."""
        assert self.pieces is not None
        cuts, is_kept = self.pieces.cuts, np.repeat(is_good, np.diff(self.pieces.cuts))
        starts, sizes = self.pieces.starts * is_kept, self.pieces.sizes * is_kept
        origins = np.where(is_kept, self.pieces.origins, 1)  # of which none begins a document
        origins[cuts[:-1]] = 0
        return replace(self, pieces=Pieces(cuts, starts, sizes, origins))


class WindowStore:
    """
    The windows of a stream as samples: see SampleStore for the contract.

    ``spans`` says roughly where windows lie, as reading ahead needs it; ``locate`` says it exactly, and where random
    ones begin. ``again`` makes the store once more, in a process that unpickles it.
    """

    format = "tokens"

    def __init__(
        self, runs: TokenRuns, rules: Sequence[tuple[WindowRule, int]], again: Callable[[], WindowStore]
    ) -> None:
        """``rules`` has for each member of the stream its rule, and its number of ids."""
        self.runs = runs
        self.rules = tuple(rules)
        self.rule = rules[0][0]
        self.path = runs.path
        self.metadata = runs.metadata
        self.files = runs.files
        stored = "<u2" if runs.dtype.itemsize <= 2 else "<u4"  # the nearest that a field of ids may have
        self.schema = Schema((Field(_FIELD, TOKENS, stored, (None,)),))
        self._again = again
        self._is_open = True
        self._stretches = _Stretches.of(runs, self.rules)
        self._segments = _Segments.of(runs, is_cut=self.rule.documents == "mask")

    def __len__(self) -> int:
        return int(self._stretches.ends[-1]) if len(self._stretches.ends) else 0

    @property
    def shard_paths(self) -> Sequence[str]:
        """The path of each file, in order."""
        return tuple(source.path for source in self.runs.sources)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(source.size for source in self.runs.sources)

    @cached_property
    def identity(self) -> int:
        """A number for the ids and which windows of them there are."""
        rules = [[rule.size, rule.stride, rule.documents, count] for rule, count in self.rules]
        return zlib.crc32(json.dumps([self.runs.content, self.runs.dtype.str, rules]).encode())

    @property
    def unused(self) -> int:
        """How many ids are in no window; of random windows, those that no window can have: none."""
        return self._stretches.unused

    def lengths(self) -> NDArray[np.int64]:
        """Return the number of ids of each window, int64, read-only."""
        size = np.array(self.rule.size, np.int64)
        if self.rule.documents != "inside":
            return np.broadcast_to(size, len(self))
        firsts, stops = self._bounds(np.arange(len(self), dtype=np.int64), None)
        return stops - firsts

    def keys(self, indices: NDArray[np.int64] | Sequence[int]) -> list[str]:
        """Return where these windows lie in the stream; of random ones, where the first may begin."""
        firsts, stops = self._bounds(np.asarray(indices, np.int64), None)
        named = zip(firsts.tolist(), stops.tolist(), strict=True)
        return [f"tokens {first}-{stop - 1}" for first, stop in named]

    def spans(self, field: str, indices: NDArray[np.int64], *, checksums: bool = True) -> Spans:
        """Return about where windows lie: the bytes from their first ids on, in one file."""
        if field != _FIELD:
            raise SchemaError(f"{self.path}: no payload field {field!r}, expected {_FIELD!r}")
        runs = self._opened()
        firsts, stops = self._bounds(np.asarray(indices, np.int64), None)
        run = self._segments.run[self._segments.at(firsts)]
        starts = runs.starts[run] + (firsts - runs.firsts[run]) * runs.dtype.itemsize
        file_bytes = np.array([source.size for source in runs.sources], np.int64)
        sizes = np.minimum((stops - firsts) * runs.dtype.itemsize, file_bytes[runs.shard[run]] - starts)
        return Spans(self.files.buffers, np.ascontiguousarray(runs.shard[run]), starts, sizes)

    def look_ahead(
        self, field: str, indices: NDArray[np.int64], pool: _native.ThreadPool, *, checksums: bool = True
    ) -> None:
        """Do nothing: all that says where ids lie was compared when the runs were made."""

    def far_points(self, field: str, indices: NDArray[np.int64]) -> FarSpans | None:
        """Return None: ids are no pictures."""
        return None

    def value_bytes(self, field: str) -> NDArray[np.int64]:
        """Return the bytes of every window."""
        return self.spans(field, np.arange(len(self), dtype=np.int64)).sizes

    def total_bytes(self, field: str) -> int:
        """Return the bytes of all windows together."""
        return int(self.value_bytes(field).sum())

    def whole_spans(self, *, most: int) -> Spans:
        """Return all bytes of ids, in order, at most so many in a span."""
        runs = self._opened()
        sizes = np.diff(runs.ends, prepend=0) * runs.dtype.itemsize
        whole = Spans(self.files.buffers, runs.shard, runs.starts, sizes).runs()
        counts = -(-whole.sizes // most)
        number = numbers_within(counts)
        starts = np.repeat(whole.starts, counts) + number * most
        left = np.repeat(whole.sizes, counts) - number * most
        return Spans(whole.buffers, np.repeat(whole.shard, counts), starts, np.minimum(left, most))

    def locate(self, indices: NDArray[np.int64], draw: Draw | None = None, *, verify: bool = True) -> LocatedWindows:
        """
        Return where these windows lie. Random ones begin where ``draw`` says, without it where the first may.

        With ``verify``, whole runs are read that have a checksum: it comes with their spans.
        """
        runs, segments = self._opened(), self._segments
        firsts, stops = self._bounds(np.asarray(indices, np.int64), draw)
        head = segments.at(firsts)
        counts = segments.at(stops - 1) - head + 1
        cuts = np.append(0, np.cumsum(counts))
        segment = head if len(segments) == 1 else np.repeat(head - cuts[:-1], counts) + np.arange(cuts[-1])
        is_first = np.zeros(len(segment), np.bool_)
        is_first[cuts[:-1]] = True
        begins = np.maximum(np.repeat(firsts, counts), segments.starts[segment])
        ends = np.minimum(np.repeat(stops, counts), segments.stops[segment])
        run, item = segments.run[segment], runs.dtype.itemsize
        offsets, sizes = (begins - runs.firsts[run]) * item, (ends - begins) * item
        shard, places = np.ascontiguousarray(runs.shard[run]), runs.starts[run]
        is_checked = verify and runs.checksums is not None
        if is_checked:
            assert runs.checksums is not None
            whole = (runs.ends[run] - runs.firsts[run]) * item
            spans = Spans(self.files.buffers, shard, places, whole, runs.checksums[run])
        else:
            spans = Spans(self.files.buffers, shard, places + offsets, sizes)
            offsets = np.zeros_like(offsets)
        if not is_checked and len(segment) == len(firsts):
            return LocatedWindows(firsts, stops, spans, None)
        anew = np.maximum.accumulate(np.where(is_first | segments.begins[segment], np.arange(len(segment)), 0))
        return LocatedWindows(firsts, stops, spans, Pieces(cuts, offsets, sizes, begins - begins[anew]))

    def _bounds(self, indices: NDArray[np.int64], draw: Draw | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first id of each window, and the one behind its last."""
        outside = (indices < 0) | (indices >= len(self))
        if outside.any():
            raise IndexError(f"{self.path}: index {indices[outside][0]} of {len(self)} windows")
        draws = np.zeros((len(indices), 1))
        if draw is not None and any(rule.is_random for rule, _ in self.rules):
            ids = np.ascontiguousarray(draw.ids)
            _native.philox((draw.seed + _SEED) % (1 << 64), draw.epoch, ids, draws)
        return self._stretches.bounds(indices, draws[:, 0])

    def column(self, field: str) -> NDArray[Any]:
        """Raise SchemaError: there is none."""
        raise SchemaError(f"{self.path}: no column {field!r}; windows of tokens have no columns")

    def elements(self, field: str) -> Elements:
        """Raise SchemaError: windows are no lists."""
        raise SchemaError(f"{self.path}: windows of token ids have no lists, got {field!r}")

    def shapes(self, field: str) -> NDArray[np.int32]:
        """Return zeros: there are no pictures."""
        return np.zeros((len(self), 3), np.int32)

    def check_index(self) -> None:
        """Do nothing: all that says where ids lie was compared when the runs were made."""

    def receipt(self, fields: Sequence[str] | None = None) -> int | None:
        """Return None: windows have no checksums of their own."""
        return None

    def close(self) -> None:
        """Let the files go; twice does no harm."""
        self._is_open = False
        self.files.close()

    def _opened(self) -> TokenRuns:
        if not self._is_open:
            raise StoreError(f"{self.path}: the stream is closed: open it again")
        return self.runs

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by path; the receiving process refuses other content under the same name."""
        return _reopen, (self._again, self.identity)

    @classmethod
    def joined(cls, members: Sequence[WindowStore]) -> WindowStore:
        """
        Return the windows of one store behind those of another. Raises SchemaError for windows that cannot be in one
        batch.
        """
        first = members[0].rule
        for other in members[1:]:
            own = other.rule
            if (own.size, own.documents) != (first.size, first.documents):
                raise SchemaError(
                    f"{other.path}: windows of {own.size} ids, documents={own.documents!r}, but of {members[0].path} "
                    f"windows of {first.size}, documents={first.documents!r}: windows of one loader are alike"
                )
        runs = TokenRuns.joined([each.runs for each in members], knows_documents=first.documents != "cross")
        return cls(runs, [rule for each in members for rule in each.rules], _Joined(tuple(members)))


@dataclass(frozen=True)
class _Joined:
    """Joins stores again in the process that unpickles them."""

    members: tuple[WindowStore, ...]

    def __call__(self) -> WindowStore:
        return WindowStore.joined(self.members)


def _reopen(again: Callable[[], WindowStore], identity: int) -> WindowStore:
    store = again()
    if store.identity != identity:
        raise StoreError(f"{store.path}: was replaced since it was opened: open it again everywhere")
    return store


@dataclass(frozen=True, slots=True)
class _Stretches:
    """
    The stretches of ids that windows do not leave, those of each member of a stream side by side.

    Stretch i has ``lengths[i]`` ids from ``firsts[i]`` on, and the windows up to ``ends[i]``. Member k has those
    up to ``cuts[k]``, with the rule ``rules[k]``.
    """

    firsts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    counts: NDArray[np.int64]
    ends: NDArray[np.int64]
    rules: tuple[WindowRule, ...]
    cuts: NDArray[np.int64]

    @classmethod
    def of(cls, runs: TokenRuns, rules: Sequence[tuple[WindowRule, int]]) -> Self:
        firsts, lengths, counts, cuts, start = [], [], [], [], 0
        for rule, tokens in rules:
            own = np.array([start], np.int64)
            if rule.documents == "inside":
                assert runs.documents is not None
                low, high = np.searchsorted(runs.documents, [start, start + tokens])
                own = runs.documents[low:high]
            own_lengths = np.diff(own, append=start + tokens)
            firsts.append(own)
            lengths.append(own_lengths)
            counts.append(rule.counts(own_lengths))
            cuts.append(len(own))
            start += tokens
        every = np.concatenate(counts)
        return cls(
            np.concatenate(firsts),
            np.concatenate(lengths),
            every,
            np.cumsum(every),
            tuple(rule for rule, _ in rules),
            np.cumsum(cuts),
        )

    def bounds(
        self, windows: NDArray[np.int64], draws: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first id of each window, and the one behind its last."""
        if len(self.firsts) == 1:
            stretch: Any = 0
        else:
            stretch = _places(self.ends, windows)
        lengths, counts = self.lengths[stretch], self.counts[stretch]
        numbers = windows - (self.ends[stretch] - counts)
        if len(self.rules) == 1:
            offsets = self.rules[0].offsets(lengths, counts, numbers, draws)
        else:
            offsets, member = np.empty_like(windows), np.searchsorted(self.cuts, stretch, side="right")
            for number, rule in enumerate(self.rules):
                own = np.flatnonzero(member == number)
                offsets[own] = rule.offsets(lengths[own], counts[own], numbers[own], draws[own])
        firsts = self.firsts[stretch] + offsets
        return firsts, np.minimum(firsts + self.rules[0].size, self.firsts[stretch] + lengths)

    @property
    def unused(self) -> int:
        """How many ids are in no window."""
        total, start = 0, 0
        for rule, stop in zip(self.rules, self.cuts.tolist(), strict=True):
            lengths, counts = self.lengths[start:stop], self.counts[start:stop]
            start = stop
            if rule.is_random:
                total += int(lengths[counts == 0].sum())
                continue
            gaps = max(0, rule.stride - rule.size)
            reached = np.where(counts > 0, (counts - 1) * rule.stride + rule.size, 0)
            total += int(np.maximum(lengths - reached, 0).sum() + gaps * np.maximum(counts - 1, 0).sum())
        return total


@dataclass(frozen=True, slots=True)
class _Segments:
    """
    A stream, cut where its runs begin, and its documents if windows are cut there: ``starts`` and ``stops`` are ids,
    ``run`` the run of each segment, ``begins`` whether it begins a document.
    """

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    run: NDArray[np.int64]
    begins: NDArray[np.bool_]

    @classmethod
    def of(cls, runs: TokenRuns, *, is_cut: bool) -> Self:
        if not is_cut or runs.documents is None:
            return cls(runs.firsts, runs.ends, np.arange(len(runs.ends)), np.zeros(len(runs.ends), np.bool_))
        starts = np.union1d(runs.firsts, runs.documents)
        run = np.searchsorted(runs.ends, starts, side="right")
        places = np.minimum(np.searchsorted(runs.documents, starts), len(runs.documents) - 1)
        return cls(starts, np.append(starts[1:], len(runs)), run, runs.documents[places] == starts)

    def __len__(self) -> int:
        return len(self.starts)

    def at(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the segment of each of these ids."""
        return _places(self.starts, tokens) - 1


def _places(ascending: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """
    Return how many of ``ascending`` are not above each value. Values in random order are looked for in ascending order:
    so the same lines of memory serve neighbours, in a third of the time.
    """
    found: NDArray[np.int64] = np.empty(len(values), np.int64)
    if len(ascending) == 1:
        found[:] = values >= ascending[0]
        return found
    order = np.argsort(values)
    found[order] = np.searchsorted(ascending, values[order], side="right")
    return found
