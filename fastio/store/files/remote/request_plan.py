"""Which spans share a request."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastio.store.files.remote.download_thread import ByteRange
from fastio.types.spans import Spans

__all__ = ["MOST_BYTES", "joined_ranges"]

# Between neighbours that share a request: less than a connection brings while another request waits for its answer.
GAP_BYTES = 64 << 10
MOST_BYTES = 16 << 20  # of a request for several spans; a larger span has its own


def joined_ranges(spans: Spans, *, most_bytes: int = MOST_BYTES) -> tuple[list[ByteRange], NDArray[np.int64]]:
    """
    Return the ranges to ask for, those of the first spans first, and of each span the number of its range.

    Spans of one object share a range if at most 64 KiB lie between them, up to ``most_bytes``. Empty spans are not
    allowed.
    """
    order = np.lexsort((spans.starts, spans.shard))
    shard, starts = spans.shard[order].tolist(), spans.starts[order].tolist()
    stops = (spans.starts + spans.sizes)[order].tolist()
    ranges: list[ByteRange] = []
    numbers = []
    for at, start, stop in zip(shard, starts, stops, strict=True):
        last = ranges[-1] if ranges else None
        if (
            last is not None
            and last.shard == at
            and start - last.stop <= GAP_BYTES
            and (stop <= last.stop or stop - last.start <= most_bytes)
        ):
            ranges[-1] = ByteRange(at, last.start, max(stop, last.stop))
        else:
            ranges.append(ByteRange(at, start, stop))
        numbers.append(len(ranges) - 1)
    of_range = np.empty(len(spans), np.int64)
    of_range[order] = numbers
    return _by_need(ranges, of_range)


def _by_need(ranges: list[ByteRange], of_range: NDArray[np.int64]) -> tuple[list[ByteRange], NDArray[np.int64]]:
    """Return the ranges in the order in which spans need them, and the new number of each span's range."""
    _, firsts = np.unique(of_range, return_index=True)
    order = np.argsort(firsts, kind="stable")
    new = np.empty(len(ranges), np.int64)
    new[order] = np.arange(len(ranges))
    return [ranges[number] for number in order.tolist()], new[of_range] if len(of_range) else of_range
