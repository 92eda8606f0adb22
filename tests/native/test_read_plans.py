"""What the kernel would be asked to read, and what a cache would hold: counted as their descriptions say."""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=12),
    capacity=st.integers(0, 40),
    data=st.data(),
)
def test_a_cache_forgets_what_was_used_least_recently(sizes: list[int], capacity: int, data: st.DataObject) -> None:
    """The native cache misses what an ordered dict misses."""
    used = data.draw(st.lists(st.integers(0, len(sizes) - 1), max_size=60))
    cuts = sorted({0, len(used), *data.draw(st.lists(st.integers(0, len(used)), max_size=4))})
    held: OrderedDict[int, int] = OrderedDict()
    expected = np.zeros(len(used), np.int64)
    for number, sample in enumerate(used):
        if sample not in held:
            expected[number] = sizes[sample]
            if sizes[sample] > capacity:
                continue
        held[sample] = sizes[sample]
        held.move_to_end(sample)
        while sum(held.values()) > capacity:
            held.popitem(last=False)
    missed = np.empty(len(cuts) - 1, np.int64)
    cache = _native.RecentlyUsed(np.array(sizes, np.int64), capacity)
    cache.use(np.array(used, np.int64), np.array(cuts, np.int64), missed)

    assert [expected[start:stop].sum() for start, stop in pairwise(cuts)] == missed.tolist()


def test_a_cache_refuses_what_it_cannot_know() -> None:
    """Samples and sizes that are none move nothing."""
    with pytest.raises(ValueError, match="none negative"):
        _native.RecentlyUsed(np.array([1, -1]), 10)
    cache = _native.RecentlyUsed(np.array([1, 1]), 10)
    with pytest.raises(IndexError, match="not among those of the cache"):
        cache.use(np.array([2]), np.array([0, 1]), np.empty(1, np.int64))
    with pytest.raises(ValueError, match="cuts do not ascend"):
        cache.use(np.array([1]), np.array([0, 2]), np.empty(1, np.int64))
