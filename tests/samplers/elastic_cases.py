"""The samplers whose epochs any number of ranks continues, by name, for the tests and the grid of elastic resume."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from torch.utils.data import RandomSampler

from fastio.samplers.batches import ElasticSampler, OrderSampler
from fastio.samplers.drawn import Draw, DrawnSampler
from fastio.samplers.foreign import ForeignDraw
from fastio.samplers.mapped import MappedSampler
from fastio.samplers.order import Division, Shuffle, Uneven
from fastio.samplers.page_cache import PageCache
from fastio.samplers.share import Share
from fastio.samplers.weights import WeightedDraw
from tests.samplers.histories import Build, Leg

SEED = 5


@dataclass(frozen=True, slots=True)
class Rules:
    """How many samples there are, and what becomes of the last ones."""

    samples: int
    uneven: Uneven = "pad"
    drop_last: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """Makes the samplers of a training; ``even``: all batches of a step have equally many samples."""

    of: Callable[[Rules], Build]
    even: bool = True


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


CASES = {
    "stored order": Case(partial(in_order, shuffle=False)),
    "full shuffle": Case(partial(in_order, shuffle="full")),
    "lanes": Case(partial(in_order, shuffle=True, kind="lanes")),
    "blocks": Case(partial(in_order, shuffle=True, kind="blocks")),
    "subset": Case(of_subset),
    "weights": Case(partial(drawn, by=by_weight)),
    "user's sampler": Case(partial(drawn, by=by_users_sampler)),
}
