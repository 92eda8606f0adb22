"""LmdbPages as Python calls it: what it refuses, and that it stays whole when it does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastio._native import Buffers, LmdbPages
from fastio.types.spans import Spans

_MAX = np.iinfo(np.int64).max


def spans(*places: tuple[int, int, int], size: int = 100) -> Spans:
    """(shard, start, size) of each span in one buffer of ``size`` bytes."""
    columns = np.array(places, np.int64).reshape(-1, 3).T
    buffers = Buffers([np.arange(size, dtype=np.uint8)])
    return Spans(buffers, columns[0].astype(np.int32), columns[1].copy(), columns[2].copy())


@pytest.mark.parametrize(
    "bad",
    [(0, 0, 101), (0, 101, 0), (0, -1, 1), (0, 1, -1), (1, 0, 1), (-1, 0, 1), (0, 1, _MAX), (0, _MAX, 1)],
)
def test_hostile_spans(bad: tuple[int, int, int]) -> None:
    """A span that leaves its buffer is refused by its position, and nothing of its batch was added."""
    pages = LmdbPages([b"/a", b"/b"])
    good = spans((0, 0, 100), (0, 10, 0))
    with pytest.raises(IndexError, match="span 1"):
        pages.append([good, spans((0, 0, 1), bad)])
    assert len(pages.append([good, good])) == 0
    assert [(0, 2), (0, 2)] == [array.shape for array in pages.take()]  # their page is not full
    last = pages.finish()
    starts, leaves = pages.take()
    assert (4096, (2, 2), [[0, 2]]) == (len(last), starts.shape, leaves.tolist())


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ([], ValueError),
        ([spans((0, 0, 1))], ValueError),
        ([spans((0, 0, 1)), spans()], ValueError),
        ([spans((0, 0, 1))] * 3, ValueError),
        ([spans((0, 0, 1)), (0, 0, 1)], RuntimeError),
        ([spans((0, 0, 1)), None], RuntimeError),
    ],
)
def test_wrong_fields(fields: list[Any], error: type[Exception]) -> None:
    """Every field comes with as many spans as the first."""
    with pytest.raises(error):
        LmdbPages([b"/a", b"/b"]).append(fields)


def test_longest_key() -> None:
    """A key has 511 bytes at most."""
    LmdbPages([b"x" * 501])
    with pytest.raises(ValueError, match="longer"):
        LmdbPages([b"x" * 502])


def test_pages_outlive_their_maker() -> None:
    """Pages that were handed out stay as they are, whatever comes later."""
    pages = LmdbPages([b"/a"])
    first = pages.append([spans((0, 0, 5000), size=5000)])
    before = first.tobytes()
    for _ in range(5):
        pages.append([spans((0, 3, 4000), size=5000)])
    del pages
    assert before == first.tobytes()
    assert (8192, bytes(np.arange(5000, dtype=np.uint8))) == (len(first), first[16:5016].tobytes())
