"""Batches by length: exactly once, equal on all ranks, little padding, the same again after a resume."""

from __future__ import annotations

import json
import pickle
from itertools import islice
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from fastio.samplers.batches import Batches
from fastio.samplers.bucket import LengthBucketSampler
from fastio.samplers.order import Uneven

WORLDS = (1, 2, 3, 8)

lengths_of = st.lists(st.integers(0, 50), max_size=80).map(lambda values: np.array(values, np.int64))
rules = st.fixed_dictionaries(
    {
        "window": st.integers(1, 90),
        "shuffle": st.booleans(),
        "drop_last": st.booleans(),
        "world_size": st.sampled_from(WORLDS),
        "pad_to_multiple": st.sampled_from([1, 8]),
        "uneven": st.sampled_from(get_args(Uneven)),
        "seed": st.integers(0, 2**64 - 1),
    }
)
sizes = st.one_of(
    st.fixed_dictionaries({"batch_size": st.integers(1, 9)}),
    st.fixed_dictionaries({"max_tokens": st.integers(56, 400)}),
)


def long_tailed(count: int, seed: int = 0) -> NDArray[np.int32]:
    """Lengths of 5 to 512 tokens, most of them short."""
    return np.clip(np.random.default_rng(seed).lognormal(4.2, 0.9, count), 5, 512).astype(np.int32)


def plans(lengths: NDArray[Any], epoch: int, **options: Any) -> list[Batches]:
    """The plan of every rank."""
    return [LengthBucketSampler(lengths, rank=rank, **options).plan(epoch) for rank in range(options["world_size"])]


def batches_of(plan: Batches) -> list[list[int]]:
    """The indices of each batch."""
    return [plan.indices[place].tolist() for place in plan.slices()]


def samples_of(state: dict[str, Any]) -> list[int]:
    """The samples consumed of the state's epoch, order by order."""
    return [order["samples"] for order in state["consumed"] or []]


def padding(lengths: NDArray[Any], plan: Batches) -> float:
    """The share of a padded epoch's slots that hold no token."""
    chosen = lengths[plan.indices]
    slots = np.maximum.reduceat(chosen, plan.cuts[:-1]) * np.diff(plan.cuts)
    return float(1 - chosen.sum() / slots.sum())


@settings(deadline=None)
@given(lengths_of, sizes, rules, st.integers(0, 2**32 - 1))
def test_every_sample_once_and_equal_batches(
    lengths: NDArray[np.int64], size: dict[str, int], rule: dict[str, Any], epoch: int
) -> None:
    """All ranks get equally many batches of equal sizes; over all ranks each sample comes once, but for those named."""
    ranks = plans(lengths, epoch, **size, **rule)

    assert all(plan.cuts.tolist() == ranks[0].cuts.tolist() for plan in ranks)
    counts = np.bincount(np.concatenate([plan.indices for plan in ranks]), minlength=len(lengths))
    assert len(counts) == len(lengths)
    assert (counts == 0).sum() == ranks[0].dropped
    assert counts.sum() - np.count_nonzero(counts) == ranks[0].repeated
    assert (np.diff(ranks[0].cuts) > 0).all()


