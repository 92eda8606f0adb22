"""Batches of pictures of one shape: which shape a picture gets, steps that all ranks share, the same after a resume."""

from __future__ import annotations

import json
import math
import pickle
from itertools import islice
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from fastio import ShapeBucketSampler
from fastio.samplers.batches import Batches
from fastio.samplers.order import Uneven
from fastio.samplers.shape_bucket import Shapes

SHAPES = [(64, 32), (48, 48), (32, 64), (64, 64)]
WORLDS = (1, 2, 3, 8)

sides = st.integers(0, 200)
sizes_of = st.lists(st.tuples(sides, sides), max_size=80).map(lambda pairs: np.array(pairs, np.int64).reshape(-1, 2))
sizes_of_batches = st.one_of(
    st.fixed_dictionaries({"batch_size": st.integers(1, 9)}),
    st.fixed_dictionaries({"pixels_per_batch": st.integers(64 * 64, 40_000)}),
)
rules = st.fixed_dictionaries(
    {
        "shuffle": st.booleans(),
        "drop_last": st.booleans(),
        "world_size": st.sampled_from(WORLDS),
        "uneven": st.sampled_from(get_args(Uneven)),
        "seed": st.integers(0, 2**64 - 1),
    }
)


def some_sizes(count: int, seed: int = 0) -> NDArray[np.int64]:
    """Sizes of photos: 3:2, 4:3 and square, upright and not, and of any proportions."""
    draw = np.random.default_rng(seed)
    short = draw.integers(30, 300, count)
    long = (short * draw.choice([1.0, 4 / 3, 1.5, 1.91], count)).astype(np.int64)
    is_wide = draw.random(count) < 0.7
    return np.stack([np.where(is_wide, short, long), np.where(is_wide, long, short)], axis=1)


def ranks_of(sizes: NDArray[np.int64], **options: Any) -> list[ShapeBucketSampler]:
    """The samplers of all ranks."""
    return [ShapeBucketSampler(sizes, shapes=SHAPES, rank=rank, **options) for rank in range(options["world_size"])]


def batches_of(plan: Batches) -> list[list[int]]:
    """The indices of each batch."""
    return [plan.indices[place].tolist() for place in plan.slices()]


# Which shape a picture gets.


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 90), st.integers(1, 90)), min_size=1, max_size=12, unique=True),
    st.tuples(st.integers(1, 300), st.integers(1, 300)),
)
def test_the_shape_that_crops_away_least(pairs: list[tuple[int, int]], size: tuple[int, int]) -> None:
    """No other shape keeps more of a picture; of equal ones it gets the largest that it covers, or the smallest."""
    chosen = pairs[int(Shapes(tuple(pairs)).nearest(np.array(size[:1]), np.array(size[1:]))[0])]

    def kept(pair: tuple[int, int]) -> float:
        own = size[0] * pair[1] / (size[1] * pair[0])
        return min(own, 1 / own)

    assert kept(chosen) == pytest.approx(max(map(kept, pairs)))
    alike = sorted(pair for pair in pairs if pair[0] * chosen[1] == pair[1] * chosen[0])
    covered = [pair for pair in alike if pair[0] <= size[0] and pair[1] <= size[1]]
    assert chosen == (covered[-1] if covered else alike[0])


def test_many_pictures_are_each_alone() -> None:
    """A picture's shape does not depend on the others, also where millions are looked at in parts."""
    sizes = np.tile(some_sizes(1000), (1100, 1))
    shapes = Shapes(tuple(SHAPES))
    together = shapes.nearest(sizes[:, 0], sizes[:, 1])

    assert np.array_equal(np.tile(together[:1000], 1100), together)
    assert [shapes.nearest(height[None], width[None])[0] for height, width in sizes[:50]] == together[:50].tolist()


