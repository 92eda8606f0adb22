"""Receipts of several ranks, over restarts with other numbers of ranks: parts that are joined, or named as missing."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed import HashStore

from fastio import FastDataset, FastLoader, LengthBucketSampler, Ranks
from fastio.loader.proof.account import Account, ExpectedNumber, receipt_of
from fastio.loader.proof.rank_exchange import exchanged
from fastio.samplers.order import Uneven
from fastio.types.receipt import Receipt
from tests.numbered import COUNT, loader_of, write_numbers


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> FastDataset:
    """Samples that are their own index, of 4 bytes."""
    return write_numbers(tmp_path_factory.mktemp("numbered") / "a.h5")


def ranks_of(dataset: FastDataset, world_size: int, **options: Any) -> list[FastLoader]:
    """Loaders of all ranks in one process; nobody joins them."""
    return [loader_of(dataset, rank=rank, world_size=world_size, **options) for rank in range(world_size)]


def joined(loaders: Sequence[FastLoader]) -> Receipt:
    """What receipt() returns on every rank of a process group."""
    accounts = [Account.from_json(json.loads(json.dumps(loader._position.account().to_json()))) for loader in loaders]
    first = loaders[0]
    expected = ExpectedNumber(first._selection, tuple(first.base.readers)).of(accounts[0].epoch, accounts[0].dropped)
    return receipt_of(accounts, expected, unverified=None)


def take(loaders: Sequence[FastLoader], steps: int | None) -> list[dict[str, Any]]:
    """Let every rank take so many batches (None: all that are left), and return their states."""
    for loader in loaders:
        for _ in islice(loader, steps):
            pass
    return [json.loads(json.dumps(loader.state_dict())) for loader in loaders]


def load(loaders: Sequence[FastLoader], states: Sequence[dict[str, Any]], *, all_at_once: bool = False) -> None:
    """Load all states on every rank, or its own one, or the first one where the rank is new."""
    for rank, loader in enumerate(loaders):
        loader.load_state_dict(states if all_at_once else states[rank if rank < len(states) else 0])


@settings(max_examples=40)
@given(
    starts=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=4),
    shuffle=st.sampled_from([False, True, "full"]),
    uneven=st.sampled_from(["pad", "drop"]),
    all_at_once=st.booleans(),
)
def test_elastic_restarts_have_exact_receipts(
    numbered: FastDataset, starts: list[tuple[int, int, int]], shuffle: Any, uneven: Any, all_at_once: bool
) -> None:
    """Whatever the ranks and batches of each start: what all have had is exact, if each rank that goes on loads."""
    states: list[dict[str, Any]] = []
    for world_size, batch_size, steps in starts:
        loaders = ranks_of(numbered, world_size, batch_size=batch_size, shuffle=shuffle, uneven=uneven)
        if states:
            load(loaders, states, all_at_once=all_at_once or world_size < len(states))
        states = take(loaders, steps)
        if states[0]["epoch"] or not states[0]["consumed"]:
            states = []
            continue
        take_again = ranks_of(numbered, world_size, batch_size=batch_size, shuffle=shuffle, uneven=uneven)
        load(take_again, states)
        take(take_again, None)
        receipt = joined(take_again)

        assert receipt.is_exact, str(receipt)
        assert COUNT == receipt.samples + receipt.dropped


def test_buckets_go_on_with_other_ranks(numbered: FastDataset) -> None:
    """Samplers whose state is a history of divisions have exact receipts too."""

    def buckets(rank: int, world_size: int) -> FastLoader:
        own = {"rank": rank, "world_size": world_size}
        return FastLoader(numbered, batch_sampler=LengthBucketSampler([4] * COUNT, batch_size=3, seed=2, **own))

    first = [buckets(rank, 2) for rank in range(2)]
    states = take(first, 2)
    second = [buckets(rank, 3) for rank in range(3)]
    load(second, states)
    take(second, None)

    assert joined(second).is_exact


def test_states_that_are_missing_are_named(numbered: FastDataset) -> None:
    """With the state of one rank of three, the rest of the epoch is given, but the receipt is not equal."""
    states = take(ranks_of(numbered, 3, batch_size=2), 2)
    single = loader_of(numbered)
    single.load_state_dict(states[1])
    take([single], None)
    receipt = single.receipt()

    assert not receipt.is_complete
    assert not receipt.is_exact
    assert "from the epoch's beginning to sample 12 of ranks 0, 2: load all ranks' states" in str(receipt)
    single.load_state_dict(states)
    take([single], None)
    assert single.receipt().is_exact


def test_other_ranks_are_missing_from_an_own_receipt(numbered: FastDataset) -> None:
    """A rank alone says which ones are not in the sum."""
    loaders = ranks_of(numbered, 3)
    take(loaders, None)

    assert not loaders[1].receipt(own=True).is_complete
    assert "ranks 0, 2" in str(loaders[1].receipt())
    assert joined(loaders).is_exact
    assert not joined(loaders[:2]).is_exact


def test_states_of_different_positions_are_refused(numbered: FastDataset) -> None:
    """States of two checkpoints cannot be loaded together."""
    loaders = ranks_of(numbered, 2)
    early, late = take(loaders, 1)[0], take(ranks_of(numbered, 2), 2)[1]
    with pytest.raises(ValueError, match=r"epoch 0, consumed=8 in the first one, epoch 0, consumed=16 in number 1"):
        loaders[0].load_state_dict([early, late])
    with pytest.raises(ValueError, match="expected a state"):
        loaders[0].load_state_dict([])


def test_two_receipts_of_the_same_samples_are_refused(numbered: FastDataset) -> None:
    """States of one position and rank that say different things are of different trainings."""
    state = take([loader_of(numbered)], 2)[0]
    other = json.loads(json.dumps(state))
    other["receipt"][0]["samples"] -= 1
    with pytest.raises(ValueError, match="different receipts of rank 0 of 1, from the epoch's beginning to sample 8"):
        loader_of(numbered).load_state_dict([state, other])


def exchange_of(loaders: Sequence[FastLoader], store: HashStore, *, calls: Sequence[Any]) -> list[list[Account]]:
    """Let every rank exchange its account with the others, in a thread each."""

    def one(loader: FastLoader, own_calls: Any) -> list[Account]:
        account, options = loader._position.account(), loader._position.options()
        return exchanged(account, options, owner="a.h5", timeout_s=60, store=store, calls=own_calls)

    with ThreadPoolExecutor(len(loaders)) as threads:
        return list(threads.map(one, loaders, calls))


def test_ranks_tell_each_other(numbered: FastDataset) -> None:
    """All ranks get all accounts, again and again; old ones do not stay in the store."""
    loaders, store = ranks_of(numbered, 2), HashStore()
    calls = [defaultdict(int), defaultdict(int)]
    for step in range(1, 4):
        take(loaders, None)
        first, second = exchange_of(loaders, store, calls=calls)

        assert first == second == [loader._position.account() for loader in loaders]
        assert [0, 1] == [account.rank for account in first]
        assert step - 1 == first[0].epoch
        assert 2 == store.num_keys()


def test_what_ranks_told_is_in_the_state_of_each(numbered: FastDataset) -> None:
    """After a joined receipt, the state of one rank has the parts of all."""
    loaders = ranks_of(numbered, 2)
    take(loaders, 2)
    accounts = [loader._position.account() for loader in loaders]
    loaders[0]._position.learn(accounts)
    single = loader_of(numbered)
    single.load_state_dict(loaders[0].state_dict())
    take([single], None)

    assert single.receipt().is_exact


@pytest.mark.parametrize("kind", ["order", "buckets"])
def test_a_state_behind_the_last_step_knows_what_was_left_out(numbered: FastDataset, kind: str) -> None:
    """The same ranks go on to an exact receipt, which counts it; others, which need not leave it out, give it."""

    def ranks(world_size: int, uneven: Uneven) -> list[FastLoader]:
        if kind == "order":
            return ranks_of(numbered, world_size, uneven=uneven)
        lengths = np.arange(COUNT) % 7
        shares = [Ranks(rank, world_size) for rank in range(world_size)]
        samplers = [LengthBucketSampler(lengths, batch_size=4, uneven=uneven, ranks=share) for share in shares]
        return [FastLoader(numbered, batch_sampler=sampler, threads=1) for sampler in samplers]

    first = ranks(5, "drop")
    states = take(first, len(first[0]))
    same, others = ranks(5, "drop"), ranks(2, "pad")
    assert {COUNT - 3} == {COUNT - loader._selection.sampler.plan(0).dropped for loader in first}
    for loaders, samples, dropped in ((same, COUNT - 3, 3), (others, COUNT, 0)):
        load(loaders, states, all_at_once=True)
        take(loaders, None)
        receipt = joined(loaders)
        assert receipt.missing == ()
        assert (samples, dropped) == (receipt.samples, receipt.dropped)
        assert receipt.has_ended
        assert receipt.expected in (None, receipt.number)  # buckets do not say which samples they leave out


def test_ranks_without_a_process_group_are_gathered(numbered: FastDataset) -> None:
    """By a function that gives all the texts in any order; then one rank's state goes on with the parts of all."""

    def told(loaders: Sequence[FastLoader]) -> list[Receipt]:
        texts = [json.dumps(loader._position.account().to_json()) for loader in loaders]

        def gather(mine: str) -> list[str]:
            assert mine in texts
            return texts[::-1]

        return [loader.receipt(gather=gather) for loader in loaders]

    first = ranks_of(numbered, 3)
    take(first, 1)
    assert [receipt.missing for receipt in told(first)] == [()] * 3
    state = json.loads(json.dumps(first[2].state_dict()))
    second = ranks_of(numbered, 2)
    for loader in second:
        loader.load_state_dict(state)
    take(second, None)
    alone, *every = second[0].receipt(), *told(second)

    assert alone.missing
    assert all(receipt.is_exact for receipt in every), every
    assert every[0] == every[1]
    for wrong, ranks in ((lambda mine: [mine], r"\[0\]"), (lambda mine: [mine, mine], r"\[0, 0\]")):
        with pytest.raises(
            ValueError, match=f"of rank 0 has gathered the texts of ranks {ranks}: expected one of each"
        ):
            second[0].receipt(gather=wrong)


