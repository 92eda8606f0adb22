"""Spans: where encoded values lie; the only type that passes between stores and codecs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastio._native import Buffers

__all__ = ["Spans"]


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
