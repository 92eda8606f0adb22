"""Batches by a budget of tokens: exactly once, equal on all ranks, nearly full."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastio.samplers.order import Uneven
from fastio.samplers.pack import Packing, PackSampler
from tests.samplers.test_bucket import WORLDS, batches_of, long_tailed

lengths_of = st.lists(st.integers(0, 50), max_size=80).map(lambda values: np.array(values, np.int64))
rules = st.fixed_dictionaries(
    {
        "max_tokens": st.integers(50, 200),
        "rows": st.sampled_from([None, 1, 2, 3]),
        "packing": st.sampled_from(get_args(Packing)),
        "window": st.integers(1, 90),
        "shuffle": st.booleans(),
        "world_size": st.sampled_from(WORLDS),
        "uneven": st.sampled_from(get_args(Uneven)),
    }
)


@settings(deadline=None)
@given(lengths_of, rules, st.integers(0, 2**32 - 1))
def test_every_sample_once_and_as_many_batches(lengths: Any, rule: dict[str, Any], epoch: int) -> None:
    """All ranks get equally many batches within the budget; each sample comes once, but for those named."""
    ranks = [PackSampler(lengths, rank=rank, **rule).plan(epoch) for rank in range(rule["world_size"])]

    assert len({len(plan) for plan in ranks}) == 1
    counts = np.bincount(np.concatenate([plan.indices for plan in ranks]), minlength=len(lengths))
    assert (counts == 0).sum() == ranks[0].dropped
    assert counts.sum() - np.count_nonzero(counts) == ranks[0].repeated
    used = [rows_used(lengths[batch], rule["max_tokens"]) for plan in ranks for batch in batches_of(plan)]
    assert max(used, default=0) <= (rule["rows"] or 1)


def rows_used(lengths: Any, max_tokens: int) -> int:
    """How many rows samples take if each that does not fit begins another: what PackCollate does."""
    rows, free = 1, max_tokens
    for length in lengths.tolist():
        if length > free:
            rows, free = rows + 1, max_tokens
        free -= length
    return rows


def best_fit(lengths: Any, max_tokens: int) -> list[list[int]]:
    """Best fit decreasing, sample by sample: into the fullest bin that has room, the one filled last among equals."""
    bins: list[list[int]] = []
    by_last_use: list[tuple[int, int]] = []  # tokens free in a bin, and its number
    for index in np.argsort(-lengths, kind="stable").tolist():
        fitting = [(free, -at) for at, (free, _) in enumerate(by_last_use) if free >= lengths[index]]
        if fitting:
            free, number = by_last_use.pop(-min(fitting)[1])
        else:
            free, number = max_tokens, len(bins)
            bins.append([])
        bins[number].append(index)
        by_last_use.append((free - int(lengths[index]), number))
    frees = {number: free for free, number in by_last_use}
    return [bins[number] for number in sorted(frees, key=lambda number: (frees[number], number))]


@settings(deadline=None)
@given(lengths_of, st.integers(50, 300))
def test_runs_of_equal_lengths_equal_one_by_one(lengths: Any, max_tokens: int) -> None:
    """Equally long samples are packed at once; the bins are those of packing them one by one."""
    sampler = PackSampler(lengths, max_tokens=max_tokens, packing="longest_first", window=100, shuffle=False)
    assert best_fit(lengths, max_tokens) == batches_of(sampler.plan(0))


@pytest.mark.parametrize("max_tokens", [2048, 8192, 100_000])
@pytest.mark.parametrize("world_size", [1, 8])
@pytest.mark.parametrize("packing", get_args(Packing))
def test_batches_are_nearly_full(max_tokens: int, world_size: int, packing: Packing) -> None:
    """Of 100,000 long-tailed lengths, in two windows, more than 99 % of the slots are filled, the last step aside."""
    lengths = long_tailed(100_000)
    ranks = {"rank": 0, "world_size": world_size}
    plan = PackSampler(lengths, max_tokens=max_tokens, packing=packing, **ranks, uneven="drop").plan(0)

    tokens = np.array([lengths[batch].sum() for batch in batches_of(plan)])
    assert np.sort(tokens)[1:].mean() > 0.99 * max_tokens


LENGTHS = {
    "chats": lambda draw, count: draw.gamma(2.2, 80, count) + 20,
    "log-normal": lambda draw, count: draw.lognormal(4.8, 0.8, count),
    "two peaks": lambda draw, count: np.where(
        draw.random(count) < 0.5, draw.normal(120, 30, count), draw.normal(700, 90, count)
    ),
}


@pytest.mark.parametrize("kind", LENGTHS)
def test_rows_are_full_and_mixed(kind: str) -> None:
    """Rows are as full as those of best fit decreasing, 99.5 % here, and lengths in a row differ as they do overall."""
    lengths = np.clip(LENGTHS[kind](np.random.default_rng(0), 100_000), 4, 2048).astype(np.int64)
    mixed = PackSampler(lengths, max_tokens=2048, rows=8, seed=1)
    sorted_ = PackSampler(lengths, max_tokens=2048, rows=8, seed=1, packing="longest_first")

    rows = len(mixed) * 8
    assert lengths.sum() >= 0.995 * rows * 2048
    assert rows <= 1.003 * len(sorted_) * 8
    assert mixed.report(0).mixing >= 0.8
    assert sorted_.report(0).mixing < mixed.report(0).mixing


@settings(deadline=None)
@given(lengths_of, rules, st.integers(1, 49), st.sampled_from(["drop", "cut"]), st.integers(0, 2**32 - 1))
def test_samples_that_are_too_long(lengths: Any, rule: dict[str, Any], most: int, fate: Any, epoch: int) -> None:
    """They are left out, or planned with the tokens that a row holds, and the report names them."""
    rule = {**rule, "max_tokens": most, "too_long": fate}
    samplers = [PackSampler(lengths, rank=rank, **rule) for rank in range(rule["world_size"])]
    plans, report = [sampler.plan(epoch) for sampler in samplers], samplers[0].report(epoch)
    long = np.flatnonzero(lengths > most)

    assert long.tolist() == (report.dropped if fate == "drop" else report.cut).tolist()
    assert 0 == len(report.cut if fate == "drop" else report.dropped)
    assert int((lengths - most)[long].sum() if fate == "cut" else lengths[long].sum()) == report.lost_tokens
    counts = np.bincount(np.concatenate([plan.indices for plan in plans]), minlength=len(lengths))
    expected = np.delete(np.arange(len(lengths)), long) if fate == "drop" else np.arange(len(lengths))
    assert 0 == counts.sum() - counts[expected].sum()
    assert (counts[expected] == 0).sum() == plans[0].dropped
    if plans[0].dropped == 0:
        assert expected.tolist() == samplers[0].whole(epoch).tolist()  # type: ignore[union-attr]
    used = np.minimum(lengths, most)
    assert max((rows_used(used[batch], most) for plan in plans for batch in batches_of(plan)), default=0) <= (
        rule["rows"] or 1
    )
    tokens = used[expected].sum()
    assert report.samples == len(expected)
    assert np.isclose(report.filled, tokens / (report.rows * most) if report.rows else 1.0)


@pytest.mark.parametrize("fate", ["drop", "cut"])
def test_resume_without_the_long_ones(fate: Any) -> None:
    """A state goes on with other rows and ranks: the samples that are left come once."""
    lengths = long_tailed(400)
    options = {"max_tokens": 100, "window": 50, "too_long": fate}
    ranks = [PackSampler(lengths, rank=rank, world_size=2, rows=2, **options) for rank in range(2)]
    begun = [iter(each) for each in ranks]
    had = [index for batches in begun for batch in islice(batches, 3) for index in batch]
    resumed = PackSampler(lengths, rows=3, **{**options, "window": 70})
    resumed.load_state_dict(ranks[0].state_dict())
    came = np.bincount([*had, *(index for batch in resumed for index in batch)], minlength=len(lengths))

    assert [1 if fate == "cut" or length <= 100 else 0 for length in lengths] == np.minimum(came, 1).tolist()
    assert came.sum() - np.count_nonzero(came) <= 8
    if fate == "drop":
        other = PackSampler(lengths, max_tokens=200, too_long="drop")
        with pytest.raises(ValueError, match="dropped_crc32"):
            other.load_state_dict(ranks[0].state_dict())


def test_a_report_in_words(caplog: pytest.LogCaptureFixture) -> None:
    """A warning names the first samples that are too long; the report is one line."""
    with caplog.at_level("WARNING"):
        sampler = PackSampler([4, 11, 3, 12, 5], max_tokens=10, too_long="drop", packing="longest_first")

    assert "2 of 5 samples have more than 10 tokens and are left out: 1, 3; report() has all" in caplog.text
    assert "2 rows of 3 samples, 60.00 % filled" in str(sampler.report())
    assert str(sampler.report()).endswith("; 2 samples dropped: 23 tokens lost")


def test_nothing_to_mix() -> None:
    """Samples of one length, or alone in their rows, have no score."""
    assert np.isnan(PackSampler([3, 3, 3], max_tokens=9).report().mixing)
    assert np.isnan(PackSampler([3, 4, 5], max_tokens=5).report().mixing)
    assert np.isnan(PackSampler([], max_tokens=5).report().mixing)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 40), st.sampled_from(WORLDS), st.integers(0, 3))
def test_resume_at_every_batch(step: int, world_size: int, epoch: int) -> None:
    """What is left after a state is loaded is what was left when it was taken, on each rank, and the next epoch too."""
    for rank in range(world_size):
        options = {"max_tokens": 600, "window": 50, "rank": rank, "world_size": world_size}
        sampler = PackSampler(long_tailed(120), **options)
        sampler.set_epoch(epoch)
        batches = iter(sampler)
        list(islice(batches, min(step, len(sampler))))
        state = json.loads(json.dumps(sampler.state_dict()))
        resumed = PackSampler(long_tailed(120), **options)
        resumed.load_state_dict(state)

        assert list(batches) == list(resumed)
        resumed.load_state_dict(sampler.state_dict())
        assert list(sampler) == list(resumed)  # a finished epoch resumes at the next


@pytest.mark.parametrize(
    ("lengths", "options", "words"),
    [
        ([4, 9], {"max_tokens": 8}, "sample 1 alone has 9 tokens"),
        ([4], {"max_tokens": 8, "window": 0}, "window=0"),
        ([0], {"max_tokens": 0}, "max_tokens=0: expected 1 to 2147483646"),
        ([4], {"max_tokens": 1 << 31}, "max_tokens=2147483648: expected 1 to 2147483646"),
        ([4], {"max_tokens": 8, "uneven": "skip"}, "uneven='skip'"),
        ([4], {"max_tokens": 8, "rows": 0}, "rows=0: expected 1 or more, or None"),
        (
            [4],
            {"max_tokens": 8, "too_long": "halve"},
            "too_long='halve': expected one of 'refuse', 'drop', 'cut', 'split'",
        ),
        ([4], {"max_tokens": 8, "packing": "best"}, "packing='best': expected one of 'mixed', 'longest_first'"),
        ([4], {"max_tokens": 8, "patches": [3]}, "patches= and max_patches= are one budget: expected both or neither"),
        (
            [4],
            {"max_tokens": 8, "max_patches": 3},
            "patches= and max_patches= are one budget: expected both or neither",
        ),
        ([4], {"max_tokens": 8, "patches": [3, 4], "max_patches": 9}, "2 patches, 1 lengths: expected one of each"),
        ([4], {"max_tokens": 8, "patches": [3], "max_patches": 0}, "max_patches=0: expected 1 to 2147483646"),
        (
            [4],
            {"max_tokens": 8, "patches": [-1], "max_patches": 9},
            "patches go from -1 to -1: expected 0 to 2147483647",
        ),
        (
            [4, 5],
            {"max_tokens": 8, "patches": [3, 12], "max_patches": 9},
            "max_patches=9: sample 1 alone has 12 patches: raise max_patches, choose too_long=",
        ),
        (
            [4],
            {"max_tokens": 8, "patches": [3], "max_patches": 9, "too_long": "cut"},
            "too_long='cut' with patches=: pictures cannot be divided: expected 'refuse' or 'drop'",
        ),
        (
            [4],
            {"max_tokens": 8, "patches": [3], "max_patches": 9, "packing": "longest_first"},
            "packing='longest_first' with patches=: two budgets are packed 'mixed': drop packing=",
        ),
    ],
)
def test_nonsense_is_refused(lengths: list[int], options: dict[str, Any], words: str) -> None:
    """What cannot be planned is refused when the sampler is made."""
    with pytest.raises(ValueError, match=words):
        PackSampler(lengths, **options)


def test_a_budget_far_above_all_lengths() -> None:
    """Memory is that of the samples, not of the budget."""
    assert [[2, 1, 0]] == list(PackSampler([1, 2, 3], max_tokens=(1 << 31) - 2, packing="longest_first", shuffle=False))


# Two budgets: tokens and patches.

pairs_of = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 90)), max_size=90).map(
    lambda pairs: np.array(pairs, np.int64).reshape(-1, 2)
)
pair_rules = st.fixed_dictionaries(
    {
        "max_tokens": st.integers(50, 200),
        "max_patches": st.integers(90, 300),
        "rows": st.sampled_from([None, 1, 2, 3]),
        "window": st.integers(1, 90),
        "shuffle": st.booleans(),
        "uneven": st.sampled_from(get_args(Uneven)),
        "too_long": st.sampled_from(["refuse", "drop"]),
    }
)


@settings(deadline=None)
@given(pairs_of, pair_rules, st.sampled_from(WORLDS), st.integers(0, 2**32 - 1), st.booleans())
def test_rows_keep_to_both_budgets(pairs: Any, rule: dict[str, Any], world: int, epoch: int, is_tight: bool) -> None:
    """Each sample comes once, in batches that have no more of either than their rows; too large ones are named."""
    lengths, patches = pairs.T
    if is_tight:
        rule = {**rule, "max_tokens": 25, "max_patches": 45, "too_long": "drop"}
    samplers = [PackSampler(lengths, patches=patches, rank=rank, world_size=world, **rule) for rank in range(world)]
    plans, report = [sampler.plan(epoch) for sampler in samplers], samplers[0].report(epoch)
    fits = (lengths <= rule["max_tokens"]) & (patches <= rule["max_patches"])

    assert np.flatnonzero(~fits).tolist() == report.dropped.tolist()
    assert len({len(plan) for plan in plans}) == 1
    counts = np.bincount(np.concatenate([plan.indices for plan in plans]), minlength=len(lengths))
    assert not counts[~fits].any()
    assert (counts[fits] == 0).sum() == plans[0].dropped
    assert counts.sum() - np.count_nonzero(counts) == plans[0].repeated
    for plan in plans:
        for batch in batches_of(plan):
            assert rows_used(lengths[batch], rule["max_tokens"]) <= (rule["rows"] or 1)
            assert patches[batch].sum() <= rule["max_patches"] * (rule["rows"] or 1)
    if report.rows:
        assert np.isclose(report.filled, lengths[fits].sum() / (report.rows * rule["max_tokens"]))
        assert report.patches_filled is not None
        assert np.isclose(report.patches_filled, patches[fits].sum() / (report.rows * rule["max_patches"]))


def of_chats(count: int) -> tuple[Any, Any]:
    """Tokens and patches of samples: a third text alone, the others with one to four pictures of many sizes."""
    draw = np.random.default_rng(0)
    pictures = np.where(draw.random(count) < 0.35, 0, draw.integers(1, 5, count))
    patches = 4 * np.round(pictures * np.clip(draw.lognormal(5.0, 0.5, count), 16, 900)).astype(np.int64)
    text = np.clip(draw.lognormal(5.2, 0.8, count), 8, 3000).astype(np.int64)
    return text + patches // 4, patches


@pytest.mark.parametrize("scarce", ["tokens", "patches"])
def test_the_scarcer_budget_is_full(scarce: str) -> None:
    """Rows have over 99 % of the scarcer budget, and of the other one nearly as much as samples have."""
    tokens, patches = of_chats(100_000)
    ratio = patches.sum() / tokens.sum()
    most = round(8192 * ratio * (1 / 0.95 if scarce == "tokens" else 0.95))
    plan = PackSampler(tokens, max_tokens=8192, patches=patches, max_patches=most, rows=2)

    report = plan.report(0)
    shares = {"tokens": report.filled, "patches": report.patches_filled or 0.0}
    assert shares[scarce] > 0.99
    assert min(shares.values()) > 0.93
    assert report.mixing > 0.8
    few = PackSampler(tokens[:3000], max_tokens=8192, patches=patches[:3000], max_patches=most).report(0)
    assert max(few.filled, few.patches_filled or 0) > 0.98


@pytest.mark.parametrize("patches", [0, 576])
def test_rows_are_full_where_all_samples_have_equally_many_patches(patches: int) -> None:
    """As one budget fills them: text alone, and pictures of one size."""
    tokens = np.random.default_rng(0).integers(100, 2000, 20_000)
    plan = PackSampler(tokens, max_tokens=4096, patches=np.full(len(tokens), patches), max_patches=8192)
    assert plan.report(0).filled > 0.999


def test_two_budgets_in_words_and_states(caplog: pytest.LogCaptureFixture) -> None:
    """The report and the warning tell both; a state names the patches, and is refused with others."""
    with caplog.at_level("WARNING"):
        sampler = PackSampler([4, 11, 3, 5], max_tokens=10, patches=[8, 0, 0, 21], max_patches=20, too_long="drop")

    assert "2 of 4 samples have more than 10 tokens or 20 patches and are left out: 1, 3; report() has" in caplog.text
    assert str(sampler.report()).startswith("1 row of 2 samples, 70.00 % filled, with patches 40.00 %, lengths mixed")
    state = json.loads(json.dumps(sampler.state_dict()))
    sampler.load_state_dict(state)
    other = PackSampler([4, 11, 3, 5], max_tokens=10, patches=[8, 0, 1, 21], max_patches=20, too_long="drop")
    with pytest.raises(ValueError, match="patches_crc32"):
        other.load_state_dict(state)
    next(iter(sampler))
    with pytest.raises(ValueError, match=r"max_patches=20: expected a budget of patches where, and only where"):
        PackSampler([4, 11, 3, 5], max_tokens=11).load_state_dict(sampler.state_dict())