def test_ranks_that_do_not_come_are_named(numbered: FastDataset) -> None:
    """Waiting ends, and says for whom; the next try is the same call."""
    loaders, store = ranks_of(numbered, 3), HashStore()
    account, options = loaders[1]._position.account(), loaders[1]._position.options()
    calls: defaultdict[str, int] = defaultdict(int)
    with pytest.raises(TimeoutError, match=r"a.h5: receipt\(\) of rank 1 has waited 0 s for ranks 0, 2"):
        exchanged(account, options, owner="a.h5", timeout_s=0, store=store, calls=calls)
    take(loaders, None)
    other = loaders[2]._position.account()
    with pytest.raises(TimeoutError, match="for ranks 0, 1"):  # and not with an account from before
        exchanged(other, options, owner="a.h5", timeout_s=0, store=store, calls=defaultdict(int))
    exchanges = exchange_of(loaders, store, calls=[defaultdict(int), calls, defaultdict(int)])

    assert [23, 23, 23] == [sum(account.latest.samples for account in each if account.latest) for each in exchanges]


def test_ranks_in_different_epochs_are_named(numbered: FastDataset) -> None:
    """A rank that is an epoch ahead has another receipt."""
    loaders = ranks_of(numbered, 2)
    take(loaders, None)
    take(loaders[1:], None)
    with pytest.raises(ValueError, match=r"rank 0 is in epoch 0, begun at None, but rank 1 in epoch 1"):
        exchange_of(loaders, HashStore(), calls=[defaultdict(int), defaultdict(int)])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"samples": -9}, "samples=-9: expected a whole number from 0"),
        ({"samples": True}, "samples=True"),
        ({"samples": "8"}, "samples='8'"),
        ({"repeated": 0.5}, "repeated=0.5"),
        ({"skipped": None}, "skipped=None"),
        ({"rank": 1}, "rank=1: expected 0 to 0"),
        ({"world_size": 0}, "world_size=0"),
        ({"number": "-1"}, "number='-1'"),
        ({"number": 5}, "number=5"),
        ({"number": "?"}, "number='\\?': expected 16 hexadecimal digits"),
        ({"is_verified": 1}, "is_verified=1"),
        ({"fields": "image"}, "fields='image'"),
        ({"bytes": 4}, "expected the part of a receipt"),
    ],
)
def test_values_that_cannot_be_are_refused(numbered: FastDataset, change: dict[str, Any], named: str) -> None:
    """No damaged count gets into a receipt: the message names the value."""
    with loader_of(numbered) as loader:
        next(iter(loader))
        state = loader.state_dict()
        with pytest.raises(ValueError, match=named):
            loader.load_state_dict({**state, "receipt": [{**state["receipt"][0], **change}]})


@pytest.mark.parametrize("parts", [None, 3, {}, [None], [3]])
def test_what_is_no_receipt_is_refused(numbered: FastDataset, parts: Any) -> None:
    """Another kind of value in the place of a receipt is one line."""
    with loader_of(numbered) as loader:
        next(iter(loader))
        with pytest.raises(ValueError, match="receipt="):
            loader.load_state_dict({**loader.state_dict(), "receipt": parts})


def test_counts_must_agree_too(numbered: FastDataset) -> None:
    """A sum that is right proves nothing if the number of samples is not."""
    with loader_of(numbered) as loader:
        list(loader)
        receipt = loader.receipt()
    wrong = replace(receipt, parts=(replace(receipt.parts[0], samples=COUNT - 1),))

    assert (True, False) == (receipt.is_exact, wrong.is_exact)
    assert f"equals the store's, but {COUNT - 1} samples were counted" in str(wrong)
    assert "once" not in str(wrong)
