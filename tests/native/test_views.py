"""Views of one flat array, handed over by DLPack: values, lifetimes, and what is refused."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.dlpack import from_dlpack

from fastio import _native


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=12),
    st.sampled_from(["<i8", "|b1", "<i4", "<f4"]),
)
def test_views_are_the_reshaped_slices(shapes: list[tuple[int, int]], dtype: str) -> None:
    """Each has the values, dtype and rows that a slice of the array reshaped has, also without any column."""
    cuts = np.concatenate(([0], np.cumsum([count * width for count, width in shapes]))).astype(np.int64)
    flat = (np.arange(int(cuts[-1])) % 3).astype(dtype)
    flats = _native.views(flat, cuts, (cuts[1:] - cuts[:-1])[:, None])

    for k, tensor in enumerate(map(from_dlpack, _native.views(flat, cuts, np.array(shapes, np.int64).reshape(-1, 2)))):
        expected = torch.from_numpy(flat[cuts[k] : cuts[k + 1]].reshape(shapes[k]))
        assert (tensor.dtype, tensor.shape, tensor.is_contiguous()) == (expected.dtype, expected.shape, True)
        assert torch.equal(tensor, expected)
        assert torch.equal(from_dlpack(flats[k]), expected.flatten())


def test_the_memory_lives_as_long_as_a_view() -> None:
    """Buffers go back when the last matrix over them dies, those that nobody made a tensor of included."""
    ring = _native.BufferRing(0)
    flat = ring.acquire(80).view(np.int64)
    size = ring.allocated_bytes
    capsules = _native.views(flat[:6], np.array([0, 2, 6]), np.array([[1, 2], [2, 2]]))
    flat[:6] = range(6)
    tensor = from_dlpack(capsules[1])
    del flat
    gc.collect()

    assert ring.allocated_bytes == size
    assert tensor.tolist() == [[2, 3], [4, 5]]
    del capsules
    assert ring.allocated_bytes == size
    del tensor
    assert ring.allocated_bytes == 0


@pytest.mark.parametrize(
    ("cuts", "shapes", "words"),
    [
        ([0, 4], [(1, 2), (1, 2)], "one cut more"),
        ([0, 9], [(1, 9)], "elements 0 to 9 of 8"),
        ([-1, 3], [(1, 4)], "elements -1 to 3"),
        ([4, 2], [(1, -2)], "elements 4 to 2"),
        ([0, 4], [(3, 1)], "another shape"),
        ([0, 4], [(-1, -4)], "another shape"),
        ([0, 0], [(2**62, 4)], "another shape"),
        ([0, 8], [(2, 2, 2)], "1 or 2 numbers"),
    ],
)
def test_what_is_no_view_is_refused(cuts: list[int], shapes: list[tuple[int, ...]], words: str) -> None:
    """Cuts that leave the array, and shapes of another size than lies between them, are refused."""
    with pytest.raises(ValueError, match=words):
        _native.views(np.arange(8), np.array(cuts), np.array(shapes))


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
