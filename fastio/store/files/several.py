"""The files of several stores that are read as one, each by its own kind: mapped ones beside those behind a URL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.store.files.byte_source import Fetched, JointPrefetch, Prefetch, StoreFiles
from fastio.types.spans import Spans, distinct

__all__ = ["SeveralFiles"]

_NOTHING = np.empty(0, np.uint8)


class SeveralFiles:
    """
    The files of ``parts``, numbered one part after the other; see StoreFiles.

    ``sizes`` are the bytes of all files. Spans of each part are brought into memory by that part.
    """

    def __init__(self, parts: Sequence[StoreFiles], sizes: Sequence[int]) -> None:
        self._parts = parts
        self._ends = np.cumsum([len(part.buffers) for part in parts])
        self.in_place = False
        self.threads = max(part.threads for part in parts)
        self.holds = any(part.holds for part in parts)
        self.ahead_bytes = max(part.ahead_bytes for part in parts)
        self.chunk_bytes = max(part.chunk_bytes for part in parts)
        self.buffers = _native.Buffers(list(sizes))

    def fetch(
        self,
        spans: Spans,
        *,
        pool: _native.ThreadPool | None = None,
        ring: _native.BufferRing | None = None,
        is_near: bool = False,
    ) -> Fetched:
        """Have each part bring its spans into memory."""
        return _Fetched(
            spans,
            [
                (positions, self._parts[number].fetch(own, pool=pool, ring=ring, is_near=is_near))
                for number, positions, own in self._by_part(spans)
            ],
        )

    def read_ahead(
        self, spans: Spans, *, pool: _native.ThreadPool | None = None, comes_again: bool = False
    ) -> Prefetch:
        """Have each part bring its spans nearer."""
        return JointPrefetch(
            [
                self._parts[number].read_ahead(own, pool=pool, comes_again=comes_again)
                for number, _, own in self._by_part(spans)
            ]
        )

    def failure(self, spans: Spans) -> str | None:
        """Return what the part says of its spans."""
        reasons = (self._parts[number].failure(own) for number, _, own in self._by_part(spans))
        return next((reason for reason in reasons if reason is not None), None)

    def close(self) -> None:
        """Close all parts."""
        for part in self._parts:
            part.close()

    def _by_part(self, spans: Spans) -> list[tuple[int, NDArray[np.int64], Spans]]:
        """Return the number of each part that has some of the spans, their positions, and them as the part counts."""
        which = np.searchsorted(self._ends, spans.shard, side="right")
        if len(which) and (which.max() >= len(self._parts) or spans.shard.min() < 0):
            raise IndexError(f"a span of file {int(spans.shard.max())}, of {int(self._ends[-1])}")
        found = []
        for number in distinct(which).tolist():
            positions = np.flatnonzero(which == number)
            part = self._parts[number]
            own = spans.at(positions)
            shard = own.shard - np.int32(self._ends[number] - len(part.buffers))
            found.append((number, positions, replace(own, buffers=part.buffers, shard=shard)))
        return found


@dataclass(frozen=True, slots=True)
class _Fetched:
    """Spans of several parts on their way; see Fetched."""

    asked: Spans
    parts: Sequence[tuple[NDArray[np.int64], Fetched]]

    def wait(self) -> tuple[Spans, NDArray[np.int32] | None]:
        """Wait for all of them."""
        count = len(self.asked)
        shard, starts = np.zeros(count, np.int32), np.zeros(count, np.int64)
        sizes, status = self.asked.sizes.copy(), np.full(count, _native.OK, np.int32)
        memory: list[NDArray[np.uint8]] = []
        for positions, fetched in self.parts:
            spans, failed = fetched.wait()
            if failed is not None:
                status[positions] = failed
            # Each buffer of a part as far as its spans go: the next part numbers its own behind them.
            numbers, inverse = np.unique(spans.shard, return_inverse=True)
            ends = np.zeros(len(numbers), np.int64)
            np.maximum.at(ends, inverse, spans.starts + spans.sizes)
            shard[positions] = len(memory) + inverse
            starts[positions], sizes[positions] = spans.starts, spans.sizes
            for number, end in zip(numbers.tolist(), ends.tolist(), strict=True):
                memory.append(spans.buffers.view(number, 0, end))
        there = replace(
            self.asked, buffers=_native.Buffers(memory or [_NOTHING]), shard=shard, starts=starts, sizes=sizes
        )
        return there, status if status.any() else None
