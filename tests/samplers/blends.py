"""Samplers of mixtures for tests: members of given sizes, with orders in lanes where the sizes allow it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from fastio.samplers.batches import Batches, OrderSampler
from fastio.samplers.memory import PageCache
from fastio.samplers.mixed_order import Blend, MemberOrder, MixedOrder
from fastio.samplers.mixture import MixtureSampler, PerSourceSampler
from fastio.samplers.order import Division

LANES = 64  # samples from which on a member of these tests has lanes


def blended(
    sizes: Sequence[int],
    schedule: Sequence[tuple[int, tuple[int, ...]]],
    *,
    division: Division,
    rank: int = 0,
    batching: Any = "stratified",
    shuffle: Any = True,
    starts: Sequence[int] | None = None,
) -> Any:
    """A sampler over members of these sizes; the weights change at the samples ``starts`` (default: the steps)."""
    members = [MemberOrder(ordered(number, size, division, shuffle)) for number, size in enumerate(sizes)]
    blend = Blend(tuple("abcdefghijkl"[: len(sizes)]), tuple(schedule), batching)
    order = MixedOrder(
        blend,
        members,
        samples_per_epoch=division.count,
        seed=0,
        starts=[step for step, _ in schedule] if starts is None else starts,
    )
    kind = PerSourceSampler if batching == "per_source" else MixtureSampler
    return kind(order, division, rank=rank, options={"shuffle": shuffle, "seed": 0})


def ordered(number: int, size: int, division: Division, shuffle: Any) -> OrderSampler:
    """The order of one member, in eight lanes if it is large."""
    order = OrderSampler(
        Division(size, division.batch_size, division.world_size),
        rank=0,
        shuffle=shuffle,
        seed=number + 1,
        sizes=lambda: np.ones(size, np.int64),
        memory=lambda: PageCache(1 << 30),
    )
    if shuffle is True and size > LANES:
        order.adopt({"kind": "lanes", "lanes": 8, "rounds": size // 32, "window": 2})
    return order


def due(schedule: Sequence[tuple[int, tuple[int, ...]]], count: int) -> list[Fraction]:
    """The exact share of each member in the first ``count`` samples."""
    shares = [Fraction(0)] * len(schedule[0][1])
    ends = [*(start for start, _ in schedule[1:]), count]
    for (start, weights), end in zip(schedule, ends, strict=True):
        length = max(0, min(end, count) - start)
        shares = [
            share + Fraction(length * weight, sum(weights)) for share, weight in zip(shares, weights, strict=True)
        ]
    return shares


def steps_of(plans: Sequence[Batches]) -> list[list[int]]:
    """The ids of the samples of each step on all ranks, without what is repeated for equal batches."""
    fresh = [plan.ids[: len(plan.ids) - plan.padding] for plan in plans]
    return [
        [sample for ids, plan in zip(fresh, plans, strict=True) for sample in ids[batch].tolist()]
        for batch in plans[0].slices()
    ]
