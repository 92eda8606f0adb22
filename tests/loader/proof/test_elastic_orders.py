"""An epoch that other ranks continue, in each order that FastLoader has: every sample once, order kept, proven."""

from __future__ import annotations

from collections import Counter
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.elastic import of_fastio
from fastio import FastLoader
from fastio.types.receipt import Receipt
from tests.loader.proof.test_joined_receipts import joined

COUNT = 155  # in fifths, so that the mixture gives each sample once
KINDS = ("loader", "full", "mixture", "windows", "buckets", "packs")

legs = st.lists(st.tuples(st.integers(1, 7), st.integers(1, 9), st.integers(1, 5)), min_size=2, max_size=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the benchmark of elastic resume packs, smaller."""
    path = tmp_path_factory.mktemp("elastic")
    of_fastio.pack(path, COUNT)
    return path


def ranks_of(folder: Path, kind: str, world_size: int, batch_size: int, state: Any) -> list[FastLoader]:
    """All ranks of one start, which go on from one rank's state."""
    make = getattr(of_fastio, kind)
    loaders: list[FastLoader] = [
        make(folder, batch_size, rank=rank, world_size=world_size) for rank in range(world_size)
    ]
    for loader in loaders:
        if state is not None:
            loader.load_state_dict(state)
    return loaders


def steps_of(loaders: list[FastLoader], steps: int | None) -> list[list[int]]:
    """What all ranks together get in each of the next steps; all of them have equally many."""
    ranks = [[of_fastio.numbers(batch) for batch in islice(loader, steps)] for loader in loaders]
    return [list(chain(*step)) for step in zip(*ranks, strict=True)]


def state_after(loaders: list[FastLoader]) -> dict[str, Any]:
    """The state of rank 0 once all ranks have told each other their parts, as receipt() does in a process group."""
    accounts = [loader._position.account() for loader in loaders]
    loaders[0]._position.learn(accounts)
    return loaders[0].state_dict()


def is_proven(receipt: Receipt) -> bool:
    """Whether each sample came once, by its sum; a window of a stream has no checksum that could be compared."""
    return receipt.is_exact or (not receipt.is_verified and f"{COUNT} of {COUNT} samples once" in str(receipt))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8, deadline=None)
@given(legs=legs)
def test_ranks_that_leave_and_join(folder: Path, kind: str, legs: list[tuple[int, int, int]]) -> None:
    """
    Any number of ranks, any size of batches, again and again within the epoch, from the state of one rank: the order
    stays that of one process with the steps of the first ranks.
    """
    order = list(chain(*steps_of(ranks_of(folder, kind, 1, legs[0][0] * legs[0][1], None), None)))
    state: Any = None
    came: list[list[int]] = []
    for number, (world_size, batch_size, steps) in enumerate(legs):
        loaders = ranks_of(folder, kind, world_size, batch_size, state)
        came += steps_of(loaders, None if number == len(legs) - 1 else steps)
        if loaders[0].state_dict()["epoch"]:
            break
        state = state_after(loaders)
    receipt = joined(loaders)
    counts = Counter(chain(*came))

    assert sorted(counts) == list(range(COUNT))
    assert is_proven(receipt), str(receipt)
    assert receipt.samples == COUNT
    assert receipt.repeated == counts.total() - COUNT
    assert receipt.repeated < max(leg[0] for leg in legs)
    at = 0
    for step in came[:-1]:
        assert Counter(order[at : at + len(step)]) == Counter(step)
        at += len(step)
    assert set(order[at:]) <= set(came[-1])


def test_the_rest_of_an_epoch_alone_proves_nothing(folder: Path) -> None:
    """A start that does not know what came before it has no exact receipt, though it gives all that was left."""
    loaders = ranks_of(folder, "loader", 3, 4, None)
    before = steps_of(loaders, 5)
    state = {**loaders[0].state_dict(), "receipt": []}
    again = ranks_of(folder, "loader", 2, 7, state)
    after = steps_of(again, None)

    assert set(chain(*before, *after)) == set(range(COUNT))
    assert not joined(again).is_exact
    assert "the epoch's beginning" in str(joined(again))


def test_a_start_that_gave_nothing_leaves_the_receipt_as_it_was(folder: Path) -> None:
    """One that was stopped where the epoch ends, without checksums: the next one has no sample left."""
    loaders = ranks_of(folder, "windows", 4, 8, None)
    steps_of(loaders, 5)
    again = ranks_of(folder, "windows", 1, 1, state_after(loaders))
    came = steps_of(again, None)

    assert [] == came
    assert f"{COUNT} of {COUNT} samples once" in str(joined(again))
