"""cost=: each step's samples are dealt to ranks by what they cost, and stay the samples of that step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastio import FastDataset, FastLoader, Mixture
from fastio.samplers.batches import OrderSampler
from fastio.samplers.choice import Choice
from fastio.samplers.cost import Costs, dealt_by_cost
from fastio.samplers.order import Division
from tests.numbered import COUNT, taken, write_numbers

COSTS = np.random.default_rng(0).lognormal(0, 1, COUNT)


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> FastDataset:
    """Samples that are their own index, with the index as label and column too."""
    return write_numbers(tmp_path_factory.mktemp("costs") / "a.h5")


@settings(max_examples=60, deadline=None)
@given(
    steps=st.integers(0, 5),
    world_size=st.integers(1, 9),
    batch=st.integers(1, 70),
    seed=st.integers(0, 9),
    is_whole=st.booleans(),
)
def test_each_rank_gets_as_many(steps: int, world_size: int, batch: int, seed: int, is_whole: bool) -> None:
    """Every sample of a step goes to one rank, which gets a batch of them, ascending; again, they go the same way."""
    random = np.random.default_rng(seed)
    shape = steps, world_size * batch
    costs = random.integers(0, 4, shape).astype(np.float64) if is_whole else random.lognormal(0, 1, shape)
    dealt = dealt_by_cost(costs, world_size)

    assert (steps, world_size, batch) == dealt.shape
    assert (np.sort(dealt.reshape(shape), axis=1) == np.arange(world_size * batch)).all()
    assert (np.diff(dealt, axis=2) > 0).all()
    assert np.array_equal(dealt, dealt_by_cost(costs.copy(), world_size))


def sums(costs: NDArray[np.float64], dealt: NDArray[np.int64]) -> NDArray[np.float64]:
    """What each rank's samples of a step cost together."""
    of_ranks: NDArray[np.float64] = np.take_along_axis(costs[:, None], dealt, axis=2).sum(axis=2)
    return of_ranks


def slowest(of_ranks: NDArray[np.float64]) -> float:
    """The slowest rank's cost over the mean, on average over steps."""
    return float((of_ranks.max(axis=1) / of_ranks.mean(axis=1)).mean())


@pytest.mark.parametrize(("world_size", "batch"), [(8, 8), (8, 32), (16, 16), (64, 16), (64, 32)])
def test_a_vision_encoder(world_size: int, batch: int) -> None:
    """Log-normal sides of pictures (sigma 0.2), in patches: the slowest rank costs at most 1.02 of the mean."""
    random = np.random.default_rng(0)
    side = np.minimum(random.lognormal(0, 0.2, (100, world_size * batch)), 3)
    patches = np.ceil(16 * side) ** 2
    undealt = patches.reshape(100, world_size, batch).sum(axis=2)

    assert slowest(sums(patches, dealt_by_cost(patches, world_size))) <= 1.02
    assert slowest(undealt) > 1.1


def ranks_of(dataset: Any, world_size: int, batch: int, *, state: Any = None, **options: Any) -> list[list[list[int]]]:
    """The batches of each rank in an epoch."""
    ranks = []
    for rank in range(world_size):
        with FastLoader(dataset, batch, rank=rank, world_size=world_size, threads=1, **options) as loader:
            if state is not None:
                loader.load_state_dict(state)
            ranks.append(taken(loader))
    return ranks


def steps_of(ranks: list[list[list[int]]]) -> list[list[int]]:
    """The samples of each step, sorted."""
    return [sorted(index for batch in step for index in batch) for step in zip(*ranks, strict=True)]


@settings(max_examples=30, deadline=None)
@given(
    world_size=st.integers(1, 4),
    batch=st.integers(1, 5),
    order=st.sampled_from(
        [
            {},
            {"shuffle": True},
            {"shuffle": "full"},
            {"weights": COSTS},
            {"sampler": list(range(0, COUNT, 2)) * 2},
            {"shuffle": "full", "indices": np.arange(COUNT)[::-1]},
        ]
    ),
    uneven=st.sampled_from(["pad", "drop", "repeat"]),
)
def test_steps_keep_their_samples(
    numbered: FastDataset, world_size: int, batch: int, order: dict[str, Any], uneven: Any
) -> None:
    """With costs and without, a step has the same samples, in batches of the same size."""
    costs = COSTS[::-1] if "indices" in order else COSTS
    without = ranks_of(numbered, world_size, batch, uneven=uneven, **order)
    dealt = ranks_of(numbered, world_size, batch, uneven=uneven, cost=costs, **order)

    assert steps_of(without) == steps_of(dealt)
    assert [list(map(len, rank)) for rank in without] == [list(map(len, rank)) for rank in dealt]
    if world_size == 1:
        assert without == dealt


