"""Histories of an epoch: started, stopped and continued with other ranks and batches; counts what came of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastio.samplers.batches import Batches, ElasticSampler

Build = Callable[["Leg", int], ElasticSampler]


class Leg(NamedTuple):
    """One start of a training: its ranks, its batches, and after which share of the remaining steps it is stopped."""

    world_size: int
    batch_size: int
    share: float = 1.0


@dataclass(slots=True)
class Counts:
    """What went wrong in one history or in many: over all ranks, in samples and steps."""

    histories: int = 0
    plans: int = 0
    missing: int = 0
    doubled: int = 0
    miscounted: int = 0
    unequal: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether every sample came once and all ranks always had equal batches."""
        return not (self.missing or self.doubled or self.miscounted or self.unequal)

    def add(self, other: Counts) -> None:
        """Add the counts of other histories."""
        for name in ("histories", "plans", "missing", "doubled", "miscounted", "unequal"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.examples = (self.examples + other.examples)[:5]


def run(build: Build, legs: Sequence[Leg], epoch: int, expected: NDArray[np.int64], *, even: bool = True) -> Counts:
    """
    Run an epoch in legs, the last one to its end, and compare what came, without declared padding, with ``expected``.

    ``expected`` are the distinct ``Batches.ids`` of all samples, ascending. ``even``: all batches of a step have
    equally many samples; otherwise only the number of steps is compared.
    """
    counts = Counts(histories=1)
    consumed: Any = None
    taken: list[NDArray[np.int64]] = []
    dropped = 0
    for number, leg in enumerate(legs):
        samplers = [build(leg, rank) for rank in range(leg.world_size)]
        plans = [sampler.plan(epoch, consumed) for sampler in samplers]
        counts.plans += len(plans)
        counts.unequal += _unequal(plans, even=even)
        counts.miscounted += len(plans[0]) != samplers[0].count(epoch, consumed)
        is_last = number == len(legs) - 1
        steps = len(plans[0]) if is_last else round(leg.share * len(plans[0]))
        is_ended = is_last or 0 < steps == len(plans[0])
        taken += [_new(plan, steps) for plan in plans]
        dropped = plans[0].dropped
        if is_ended:
            counts.miscounted += abs(plans[0].repeated - sum(len(plan.padding_within(len(plan.ids))) for plan in plans))
        if steps:  # as a loader's position: nothing was consumed before the first batch
            states = {json.dumps(sampler.advanced(epoch, consumed, steps)) for sampler in samplers}
            counts.unequal += len(states) - 1
            consumed = samplers[0].checked(epoch, json.loads(states.pop()))
    came = np.concatenate(taken)
    distinct = np.unique(came)
    counts.doubled = len(came) - len(distinct) + len(np.setdiff1d(distinct, expected))
    counts.missing = abs(len(np.setdiff1d(expected, distinct)) - dropped)
    if not counts.is_clean:
        counts.examples = [f"epoch {epoch}: {list(map(tuple, legs))}"]
    return counts


def _new(plan: Batches, steps: int) -> NDArray[np.int64]:
    """Return what the first batches have, without the samples that the plan declares as repeated."""
    is_new = np.ones(len(plan.ids), np.bool_)
    is_new[plan.padding_within(len(plan.ids))] = False
    end = int(plan.cuts[steps])
    return plan.ids[:end][is_new[:end]]


def _unequal(plans: Sequence[Batches], *, even: bool) -> int:
    """Return how many plans differ from the first one's in their batches."""
    if even:
        return sum(plan.cuts.tolist() != plans[0].cuts.tolist() for plan in plans)
    return sum(len(plan) != len(plans[0]) for plan in plans)


WORLDS = range(1, 17)
SIZES = (1, 8, 33)
STOPS = 20


def grid(seed: int) -> Iterator[list[Leg]]:
    """
    Yield the histories from each division to each other one, stopped at 20 points, with three resumes in a row.

    The first resume changes to the other division; the second and the third change to divisions drawn from ``seed``.
    """
    draw = np.random.default_rng(seed)
    divisions = [(world_size, batch_size) for world_size in WORLDS for batch_size in SIZES]
    for first in divisions:
        for second in divisions:
            for share in np.linspace(0, 1, STOPS).tolist():
                third, fourth = (divisions[number] for number in draw.integers(len(divisions), size=2))
                later = draw.random(2).tolist()
                yield [Leg(*first, share), Leg(*second, later[0]), Leg(*third, later[1]), Leg(*fourth)]
