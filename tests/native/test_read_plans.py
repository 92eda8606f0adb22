"""What the kernel would be asked to read is counted as the description says."""

from __future__ import annotations

import numpy as np

from fastio import _native
from fastio.types.spans import Spans

KIB = 1024


def test_stretches_are_counted_by_group() -> None:
    """Neighbours are one read, as are spans with small gaps; files and groups are counted apart."""
    buffers = _native.Buffers([1 << 30, 1 << 30])
    starts = np.array([0, 10, 20 * KIB, 100 * KIB, 100 * KIB, 0], np.int64)
    spans = Spans(buffers, np.array([0, 0, 0, 0, 1, 1], np.int32), starts, np.full(6, 10, np.int64))
    reads, nbytes = np.empty(3, np.int64), np.empty(3, np.int64)
    _native.count_stretches(spans, np.array([0, 4, 4, 6]), reads, nbytes)

    assert [2, 0, 2] == reads.tolist()
    assert [20 * KIB + 10 + 10, 0, 20] == nbytes.tolist()
