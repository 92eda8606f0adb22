"""Finds values whose bytes differ from the CRC-32 that their store has for them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.types.spans import Spans

__all__ = ["damaged"]


def damaged(spans: Spans) -> NDArray[np.int64]:
    """Positions of damaged values; none where the store has no checksums (tar shards of others)."""
    if spans.checksums is None:
        return np.empty(0, np.int64)
    found = np.empty(len(spans), np.uint32)
    _native.checksum(spans, found).wait()
    return np.flatnonzero(found != spans.checksums)
