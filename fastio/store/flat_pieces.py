"""Token ids as one flat array, in pieces that a container keeps as one value each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastio.types.spans import Spans

__all__ = ["PIECE_BYTES", "FlatPieces"]

PIECE_BYTES = 1 << 20  # the last page of a piece is half empty on average: 0.2 % of this


class FlatPieces:
    """
    Gathers samples into pieces and writes each one when the next sample does not fit.

    ``write(value, size)`` writes one piece and returns its page; its bytes begin ``header`` bytes after that page's
    start. ``nodes`` are the pieces by key: page and size; ``first`` is the number of the first sample of the next
    one. What is written depends only on the samples, not on how they came in batches.
    """

    def __init__(self, name: str, write: Callable[[bytearray, int], int], *, page: int, header: int) -> None:
        self.name = name
        self.nodes: dict[bytes, tuple[int, int]] = {}
        self._write = write
        self._page, self._header = page, header
        self._pending = bytearray()
        self._offsets: list[NDArray[np.int64]] = []  # positions of the samples in ``_pending``, from its start
        self._starts: list[NDArray[np.int64]] = []
        self.first = self._count = 0

    def append(self, spans: Spans) -> None:
        """Take the samples of a batch; only copies of them are kept."""
        ends = np.cumsum(spans.sizes)
        data = b"".join(view.data for view in spans.runs().views())
        start = done = 0
        while start < len(spans):
            room = PIECE_BYTES - len(self._pending)
            stop = int(np.searchsorted(ends, done + room, side="right"))
            if stop == start and self._count == self.first:
                stop += 1  # a sample longer than a piece
            if stop > start:
                end = int(ends[stop - 1])
                self._offsets.append(ends[start:stop] - spans.sizes[start:stop] + (len(self._pending) - done))
                self._pending += memoryview(data)[done:end]
                self._count += stop - start
                start, done = stop, end
            if start < len(spans):
                self._flush()

    def take_starts(self) -> NDArray[np.int64]:
        """Return where the samples lie in the file whose pieces were written since the last call."""
        taken, self._starts = self._starts, []
        return np.concatenate(taken) if taken else np.empty(0, np.int64)

    def finish(self) -> None:
        """Write the last piece."""
        if self._count > self.first:
            self._flush()

    def _flush(self) -> None:
        size = len(self._pending)
        page = self._write(self._pending, size)
        self.nodes[b"%s/%010d" % (self.name.encode("ascii"), self.first)] = page, size
        self._starts += [offsets + (page * self._page + self._header) for offsets in self._offsets]
        self._pending, self._offsets, self.first = bytearray(), [], self._count
