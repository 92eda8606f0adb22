"""Finds values whose bytes differ from the CRC-32 in their store."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.types.spans import Spans

__all__ = ["begin_check", "damaged"]


def begin_check(spans: Spans, pool: _native.ThreadPool | None = None) -> Callable[[], NDArray[np.int64]]:
    """
    Begin to compare values with their checksums, on ``pool`` if there is one.

    Returns a function that waits and returns the positions of damaged values, ascending; none if the store has no
    checksums (other programs' tar shards).
    """
    expected = spans.checksums
    if expected is None:
        return lambda: np.empty(0, np.int64)
    found = np.empty(len(spans), np.uint32)
    job = _native.checksum(spans, found, pool)

    def finish() -> NDArray[np.int64]:
        job.wait()
        return np.flatnonzero(found != expected)

    return finish


def damaged(spans: Spans) -> NDArray[np.int64]:
    """Run ``begin_check`` at once, in this thread."""
    return begin_check(spans)()