def test_the_shapes_of_sdxl() -> None:
    """pixels=1024**2 with multiples of 64 gives the shapes that SDXL was trained with, up to proportions of 4."""
    sampler = ShapeBucketSampler(np.ones((1, 2), np.int64), pixels=1024**2, batch_size=1)
    listed = {(512, 2048), (512, 1984), (512, 1856), (576, 1792), (640, 1536), (704, 1408), (768, 1344), (832, 1216)}
    listed |= {(896, 1152), (1024, 1024)}

    assert listed <= set(sampler.shapes)
    assert len(sampler.shapes) == 33
    assert {(width, height) for height, width in sampler.shapes} == set(sampler.shapes)
    assert all(math.prod(pair) <= 1024**2 and not pair[0] % 64 and not pair[1] % 64 for pair in sampler.shapes)


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 300_000), st.floats(1, 9))
def test_shapes_within_a_number_of_pixels(step: int, pixels: int, ratio: float) -> None:
    """Each shape fits, and would not with one more step of its short side; one of the shapes is square."""
    pixels = max(pixels, step * step)
    pairs = Shapes.within(pixels, step, ratio).pairs

    assert any(height == width for height, width in pairs)
    for height, width in pairs:
        short, long = sorted((height, width))
        assert short * long <= pixels
        assert long <= ratio * short
        assert min(short + step, long) * long > pixels or short == long
        assert not short % step
        assert not long % step


# Steps.


@settings(deadline=None)
@given(sizes_of, sizes_of_batches, rules, st.integers(0, 2**32 - 1))
def test_every_sample_once_in_batches_of_one_shape(
    sizes: NDArray[np.int64], size: dict[str, int], rule: dict[str, Any], epoch: int
) -> None:
    """
    All ranks get equally many batches of equal sizes, of one shape at each step; over all ranks each sample comes once,
    but for those named.
    """
    samplers = ranks_of(sizes, **size, **rule)
    plans = [sampler.plan(epoch) for sampler in samplers]
    buckets, shapes = samplers[0].buckets, samplers[0].shapes

    assert all(plan.cuts.tolist() == plans[0].cuts.tolist() for plan in plans)
    for step in zip(*map(batches_of, plans), strict=True):
        (bucket,) = set(buckets[np.concatenate(step)].tolist())
        most = size.get("batch_size") or size["pixels_per_batch"] // math.prod(shapes[bucket])
        assert 0 < len(step[0]) <= most
        assert len(step[0]) == most or not rule["drop_last"]
        assert len(step[0]) == most or rule["uneven"] != "repeat"
    counts = np.bincount(np.concatenate([plan.indices for plan in plans]), minlength=len(sizes))
    new = [np.delete(plan.indices, plan.padding_within(len(plan.indices))) for plan in plans]
    assert np.bincount(np.concatenate(new), minlength=len(sizes)).max(initial=0) <= 1
    assert (counts == 0).sum() == plans[0].dropped
    assert counts.sum() - np.count_nonzero(counts) == plans[0].repeated


def test_at_most_one_short_step_of_each_shape() -> None:
    """All other batches are full, and short ones do not all come at the end."""
    sampler = ShapeBucketSampler(some_sizes(1000), shapes=SHAPES, batch_size=7)
    plan = sampler.plan(0)
    short = np.flatnonzero(np.diff(plan.cuts) < 7)

    assert len(short) <= len(SHAPES)
    assert len(plan) - len(short) > short[0]
    assert plan.repeated == plan.dropped == 0


def test_shapes_come_mixed() -> None:
    """Batches of a shape do not come one after the other, and their company varies between epochs."""
    sampler = ShapeBucketSampler(some_sizes(4000), shapes=SHAPES, batch_size=8)
    first, second = (sampler.plan(epoch) for epoch in (0, 1))
    shapes = sampler.buckets[first.indices[first.cuts[:-1]]]

    assert np.count_nonzero(np.diff(shapes)) > len(first) / 3
    assert not {frozenset(batch) for batch in batches_of(first)} & {frozenset(batch) for batch in batches_of(second)}


