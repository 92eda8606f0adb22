"""Processes that join and leave within an epoch, while the others live on: FastLoader.set_ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler

from benchmarks.elastic import of_fastio
from fastio import FastDataset, FastLoader, LengthBucketSampler, Ranks
from tests.loader.joining_training import EPOCHS, JOIN_AFTER, KILL_AT, MEMBERS, VICTIM
from tests.loader.proof.test_elastic_orders import COUNT, KINDS, is_proven, ranks_of, state_after, steps_of
from tests.loader.proof.test_joined_receipts import joined
from tests.numbered import loader_of, taken, write_numbers

TOP = Path(__file__).parents[2]
TRAINED = 101


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the benchmark of elastic resume packs, smaller."""
    path = tmp_path_factory.mktemp("joining")
    of_fastio.pack(path, COUNT)
    return path


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> FastDataset:
    """Samples that are their own index."""
    return write_numbers(tmp_path_factory.mktemp("numbered") / "a.h5")


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=6, deadline=None)
@given(
    starts=st.lists(st.tuples(st.integers(1, 6), st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=4),
    batch_size=st.integers(1, 6),
)
def test_ranks_join_and_leave_while_others_live_on(
    folder: Path, kind: str, starts: list[tuple[int, int, int]], batch_size: int
) -> None:
    """Those that stay get other ranks: the order stays, each sample comes once, and the receipt proves it."""
    world_size = starts[0][0]
    living = ranks_of(folder, kind, world_size, batch_size, None)
    order: list[int] = []
    came: list[list[int]] = []
    for number, (world_size, steps, shift) in enumerate(starts):
        if number:
            state = state_after(living)
            stay = (living[shift % len(living) :] + living[: shift % len(living)])[:world_size]
            for rank, loader in enumerate(stay):
                loader.set_ranks(rank, world_size)
                assert (rank, world_size) == (loader.rank, loader.world_size)
                loader.load_state_dict(state)
            living = [*stay, *ranks_of(folder, kind, world_size, batch_size, state)[len(stay) :]]
        if not order and (steps or number == len(starts) - 1):
            order = list(chain(*steps_of(ranks_of(folder, kind, 1, world_size * batch_size, None), None)))
        assert len({loader.remaining for loader in living}) == 1
        came += steps_of(living, None if number == len(starts) - 1 else steps)
        if living[0].state_dict()["epoch"]:
            break
    receipt = joined(living)

    assert is_proven(receipt), str(receipt)
    at = 0
    for step in came[:-1]:
        assert Counter(order[at : at + len(step)]) == Counter(step)
        at += len(step)
    assert set(order[at:]) <= set(came[-1])
    assert sorted({*chain(*came)}) == list(range(COUNT))


def test_what_was_decoded_ahead_is_given_to_others(numbered: FastDataset) -> None:
    """Nothing is lost: the loop that goes on begins where the latest batch ended; an old iterator gives no more."""
    with loader_of(numbered) as whole, loader_of(numbered, prefetch_batches=4) as loader:
        expected = list(chain(*taken(whole)))
        batches = iter(loader)
        first = taken(islice(batches, 2))
        loader.set_ranks(1, 2)
        with pytest.raises(ValueError, match=r"set_ranks\(\) was called: leave the loop, and begin another"):
            next(batches)
        mine = list(chain(*taken(loader)))
        with loader_of(numbered, rank=0, world_size=2) as other:
            other.load_state_dict(json.loads(json.dumps(whole.state_dict() | {"epoch": 0, "consumed": 8})))
            theirs = list(chain(*taken(other)))

    assert list(chain(*first)) == expected[:8]
    assert set(expected[8:]) == {*mine, *theirs} - {expected[0]}  # with which the last step is filled up
    assert len(mine) == len(theirs) == 8


def test_the_next_epochs_are_those_of_the_new_ranks(numbered: FastDataset) -> None:
    """As of a loader that was built for them; a bucket sampler plans for their steps, too."""
    lengths = 1 + np.arange(len(numbered)) % 7
    for make in (
        lambda **ranks: loader_of(numbered, **ranks),
        lambda **ranks: FastLoader(numbered, batch_sampler=LengthBucketSampler(lengths, batch_size=3, **ranks)),
        lambda **ranks: FastLoader(numbered, 3, weights=np.arange(len(numbered)), **ranks),
        lambda **ranks: FastLoader(numbered, 3, sampler=RandomSampler(numbered), **ranks),
        lambda **ranks: FastLoader(numbered, batch_sampler=BatchSampler(RandomSampler(numbered), 3, False), **ranks),
    ):
        with make(rank=0, world_size=1) as loader, make(rank=1, world_size=3) as built:
            loader.set_ranks(ranks=Ranks(1, 3))
            assert len(built) == len(loader)
            assert (built.division, built.sampler.rank) == (loader.division, loader.sampler.rank)
            for epoch in (0, 1):
                loader.set_epoch(epoch)
                built.set_epoch(epoch)
                assert taken(built) == taken(loader)
            assert built._position.options() == loader._position.options()


def test_weights_that_were_set_stay(numbered: FastDataset) -> None:
    """Another share of the same draw."""
    only = np.arange(len(numbered)) == 7
    with FastLoader(numbered, 4, weights=np.ones(len(numbered))) as loader:
        loader.set_weights(only.astype(float))
        loader.set_ranks(0, 2)
        assert {7} == set(chain(*taken(loader)))


def test_samplers_that_know_one_rank_are_refused(numbered: FastDataset) -> None:
    """Nothing has changed then."""
    own = DistributedSampler(numbered, num_replicas=2, rank=1)
    with FastLoader(numbered, 4, sampler=own) as loader:
        with pytest.raises(ValueError, match="the sampler draws the samples of rank 1 alone"):
            loader.set_ranks(0, 3)
        assert (1, 2) == (loader.rank, loader.world_size)
        assert len(list(loader)) == 3
    with loader_of(numbered) as loader:
        with pytest.raises(ValueError, match="rank"):
            loader.set_ranks(3, 3)
        with pytest.raises(AttributeError, match=r"rank of a FastLoader cannot be set: call set_ranks"):
            loader.rank = 1  # type: ignore[misc]


@pytest.fixture(scope="module", params=["shuffled", "packs"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Any]]:
    """What each process logged of a training that one joined and another one left by SIGKILL."""
    path = tmp_path_factory.mktemp("joined")
    with write_numbers(path / "numbers.h5", TRAINED).store as store:
        command = [sys.executable, "-m", "tests.loader.joining_training", store.path, path, request.param]
    hidden = ("SLURM_", "TORCHELASTIC_", "RANK", "WORLD_SIZE", "LOCAL_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    environment = kept | {"PYTHONPATH": str(TOP), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        list(map(str, command)), env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    return {int(log.stem): [json.loads(line) for line in log.read_text().splitlines()] for log in path.glob("*.jsonl")}


def test_a_process_joins_and_another_is_killed(trained: dict[int, list[Any]]) -> None:
    """Over real processes and gloo: each sample of each epoch once, and all receipts say so."""
    steps: dict[int, dict[int, list[int]]] = defaultdict(dict)
    for name, entries in trained.items():
        for entry in entries:
            if "step" in entry:
                steps[entry["step"]][name] = entry["samples"]
    receipts = [entry for entries in trained.values() for entry in entries if "exact" in entry]

    assert set(MEMBERS[0]) == set(steps[JOIN_AFTER])
    assert set(MEMBERS[1]) == set(steps[JOIN_AFTER + 1]) == set(steps[KILL_AT - 1])
    assert set(MEMBERS[2]) == set(steps[KILL_AT])
    assert VICTIM not in steps[max(steps)]
    assert sorted(steps) == list(range(1, len(steps) + 1))
    counts = Counter(chain(*(chain(*ranks.values()) for ranks in steps.values())))
    assert sorted(counts) == list(range(TRAINED))
    assert EPOCHS * TRAINED <= counts.total() < EPOCHS * (TRAINED + len(MEMBERS[2]))
    assert min(counts.values()) == EPOCHS
    assert EPOCHS * len(MEMBERS[2]) == len(receipts)
    assert all(entry["exact"] for entry in receipts), receipts
