"""Spans: where encoded values lie, the only type that passes between stores and codecs; ListSpans: lists of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio._native import Buffers

__all__ = ["ListSpans", "Spans", "distinct", "elements_of", "firsts_of", "numbers_within", "sums_of"]


@dataclass(frozen=True, slots=True)
class Spans:
    """
    One run of bytes per sample: ``sizes[i]`` bytes from ``starts[i]`` of buffer ``shard[i]``.

    ``shard`` is int32, ``starts`` and ``sizes`` are int64, ``checksums`` (CRC-32, as in zlib) is uint32, or None if
    the store has none; all are 1-D, of the same length, C contiguous. ``buffers`` keeps the mapped files alive.
    ``intervals`` says where decoders may start in a JPEG: spans of little-endian uint32, empty if nothing is known.
    They carry a checksum, which decoders compare: wrong ones change no pixel.

    Native functions take spans as they are, and raise IndexError before they begin if one leaves its buffer.
    """

    buffers: Buffers
    shard: NDArray[np.int32]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    checksums: NDArray[np.uint32] | None = None
    intervals: Spans | None = None

    @classmethod
    def of(
        cls,
        data: NDArray[np.uint8],
        starts: NDArray[np.int64],
        sizes: NDArray[np.int64],
        *,
        checksums: NDArray[np.uint32] | None = None,
        intervals: Spans | None = None,
    ) -> Spans:
        """
        Return the spans of values in one array: ``sizes[i]`` bytes from ``starts[i]``.

        >>> spans = Spans.of(np.frombuffer(b"abcdef", np.uint8), np.array([0, 4]), np.array([3, 2]))
        >>> spans.view(1).tobytes()
        b'ef'
        """
        return cls(Buffers([data]), np.zeros(len(starts), np.int32), starts, sizes, checksums, intervals)

    @classmethod
    def joined(cls, data: NDArray[np.uint8], sizes: NDArray[np.int64], *, intervals: Spans | None = None) -> Spans:
        """
        Return the spans of values that lie one after the other in one array.

        >>> Spans.joined(np.frombuffer(b"abcdef", np.uint8), np.array([4, 2])).view(1).tobytes()
        b'ef'
        """
        return cls.of(data, np.cumsum(sizes) - sizes, sizes, intervals=intervals)

    def __len__(self) -> int:
        return len(self.starts)

    def view(self, position: int) -> NDArray[np.uint8]:
        """Return the encoded bytes of one value, without a copy. Raises IndexError if they would leave their buffer."""
        return self.buffers.view(int(self.shard[position]), int(self.starts[position]), int(self.sizes[position]))

    def views(self) -> list[NDArray[np.uint8]]:
        """Return ``view`` of each value."""
        view = self.buffers.view
        places = zip(self.shard.tolist(), self.starts.tolist(), self.sizes.tolist(), strict=True)
        return [view(shard, start, size) for shard, start, size in places]

    def runs(self) -> Spans:
        """
        Merge neighbouring values into one span, so that they are written at once; without checksums.

        >>> spans = Spans.of(np.arange(9, dtype=np.uint8), np.array([1, 3]), np.array([2, 4]))
        >>> spans.runs().sizes.tolist()
        [6]
        """
        if len(self) == 0:
            return self
        stops = self.starts + self.sizes
        cuts = np.flatnonzero((self.starts[1:] != stops[:-1]) | (self.shard[1:] != self.shard[:-1])) + 1
        first, last = np.concatenate(([0], cuts)), np.concatenate((cuts, [len(self)])) - 1
        return Spans(self.buffers, self.shard[first], self.starts[first], stops[last] - self.starts[first])

    def part(self, start: int, stop: int) -> Spans:
        """Return the spans of the positions from ``start`` up to ``stop``."""
        return self if (start, stop) == (0, len(self)) else self.at(slice(start, stop))

    def at(self, positions: NDArray[np.int64] | slice) -> Spans:
        """Return the spans at these positions."""
        return Spans(
            self.buffers,
            self.shard[positions],
            self.starts[positions],
            self.sizes[positions],
            None if self.checksums is None else self.checksums[positions],
            None if self.intervals is None else self.intervals.at(positions),
        )


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """
    Return the distinct ones among numbers, ascending.

    ``np.unique``, which does so, imports ``numpy.ma`` for it, 8 MB of memory, and takes long for many in random order.

    >>> distinct(np.array([3, 1, 3, 2])).tolist()
    [1, 2, 3]
    """
    ordered = np.sort(values, axis=None)
    is_first = np.ones(len(ordered), np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    found: NDArray[Any] = ordered[is_first]
    return found


# Lists of values: as many elements as a sample has, all elements of all samples one after the other.


def firsts_of(counts: NDArray[Any]) -> NDArray[np.int64]:
    """
    Return where the elements of each list begin among all elements, and one past the end, ``(n + 1,)``.

    >>> firsts_of(np.array([2, 0, 1])).tolist()
    [0, 2, 2, 3]
    """
    firsts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, dtype=np.int64, out=firsts[1:])
    return firsts


def numbers_within(counts: NDArray[Any]) -> NDArray[np.int64]:
    """
    Return the number of each element within its list, for lists of so many elements.

    >>> numbers_within(np.array([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    firsts = firsts_of(counts)
    return np.arange(firsts[-1], dtype=np.int64) - np.repeat(firsts[:-1], counts)


def elements_of(firsts: NDArray[np.int64], positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """
    Return the elements of the lists at these positions, list by list, and how many each of these lists has.

    >>> [each.tolist() for each in elements_of(np.array([0, 2, 2, 3]), np.array([2, 0]))]
    [[2, 0, 1], [1, 2]]
    """
    counts = firsts[positions + 1] - firsts[positions]
    return np.repeat(firsts[positions], counts) + numbers_within(counts), counts


def sums_of(firsts: NDArray[np.int64], values: NDArray[Any]) -> NDArray[np.int64]:
    """
    Return the sum of one whole number per element for each list, ``(n,)``.

    >>> sums_of(np.array([0, 2, 2, 3]), np.array([5, 6, 7])).tolist()
    [11, 0, 7]
    """
    before = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=before[1:])
    return before[firsts[1:]] - before[firsts[:-1]]


@dataclass(frozen=True)
class ListSpans:
    """
    A list of values per sample: ``counts[i]`` elements, which follow those of sample i - 1 in ``spans``.

    ``counts`` is int64. ``shapes`` ``(elements, 3)`` int32 are height, width and channels of pictures; None where they
    are not known.
    """

    spans: Spans
    counts: NDArray[np.int64]
    shapes: NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.counts)

    @cached_property
    def firsts(self) -> NDArray[np.int64]:
        """See ``firsts_of``."""
        return firsts_of(self.counts)

    @property
    def owners(self) -> NDArray[np.int64]:
        """The position of the list that each element is in."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The bytes of each list, ``(n,)``."""
        return sums_of(self.firsts, self.spans.sizes)

    def part(self, start: int, stop: int) -> ListSpans:
        """Return the lists of the positions from ``start`` up to ``stop``."""
        first, last = int(self.firsts[start]), int(self.firsts[stop])
        shapes = None if self.shapes is None else self.shapes[first:last]
        return ListSpans(self.spans.part(first, last), self.counts[start:stop], shapes)

    def at(self, positions: NDArray[np.int64]) -> ListSpans:
        """Return the lists at these positions."""
        elements, counts = elements_of(self.firsts, positions)
        return ListSpans(self.spans.at(elements), counts, None if self.shapes is None else self.shapes[elements])

    def joined(self) -> Spans:
        """
        Return one run of bytes per list, its elements one behind the other; copies them unless they lie so already.

        >>> spans = Spans.joined(np.frombuffer(b"abcdef", np.uint8), np.array([1, 2, 3]))
        >>> ListSpans(spans, np.array([2, 0, 1])).joined().sizes.tolist()
        [3, 0, 3]
        """
        sizes = self.sizes
        if len(self.spans.runs()) <= 1:
            starts = np.cumsum(sizes) - sizes + (int(self.spans.starts[0]) if len(self.spans) else 0)
            shard = np.full(len(sizes), int(self.spans.shard[0]) if len(self.spans) else 0, np.int32)
            return Spans(self.spans.buffers, shard, starts, sizes)
        return Spans.joined(np.concatenate(self.spans.views()), sizes)