def test_epochs_and_seeds_differ() -> None:
    """Another epoch or seed makes another order; without shuffle every epoch is the same."""
    sizes = some_sizes(500)
    orders = {
        tuple(ShapeBucketSampler(sizes, shapes=SHAPES, batch_size=8, seed=seed).plan(epoch).indices.tolist())
        for seed in (0, 1)
        for epoch in (0, 1, 2)
    }
    fixed = ShapeBucketSampler(sizes, shapes=SHAPES, batch_size=8, shuffle=False)

    assert len(orders) == 6
    assert fixed.plan(0).indices.tolist() == fixed.plan(1).indices.tolist()


def test_plans_are_kept_over_versions() -> None:
    """Golden values: a saved position must mean the same samples for ever."""
    sizes = [(3, 9), (4, 4), (8, 1), (7, 2), (5, 6), (9, 3), (2, 2), (1, 8), (6, 5), (3, 3)]
    sampler = ShapeBucketSampler(sizes, shapes=[(2, 1), (1, 1), (1, 2)], batch_size=2, seed=1)

    assert sampler.buckets.tolist() == [2, 1, 0, 0, 1, 0, 1, 2, 1, 1]
    assert batches_of(sampler.plan(2)) == [[6], [3, 2], [7, 0], [1, 8], [5], [4, 9]]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 30), st.integers(0, 3), st.sampled_from(WORLDS), sizes_of_batches)
def test_resume_at_every_batch(step: int, epoch: int, world_size: int, size: dict[str, int]) -> None:
    """What is left after a state is loaded is what was left when it was taken, on each rank, through JSON."""
    for sampler, resumed in zip(*(ranks_of(some_sizes(90), world_size=world_size, **size) for _ in "ab"), strict=True):
        sampler.set_epoch(epoch)
        batches = iter(sampler)
        for _ in islice(batches, min(step, len(sampler))):
            pass
        state = json.loads(json.dumps(sampler.state_dict()))
        rest, following = list(batches), list(sampler)
        resumed.load_state_dict(state)

        assert rest == list(resumed)
        assert following == list(resumed)


def test_what_is_left_counts_the_samples_that_it_repeats() -> None:
    """Short steps lie anywhere in an epoch; those that were consumed before are not counted again."""
    ranks = ranks_of(some_sizes(90), world_size=3, batch_size=4)
    counts = []

    for step in range(len(ranks[0]) + 1):
        left = [each.plan(0, each.advanced(0, None, step)) for each in ranks]
        counts.append(sum(len(plan.padding_within(len(plan.ids))) for plan in left))
        assert [plan.repeated for plan in left] == counts[-1:] * 3
    assert counts[0] > counts[-1] == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shapes": SHAPES[:3]}, r"shapes is \[\[64, 32\], .* in the state and .* here"),
        ({"seed": 1}, "seed is 0 in the state and 1 here"),
        ({"sizes": some_sizes(30, seed=9)}, "buckets_crc32"),
        ({"sizes": some_sizes(29)}, "samples is 30 in the state and 29 here"),
    ],
)
def test_a_state_of_another_sampler_is_refused(options: dict[str, Any], words: str) -> None:
    """Other shapes, sizes or seeds would make other batches."""
    given = {"sizes": some_sizes(30), "shapes": SHAPES, "batch_size": 4}
    state = json.loads(json.dumps(ShapeBucketSampler(**given).state_dict()))
    with pytest.raises(ValueError, match=words):
        ShapeBucketSampler(**given | options).load_state_dict(state)


def test_in_a_plain_dataloader() -> None:
    """As a batch_sampler it gives a DataLoader its batches, also after pickling."""
    sampler = ShapeBucketSampler(some_sizes(50), shapes=SHAPES, batch_size=8)
    expected = batches_of(sampler.plan(0))

    assert [batch.tolist() for batch in DataLoader(list(range(50)), batch_sampler=sampler)] == expected
    assert batches_of(pickle.loads(pickle.dumps(sampler)).plan(0)) == expected


