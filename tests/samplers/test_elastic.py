"""An epoch continued by other ranks in batches of another size gives every sample once; the grid is elastic_grid.py."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastio.samplers.order import Uneven
from tests.samplers.elastic_cases import CASES, Rules, whole_epoch
from tests.samplers.elastic_grid import counted
from tests.samplers.histories import Leg, grid, run

shares = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1))
legs = st.builds(Leg, st.integers(1, 9), st.integers(1, 12), shares)
rules = st.builds(Rules, st.integers(0, 80), st.sampled_from(get_args(Uneven)), st.booleans())


@pytest.mark.parametrize("name", CASES)
def test_a_part_of_the_grid(name: str) -> None:
    """1,000 samples, 1 to 16 ranks, batches of 1, 8 or 33, stopped anywhere, three resumes in a row."""
    histories = [legs for number, legs in enumerate(grid(seed=0)) if number % 11999 == 0]
    counts = counted(name, histories)

    assert len(histories) == 4
    assert counts.is_clean, counts


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=20)
@given(rules=rules, history=st.lists(legs, min_size=1, max_size=4), epoch=st.integers(0, 3))
def test_every_sample_once(name: str, rules: Rules, history: list[Leg], epoch: int) -> None:
    """
    Whatever the counts and policies: nothing is missing but what is declared as dropped, and nothing comes twice but
    what is declared as padding.
    """
    expected = whole_epoch(name, rules, epoch)
    counts = run(CASES[name].of(rules), history, epoch, expected, even=CASES[name].even)

    assert counts.is_clean, counts


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=10)
@given(rules=rules, leg=legs, stops=st.lists(st.integers(0, 30), max_size=3), epoch=st.integers(0, 3))
def test_the_same_division_goes_on_as_if_never_stopped(
    name: str, rules: Rules, leg: Leg, stops: list[int], epoch: int
) -> None:
    """Batches, their random numbers and their padding are those of an epoch without an interruption."""
    build = CASES[name].of(rules)
    for rank in range(leg.world_size):
        sampler = build(leg, rank)
        whole, begun, consumed = sampler.plan(epoch), 0, None
        for stop in sorted(min(stop, len(whole)) for stop in stops):
            consumed = sampler.advanced(epoch, consumed, stop - begun) if stop > begun else consumed
            begun = stop
        rest = sampler.plan(epoch, consumed)

        expected: Any = whole.part(begun, len(whole))
        assert expected.cuts.tolist() == rest.cuts.tolist()
        assert expected.indices.tolist() == rest.indices.tolist()
        assert expected.ids.tolist() == rest.ids.tolist()
        assert whole.padding == rest.padding or begun == len(whole)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.is_order])
def test_a_step_depends_on_its_size_only(name: str) -> None:
    """As long as no sample is repeated, W ranks with batches of B have the steps of one rank with batches of W * B."""
    build = CASES[name].of(Rules(samples=240))
    alone = build(Leg(1, 24), 0).plan(2, None)
    ranks = [build(Leg(4, 6), rank).plan(2, None) for rank in range(4)]

    for step, part in enumerate(alone.slices()):
        together = np.concatenate([plan.ids[plan.cuts[step] : plan.cuts[step + 1]] for plan in ranks])
        assert np.sort(alone.ids[part]).tolist() == np.sort(together).tolist()


@pytest.mark.parametrize("name", CASES)
def test_nothing_consumed_stays_nothing(name: str) -> None:
    """The state of an epoch that has not begun does not say that it has: ``set_epoch`` would warn of what is lost."""
    assert not CASES[name].of(Rules(samples=20))(Leg(2, 3), 0).checked(1, None)
