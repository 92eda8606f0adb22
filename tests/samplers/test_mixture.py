"""Mixtures: exact shares, whole epochs of each member, the same samples whatever the ranks and resumes."""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastio.samplers import mixed_order, mixture
from fastio.samplers.batches import split_ids
from fastio.samplers.order import Division
from tests.samplers.blends import blended, due, steps_of

SIZES = (5, 40, 300)
WEIGHTS = st.lists(st.integers(0, 20), min_size=3, max_size=3).filter(any)
SCHEDULES = st.builds(
    lambda first, later: [(0, tuple(first)), *((start, tuple(weights)) for start, weights in sorted(later.items()))],
    WEIGHTS,
    st.dictionaries(st.integers(1, 700), WEIGHTS, max_size=2),
)
BATCHINGS = st.sampled_from(["random", "stratified"])
SHUFFLES = st.sampled_from([True, "full", False])


def members_of(samples: Any) -> Any:
    """The member of each sample."""
    return np.searchsorted(np.cumsum(SIZES), samples, side="right")


@given(schedule=SCHEDULES, count=st.integers(1, 400), batching=BATCHINGS, epoch=st.integers(0, 3))
def test_exact_shares(schedule: Any, count: int, batching: Any, epoch: int) -> None:
    """At the end of each epoch, each member has given its share since the first, and while steps are stratified."""
    sampler = blended(SIZES, schedule, division=Division(count, 7), batching=batching)
    given_before = np.array(sampler.counts(epoch, None))
    members = members_of(sampler.plan(epoch).indices)
    for stop in range(count + 1) if batching == "stratified" else (0, count):
        counts = given_before + np.bincount(members[:stop], minlength=3)
        shares = due(schedule, epoch * count + stop)
        bound = 1.25 if len(schedule) == 1 else 2.5
        assert all(abs(share - int(had)) <= bound for share, had in zip(shares, counts, strict=True))
    assert counts.tolist() == sampler.counts(epoch, count)


@given(schedule=SCHEDULES, count=st.integers(1, 400), batching=BATCHINGS, shuffle=SHUFFLES, epochs=st.integers(1, 4))
def test_members_have_whole_epochs(schedule: Any, count: int, batching: Any, shuffle: Any, epochs: int) -> None:
    """A member's n-th, 2n-th, ... sample ends an epoch in which each of its samples came once."""
    sampler = blended(SIZES, schedule, division=Division(count, 7), batching=batching, shuffle=shuffle)
    samples = np.concatenate([sampler.plan(epoch).indices for epoch in range(epochs)])
    members, first = members_of(samples), 0
    for member, size in enumerate(SIZES):
        own = samples[members == member] - first
        for start in range(0, len(own), size):
            part = own[start : start + size]
            assert len(part) == len(set(part.tolist()))
            assert shuffle is not False or np.arange(len(part)).tolist() == part.tolist()
        first += size