@settings(deadline=None)
@given(lengths_of, sizes, rules)
def test_batches_keep_their_size(lengths: NDArray[np.int64], size: dict[str, int], rule: dict[str, Any]) -> None:
    """No batch has more samples, or tokens with padding, than allowed; all but the last have the size asked."""
    multiple = rule["pad_to_multiple"]
    for plan in plans(lengths, 0, **size, **rule):
        counts = np.diff(plan.cuts)
        if "batch_size" in size:
            assert (counts[:-1] == size["batch_size"]).all()
            assert (counts <= size["batch_size"]).all()
        elif len(counts):
            longest = np.maximum.reduceat(lengths[plan.indices], plan.cuts[:-1])
            assert (counts * (-(-longest // multiple) * multiple) <= size["max_tokens"]).all()


@pytest.mark.parametrize("world_size", WORLDS)
@pytest.mark.parametrize("size", [{"batch_size": 16}, {"max_tokens": 2048}])
def test_ranks_get_batches_of_one_shape(world_size: int, size: dict[str, int]) -> None:
    """At each step the longest sample of every rank is among the ``world_size`` longest of the step."""
    lengths = long_tailed(5000)
    ranks = plans(lengths, 3, world_size=world_size, **size)
    for step in zip(*map(batches_of, ranks), strict=True):
        together = np.sort(lengths[np.concatenate(step)])
        assert min(lengths[batch].max() for batch in step) >= together[-world_size]


@pytest.mark.parametrize("size", [{"batch_size": 64}, {"max_tokens": 8192}])
def test_little_is_padded(size: dict[str, int]) -> None:
    """Of 50,000 long-tailed lengths less than 1 % of the slots is padding, where random batches have more than 60 %."""
    lengths = long_tailed(50_000)
    plan = LengthBucketSampler(lengths, **size).plan(0)
    random = Batches(np.random.default_rng(0).permutation(len(lengths)), np.arange(0, 50_001, 50))

    assert padding(lengths, plan) < 0.01
    assert padding(lengths, random) > 0.6


def test_epochs_and_seeds_differ() -> None:
    """Another epoch or seed makes other batches in another order; without shuffle every epoch is the same."""
    lengths = long_tailed(1000)
    seen = {
        tuple(LengthBucketSampler(lengths, batch_size=8, window=256, seed=seed).plan(epoch).indices.tolist())
        for seed in (0, 1)
        for epoch in (0, 1, 2)
    }
    fixed = LengthBucketSampler(lengths, batch_size=8, shuffle=False)

    assert len(seen) == 6
    assert fixed.plan(0).indices.tolist() == fixed.plan(1).indices.tolist()


def test_company_varies_between_epochs() -> None:
    """Samples of one length are not always in a batch with the same others."""
    sampler = LengthBucketSampler(np.full(640, 7), batch_size=64)
    first, second = ({frozenset(batch) for batch in batches_of(sampler.plan(epoch))} for epoch in (0, 1))
    assert not first & second


def test_plans_are_kept_over_versions() -> None:
    """Golden values: a saved position must mean the same samples for ever."""
    sampler = LengthBucketSampler([3, 9, 4, 4, 8, 1, 7, 2, 5, 6], batch_size=2, window=6, seed=1)
    large = LengthBucketSampler(np.arange(70_000) % 300, batch_size=2, seed=1)

    assert batches_of(sampler.plan(2)) == [[2, 7], [1, 4], [6, 9], [8, 3], [0, 5]]
    assert large.plan(2).indices[:6].tolist() == [20208, 56508, 47662, 11962, 5072, 17672]


def test_lengths_beyond_the_classes() -> None:
    """Very long and very different lengths are sorted in classes, and no batch goes over its budget."""
    lengths = np.random.default_rng(0).integers(0, 3_000_000, 3000)
    plan = LengthBucketSampler(lengths, max_tokens=9_000_000).plan(0)

    assert sorted(plan.indices.tolist()) == list(range(3000))
    longest = np.maximum.reduceat(lengths[plan.indices], plan.cuts[:-1])
    assert (longest * np.diff(plan.cuts) <= 9_000_000).all()
    assert padding(lengths, plan) < 0.02


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 30), st.integers(0, 3), st.sampled_from(WORLDS), sizes)
def test_resume_at_every_batch(step: int, epoch: int, world_size: int, size: dict[str, int]) -> None:
    """What is left after a state is loaded is what was left when it was taken, on each rank, through JSON."""
    lengths = np.minimum(long_tailed(90), 50)
    for rank in range(world_size):
        options = {"rank": rank, "world_size": world_size, "window": 40, **size}
        sampler = LengthBucketSampler(lengths, **options)
        sampler.set_epoch(epoch)
        batches = iter(sampler)
        taken = sum(map(len, islice(batches, min(step, len(sampler))))) * world_size
        taken = min(taken, len(lengths))
        state = json.loads(json.dumps(sampler.state_dict()))
        assert (state["epoch"], samples_of(state)) == (epoch, [taken] if taken else [])
        rest, following = list(batches), list(sampler)
        resumed = LengthBucketSampler(lengths, **options)
        resumed.load_state_dict(state)
        resumed.set_epoch(epoch)
        assert rest == list(resumed)
        assert following == list(resumed)


def test_the_latest_iteration_has_the_position() -> None:
    """An iteration that is still running says nothing of where the latest one stands, nor does one before set_epoch."""
    sampler = LengthBucketSampler(range(20), batch_size=2)
    first = iter(sampler)
    next(first)
    second = iter(sampler)
    next(second)
    assert len(list(first)) == 9
    state = sampler.state_dict()
    assert (1, [2]) == (state["epoch"], samples_of(state))
    sampler.set_epoch(7)
    assert len(list(second)) == 9
    state = sampler.state_dict()
    assert (7, []) == (state["epoch"], samples_of(state))


def test_a_state_of_another_sampler_is_refused() -> None:
    """Another seed or other lengths would make other batches of the same number."""
    state = LengthBucketSampler([1, 2, 3], batch_size=2).state_dict()
    with pytest.raises(ValueError, match="seed is 0 in the state and 1 here"):
        LengthBucketSampler([1, 2, 3], batch_size=2, seed=1).load_state_dict(state)
    with pytest.raises(ValueError, match="lengths_crc32"):
        LengthBucketSampler([1, 2, 4], batch_size=2).load_state_dict(state)


def test_in_a_plain_dataloader() -> None:
    """As a batch_sampler it gives a DataLoader its batches, with workers too, and its length."""
    lengths = long_tailed(100)
    sampler = LengthBucketSampler(lengths, batch_size=8)
    loader = DataLoader(list(range(100)), batch_sampler=sampler)
    expected = batches_of(sampler.plan(0))

    assert len(loader) == 13
    assert [batch.tolist() for batch in loader] == expected
    assert batches_of(pickle.loads(pickle.dumps(sampler)).plan(0)) == expected


@pytest.mark.parametrize(
    ("lengths", "options", "words"),
    [
        ([1], {}, "expected exactly one of the two"),
        ([1], {"batch_size": 2, "max_tokens": 3}, "expected exactly one of the two"),
        ([1], {"batch_size": 0}, "batch_size=0"),
        ([1], {"batch_size": 1, "window": 0}, "window=0"),
        ([1], {"batch_size": 1, "pad_to_multiple": 0}, "pad_to_multiple=0"),
        ([1], {"batch_size": 1, "uneven": "skip"}, "uneven='skip'"),
        ([1], {"batch_size": 1, "rank": 2, "world_size": 2}, "rank 2 of 2"),
        ([1, 9, 3], {"max_tokens": 15, "pad_to_multiple": 8}, "sample 1 alone has 9 tokens, 16 with padding"),
        ([1, -1], {"batch_size": 1}, "lengths go from -1"),
        ([1.5], {"batch_size": 1}, "expected integers"),
        ([[1]], {"batch_size": 1}, "expected integers"),
        ([1 << 31], {"batch_size": 1}, "lengths go from"),
    ],
)
def test_nonsense_is_refused(lengths: Any, options: dict[str, Any], words: str) -> None:
    """What cannot be planned is refused when the sampler is made."""
    with pytest.raises(ValueError, match=words):
        LengthBucketSampler(lengths, **options)


@pytest.mark.parametrize("size", [{"batch_size": 4}, {"max_tokens": 4}])
def test_no_samples(size: dict[str, int]) -> None:
    """No samples make no batches."""
    assert list(LengthBucketSampler([], **size)) == []


def test_states_of_numpys_numbers_are_plain() -> None:
    """A state goes through JSON and back, whoever counted batch size and seed."""
    lengths = np.arange(1, 30)
    saving = LengthBucketSampler(lengths, batch_size=np.int64(4), seed=np.int64(3))
    batches = iter(saving)
    taken = list(islice(batches, 2))
    resuming = LengthBucketSampler(lengths, batch_size=4, seed=3)
    resuming.load_state_dict(json.loads(json.dumps(saving.state_dict())))

    assert len(taken) == 2
    assert list(batches) == list(resuming)


@pytest.mark.parametrize("name", ["seed", "shuffle"])
def test_states_of_another_sampler_are_refused_by_kind_too(name: str) -> None:
    """True is no seed, and 1 no answer to a question."""
    sampler = LengthBucketSampler(np.arange(1, 30), batch_size=4, seed=1)
    state = sampler.state_dict()

    with pytest.raises(ValueError, match=rf"another sampler: {name} is"):
        sampler.load_state_dict({**state, name: {"seed": True, "shuffle": 1}[name]})
