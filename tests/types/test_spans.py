"""Spans: views of encoded bytes without a copy."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fastio._native import Buffers
from fastio.types.spans import Spans


@pytest.fixture
def spans() -> Spans:
    """Three values in two buffers."""
    buffers = Buffers([np.frombuffer(b"abcdef", np.uint8), np.frombuffer(b"xyz", np.uint8)])
    return Spans(buffers, np.array([0, 1, 0], np.int32), np.array([1, 0, 6]), np.array([2, 3, 0]))


def test_views(spans: Spans) -> None:
    """Each value is a view of its buffer."""
    assert [spans.view(i).tobytes() for i in range(len(spans))] == [b"bc", b"xyz", b""]


def test_views_are_read_only(spans: Spans) -> None:
    """Nobody writes to a mapped file."""
    assert not spans.view(0).flags.writeable


def test_no_copy() -> None:
    """A view shares its buffer's memory."""
    data = np.frombuffer(b"abcdef", np.uint8)
    spans = Spans(Buffers([data]), np.zeros(1, np.int32), np.array([2]), np.array([3]))
    assert np.shares_memory(data, spans.view(0))


@pytest.mark.parametrize(
    ("shard", "start", "size"),
    [(0, 4, 3), (0, -1, 2), (0, 0, -1), (2, 0, 1), (-1, 0, 1), (0, 1 << 62, 1 << 62), (0, 7, 0)],
)
def test_outside(spans: Spans, shard: int, start: int, size: int) -> None:
    """A span outside of its buffer is an IndexError."""
    bad = dataclasses.replace(
        spans, shard=np.array([shard], np.int32), starts=np.array([start]), sizes=np.array([size])
    )
    with pytest.raises(IndexError):
        bad.view(0)
