"""Entries of an index are picked by one pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastio import _native


def index_of(count: int) -> dict[str, Any]:
    """An index of two shards, its places in columns of one array."""
    places = np.arange(2 * count, dtype=np.int64).reshape(count, 2)
    return {
        "ends": np.array([count // 2, count], np.int64),
        "starts": places[:, 0],
        "sizes": places[:, 1],
        "checksums": np.arange(count, dtype=np.uint32) * 7,
    }


@pytest.mark.parametrize("side_by_side", [False, True])
def test_spans_are_picked(side_by_side: bool) -> None:
    """The entries of any samples, in any order and twice, with the shard that each lies in."""
    index = index_of(100)
    if not side_by_side:
        index |= {name: index[name].copy() for name in ("starts", "sizes")}
    chosen = np.random.default_rng(0).integers(0, 100, 300)
    shard, starts, sizes = np.empty(300, np.int32), np.empty(300, np.int64), np.empty(300, np.int64)
    checksums = np.empty(300, np.uint32)
    _native.pick_spans(*index.values(), chosen, shard, starts, sizes, checksums)

    assert shard.tolist() == (chosen >= 50).tolist()
    assert starts.tolist() == (2 * chosen).tolist()
    assert sizes.tolist() == (2 * chosen + 1).tolist()
    assert checksums.tolist() == (7 * chosen).tolist()


@pytest.mark.parametrize("bad", [-1, 100, 2**62])
def test_samples_that_there_are_not(bad: int) -> None:
    """A sample outside the index is named."""
    out = np.empty(2, np.int32), np.empty(2, np.int64), np.empty(2, np.int64), np.empty(2, np.uint32)
    with pytest.raises(IndexError, match=f"sample {bad} of 100"):
        _native.pick_spans(*index_of(100).values(), np.array([3, bad]), *out)


def test_arrays_that_do_not_match_are_refused() -> None:
    """Outputs of another length, columns of other steps, and checksums for one side only are refused."""
    index = index_of(100)
    chosen = np.zeros(2, np.int64)
    out: list[Any] = [np.empty(2, np.int32), np.empty(2, np.int64), np.empty(2, np.int64), np.empty(2, np.uint32)]
    for number in range(4):
        short = [each[:1] if position == number else each for position, each in enumerate(out)]
        with pytest.raises(ValueError, match="expected 2"):
            _native.pick_spans(*index.values(), chosen, *short)
    with pytest.raises(ValueError, match="both or none"):
        _native.pick_spans(*index.values(), chosen, *out[:3], None)
    with pytest.raises(ValueError, match="equal steps"):
        _native.pick_spans(*(index | {"starts": index["starts"].copy()}).values(), chosen, *out)
