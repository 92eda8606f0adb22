"""An epoch of a FastLoader goes on with other ranks where a batch_sampler makes the batches: ours, or the user's."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack
from itertools import chain, islice, pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, RandomSampler, Subset, WeightedRandomSampler

from fastio import FastDataset, FastLoader, LengthBucketSampler, PackSampler
from fastio.samplers.foreign import ForeignBatchSampler
from fastio.samplers.order import Uneven
from fastio.samplers.share import Share
from tests.numbered import COUNT, taken, write_numbers

PART = [3, 1, 4, 1, 5, 9, 2, 6, 22]
LISTS = [[0, 1], [2], [3, 4, 5], [2, 6], [7], [8, 9, 10, 11], [12]]


class Start(NamedTuple):
    """One start of a training, and after how many steps it is stopped."""

    world_size: int
    size: int
    steps: int


starts = st.builds(Start, st.integers(1, 5), st.integers(1, 6), st.integers(0, 7))


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> FastDataset:
    """Samples that are their own index, of 4 bytes."""
    return write_numbers(tmp_path_factory.mktemp("numbered") / "a.h5")


def loader_of(dataset: FastDataset, source: str, start: Start, rank: int) -> FastLoader:
    """A loader of one rank whose batches ``source`` makes."""
    share = {"rank": rank, "world_size": start.world_size}
    if source == "lists":
        return FastLoader(dataset, batch_sampler=LISTS, uneven="pad", threads=1, **share)
    if source == "weights":
        drawn = BatchSampler(WeightedRandomSampler(list(range(1, COUNT + 1)), 40), 3, drop_last=False)
        return FastLoader(dataset, batch_sampler=drawn, uneven="pad", threads=1, **share)
    part: Any = Subset(dataset, PART) if "part" in source else dataset
    lengths = 1 + np.arange(len(part)) % 7
    if "packs" in source:
        return FastLoader(part, batch_sampler=PackSampler(lengths, max_tokens=6 + start.size, **share), threads=1)
    return FastLoader(part, batch_sampler=LengthBucketSampler(lengths, batch_size=start.size, **share), threads=1)


def unpadded(loader: FastLoader) -> list[int]:
    """The samples that the next iteration gives this rank, without those declared repeated."""
    epoch, consumed, batch = loader.place
    assert batch == 0
    planned = loader._selection.sampler.plan(epoch, consumed)
    return planned.indices[: len(planned.indices) - planned.padding].tolist()


@pytest.mark.parametrize("source", ["buckets", "packs", "buckets of a part", "packs of a part", "lists", "weights"])
@settings(max_examples=12)
@given(history=st.lists(starts, min_size=1, max_size=4), epoch=st.integers(0, 2), saver=st.integers(0, 4))
def test_resumed_three_times_in_a_row(
    numbered: FastDataset, source: str, history: list[Start], epoch: int, saver: int
) -> None:
    """Each sample comes as often as in one run on one rank; only the last step repeats, and says how many."""
    with loader_of(numbered, source, Start(1, 4, 0), 0) as alone:
        alone.set_epoch(epoch)
        expected = Counter(chain(*taken(alone)))
    state: dict[str, Any] | None = None
    came: Counter[int] = Counter()
    repeated = 0
    for number, start in enumerate(history):
        with ExitStack() as stack:
            loaders = [
                stack.enter_context(loader_of(numbered, source, start, rank)) for rank in range(start.world_size)
            ]
            for loader in loaders:
                if state is not None:
                    loader.load_state_dict(state)
                loader.set_epoch(epoch)
            count = loaders[0].remaining
            assert {loader.remaining for loader in loaders} == {count}
            sampler = loaders[0]._selection.sampler
            planned = sampler.plan(epoch, None if state is None else state["consumed"])
            steps = count if number == len(history) - 1 else min(start.steps, count)
            for loader in loaders:
                batches = taken(islice(loader, steps))
                assert len(batches) == steps
                came.update(chain(*batches))
            if steps == count:
                repeated += planned.repeated
            states = [loader.state_dict() for loader in loaders]
            positions = [{name: state[name] for name in state if name != "receipt"} for state in states]
            assert all(positions[0] == position for position in positions)
            state = json.loads(json.dumps(states[saver % start.world_size]))

    assert expected <= came
    assert came.total() - expected.total() == repeated


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 4), max_size=20),
    worlds=st.lists(st.tuples(st.integers(1, 5), st.floats(0, 1), st.sampled_from(["pad", "drop", "repeat"]))),
)
def test_padding_of_the_users_batches(sizes: list[int], worlds: list[tuple[int, float, Uneven]]) -> None:
    """The last samples of a rank that a plan calls padding are those that come twice; nothing else does."""
    ends = np.cumsum([0, *sizes])
    lists = [list(range(*pair)) for pair in pairwise(ends)]
    consumed, came = None, []
    for number, (world_size, portion, uneven) in enumerate([*worlds, (2, 1.0, "pad")]):
        samplers = [
            ForeignBatchSampler(
                lists,
                samples=int(ends[-1]) + 1,
                seed=0,
                share=Share(rank, world_size, is_found=False),
                uneven=uneven,
                is_own=False,
            )
            for rank in range(world_size)
        ]
        plans = [sampler.plan(0, sampler.checked(0, consumed)) for sampler in samplers]
        assert {len(plan) for plan in plans} == {sampler.count(0, consumed) for sampler in samplers}
        assert sum(plan.padding for plan in plans) == plans[0].repeated
        count = len(plans[0])
        steps = count if number == len(worlds) else round(portion * count)
        for plan in plans:
            came += plan.indices[: min(int(plan.cuts[steps]), len(plan.indices) - plan.padding)].tolist()
        if steps:
            consumed = samplers[-1].advanced(0, consumed, steps)

    assert len(set(came)) == len(came)
    assert len(came) == ends[-1]  # what "drop" left out, the last start gives


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("batch", [0, 1, 2, 3])
def test_states_of_version_2_go_on(numbered: FastDataset, batch: int, world_size: int) -> None:
    """States from when loaders counted batches: what is left is what was left, on the same ranks and on others."""
    for source in ("buckets", "packs", "lists"):
        start = Start(2, 3, 0)
        left: Counter[int] = Counter()
        for rank in range(2):
            with loader_of(numbered, source, start, rank) as loader:
                state = loader.state_dict()
                state = {**state, **state.pop("division"), "version": 2, "batch": batch}
                expected = taken(loader)[batch:]
                loader.load_state_dict(state)
                left.update(unpadded(loader))
                assert expected == taken(loader)
        came: Counter[int] = Counter()
        for rank in range(world_size):
            with loader_of(numbered, source, Start(world_size, 2, 0), rank) as loader:
                loader.load_state_dict(state)
                came.update(unpadded(loader))
        assert left == came


def test_another_batch_size_of_the_users_is_refused(numbered: FastDataset) -> None:
    """Other batches of the user's own sampler are another order: a state with some of them consumed is refused."""

    def loader_with(size: int) -> FastLoader:
        drawn = BatchSampler(RandomSampler(numbered, generator=torch.Generator().manual_seed(1)), size, drop_last=False)
        return FastLoader(numbered, batch_sampler=drawn, threads=1)

    with loader_with(4) as loader:
        next(iter(loader))
        state = loader.state_dict()
    assert state["consumed"] == 1
    with loader_with(5) as loader, pytest.raises(ValueError, match="draws another order for epoch 0"):
        loader.load_state_dict(state)
