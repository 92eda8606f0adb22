"""The samplers whose epochs any number of ranks continues, by name, for the tests and the grid of elastic resume."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import RandomSampler

from fastio.samplers.batches import ElasticSampler, OrderSampler
from fastio.samplers.bucket import LengthBucketSampler
from fastio.samplers.draws import Draw, DrawnSampler, WeightedDraw
from fastio.samplers.foreign import ForeignBatchSampler, ForeignDraw
from fastio.samplers.memory import PageCache
from fastio.samplers.mixed_order import Batching
from fastio.samplers.order import Division, Shuffle, Uneven
from fastio.samplers.pack import PackSampler
from fastio.samplers.shape_bucket import ShapeBucketSampler
from fastio.samplers.share import Share
from fastio.samplers.wrappers import MappedSampler
from tests.samplers.blends import blended
from tests.samplers.histories import Build, Leg

SEED = 5
_LONGEST = 40
_ROW = 2 * _LONGEST


@dataclass(frozen=True, slots=True)
class Rules:
    """How many samples there are, and what becomes of the last ones."""

    samples: int
    uneven: Uneven = "pad"
    drop_last: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """
    Makes the samplers of a training. ``even``: all batches of a step have equally many samples. ``is_order``: batches
    are cut from an order that does not depend on them.
    """

    of: Callable[[Rules], Build]
    even: bool = True
    is_order: bool = True


def in_order(rules: Rules, *, shuffle: Shuffle, kind: str = "full") -> Build:
    """One of fastio's orders; ``kind`` is what ``shuffle=True`` has chosen."""
    samples = rules.samples
    lanes = max(1, min(12, samples // 3))
    order = {"kind": kind, "lanes": lanes, "rounds": max(1, min(9, samples // lanes // 2)), "window": 2}
    sizes = np.random.default_rng(SEED).integers(1, 1 << 20, samples)

    def build(leg: Leg, rank: int) -> ElasticSampler:
        division = Division(samples, leg.batch_size, leg.world_size, rules.uneven, rules.drop_last)
        sampler = OrderSampler(
            division, rank=rank, shuffle=shuffle, seed=SEED, sizes=lambda: sizes, memory=lambda: PageCache(0)
        )
        if shuffle is True:
            sampler.adopt(order if samples else {"kind": "full"})
        return sampler

    return build


def of_subset(rules: Rules) -> Build:
    """A list of indices, in which some occur several times, in lanes."""
    table = np.random.default_rng(SEED).integers(0, 2 * rules.samples + 1, rules.samples)
    positions = in_order(rules, shuffle=True, kind="lanes")
    return lambda leg, rank: MappedSampler(positions(leg, rank), table, checksum_name="indices_crc32")


def drawn(rules: Rules, *, by: Callable[[int], Draw]) -> Build:
    """An order that is drawn for each epoch."""
    draw = by(rules.samples)

    def build(leg: Leg, rank: int) -> ElasticSampler:
        share = Share(rank, leg.world_size, is_found=False)
        return DrawnSampler(
            draw, batch_size=leg.batch_size, share=share, uneven=rules.uneven, drop_last=rules.drop_last
        )

    return build


def by_weight(samples: int) -> Draw:
    """As many samples as there are, the last ones often, the first one never."""
    return WeightedDraw(np.arange(samples + 2, dtype=np.float64), samples_per_epoch=samples, seed=SEED)


def by_users_sampler(samples: int) -> Draw:
    """What torch's RandomSampler draws: as many samples as there are, 1 at least."""
    sampler = RandomSampler(range(samples + 1), replacement=True, num_samples=max(1, samples))
    return ForeignDraw(sampler, samples=samples + 1, seed=SEED)


def in_buckets(rules: Rules, *, by_tokens: bool) -> Build:
    """Batches of similar length."""
    lengths = some_lengths(rules.samples)

    def build(leg: Leg, rank: int) -> ElasticSampler:
        size = {"max_tokens": leg.batch_size * _LONGEST} if by_tokens else {"batch_size": leg.batch_size}
        return LengthBucketSampler(
            lengths,
            window=200,
            rank=rank,
            world_size=leg.world_size,
            uneven=rules.uneven,
            drop_last=rules.drop_last,
            seed=SEED,
            **size,
        )

    return build


def in_shapes(rules: Rules, *, by_pixels: bool) -> Build:
    """Batches of pictures of one shape, of five."""
    sizes = np.random.default_rng(SEED).integers(1, 100, (rules.samples, 2))
    shapes = [(20, 10), (15, 15), (10, 20), (30, 10), (10, 30)]

    def build(leg: Leg, rank: int) -> ElasticSampler:
        size = {"pixels_per_batch": leg.batch_size * 300} if by_pixels else {"batch_size": leg.batch_size}
        return ShapeBucketSampler(
            sizes,
            shapes=shapes,
            rank=rank,
            world_size=leg.world_size,
            uneven=rules.uneven,
            drop_last=rules.drop_last,
            seed=SEED,
            **size,
        )

    return build


def packed(rules: Rules, *, has_patches: bool) -> Build:
    """Batches that fill a budget of tokens, or also one of patches, which leaves no room for drop_last."""
    lengths = some_lengths(rules.samples)
    patches = np.random.default_rng(SEED + 1).integers(0, _LONGEST + 1, rules.samples)

    def build(leg: Leg, rank: int) -> ElasticSampler:
        ranks = {"rank": rank, "world_size": leg.world_size, "rows": leg.batch_size}
        second = {"patches": patches, "max_patches": _ROW} if has_patches else {}
        return PackSampler(lengths, max_tokens=_ROW, window=200, uneven=rules.uneven, seed=SEED, **ranks, **second)

    return build


def some_lengths(samples: int) -> NDArray[np.int64]:
    """Lengths of 1 to _LONGEST tokens."""
    return np.random.default_rng(SEED).integers(1, _LONGEST + 1, samples)


def of_users_batches(rules: Rules) -> Build:
    """Batches of 1 to 9 samples that the user has listed; the batch size of a leg means nothing."""
    draw = np.random.default_rng(SEED)
    samples = draw.permutation(rules.samples)
    cuts = np.cumsum(draw.integers(1, 10, rules.samples))
    batches = [part.tolist() for part in np.split(samples, cuts) if len(part)]

    def build(leg: Leg, rank: int) -> ElasticSampler:
        share = Share(rank, leg.world_size, is_found=False)
        return ForeignBatchSampler(
            batches, samples=rules.samples, seed=SEED, share=share, uneven=rules.uneven, is_own=False
        )

    return build


def mixed(rules: Rules, *, batching: Batching) -> Build:
    """Three members, one of which comes several times in an epoch; their weights change in epochs 0 and 1."""
    sizes, schedule = (7, 200, 400), [(0, (1, 2, 7)), (rules.samples // 3, (5, 5, 1)), (2 * rules.samples, (1, 1, 1))]

    uneven: Uneven = "pad" if batching == "per_source" and rules.uneven == "repeat" else rules.uneven  # refused there

    def build(leg: Leg, rank: int) -> ElasticSampler:
        division = Division(rules.samples, leg.batch_size, leg.world_size, uneven, rules.drop_last)
        return blended(sizes, schedule, division=division, rank=rank, batching=batching)

    return build


CASES = {
    "stored order": Case(partial(in_order, shuffle=False)),
    "full shuffle": Case(partial(in_order, shuffle="full")),
    "lanes": Case(partial(in_order, shuffle=True, kind="lanes")),
    "blocks": Case(partial(in_order, shuffle=True, kind="blocks")),
    "subset": Case(of_subset),
    "weights": Case(partial(drawn, by=by_weight)),
    "user's sampler": Case(partial(drawn, by=by_users_sampler)),
    "mixture": Case(partial(mixed, batching="random")),
    "stratified": Case(partial(mixed, batching="stratified")),
    "per source": Case(partial(mixed, batching="per_source"), is_order=False),
    "buckets": Case(partial(in_buckets, by_tokens=False), is_order=False),
    "token buckets": Case(partial(in_buckets, by_tokens=True), is_order=False),
    "shapes": Case(partial(in_shapes, by_pixels=False), is_order=False),
    "shapes by pixels": Case(partial(in_shapes, by_pixels=True), is_order=False),
    "packs": Case(partial(packed, has_patches=False), even=False, is_order=False),
    "packs of two budgets": Case(partial(packed, has_patches=True), even=False, is_order=False),
    "user's batches": Case(of_users_batches, even=False, is_order=False),
}


def whole_epoch(name: str, rules: Rules, epoch: int) -> NDArray[np.int64]:
    """Return ``Batches.ids`` of all samples that an epoch should give, ascending: one rank, nothing left out."""
    return np.sort(CASES[name].of(Rules(rules.samples))(Leg(1, 1), 0).plan(epoch).ids)
