"""HeldRanges: which download has a span, if several do."""

from __future__ import annotations

from concurrent.futures import Future

import numpy as np
import pytest
from numpy.typing import NDArray

from fastio import _native
from fastio.store.files.remote.download_thread import ByteRange, Download
from fastio.store.files.remote.held_ranges import HeldRanges
from fastio.types.spans import Spans


def _download(start: int, stop: int) -> Download:
    return Download(ByteRange(0, start, stop), Future[NDArray[np.uint8]](), lambda: None)


def _span(start: int, size: int) -> Spans:
    return Spans(_native.Buffers([]), np.zeros(1, np.int32), np.array([start]), np.array([size]))


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        pytest.param([(100, 200), (100, 200)], 0, id="of equal ones that which was begun first"),
        pytest.param([(100, 900), (100, 200)], 1, id="the shorter one"),
        pytest.param([(0, 900), (100, 200)], 1, id="the one that begins later"),
    ],
)
def test_a_span_is_awaited_where_it_comes_first(ranges: list[tuple[int, int]], expected: int) -> None:
    """Of several downloads that have a span, it is looked for in the one that ends first."""
    held, downloads = HeldRanges(), [_download(*bounds) for bounds in ranges]
    for download in downloads:
        held.add(download)
    found, block = held.find(_span(100, 100))
    assert [downloads[expected]] == found
    assert [0] == block.tolist()