def test_the_report_counts_what_is_lost() -> None:
    """Two thirds of a panorama in a square are lost, a small picture is enlarged, a bad header counts as neither."""
    sizes = [(100, 300), (100, 100), (10, 10), (0, 0), (200, 100)]
    report = ShapeBucketSampler(sizes, shapes=[(40, 20), (40, 40)], batch_size=1).report()

    assert report.shapes == ((40, 20), (40, 40))
    assert report.samples.tolist() == [1, 4]
    assert report.lost.tolist() == pytest.approx([0, 2 / 3 / 4])
    assert report.enlarged.tolist() == pytest.approx([0, 1 / 4])
    assert report.total_lost == pytest.approx(2 / 15)
    assert report.total_enlarged == pytest.approx(1 / 5)
    assert "40x40         4    16.7%     25.0%" in str(report)


def test_no_samples() -> None:
    """No pictures make no batches."""
    sampler = ShapeBucketSampler(np.empty((0, 2), np.int64), shapes=SHAPES, batch_size=4)

    assert list(sampler) == []
    assert sampler.report().total_lost == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "shapes=None, pixels=None: expected exactly one of the two"),
        ({"shapes": SHAPES, "pixels": 4096}, "expected exactly one of the two"),
        ({"shapes": SHAPES, "batch_size": None}, "batch_size=None, pixels_per_batch=None: expected exactly one"),
        ({"shapes": SHAPES, "pixels_per_batch": 9}, "expected exactly one of the two"),
        ({"shapes": SHAPES, "batch_size": None, "pixels_per_batch": 4095}, r"one picture of the shape \(64, 64\) has"),
        ({"shapes": SHAPES, "batch_size": 0}, "batch_size=0"),
        ({"shapes": SHAPES, "uneven": "skip"}, "uneven='skip'"),
        ({"shapes": []}, "shapes is empty"),
        ({"shapes": [(4, 4), (4, 4)]}, r"shapes has \(4, 4\) twice"),
        ({"shapes": [(4, 4, 3)]}, "expected a pair of height and width"),
        ({"shapes": [64, 32]}, "expected a pair of height and width"),
        ({"shapes": 64}, "expected pairs of height and width"),
        ({"shapes": [(4, 0)]}, "sides of 1 to"),
        ({"shapes": [(4, 1 << 21)]}, "sides of 1 to"),
        ({"pixels": 100}, "pixels=100: expected a whole number of at least multiple_of squared, 4096"),
        ({"pixels": 4096, "multiple_of": 0}, "multiple_of=0"),
        ({"pixels": 4096, "max_ratio": 0.5}, "max_ratio=0.5"),
        ({"sizes": [1, 2], "shapes": SHAPES}, r"sizes are int64 \(2,\): expected integers \(n, 2\)"),
        ({"sizes": [(1.5, 2.0)], "shapes": SHAPES}, "expected integers"),
        ({"sizes": [(1, 2), (3,)], "shapes": SHAPES}, r"sizes are object \(\): expected integers"),
        ({"sizes": [(1, 2)], "pixels": 4096, "max_ratio": "4"}, "max_ratio='4': expected a number from 1"),
        ({"sizes": [(1, 2)], "pixels": 1e6}, "pixels=1000000.0: expected a whole number"),
        ({"sizes": [(-1, 2)], "shapes": SHAPES}, "sizes go from -1 to 2"),
    ],
)
def test_nonsense_is_refused(options: dict[str, Any], words: str) -> None:
    """What cannot be planned is refused when the sampler is made."""
    with pytest.raises(ValueError, match=words):
        ShapeBucketSampler(**{"sizes": [(40, 50)], "batch_size": 2} | options)
