"""Order and division of an epoch: exactly once, equal on all ranks, the same again."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastio.samplers.order import Division, Uneven, block_order, full_order

sizes = st.lists(st.integers(0, 5000), max_size=60).map(lambda values: np.array(values, np.int64))


@st.composite
def divisions(draw: st.DrawFn) -> Division:
    """Any division of up to 60 samples."""
    return Division(
        draw(st.integers(0, 60)),
        draw(st.integers(1, 9)),
        draw(st.sampled_from([1, 2, 3, 8])),
        draw(st.sampled_from(get_args(Uneven))),
        draw(st.booleans()),
    )


def ranks(division: Division, order: NDArray[np.int64]) -> list[list[list[int]]]:
    """The batches of every rank, as a loader cuts them."""
    size = division.batch_size
    shares = [division.share(order, rank) for rank in range(division.world_size)]
    return [[share[first : first + size].tolist() for first in range(0, len(share), size)] for share in shares]


@given(sizes, st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1))
def test_an_order_holds_every_sample_once(sizes: NDArray[np.int64], seed: int, epoch: int) -> None:
    """Whatever the sizes, an epoch's order is a permutation, and the same again."""
    for make in (
        lambda: full_order(len(sizes), seed=seed, epoch=epoch),
        lambda: block_order(sizes, seed=seed, epoch=epoch),
    ):
        order = make()

        assert list(range(len(sizes))) == sorted(order.tolist())
        assert order.dtype == np.int64
        assert order.tolist() == make().tolist()


@given(sizes, st.integers(1, 9000), st.integers(1, 4))
def test_a_block_stays_in_its_window(sizes: NDArray[np.int64], block_bytes: int, window: int) -> None:
    """Block shuffle with any geometry is a permutation that never spreads a block over two windows."""
    order = block_order(sizes, seed=1, epoch=2, block_bytes=block_bytes, window_blocks=window)
    blocks = (np.cumsum(sizes) - sizes) // block_bytes if len(sizes) else sizes

    assert list(range(len(sizes))) == sorted(order.tolist())
    count = len(set(blocks.tolist()))
    spread = {block: np.flatnonzero(blocks[order] == block) for block in set(blocks.tolist())}
    largest = max((int((blocks == block).sum()) for block in spread), default=0)
    for positions in spread.values():
        assert positions[-1] - positions[0] < largest * min(window, count)


def test_epochs_and_seeds_differ() -> None:
    """Another epoch or another seed is another order, for both shuffles."""
    sizes = np.full(1000, 100_000, np.int64)
    runs = [(seed, epoch) for seed in (0, 1) for epoch in (0, 1, 2)]

    assert len({tuple(full_order(1000, seed=seed, epoch=epoch).tolist()) for seed, epoch in runs}) == 6
    assert len({tuple(block_order(sizes, seed=seed, epoch=epoch).tolist()) for seed, epoch in runs}) == 6


def test_orders_are_kept_over_versions() -> None:
    """Golden values: a saved position must mean the same samples for ever."""
    full = full_order(8, seed=1, epoch=2)
    block = block_order(np.full(12, 2, np.int64), seed=1, epoch=2, block_bytes=6, window_blocks=2)

    assert full.tolist() == [6, 5, 2, 4, 0, 1, 7, 3]
    assert block.tolist() == [8, 7, 6, 2, 0, 1, 3, 9, 5, 10, 11, 4]


@given(divisions())
def test_ranks_get_equal_batches(division: Division) -> None:
    """Every rank gets as many batches of the same sizes, and as many as announced."""
    lengths = [[len(batch) for batch in batches] for batches in ranks(division, np.arange(division.count))]

    assert all(each == lengths[0] for each in lengths)
    assert len(lengths[0]) == division.batches
    assert all(size == division.batch_size for size in lengths[0][:-1])


@given(divisions())
def test_every_sample_once_but_for_the_named_ones(division: Division) -> None:
    """Over all ranks, exactly ``repeated`` samples come once more (from the order's start), ``dropped`` do not come."""
    order = np.random.default_rng(0).permutation(division.count)
    got = [index for batches in ranks(division, order) for batch in batches for index in batch]

    total = division.count + division.repeated - division.dropped
    assert len(got) == total
    assert sorted(got) == sorted(np.resize(order, total).tolist() if total else [])


@given(divisions())
def test_a_step_does_not_depend_on_the_rank(division: Division) -> None:
    """Step s of all ranks together is the next piece of the order."""
    order = np.arange(division.count)
    batches = ranks(division, order)
    steps = [index for step in range(division.batches) for rank in batches for index in rank[step]]

    assert steps == (np.resize(order, len(steps)).tolist() if steps else [])


@pytest.mark.parametrize("length", [0, 9, 11, 20])
def test_an_order_of_another_length_is_refused(length: int) -> None:
    """What is no order of the division's samples is not stretched or cut until it fits."""
    with pytest.raises(ValueError, match=rf"an order of {length} samples: expected 10"):
        Division(10, 4).share(np.arange(length), 0)


@pytest.mark.parametrize(
    ("division", "batches", "repeated", "dropped"),
    [
        (Division(10, 4), 3, 0, 0),
        (Division(10, 4, drop_last=True), 2, 0, 2),
        (Division(10, 4, uneven="repeat"), 3, 2, 0),
        (Division(10, 4, 2), 2, 0, 0),
        (Division(11, 4, 2), 2, 1, 0),
        (Division(11, 4, 2, "drop"), 2, 0, 1),
        (Division(11, 4, 2, "repeat"), 2, 5, 0),
        (Division(11, 4, 2, "pad", drop_last=True), 1, 0, 3),
        (Division(1, 4, 8), 1, 7, 0),
        (Division(1, 4, 8, "drop"), 0, 0, 1),
        (Division(0, 4, 8, "repeat"), 0, 0, 0),
    ],
)
def test_named_policies(division: Division, batches: int, repeated: int, dropped: int) -> None:
    """What each policy costs, by example."""
    assert (division.batches, division.repeated, division.dropped) == (batches, repeated, dropped)


@pytest.mark.parametrize("arguments", [{"batch_size": 0}, {"batch_size": 1, "uneven": "skip"}])
def test_nonsense_is_refused(arguments: dict[str, Any]) -> None:
    """A division that cannot be is refused when it is made."""
    with pytest.raises(ValueError, match="expected"):
        Division(10, **arguments)
