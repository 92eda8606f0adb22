"""Order in lanes: every sample once, the same steps on any ranks, few blocks read, classes spread evenly."""

from __future__ import annotations

from math import gcd
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastio import _native
from fastio.samplers.batches import Batches
from fastio.samplers.choice import Classes
from fastio.samplers.lanes import LaneOrder, Lanes, ranges
from fastio.samplers.order import Division, Uneven


@st.composite
def orders(draw: st.DrawFn) -> LaneOrder:
    """Any order in lanes of up to 300 samples."""
    count = draw(st.integers(1, 300))
    lanes = draw(st.integers(1, count))
    rounds = draw(st.integers(1, count // lanes))
    window = draw(st.integers(1, 4))
    seed, epoch = draw(st.integers(0, 2**64 - 1)), draw(st.integers(0, 2**32 - 1))
    return LaneOrder(Lanes(lanes, rounds, window), count, seed=seed, epoch=epoch)


worlds = st.sampled_from([1, 2, 3, 4, 8])


def divided(order: LaneOrder, batch_size: int, world_size: int, uneven: Uneven = "pad") -> Division:
    """A division of an order's samples."""
    return Division(order.count, batch_size, world_size, uneven)


@given(orders())
def test_every_sample_comes_once(order: LaneOrder) -> None:
    """Whatever the lanes, an epoch's order is a permutation, and the same again."""
    assert list(range(order.count)) == sorted(order.order.tolist())


@given(orders(), st.integers(1, 9), worlds, st.sampled_from(get_args(Uneven)))
def test_a_step_has_the_same_samples_on_any_ranks(
    order: LaneOrder, batch_size: int, world_size: int, uneven: Uneven
) -> None:
    """All ranks' samples of step s together are the next piece of the order; all policies count as they say."""
    division = divided(order, batch_size, world_size, uneven)
    shares = [order.order[order.share(division, rank)] for rank in range(world_size)]
    size = batch_size * world_size

    assert {division.samples} == {len(share) for share in shares}
    for step in range(division.batches):
        part = slice(step * batch_size, (step + 1) * batch_size)
        samples = np.concatenate([share[part] for share in shares])
        expected = np.resize(order.order, division.samples * world_size)[step * size : step * size + len(samples)]
        assert sorted(expected.tolist()) == sorted(samples.tolist())


@given(orders(), st.integers(1, 9), worlds, st.data())
def test_dealing_is_that_of_the_description(
    order: LaneOrder, batch_size: int, world_size: int, data: st.DataObject
) -> None:
    """The native pass equals the same in numpy: a step sorted by lane, cut into equal parts, each in order."""
    start = data.draw(st.integers(0, order.count))
    division = Division(order.count, batch_size, world_size, start=start)
    steps, size = division.full_steps, batch_size * world_size
    slots = np.arange(start, start + steps * size).reshape(steps, size)
    lane = ((order.places[slots] + 1) * order.lanes.lanes - 1) // order.count
    by_lane = np.take_along_axis(slots, np.argsort(lane, axis=1, kind="stable"), axis=1)
    expected = np.sort(by_lane.reshape(steps, world_size, batch_size), axis=2)
    first = data.draw(st.integers(0, world_size - 1))

    shares = order.shares(division, range(first, world_size))[:, : steps * batch_size]
    assert expected[:, first:].transpose(1, 0, 2).reshape(shares.shape).tolist() == shares.tolist()
    assert expected.tolist() == order.dealt(np.arange(steps), division).tolist()


@given(orders(), st.integers(1, 9), worlds)
def test_what_is_repeated_comes_last(order: LaneOrder, batch_size: int, world_size: int) -> None:
    """The last step, all ranks' parts behind each other, ends with what comes twice: trainers drop it from there."""
    division = divided(order, batch_size, world_size)
    first = division.full_steps * batch_size
    last = np.concatenate([order.share(division, rank)[first:] for rank in range(world_size)]).tolist()
    expected = [place % order.count for place in range(first * world_size, division.samples * world_size)]
    own = order.count - first * world_size

    assert sorted(expected[:own]) == sorted(last[:own])
    assert expected[own:] == last[own:]


@given(orders())
def test_lanes_come_in_turn(order: LaneOrder) -> None:
    """In any stretch of the order, two lanes differ by two samples at most, until the shorter ones end."""
    lanes = order.lanes.lanes
    lane = ((order.places + 1) * lanes - 1) // order.count
    counts = np.cumsum(lane[:, None] == np.arange(lanes), axis=0)

    assert (counts.max(axis=1) - counts.min(axis=1) <= 1).all()


@given(orders())
def test_a_window_is_a_few_runs_of_one_lane(order: LaneOrder) -> None:
    """The runs of a window hold exactly its samples, and there are as many as blocks that it touches."""
    starts, stops, window = order.runs()
    for number, (first, stop) in enumerate(zip(order.cuts[:-1], order.cuts[1:], strict=True)):
        mine = ranges(starts[window == number], stops[window == number])
        assert sorted(mine.tolist()) == sorted(order.sequence[first:stop].tolist())


@given(orders(), st.integers(1, 9), worlds, st.data())
def test_windows_are_read_before_they_are_needed(
    order: LaneOrder, batch_size: int, world_size: int, data: st.DataObject
) -> None:
    """Reading ahead in steps of any size, from any batch on, brings every sample before it comes."""
    division = divided(order, batch_size, world_size)
    rank = data.draw(st.integers(0, world_size - 1))
    share = order.share(division, rank)
    cuts = np.append(np.arange(0, len(share), batch_size), len(share))
    windows = order.all_windows() if world_size == 1 and data.draw(st.booleans()) else order.windows(share)
    batches = Batches(order.order[share], cuts, windows=windows)
    batches = batches.part(data.draw(st.integers(0, division.batches)), division.batches)
    step = data.draw(st.integers(1, 50))
    assert batches.windows is not None
    read: set[int] = set()
    for first in range(0, len(batches.indices), step):
        begun = np.searchsorted(batches.windows.needed, (first, first + step)).tolist()
        new = batches.windows.part(*begun).samples().tolist()
        assert len(new) == len(set(new))
        assert read.isdisjoint(new)
        read |= set(new)
        assert read.issuperset(batches.indices[first : first + step].tolist())


def test_windows_of_a_subset() -> None:
    """A loader of some samples reads those that the places in the subset stand for."""
    order = LaneOrder(Lanes(2, 2), 8, seed=0, epoch=0)
    windows = order.windows(np.arange(8))
    members = np.arange(8) * 10

    assert (windows.samples() * 10).tolist() == windows.of(members).samples().tolist()


def test_the_order_is_kept_over_versions() -> None:
    """Golden values: a saved position must mean the same samples for ever."""
    order = LaneOrder(Lanes(3, 2, 2), 14, seed=1, epoch=2)

    assert [4, 1, 12, 2, 11, 8, 13, 9, 6, 0, 10, 5, 3, 7] == order.order.tolist()
    assert order.order.tolist() != LaneOrder(Lanes(3, 2, 2), 14, seed=1, epoch=3).order.tolist()
    assert order.order.tolist() != LaneOrder(Lanes(3, 2, 2), 14, seed=2, epoch=2).order.tolist()


def blocks_read(order: LaneOrder, batch_size: int, world_size: int, start: int = 0) -> float:
    """Blocks that ranks take samples from, for each block that any of them takes samples from."""
    division = Division(order.count, batch_size, world_size, "drop", start=start)
    blocks = np.searchsorted(order.edges, order.order[order.shares(division, range(world_size))], side="right")
    of_ranks = blocks + len(order.edges) * np.arange(world_size)[:, None]
    return len(np.unique(of_ranks)) / len(np.unique(blocks))


@pytest.mark.parametrize(("world_size", "most"), [(1, 1.0), (8, 1.12), (16, 1.25), (64, 2.0)])
@pytest.mark.parametrize("lanes", [64, 256])
def test_ranks_keep_to_their_blocks(world_size: int, most: float, lanes: int) -> None:
    """200,000 samples in 5,120 blocks, a global batch of 256: with 64 ranks too a block is read hardly twice."""
    order = LaneOrder(Lanes(lanes, 5120 // lanes), 200_000, seed=0, epoch=0)

    assert blocks_read(order, 256 // world_size, world_size) <= most


@pytest.mark.parametrize("lanes", [64, 96, 256])
def test_other_ranks_keep_to_their_blocks(lanes: int) -> None:
    """
    Lanes that were chosen for other ranks: 1.3 reads of a block for up to a quarter as many ranks as lanes, 2.1 for up
    to as many, from any position and in any step that takes equally many samples of every lane.
    """
    order = LaneOrder(Lanes(lanes, 2560 // lanes), 100_000, seed=0, epoch=0)
    for world_size in (2, 3, 7, 8, 12, 16, 24, 31, 48, 63, 64, 96, 200, 255, 256):
        batch_size = lanes // gcd(lanes, world_size)
        batch_size *= -(-8 // batch_size)  # at least 8
        if world_size <= lanes and batch_size * world_size * 3 <= order.count:
            most = 1.3 if 4 * world_size <= lanes else 2.1
            assert blocks_read(order, batch_size, world_size, start=7 * lanes) <= most, world_size


@pytest.mark.parametrize(("world_size", "most"), [(8, 1.6), (16, 1.6), (64, 1.7), (256, 2.6)])
@pytest.mark.parametrize(("batch_size", "start"), [(32, 12_345), (33, 0), (47, 777)])
def test_steps_across_rounds_cost_more_reads(world_size: int, most: float, batch_size: int, start: int) -> None:
    """256 lanes in steps of which some lanes have a sample more: ranks share the lanes at their borders."""
    order = LaneOrder(Lanes(256, 10), 100_000, seed=0, epoch=0)

    assert blocks_read(order, batch_size, world_size, start=start) <= most


def distinct(labels: NDArray[np.int64], order: LaneOrder, size: int) -> float:
    """Classes in a batch, on average."""
    batches = labels[order.order[: order.count // size * size]].reshape(-1, size)
    return float(np.mean([len(np.unique(batch)) for batch in batches]))


def test_a_sorted_store_is_mixed() -> None:
    """A class-sorted store of 1000 classes, global batch of 256: as many classes as a full shuffle has (226)."""
    labels = np.arange(200_000) // 200

    assert distinct(labels, LaneOrder(Lanes(256, 20), 200_000, seed=0, epoch=0), 256) > 226


def test_shares_of_classes_hardly_drift() -> None:
    """Ten sorted classes in 64 lanes: at any time of the epoch each has its share."""
    classes = Classes.of(np.arange(80_000) // 8000)
    order = LaneOrder(Lanes(64, 23), 80_000, seed=0, epoch=0)

    assert classes.drift(order.order) < 0.03


@settings(max_examples=30)
@given(st.integers(1, 40), st.integers(1, 200), st.integers(0, 2**64 - 1))
def test_interleaving_is_that_of_the_description(lanes: int, count: int, seed: int) -> None:
    """The native pass equals the same in Python: lanes shuffled anew each round, each gives its next place."""
    lanes = min(lanes, count)
    cuts = np.arange(lanes + 1) * count // lanes
    turns, expected = np.arange(lanes, dtype=np.int64), []
    for turn in range(int(np.diff(cuts).max())):
        _native.shuffle(turns, seed, 5 + turn)
        expected += [int(cuts[lane]) + turn for lane in turns if cuts[lane] + turn < cuts[lane + 1]]
    out = np.empty(count, np.int64)
    _native.interleave_lanes(out, lanes, seed, 5)

    assert expected == out.tolist()


@pytest.mark.parametrize(
    "wrong",
    [{"start": 9}, {"steps": 3}, {"first_rank": 1}, {"places": np.array([0, 1, 2, 3, 4, 5, 6, 8])}],
    ids=["start", "steps", "rank", "place"],
)
def test_dealing_outside_of_the_order_is_refused(wrong: dict[str, Any]) -> None:
    """Nothing is read or written beyond the arrays."""
    options = {"places": np.arange(8), "lanes": 2, "start": 0, "steps": 2, "world_size": 2, "batch_size": 2}
    options |= {"first_rank": 0, "out": np.empty((2, 4), np.int64)} | wrong
    with pytest.raises(ValueError, match="lie outside of the order"):
        _native.deal_lanes(options.pop("places"), options.pop("out"), **options)


@pytest.mark.parametrize(("starts", "stops", "length"), [([0], [3], 2), ([0], [3], 4), ([2], [1], 0), ([0, 1], [1], 1)])
def test_runs_that_do_not_fill_the_array_are_refused(starts: list[int], stops: list[int], length: int) -> None:
    """Nothing is written beyond the array."""
    with pytest.raises(ValueError, match="do not fill out"):
        _native.write_runs(np.array(starts), np.array(stops), np.empty(length, np.int64))


@pytest.mark.parametrize("cuts", [[], [0], [1, 4], [0, 3], [0, 3, 2, 4], [0, 5], [-1, 4]])
def test_runs_that_are_none_are_refused(cuts: list[int]) -> None:
    """Cuts that leave the values, or do not cover them, move nothing."""
    values = np.arange(4, dtype=np.int64)
    with pytest.raises(ValueError, match="cuts do not ascend"):
        _native.shuffle_runs(values, np.array(cuts, np.int64), 0, 0)
    assert values.tolist() == [0, 1, 2, 3]