@pytest.mark.parametrize("world_size", [2, 3])
def test_orders_in_lanes(world_size: int) -> None:
    """In lanes, too, a step has the samples that it had; windows name all that a rank reads."""
    count, division = 2000, Division(2000, 16, world_size)
    costs = Costs(np.random.default_rng(1).lognormal(0, 1, count))
    plans: dict[bool, list[Any]] = {False: [], True: []}
    for is_dealt, rank in ((is_dealt, rank) for is_dealt in plans for rank in range(world_size)):
        sampler = OrderSampler(
            division,
            rank=rank,
            shuffle=True,
            seed=3,
            sizes=lambda: np.ones(count, np.int64),
            costs=costs if is_dealt else None,
        )
        sampler.adopt(LANES)
        plans[is_dealt].append(sampler.plan(1))

    def steps(of_ranks: list[Any]) -> list[list[int]]:
        return [
            sorted(np.concatenate([plan.indices[part] for plan in of_ranks]).tolist()) for part in of_ranks[0].slices()
        ]

    assert steps(plans[False]) == steps(plans[True])
    for plan in plans[True]:
        assert set(plan.indices.tolist()) <= set(plan.windows.samples().tolist())


LANES = {"kind": "lanes", "lanes": 8, "rounds": 10, "window": 2}


def test_the_form_of_lanes_in_a_state() -> None:
    """The order above is one."""
    assert Choice.from_json(LANES, samples=2000).lanes is not None


@settings(max_examples=15, deadline=None)
@given(step=st.integers(0, 3), world_size=st.integers(1, 3))
def test_goes_on_with_other_ranks(numbered: FastDataset, step: int, world_size: int) -> None:
    """A state knows nothing of costs: an epoch goes on with them or without, and each sample comes once."""
    options: dict[str, Any] = {"shuffle": "full", "uneven": "drop"}
    first: list[int] = []
    for rank in range(2):
        with FastLoader(numbered, 3, rank=rank, world_size=2, threads=1, cost=COSTS, **options) as loader:
            batches = iter(loader)
            for _ in range(step):
                first += next(batches)[0].tolist()
            state = loader.state_dict()
    dealt = ranks_of(numbered, world_size, 2, state=state, cost=COSTS, **options)
    rest = [index for step_ in steps_of(dealt) for index in step_]

    assert steps_of(ranks_of(numbered, world_size, 2, state=state, **options)) == steps_of(dealt)
    assert len(set(first + rest)) == len(first + rest) == COUNT - (COUNT - len(first)) % world_size


def test_receipts_and_columns(numbered: FastDataset) -> None:
    """A column's name gives its values; the receipt of an epoch proves each sample once."""
    column = next(name for name in ("label", "number") if name in numbered.store.schema)
    values = numbered.column(column) if column == "label" else np.arange(COUNT)
    with FastLoader(numbered, 4, cost=column if column == "label" else values, threads=1) as loader:
        taken(loader)
        assert loader.receipt().is_exact
    assert ranks_of(numbered, 2, 4, cost=values) == ranks_of(numbered, 2, 4, cost=values.astype(np.float32).tolist())


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"cost": [1.0, 2.0]}, ValueError, f"2 costs for {COUNT} samples"),
        ({"cost": np.full(COUNT, np.inf)}, ValueError, r"cost\[0\] is inf"),
        ({"cost": -np.ones(COUNT)}, ValueError, r"cost\[0\] is -1"),
        ({"cost": np.ones((COUNT, 2))}, TypeError, "cost: expected one number per sample"),
        ({"cost": COSTS, "batch_size": None, "batch_sampler": [[1]]}, ValueError, "cost: the batch_sampler decides"),
    ],
)
def test_what_is_no_cost(numbered: FastDataset, options: dict[str, Any], error: type[Exception], message: str) -> None:
    """One line says what was expected."""
    with pytest.raises(error, match=message):
        FastLoader(numbered, **{"batch_size": 4, **options})


def test_a_mixture_deals_by_member(numbered: FastDataset, tmp_path: Path) -> None:
    """Ranks of a Mixture have equal shares of its members: costs are refused."""
    mixture = Mixture({"a": numbered, "b": write_numbers(tmp_path / "b.h5")}, {"a": 1, "b": 1})
    with pytest.raises(ValueError, match="cost: not for a Mixture"):
        FastLoader(mixture, 4, cost=np.ones(2 * COUNT))