@given(
    schedule=SCHEDULES,
    count=st.integers(1, 400),
    batching=BATCHINGS,
    shuffle=SHUFFLES,
    divisions=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 33), st.integers(0, 5)), min_size=1, max_size=4),
    epoch=st.integers(0, 2),
)
def test_any_history_gives_the_same(
    schedule: Any, count: int, batching: Any, shuffle: Any, divisions: Any, epoch: int
) -> None:
    """Stopped after some steps and continued with other ranks and batches: what comes is as if nothing had happened."""
    whole = blended(SIZES, schedule, division=Division(count, count), batching=batching, shuffle=shuffle)
    expected = whole.plan(epoch).ids.tolist()
    consumed: Any = None
    had: list[int] = []
    for number, (world_size, batch_size, steps) in enumerate(divisions):
        division = Division(count, batch_size, world_size)
        ranks = [
            blended(SIZES, schedule, division=division, rank=rank, batching=batching, shuffle=shuffle)
            for rank in range(world_size)
        ]
        for rank in ranks:
            rank.order.adopt(json.loads(json.dumps(whole.order.to_json())))
        plans = [rank.plan(epoch, consumed) for rank in ranks]
        assert len({(len(plan), rank.count(epoch, consumed)) for plan, rank in zip(plans, ranks, strict=True)}) == 1
        stop = len(plans[0]) if number == len(divisions) - 1 else min(steps, len(plans[0]))
        for step in steps_of(plans)[:stop]:
            assert sorted(step) == sorted(expected[len(had) : len(had) + len(step)])
            had += step
        consumed = ranks[0].checked(epoch, json.loads(json.dumps(ranks[0].advanced(epoch, consumed, stop))))
        assert len(had) == consumed

    assert sorted(expected) == sorted(had)
    for dropped in (0, count // 3):
        samples = split_ids(np.array(expected[: count - dropped], np.int64))[0].tolist()
        assert sorted(samples) == sorted(whole.whole(epoch, dropped).tolist())


@given(schedule=SCHEDULES, world_size=st.integers(2, 6), batch_size=st.integers(1, 20), shuffle=SHUFFLES)
def test_ranks_get_equal_shares(schedule: Any, world_size: int, batch_size: int, shuffle: Any) -> None:
    """In each full step, all ranks have as many samples of each member, within one."""
    division = Division(400, batch_size, world_size)
    plans = [
        blended(SIZES, schedule, division=division, rank=rank, batching="random", shuffle=shuffle).plan(1)
        for rank in range(world_size)
    ]
    for step in range(division.full_steps):
        part = slice(step * batch_size, (step + 1) * batch_size)
        counts = [np.bincount(members_of(plan.indices[part]), minlength=3) for plan in plans]
        assert max(np.ptp(counts, axis=0)) <= 1


@given(shuffle=SHUFFLES, epoch=st.integers(0, 5))
def test_repetitions_have_ids_of_their_own(shuffle: Any, epoch: int) -> None:
    """A sample that a small member gives again within an epoch is told apart from its first time."""
    plan = blended(SIZES, [(0, (1, 1, 1))], division=Division(300, 10), shuffle=shuffle).plan(epoch)

    assert len(set(plan.ids.tolist())) == 300
    assert split_ids(plan.ids)[0].tolist() == plan.indices.tolist()


def test_random_steps_vary_and_stratified_ones_do_not() -> None:
    """Steps of ten at 7 : 3: always seven, or seven on average."""
    division = Division(1000, 10)
    counts = {
        batching: [
            int((members_of(plan.indices[part]) == 2).sum())
            for plan in [blended(SIZES, [(0, (0, 3, 7))], division=division, batching=batching).plan(0)]
            for part in plan.slices()
        ]
        for batching in ("random", "stratified")
    }

    assert {7} == set(counts["stratified"])
    assert len(set(counts["random"])) > 4
    assert 700 == sum(counts["random"]) == sum(counts["stratified"])


@given(world_size=st.integers(1, 4), epoch=st.integers(0, 3), consumed=st.integers(0, 300))
def test_windows_hold_every_sample_of_lanes(world_size: int, epoch: int, consumed: int) -> None:
    """Each sample of a member in lanes lies in a window that is asked for no later than the sample is needed."""
    division = Division(400, 8, world_size)
    for rank in range(world_size):
        sampler = blended(SIZES, [(0, (1, 1, 3))], division=division, rank=rank)
        plan = sampler.plan(epoch, consumed)
        assert sampler.order.members[2].order.has_lanes
        assert plan.windows is not None
        windows = plan.windows
        assert np.all(np.diff(windows.needed) >= 0)
        for number, sample in enumerate(plan.indices.tolist()):
            if members_of(sample) == 2:
                covers = (windows.starts <= sample) & (sample < windows.stops)
                assert np.any(covers & (windows.needed <= number) & (number <= windows.last))


def test_a_rank_keeps_to_its_lanes() -> None:
    """Each of four ranks reads about a quarter of the windows, not all of them."""
    division = Division(300, 16, 4)
    reads = [
        len(blended((300, 40), [(0, (9, 1))], division=division, rank=rank).plan(0).windows.starts)  # type: ignore[union-attr]
        for rank in range(4)
    ]
    alone = len(blended((300, 40), [(0, (9, 1))], division=Division(300, 64)).plan(0).windows.starts)  # type: ignore[union-attr]

    assert sum(reads) < 2 * alone


@pytest.mark.parametrize("world_size", [1, 3])
def test_many_members_are_planned_as_few(world_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve members, looked for one by one or sorted: the same plan."""
    plans: list[Any] = []
    for few in (8, 12):
        for module in (mixture, mixed_order):
            monkeypatch.setattr(module, "FEW_MEMBERS", few)
        division = Division(500, 16, world_size)
        sampler = blended((70, *range(5, 16)), [(0, (5, *range(11)))], division=division, rank=world_size - 1)
        plans.append(sampler.plan(1, 100))

    assert plans[0].ids.tolist() == plans[1].ids.tolist()
    assert plans[0].windows.starts.tolist() == plans[1].windows.starts.tolist()
    assert plans[0].windows.last.tolist() == plans[1].windows.last.tolist()


def test_a_small_member_comes_again_and_again() -> None:
    """A member of 2 samples with half of the weight has 250 epochs in one of the mixture."""
    plan = blended((2, 10_000), [(0, (1, 1))], division=Division(1000, 10)).plan(3)
    counts = np.bincount(plan.indices)

    assert [250, 250] == counts[:2].tolist()
    assert set(counts[2:].tolist()) == {0, 1}
    assert len(set(chain(plan.ids.tolist()))) == 1000


# Mixtures whose steps have samples of one member each: exact shares of an epoch, elastic, nothing twice or missing.

DIVISIONS = st.tuples(st.integers(1, 5), st.integers(1, 17), st.integers(0, 5))


def ranks_of(schedule: Any, division: Division, **options: Any) -> list[Any]:
    """The samplers of all ranks."""
    options = {"batching": "per_source", **options}
    return [blended(SIZES, schedule, division=division, rank=rank, **options) for rank in range(division.world_size)]


@given(
    schedule=SCHEDULES,
    count=st.integers(1, 400),
    shuffle=SHUFFLES,
    divisions=st.lists(DIVISIONS, min_size=1, max_size=4),
    epoch=st.integers(0, 2),
)
def test_any_history_gives_the_same_steps_of_one_source(
    schedule: Any, count: int, shuffle: Any, divisions: Any, epoch: int
) -> None:
    """Whatever the ranks, batches and resumes, an epoch has the same samples, each step of one member."""
    stratified = blended(SIZES, schedule, division=Division(count, count), shuffle=shuffle)
    expected = sorted(stratified.plan(epoch).ids.tolist())
    consumed: Any = None
    had: list[int] = []
    for number, (world_size, batch_size, steps) in enumerate(divisions):
        ranks = ranks_of(schedule, Division(count, batch_size, world_size), shuffle=shuffle)
        plans = [rank.plan(epoch, consumed) for rank in ranks]
        stop = len(plans[0]) if number == len(divisions) - 1 else min(steps, len(plans[0]))
        assert {len(plans[0])} == {rank.count(epoch, consumed) for rank in ranks}
        assert all(plan.cuts.tolist() == plans[0].cuts.tolist() for plan in plans)
        fresh = steps_of(plans)
        assert sum(len(plan.indices) for plan in plans) - plans[0].repeated == sum(map(len, fresh))
        assert (0, sum(plan.padding for plan in plans)) == (plans[0].dropped, plans[0].repeated)
        for part in plans[0].slices():
            assert len({member for plan in plans for member in members_of(plan.indices[part]).tolist()}) == 1
        had += [sample for step in fresh[:stop] for sample in step]
        consumed = ranks[0].checked(epoch, json.loads(json.dumps(ranks[0].advanced(epoch, consumed, stop))))
        assert len(had) == sum(consumed)

    assert expected == sorted(had)
    assert sorted(split_ids(np.array(had))[0].tolist()) == sorted(ranks[0].whole(epoch).tolist())


@given(
    schedule=SCHEDULES,
    world_size=st.integers(1, 4),
    batch_size=st.integers(1, 17),
    epoch=st.integers(0, 2),
    steps=st.lists(st.integers(0, 9), max_size=3),
)
def test_the_same_division_goes_on_exactly(
    schedule: Any, world_size: int, batch_size: int, epoch: int, steps: list[int]
) -> None:
    """With the same ranks and batches, what is left after any number of stops is what was left."""
    for sampler in ranks_of(schedule, Division(300, batch_size, world_size)):
        whole, consumed, done = sampler.plan(epoch), None, 0
        for stop in steps:
            taken = min(stop, len(whole) - done)
            consumed, done = sampler.advanced(epoch, consumed, taken), done + taken
        rest = sampler.plan(epoch, consumed)
        assert whole.ids[whole.cuts[done] :].tolist() == rest.ids.tolist()
        assert (whole.cuts[done:] - whole.cuts[done]).tolist() == rest.cuts.tolist()


@given(schedule=SCHEDULES, world_size=st.integers(1, 4), batch_size=st.integers(1, 17), uneven=st.sampled_from("pd"))
def test_what_is_dropped_is_counted(schedule: Any, world_size: int, batch_size: int, uneven: str) -> None:
    """``drop_last`` keeps full steps only, ``uneven="drop"`` leaves out less than a rank's sample of each member."""
    for drop_last in (True, False):
        division = Division(300, batch_size, world_size, {"p": "pad", "d": "drop"}[uneven], drop_last)  # type: ignore[arg-type]
        plans = [rank.plan(1) for rank in ranks_of(schedule, division)]
        assert 300 == sum(map(len, steps_of(plans))) + plans[0].dropped
        if drop_last:
            assert {batch_size} >= {part.stop - part.start for part in plans[0].slices()}
        if drop_last or uneven == "d":
            assert 0 == plans[0].repeated
        if not drop_last and uneven == "d":
            assert plans[0].dropped <= 3 * (world_size - 1)


def test_members_take_turns() -> None:
    """Of steps at 7 : 3, any ten in a row have seven of the first."""
    (sampler,) = ranks_of([(0, (0, 3, 7))], Division(10_000, 10))
    plan = sampler.plan(0)
    steps = np.array([members_of(plan.indices[part])[0] for part in plan.slices()]) == 2
    windows = np.convolve(steps, np.ones(10, int), "valid")

    assert 700 == steps.sum()
    assert {7} == set(windows.tolist())


def test_repeat_is_refused() -> None:
    """Last steps of several members cannot all be filled up."""
    with pytest.raises(ValueError, match="uneven='repeat': not for batching='per_source'"):
        ranks_of([(0, (1, 1, 1))], Division(100, 7, 2, "repeat"))
