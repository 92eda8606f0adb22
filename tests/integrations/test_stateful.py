"""FastLoader beside torchdata's StatefulDataLoader: the same script of operations gives the same samples."""

from __future__ import annotations

from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torchdata.stateful_dataloader import StatefulDataLoader

from fastio import FastDataset, FastLoader, LengthBucketSampler, PackSampler
from tests.integrations.conftest import COUNT

# torchdata 0.11 calls what torch 2.13 keeps for it alone.
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
OPERATIONS = ["iter", "next", "rest", "save", "load", "again"]


def labels_of(batch: Any) -> list[int]:
    """The samples of a batch."""
    return [int(label) for label in batch[1]]


def played(script: list[str], build: Any) -> list[Any]:
    """
    What the operations give, batch by batch.

    "iter" begins an iteration, "next" and "rest" take from the latest, "old" from the one before it; "save" keeps the
    state, "load" puts it into a new loader, "again" into the same one.

    No iterator is dropped before anything was taken from it: that takes an epoch, or a loaded position, away from a
    StatefulDataLoader, and nothing from a FastLoader.
    """
    loader = build()
    iterators: list[Any] = []
    is_fresh = False  # the latest iterator: nothing was taken from it
    state: Any = None
    seen: list[Any] = []
    for operation in script:
        if operation == "iter" and not is_fresh:
            iterators.append(iter(loader))
            is_fresh = True
        elif operation in ("next", "old") and len(iterators) > (operation == "old"):
            seen.append([labels_of(batch) for batch in islice(iterators[-1 if operation == "next" else -2], 1)])
            is_fresh = is_fresh and operation == "old"
        elif operation == "rest" and iterators:
            seen.append([labels_of(batch) for batch in iterators[-1]])
            is_fresh = False
        elif operation == "save":
            state = loader.state_dict()
        elif operation in ("load", "again") and state is not None:
            loader = build() if operation == "load" else loader
            loader.load_state_dict(state)
            iterators, is_fresh = [], False
    first = iterators[-1] if is_fresh else loader
    return [*seen, [labels_of(batch) for batch in first], [labels_of(batch) for batch in loader]]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=st.lists(st.sampled_from([*OPERATIONS, "old"]), min_size=3, max_size=14))
def test_the_same_script_gives_the_same_samples(store: Path, script: list[str]) -> None:
    """In order: whatever is iterated, saved and loaded, both yield the same batches."""
    with FastDataset(store) as dataset:
        theirs = played(script, lambda: StatefulDataLoader(dataset, batch_size=8))
        assert theirs == played(script, lambda: FastLoader(dataset, 8, threads=1))


def buckets(dataset: FastDataset) -> LengthBucketSampler:
    """Batches of 8 in another order every epoch."""
    return LengthBucketSampler(dataset.lengths, batch_size=8)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=st.lists(st.sampled_from(OPERATIONS), min_size=3, max_size=14))
def test_the_same_script_with_a_batch_sampler(store: Path, script: list[str]) -> None:
    """Shuffled by a sampler with a state of its own: both go through the same epochs and resume within them."""
    with FastDataset(store) as dataset:
        theirs = played(script, lambda: StatefulDataLoader(dataset, batch_sampler=buckets(dataset)))
        assert theirs == played(script, lambda: FastLoader(dataset, batch_sampler=buckets(dataset), threads=1))


@pytest.mark.parametrize("had", [0, 1, 2, 3])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("is_bucketed", [False, True])
def test_a_dataset_inside_one(store: Path, had: int, workers: int, is_bucketed: bool) -> None:
    """A FastDataset, and samplers of ours, inside a StatefulDataLoader with workers: what is left is what was left."""
    with FastDataset(store) as dataset:

        def build() -> Any:
            if is_bucketed:
                return StatefulDataLoader(dataset, batch_sampler=buckets(dataset), num_workers=workers)
            return StatefulDataLoader(dataset, batch_size=8, num_workers=workers)

        loader = build()
        batches = iter(loader)
        first = [labels_of(batch) for batch in islice(batches, had)]
        state = loader.state_dict()
        rest = [labels_of(batch) for batch in batches]
        resumed = build()
        resumed.load_state_dict(state)

        assert rest == [labels_of(batch) for batch in resumed]
        assert list(range(COUNT)) == sorted(chain(*first, *rest))


@pytest.mark.parametrize("had", [0, 1, 3])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("is_packed", [False, True])
def test_samplers_inside_one_on_other_ranks(store: Path, had: int, workers: int, is_packed: bool) -> None:
    """A StatefulDataLoader that our sampler gives its batches goes on with another number of ranks: all comes once."""
    with FastDataset(store) as dataset:

        def build(rank: int, world_size: int) -> Any:
            share = {"rank": rank, "world_size": world_size, "uneven": "drop"}
            sampler: Any = LengthBucketSampler(dataset.lengths, batch_size=5 - world_size, **share)
            if is_packed:
                sampler = PackSampler(dataset.lengths, max_tokens=2 * int(dataset.lengths.max()), **share)
            return StatefulDataLoader(dataset, batch_sampler=sampler, num_workers=workers)

        came, states = [], []
        for rank in range(3):
            loader = build(rank, 3)
            came += [index for batch in islice(loader, had) for index in labels_of(batch)]
            states.append(loader.state_dict())
        for rank in range(2):
            loader = build(rank, 2)
            loader.load_state_dict(states[rank])
            came += [index for batch in loader for index in labels_of(batch)]

        assert len(set(came)) == len(came)
        assert COUNT - 1 <= len(came)
