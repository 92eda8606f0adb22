"""HeldRanges: the ranges that are in memory or on their way, and which of them holds a span."""

from __future__ import annotations

import weakref

import numpy as np
from numpy.typing import NDArray

from fastio.store.files.remote.download_thread import Download
from fastio.types.spans import Spans

__all__ = ["HeldRanges"]

# Shard and start as one number, to search for both at once: a sixteenth of an exabyte over 2**19 objects.
_SHARD_BITS = 44


class HeldRanges:
    """Downloads that somebody holds. Safe to share between threads."""

    def __init__(self) -> None:
        # No WeakSet: its iteration may not meet another thread's ``add``.
        self._downloads: dict[int, weakref.ref[Download]] = {}

    def add(self, download: Download) -> None:
        """Let spans be found in a download while somebody else holds it."""
        number, downloads = id(download), self._downloads
        downloads[number] = weakref.ref(download, lambda _: downloads.pop(number, None))

    def find(self, spans: Spans) -> tuple[list[Download], NDArray[np.int64]]:
        """Return the downloads that hold spans, and of each span the position of its download in them, or -1."""
        block = np.full(len(spans), -1, np.int64)
        alive = [download for ref in list(self._downloads.values()) if (download := ref()) is not None]
        # Of ranges that begin at the same byte the shortest is looked at first, of equal ones that which was begun
        # first: it may be there already. (A block of one sample is the range that a first batch asked for.)
        alive.reverse()
        held = sorted(alive, key=lambda download: (download.range.shard, download.range.start, -download.range.stop))
        if not held or not len(spans):
            return [], block
        shards = np.array([download.range.shard for download in held], np.int64)
        starts = np.array([download.range.start for download in held], np.int64)
        stops = np.array([download.range.stop for download in held], np.int64)
        wanted = spans.shard.astype(np.int64)
        # The last range that begins at or before a span holds it, unless ranges overlap: then an earlier one may.
        last = np.searchsorted((shards << _SHARD_BITS) + starts, (wanted << _SHARD_BITS) + spans.starts, "right") - 1
        left = np.flatnonzero((last >= 0) & (spans.sizes > 0))
        for step in range(len(held)):
            at = last[left] - step
            left, at = left[at >= 0], at[at >= 0]
            is_near = shards[at] == wanted[left]
            is_inside = is_near & (stops[at] >= spans.starts[left] + spans.sizes[left])
            block[left[is_inside]] = at[is_inside]
            left = left[is_near & ~is_inside]
            if not len(left):
                break
        used, numbers = np.unique(block, return_inverse=True)
        first = int(len(used) > 0 and used[0] == -1)
        return [held[number] for number in used[first:].tolist()], numbers.reshape(-1) - first
