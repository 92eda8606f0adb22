"""Mixtures whose steps have samples of one member each: exact shares of an epoch, elastic, nothing twice or missing."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastio.samplers.order import Division
from fastio.samplers.repeats import split_ids
from tests.samplers.blends import blended, steps_of
from tests.samplers.test_mixture import SCHEDULES, SHUFFLES, SIZES, members_of

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
def test_any_history_gives_the_same(schedule: Any, count: int, shuffle: Any, divisions: Any, epoch: int) -> None:
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
