"""
Matches the keys of two stores: which sample of one is which of the other.

Keys in the same order are compared side by side. Otherwise each key's two CRC-32 (of different polynomials, 64 bits
together) go into a file without a name, and matching takes those of one range of values at a time out of both. What the
checksums match is compared byte by byte, so two keys that share them are told apart. What has an entry per key, such as
where each begins, lies in files without a name, too: memory does not grow with the stores.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio._native import Buffers
from fastio.machine import available_cpus
from fastio.machine.system import take_room
from fastio.store.index.numbered_keys import NumberedKeys
from fastio.store.index.seal import byte_view, split_keys
from fastio.store.index.sealed import Shard
from fastio.store.index.store import SealedStore
from fastio.store.write.atomic import write_all
from fastio.types.spans import Spans, distinct

__all__ = ["KeyMatch", "match_keys"]

_PIECE = 1 << 20  # keys looked at together
_TOGETHER = 1 << 22  # keys of each store that are matched together
_NAMED = 3  # keys named in a message


@dataclass(frozen=True, slots=True)
class Odd:
    """Keys that spoil a match: how many there are, and the first ones."""

    count: int = 0
    first: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class KeyMatch:
    """
    ``rows`` (n,) says which sample of the other store each sample of the first one is, -1 for none; None if each is the
    one at its own place.

    ``missing`` are keys that only the first store has, ``extra`` those that only the other has, ``double`` those that
    one of them has several times; their first samples count.
    """

    rows: NDArray[Any] | None
    missing: Odd = field(default_factory=Odd)
    extra: Odd = field(default_factory=Odd)
    double: Odd = field(default_factory=Odd)


def match_keys(first: SealedStore, other: SealedStore, *, stems: bool = False) -> KeyMatch:
    """
    Match the samples of two stores by their keys; with ``stems``, by what these are without their extensions.

    May raise OSError where TMPDIR is full.
    """
    with closing(_native.ThreadPool(available_cpus())) as pool:
        ours, theirs = _Keys(first, pool, stems=stems), _Keys(other, pool, stems=stems)
        # A store that fastio packed has no key twice; two of another kind might have theirs in other orders.
        if ours.is_unique and theirs.is_unique and ours.count == theirs.count and _in_order(ours, theirs):
            return KeyMatch(None)
        return _matched(ours, theirs)


class _Keys:
    """The keys of a store as spans of bytes; with ``stems``, without their extensions."""

    def __init__(self, store: SealedStore, pool: _native.ThreadPool, *, stems: bool) -> None:
        self._store, self._pool = store, pool
        self._shards = list(store.shards)
        self.is_unique = not stems and all(shard.is_sealed for shard in self._shards)
        self._firsts = np.cumsum([0, *(shard.count for shard in self._shards)])
        self.count = int(self._firsts[-1])
        joined = _joined(self._shards)
        self._starts = _key_starts(self._shards, joined)
        self._extensions = _zeros(self.count, np.dtype(np.int32)) if stems else None
        if self._extensions is not None:
            every = np.split(self._extensions, self._firsts[1:-1])
            for each in zip(self._shards, joined, self._starts, every, strict=True):
                _measure_extensions(*each)
        self._buffers = Buffers(joined)

    def text(self, row: int) -> str:
        """Return a key."""
        return self._store.keys([row])[0]

    def values(self, rows: NDArray[np.int64]) -> list[bytes]:
        """Return what is compared of some keys."""
        return [view.tobytes() for view in self.spans(rows).views()]

    def pieces(self) -> Iterator[slice]:
        """Yield the rows of keys that are looked at together."""
        return (slice(start, min(start + _PIECE, self.count)) for start in range(0, self.count, _PIECE))

    def spans(self, rows: NDArray[np.int64]) -> Spans:
        """Return where the bytes of these keys lie."""
        which = np.searchsorted(self._firsts, rows, side="right") - 1
        starts, sizes = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
        order = np.argsort(which, kind="stable") if len(self._shards) > 1 else np.arange(len(rows))
        cuts = np.searchsorted(which[order], np.arange(len(self._shards) + 1))
        for number in np.flatnonzero(np.diff(cuts)).tolist():
            positions = order[cuts[number] : cuts[number + 1]]
            local = rows[positions] - self._firsts[number]
            starts[positions], sizes[positions] = _places(self._shards[number], self._starts[number], local)
        if self._extensions is not None:
            sizes -= self._extensions[rows]
        return Spans(self._buffers, which.astype(np.int32), starts, sizes)

    def digests(self, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return 64 bits of each of these keys."""
        spans = self.spans(rows)
        low, high = np.empty(len(rows), np.uint32), np.empty(len(rows), np.uint32)
        jobs = (_native.checksum(spans, low, self._pool), _native.checksum_crc32c(spans, high, self._pool))
        for job in jobs:
            job.wait()
        return low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)

    def differ(self, rows: NDArray[np.int64], other: _Keys, others: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of these keys are not those at ``others`` of another store, ``(n,)``."""
        ours, theirs = self.spans(rows), other.spans(others)
        result: NDArray[np.bool_] = ours.sizes != theirs.sizes
        for size in distinct(ours.sizes[~result]).tolist():
            at = np.flatnonzero((ours.sizes == size) & ~result)
            result[at] = (self._copied(ours.at(at), size) != self._copied(theirs.at(at), size)).any(axis=1)
        return result

    def _copied(self, spans: Spans, size: int) -> NDArray[np.uint8]:
        """Return keys of one size as rows."""
        rows = np.empty((len(spans), size), np.uint8)
        _native.gather(spans, rows, np.zeros(len(spans), np.int32), self._pool, verify=False).wait()
        return rows


def _key_starts(shards: Sequence[Shard], joined: Sequence[NDArray[np.uint8]]) -> list[NDArray[np.int64] | None]:
    """Return where the keys of each shard begin, and one past the end; None for keys of one width."""
    counts = [0 if shard.keys.are_fixed else shard.count + 1 for shard in shards]
    every = np.split(_zeros(sum(counts), np.dtype(np.int64)), np.cumsum(counts)[:-1])
    return [
        None if shard.keys.are_fixed else split_keys(whole, shard.count, path=shard.path, out=own)
        for shard, whole, own in zip(shards, joined, every, strict=True)
    ]


def _places(
    shard: Shard, starts: NDArray[np.int64] | None, local: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """
    Return where the bytes of some keys of a shard begin, and how many there are; ``starts`` are where all begin, None
    for keys of one width.
    """
    if starts is None:
        keys: NDArray[Any] = shard.keys.array
        return local * keys.dtype.itemsize, np.char.str_len(keys[local]).astype(np.int64)
    return starts[local], starts[local + 1] - 1 - starts[local]


def _joined(shards: Sequence[Shard]) -> list[NDArray[np.uint8]]:
    """
    Return the bytes of all keys of each shard, one behind the other: mapped, as those of a large index are, not in
    memory. Rules become keys in one file without a name.
    """
    sizes = [shard.keys.nbytes if isinstance(shard.keys, NumberedKeys) else 0 for shard in shards]
    with tempfile.TemporaryFile(buffering=0) as file:
        for shard in shards:
            for start in range(0, shard.count, _PIECE) if isinstance(shard.keys, NumberedKeys) else ():
                write_all(file.fileno(), shard.keys.joined(start, min(start + _PIECE, shard.count)) + b"\0")
        mapped = np.memmap(file, np.uint8, "r") if any(sizes) else np.empty(0, np.uint8)
    ends = np.cumsum([size + 1 if size else 0 for size in sizes])
    made = [mapped[end - size - 1 : end - 1] for end, size in zip(ends, sizes, strict=True)]
    each = zip(shards, made, strict=True)
    return [own if isinstance(shard.keys, NumberedKeys) else byte_view(shard.keys.array) for shard, own in each]


def _measure_extensions(
    shard: Shard, whole: NDArray[np.uint8], key_starts: NDArray[np.int64] | None, found: NDArray[np.int32]
) -> None:
    """
    Write to ``found`` how many bytes the extension of each key of a shard has, with its dot; 0 for none. ``whole`` are
    the bytes of all.
    """
    for start in range(0, shard.count, _PIECE):
        rows = np.arange(start, min(start + _PIECE, shard.count))
        starts, sizes = _places(shard, key_starts, rows)
        ends = starts + sizes
        piece = whole[int(starts[0]) : int(ends[-1])]
        dots, slashes = (_last(piece, sign, ends - starts[0]) + starts[0] for sign in b"./")
        first = np.maximum(starts, slashes + 1)  # of the name, whose first dot may hide it
        found[rows] = np.where(dots > first, ends - dots, 0)


def _last(data: NDArray[np.uint8], sign: int, ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where ``sign`` comes last before each of these ends; far below 0 where it does not."""
    places = np.concatenate((np.array([-(1 << 62)]), np.flatnonzero(data == sign)))
    return places[np.searchsorted(places, ends) - 1]


def _in_order(ours: _Keys, theirs: _Keys) -> bool:
    """Whether both stores have the same keys in the same order."""
    for piece in ours.pieces():
        rows = np.arange(piece.start, piece.stop, dtype=np.int64)
        if ours.differ(rows, theirs, rows).any():
            return False
    return True


# Matching by digests.


class _Digests:
    """The digests of all keys of a store, in a file without a name."""

    def __init__(self, keys: _Keys) -> None:
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - see close
        self._count = keys.count
        for piece in keys.pieces():
            digests = keys.digests(np.arange(piece.start, piece.stop, dtype=np.int64))
            write_all(self._file.fileno(), byte_view(digests))

    def within(self, part: int, shift: int) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Return the rows, ascending, and the digests that begin with the bits ``part``."""
        rows, digests = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
        for start in range(0, self._count, _PIECE):
            count = min(_PIECE, self._count - start)
            all_of_piece = np.fromfile(self._file, np.uint64, count) if self._seek(start) else digests[0]
            chosen = np.arange(count) if shift == 64 else np.flatnonzero(all_of_piece >> np.uint64(shift) == part)
            rows.append(chosen + start)
            digests.append(all_of_piece[chosen])
        return np.concatenate(rows), np.concatenate(digests)

    def _seek(self, start: int) -> bool:
        return self._file.seek(start * 8) == start * 8

    def close(self) -> None:
        """Let the file go."""
        self._file.close()


def _matched(ours: _Keys, theirs: _Keys) -> KeyMatch:
    found = _Found(ours, theirs)
    bits = max(0, (max(ours.count, theirs.count, 1) - 1) // _TOGETHER).bit_length()
    with ExitStack() as opened:
        of_ours = opened.enter_context(closing(_Digests(ours)))
        of_theirs = opened.enter_context(closing(_Digests(theirs)))
        for part in range(1 << bits):
            found.add(*of_ours.within(part, 64 - bits), *of_theirs.within(part, 64 - bits))
    rows = found.rows
    is_same = ours.count == theirs.count and all(
        bool((rows[piece] == np.arange(piece.start, piece.stop)).all()) for piece in ours.pieces()
    )
    return KeyMatch(None if is_same else rows, found.missing.odd(ours), found.extra.odd(theirs), found.double.odd(ours))


class _Odds:
    """Counts odd keys, and keeps the first."""

    def __init__(self) -> None:
        self.count = 0
        self._rows: list[int] = []
        self._texts: list[str] = []

    def add(self, rows: NDArray[np.int64]) -> None:
        """Count these rows."""
        self.count += len(rows)
        self._rows = sorted([*self._rows, *np.sort(rows)[:_NAMED].tolist()])[:_NAMED]

    def add_text(self, text: str) -> None:
        """Count a key."""
        self.count += 1
        self._texts = sorted([*self._texts, text])[:_NAMED]

    def odd(self, keys: _Keys) -> Odd:
        """Return them; ``keys`` are those of the rows."""
        return Odd(self.count, tuple([*map(keys.text, self._rows), *self._texts][:_NAMED]))


class _Found:
    """What is found so far, one range of digests after the other."""

    def __init__(self, ours: _Keys, theirs: _Keys) -> None:
        self._ours, self._theirs = ours, theirs
        self.rows = _zeros(ours.count, np.dtype(np.int32 if theirs.count < 1 << 31 else np.int64))
        self.rows[:] = -1
        self.missing, self.extra, self.double = _Odds(), _Odds(), _Odds()

    def add(
        self,
        rows: NDArray[np.int64],
        digests: NDArray[np.uint64],
        others: NDArray[np.int64],
        other_digests: NDArray[np.uint64],
    ) -> None:
        """Match the keys of one range of digests: their rows in both stores."""
        order, other_order = np.argsort(digests, kind="stable"), np.argsort(other_digests, kind="stable")
        rows, digests = rows[order], digests[order]
        others, other_digests = others[other_order], other_digests[other_order]
        # Those that come once in both stores, or in one alone; the others are told apart by their text.
        alone, other_alone = _alone(digests), _alone(other_digests)
        place = np.searchsorted(other_digests, digests)
        inside = place < len(other_digests)
        meets = inside & (other_digests[np.where(inside, place, 0)] == digests) if len(others) else inside
        met = np.zeros(len(others) + 1, np.bool_)
        met[place[meets]] = True
        plain = alone & meets
        plain[plain] = other_alone[place[plain]]
        mine, yours = rows[plain], others[place[plain]]
        wrong = self._ours.differ(mine, self._theirs, yours)
        self.rows[mine[~wrong]] = yours[~wrong]
        self.missing.add(mine[wrong])
        self.extra.add(yours[wrong])
        self.missing.add(rows[alone & ~meets])
        self.extra.add(others[other_alone & ~met[:-1]])
        rest = ~plain & ~(alone & ~meets)
        other_rest = ~other_alone | met[:-1]
        other_rest[place[plain]] = False
        if rest.any() or other_rest.any():
            self._by_text(np.sort(rows[rest]), np.sort(others[other_rest]))

    def _by_text(self, rows: NDArray[np.int64], others: NDArray[np.int64]) -> None:
        """Match keys of which some share a digest: in most cases, because they are the same."""
        of_text: dict[bytes, int] = {}
        seen: set[bytes] = set()
        double: set[bytes] = set()
        their_values = self._theirs.values(others)
        for text, other in zip(their_values, others.tolist(), strict=True):
            if of_text.setdefault(text, other) != other:
                double.add(text)
        for text, row in zip(self._ours.values(rows), rows.tolist(), strict=True):
            if text in seen:
                double.add(text)
            seen.add(text)
            other = of_text.get(text, -1)
            if other < 0:
                self.missing.add(np.array([row]))
            else:
                self.rows[row] = other
        for text in double:
            self.double.add_text(text.decode("utf-8", "surrogateescape"))
        unmet = [other for text, other in zip(their_values, others.tolist(), strict=True) if text not in seen]
        self.extra.add(np.array(unmet, np.int64))


def _zeros(count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """
    Return as many zeros, in a file without a name: the kernel may write them there if memory is short.

    Their room is taken now: where a disk that is full has none for a page, writing to it would kill the process.
    """
    if not count:
        return np.zeros(0, dtype)
    with tempfile.TemporaryFile(buffering=0) as file:
        take_room(file.fileno(), count * dtype.itemsize)
        zeros: NDArray[Any] = np.memmap(file, dtype, "r+", shape=(count,))
    return zeros


def _alone(digests: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return which of these ascending digests come once."""
    alone = np.ones(len(digests), np.bool_)
    same = digests[1:] == digests[:-1]
    alone[1:] &= ~same
    alone[:-1] &= ~same
    return alone
