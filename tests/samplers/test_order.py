"""Order and division of an epoch: exactly once, equal on all ranks, the same again."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastio.samplers.order import Division, Uneven, block_order, full_order, keyed_order

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
        lambda: keyed_order(np.arange(len(sizes)), len(sizes), seed=seed, epoch=epoch),
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
    keyed = {tuple(keyed_order(np.arange(1000), 1000, seed=seed, epoch=epoch).tolist()) for seed, epoch in runs}
    assert len(keyed) == 6


@given(st.integers(1, 1 << 62), st.integers(0, 2**64 - 1), st.data())
def test_any_place_of_a_keyed_order(count: int, seed: int, data: st.DataObject) -> None:
    """A place is below the count, the same whatever else is asked for, and no other's."""
    places = np.array(data.draw(st.lists(st.integers(0, count - 1), unique=True, min_size=1, max_size=20)))
    samples = keyed_order(places, count, seed=seed, epoch=3)

    assert ((samples >= 0) & (samples < count)).all()
    assert len(set(samples.tolist())) == len(places)
    assert [keyed_order(places[[i]], count, seed=seed, epoch=3)[0] for i in range(len(places))] == samples.tolist()


@pytest.mark.parametrize("place", [-1, 8])
def test_no_place_outside_a_keyed_order(place: int) -> None:
    """It is an IndexError."""
    with pytest.raises(IndexError, match=r"outside 0\.\.count-1"):
        keyed_order(np.array([place]), 8, seed=0, epoch=0)


@pytest.mark.parametrize("count", [12, 16, 17])
def test_keyed_orders_are_as_random_as_drawn_ones(count: int) -> None:
    """Over 10,000 seeds: which sample is where, which follows which, which two stand before which other two."""
    seeds = range(10_000)
    keyed = np.stack([keyed_order(np.arange(count), count, seed=seed, epoch=1) for seed in seeds])
    drawn = np.stack([full_order(count, seed=seed, epoch=1) for seed in seeds])
    for score in (_of_places, _of_neighbours, _of_pairs):
        # Chi-square over its degrees of freedom: 1 on average, with this deviation.
        (ours, freedom), (true, _) = score(keyed), score(drawn)
        deviation = (2 / freedom) ** 0.5
        assert abs(ours - 1) < 4 * deviation, (score.__name__, ours, true)
        assert abs(true - 1) < 4 * deviation, "the score itself is wrong"


def _chi_square(counts: NDArray[np.int64], freedom: int) -> tuple[float, int]:
    """Chi-square of counts that should be equal, over the degrees of freedom, and these."""
    expected = counts.mean()
    return float(((counts - expected) ** 2 / expected).sum()) / freedom, freedom


def _of_places(orders: NDArray[np.int64]) -> tuple[float, int]:
    """How evenly samples come to places."""
    count = orders.shape[1]
    table = np.stack([np.bincount(orders[:, place], minlength=count) for place in range(count)])
    return _chi_square(table, (count - 1) ** 2)


def _of_neighbours(orders: NDArray[np.int64]) -> tuple[float, int]:
    """How evenly the distances of the first two samples are spread, around the circle of samples."""
    count = orders.shape[1]
    table = np.bincount((orders[:, 1] - orders[:, 0]) % count, minlength=count)[1:]
    return _chi_square(table, count - 2)


def _of_pairs(orders: NDArray[np.int64]) -> tuple[float, int]:
    """How evenly ordered pairs come to the first and the last place."""
    count = orders.shape[1]
    table = np.bincount(orders[:, 0] * count + orders[:, -1], minlength=count * count).reshape(count, count)
    return _chi_square(table[~np.eye(count, dtype=bool)], count * (count - 1) - 1)


def test_orders_are_kept_over_versions() -> None:
    """Golden values: a saved position must mean the same samples for ever."""
    full = full_order(8, seed=1, epoch=2)
    keyed = keyed_order(np.arange(8), 8, seed=1, epoch=2)
    block = block_order(np.full(12, 2, np.int64), seed=1, epoch=2, block_bytes=6, window_blocks=2)

    assert full.tolist() == [6, 5, 2, 4, 0, 1, 7, 3]
    assert keyed.tolist() == [7, 0, 1, 3, 6, 4, 5, 2]
    assert block.tolist() == [8, 7, 6, 2, 0, 1, 3, 9, 5, 10, 11, 4]


@given(divisions())
def test_ranks_get_equal_batches(division: Division) -> None:
    """Every rank gets as many batches of the same sizes, and as many as announced."""
    lengths = [[len(batch) for batch in batches] for batches in ranks(division, np.arange(division.count))]

    assert all(each == lengths[0] for each in lengths)
    assert len(lengths[0]) == division.batches
    assert all(size == division.batch_size for size in lengths[0][:-1])


@given(divisions(), st.data())
def test_the_places_of_any_part_of_a_share(division: Division, data: st.DataObject) -> None:
    """They lead to what the whole share has there."""
    order = np.random.default_rng(0).permutation(division.count)
    rank = data.draw(st.integers(0, division.world_size - 1))
    start = data.draw(st.integers(0, division.samples))
    stop = data.draw(st.integers(start, division.samples))

    assert order[division.places(rank, start, stop)].tolist() == division.share(order, rank)[start:stop].tolist()


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
