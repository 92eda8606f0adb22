"""FastLoader with samplers of the user's: torch's, torch's batch samplers, lists, and classes of one's own."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from fastio import FastDataset, FastLoader
from fastio.transforms import RandomCrop
from tests.conftest import encode, pictures, write_store
from tests.numbered import COUNT, taken, write_numbers

WEIGHTS = [float(index % 3) for index in range(COUNT)]


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> FastDataset:
    """Samples that are their own index, with the index as label too."""
    return write_numbers(tmp_path_factory.mktemp("sampler") / "a.h5")


def seeded(seed: int = 5) -> torch.Generator:
    """A generator of its own for a sampler."""
    return torch.Generator().manual_seed(seed)


class WithEpoch(Sampler[int]):
    """An order by ``set_epoch``, without a length."""

    epoch = 0

    def __init__(self) -> None:
        """No data source is kept."""

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter([(index * 7 + self.epoch) % COUNT for index in range(11)])


class ByNumpy(Sampler[int]):
    """Draws from a generator of numpy's that it keeps."""

    def __init__(self) -> None:
        self.generator = np.random.default_rng(3)

    def __iter__(self) -> Iterator[int]:
        return iter(self.generator.permutation(COUNT)[:9].tolist())

    def __len__(self) -> int:
        return 9


class ByPython(Sampler[int]):
    """Draws from Python's global generator, and from one of its own."""

    def __init__(self) -> None:
        self.own = random.Random(1)

    def __iter__(self) -> Iterator[int]:
        for _ in range(8):
            yield (random.randrange(COUNT) + self.own.randrange(COUNT)) % COUNT


MAKERS: dict[str, Any] = {
    "list": lambda: [5, 3, 3, -1],
    "sequential": lambda: SequentialSampler(range(COUNT)),
    "random": lambda: RandomSampler(range(COUNT)),
    "random, own generator": lambda: RandomSampler(range(COUNT), generator=seeded()),
    "with replacement": lambda: RandomSampler(range(COUNT), replacement=True, num_samples=40, generator=seeded()),
    "subset": lambda: SubsetRandomSampler([3, 9, 12, 20], generator=seeded()),
    "weighted": lambda: WeightedRandomSampler(WEIGHTS, 30),
    "weighted, own generator": lambda: WeightedRandomSampler(WEIGHTS, 30, generator=seeded()),
    "distributed": lambda: DistributedSampler(range(COUNT), num_replicas=1, rank=0, seed=4),
    "with set_epoch": WithEpoch,
    "numpy": ByNumpy,
    "python": ByPython,
}
EACH = pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS.keys())
# Those of which torch's own order can be drawn again beside the loader's: they depend on nothing global.
REPEATABLE = [name for name in MAKERS if name not in ("random", "weighted", "python")]


@pytest.mark.parametrize("name", REPEATABLE)
@pytest.mark.parametrize("drop_last", [False, True])
def test_the_same_as_torch(numbered: FastDataset, name: str, drop_last: bool) -> None:
    """Two epochs are those of torch's DataLoader with the same sampler, to the bit; over a Subset too."""
    part = Subset(numbered, list(range(COUNT - 1, -1, -1)))
    for dataset in (numbered, part):
        theirs, own = MAKERS[name](), MAKERS[name]()
        expected = DataLoader(dataset, 4, sampler=theirs, drop_last=drop_last)
        with FastLoader(dataset, 4, sampler=own, drop_last=drop_last, threads=1) as loader:
            for epoch in range(2):
                if hasattr(theirs, "set_epoch"):
                    theirs.set_epoch(epoch)
                batches = list(expected)
                assert len(loader) == len(batches)
                for one, other in zip(batches, loader, strict=True):
                    assert all(torch.equal(*pair) for pair in zip(one, other, strict=True))


def states() -> tuple[Any, ...]:
    """Where the global generators stand."""
    by_numpy = np.random.get_state(legacy=False)  # noqa: NPY002 - that of the user's own code
    return torch.get_rng_state().tolist(), by_numpy["state"]["key"].tolist(), random.getstate()


@pytest.mark.parametrize("name", ["random", "weighted", "python"])
def test_global_generators_are_seeded_and_left_alone(numbered: FastDataset, name: str) -> None:
    """Who draws from global generators gives an order by seed and epoch, whatever else is drawn, and moves none on."""
    orders = []
    for seed in (0, 0, 1):
        torch.manual_seed(len(orders))
        before = states()
        with FastLoader(numbered, 4, sampler=MAKERS[name](), seed=seed, threads=1) as loader:
            orders.append([taken(loader), taken(loader)])
        assert before == states()

    assert orders[0] == orders[1] or name == "python"
    assert orders[0] != orders[2]
    assert orders[0][0] != orders[0][1]


@EACH
@settings(max_examples=6, deadline=None)
@given(step=st.integers(0, 10), epoch=st.integers(0, 2), rank=st.integers(0, 1))
def test_resume_at_every_batch(numbered: FastDataset, maker: Any, step: int, epoch: int, rank: int) -> None:
    """A sampler built anew goes on where the one before stopped, within the epoch and after it, on each rank."""
    options: dict[str, Any] = {"rank": rank, "world_size": 2, "threads": 1, "seed": 9}
    with FastLoader(numbered, 2, sampler=maker(), **options) as loader:
        loader.set_epoch(epoch)
        batches = iter(loader)
        taken(islice(batches, min(step, len(loader))))
        state = json.loads(json.dumps(loader.state_dict()))
        rest, following = taken(batches), taken(loader)
    with FastLoader(numbered, 2, sampler=maker(), **options) as resumed:
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        assert rest == taken(resumed)
        assert following == taken(resumed)


@EACH
@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_ranks_share_one_order(numbered: FastDataset, maker: Any, world_size: int) -> None:
    """Together the ranks have what one process has, by steps; equal batches by repeating from the start."""
    with FastLoader(numbered, 3, sampler=maker(), threads=1) as loader:
        expected = [index for batch in loader for index in batch[0].tolist()]
    ranks = []
    for rank in range(world_size):
        torch.manual_seed(rank)
        with FastLoader(numbered, 3, sampler=maker(), rank=rank, world_size=world_size, threads=1) as loader:
            ranks.append(taken(loader))
    got = [index for step in zip(*ranks, strict=True) for values in step for index in values]

    assert [*expected, *expected][: len(got)] == got
    assert len(expected) <= len(got) < len(expected) + world_size


def test_a_distributed_sampler_has_its_own_share(numbered: FastDataset) -> None:
    """What it draws is this rank's part already: nothing is shared out twice, and its set_epoch is called."""
    for rank in range(2):
        theirs = DistributedSampler(numbered, num_replicas=2, rank=rank, seed=3)
        own = DistributedSampler(numbered, num_replicas=2, rank=rank, seed=3)
        with FastLoader(numbered, 4, sampler=own, threads=1) as loader:
            assert (rank, 2) == (loader.rank, loader.world_size)
            for epoch in range(2):
                theirs.set_epoch(epoch)
                assert list(theirs) == [index for batch in loader for index in batch[0].tolist()]
            state = json.loads(json.dumps(loader.state_dict()))
        with FastLoader(numbered, 4, sampler=own, rank=rank, world_size=2, threads=1) as loader:
            loader.load_state_dict(state)
        with pytest.raises(ValueError, match=r"DistributedSampler draws for rank \d of 2: drop them"):
            FastLoader(numbered, 4, sampler=own, rank=1 - rank, world_size=2)


@pytest.mark.parametrize("name", [*REPEATABLE, "lists", "generator"])
def test_torchs_batch_samplers(numbered: FastDataset, name: str) -> None:
    """Any iterable of lists, with or without a length, gives torch's batches."""

    class Generated:
        def __iter__(self) -> Iterator[Any]:
            yield [1, 2]
            yield torch.tensor([5])
            yield (3, 4, 4)

    def maker() -> Any:
        if name in MAKERS:
            return BatchSampler(MAKERS[name](), 4, drop_last=True)
        return [[4, 2], [1], [9, 9, 9]] if name == "lists" else Generated()

    theirs = maker()
    with FastLoader(numbered, batch_sampler=maker(), threads=1) as loader:
        assert loader.batch_size is None
        for epoch in range(2):
            if hasattr(getattr(theirs, "sampler", None), "set_epoch"):
                theirs.sampler.set_epoch(epoch)
            batches = list(DataLoader(numbered, batch_sampler=theirs))
            assert len(loader) == len(batches)
            for one, other in zip(batches, loader, strict=True):
                assert all(torch.equal(*pair) for pair in zip(one, other, strict=True))


@pytest.mark.parametrize("uneven", ["pad", "drop", "repeat"])
@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_ranks_take_whole_batches_in_turn(numbered: FastDataset, uneven: Any, world_size: int) -> None:
    """Batch k is rank k % W's; what is left is filled up from the first ones or left out; states fit all ranks."""
    lists = [[1], [2, 3], [4], [5, 6], [7]]
    ranks = []
    states = []
    for rank in range(world_size):
        options: dict[str, Any] = {"rank": rank, "world_size": world_size, "uneven": uneven, "threads": 1}
        with FastLoader(numbered, batch_sampler=lists, **options) as loader:
            batches = iter(loader)
            first = taken(islice(batches, 1))
            states.append(loader.state_dict())
            del states[-1]["receipt"]  # this rank's own
            rest = taken(batches)
            ranks.append(first + rest)
        with FastLoader(numbered, batch_sampler=lists, **options) as resumed:
            resumed.load_state_dict(states[0])
            assert rest == taken(resumed)
    steps = len(lists) // world_size if uneven == "drop" else -(-len(lists) // world_size)

    assert [*lists, *lists][: steps * world_size] == [batch for step in zip(*ranks, strict=True) for batch in step]
    assert all(state == states[0] for state in states)


def test_a_hidden_order_is_refused_when_it_resumes(numbered: FastDataset) -> None:
    """A sampler whose order nobody can draw again: the state is refused, and what the message advises works."""

    class Hidden(Sampler[int]):
        drawn = 0

        def __init__(self) -> None:
            """Counts its epochs for the whole class."""

        def __iter__(self) -> Iterator[int]:
            type(self).drawn += 1
            return iter(range(type(self).drawn, COUNT))

    with FastLoader(numbered, 4, sampler=Hidden(), threads=1) as loader:
        next(iter(loader))
        state = loader.state_dict()
        assert state == loader.state_dict()
    with FastLoader(numbered, 4, sampler=Hidden(), threads=1) as loader:
        with pytest.raises(
            ValueError, match=r"another order for epoch 0 .* or start the epoch over with set_epoch\(0\)"
        ):
            loader.load_state_dict(state)
        loader.set_epoch(0)
        assert next(iter(loader))[0].tolist() == [2, 3, 4, 5]
    with FastLoader(numbered, 4, sampler=WithEpoch(), threads=1) as loader:
        next(iter(loader))
        state = loader.state_dict()
        loader.load_state_dict(state)


def endless() -> Iterator[int]:
    """Indices without an end."""
    while True:
        yield 1


class Endless:
    """A sampler that never ends its epoch."""

    def __iter__(self) -> Iterator[int]:
        return endless()


class Long(Sampler[int]):
    """Yields fewer than it says."""

    def __init__(self) -> None:
        """No data source is kept."""

    def __iter__(self) -> Iterator[int]:
        return iter([1, 2])

    def __len__(self) -> int:
        return 3


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"sampler": [0, 70]}, IndexError, f"sampler=list: yields 70: expected indices of {COUNT} samples"),
        ({"sampler": [[0, 1]]}, TypeError, r"yields \[0, 1\]: expected whole numbers; pass lists .* batch_sampler="),
        ({"sampler": [0.5]}, TypeError, "yields 0.5: expected whole numbers"),
        ({"sampler": endless()}, TypeError, r"an iterator yields only one epoch: pass list\(...\)"),
        ({"sampler": 3}, TypeError, "sampler=int: expected an iterable"),
        (
            {"sampler": Endless()},
            ValueError,
            r"items and does not end: make it end after an epoch \(itertools.islice\)",
        ),
        ({"sampler": Long()}, ValueError, r"yields 2 items, but its len\(\) is 3"),
        ({"batch_sampler": [[1], []]}, ValueError, "batch 1 of epoch 0 is empty"),
        ({"batch_sampler": [1, 2]}, TypeError, "yields 1: expected lists of indices; pass single indices as sampler="),
    ],
)
def test_what_is_no_sampler(
    numbered: FastDataset,
    options: dict[str, Any],
    error: type[Exception],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One line says which sampler, and what was expected."""
    monkeypatch.setattr("fastio.samplers.foreign._MOST", 100)
    monkeypatch.setattr("fastio.samplers.foreign._MOST_A_SAMPLE", 1)
    size = None if "batch_sampler" in options else 4
    with pytest.raises(error, match=message), FastLoader(numbered, size, threads=1, **options) as loader:
        list(loader)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": [1], "shuffle": True}, "shuffle: the sampler decides that: drop it here"),
        ({"sampler": [1], "weights": WEIGHTS}, "weights: the sampler decides that"),
        ({"weights": WEIGHTS, "shuffle": "full"}, "shuffle: the weights decide that"),
        ({"samples_per_epoch": 5}, "samples_per_epoch=5: only for weights="),
        ({"batch_sampler": [[1]], "sampler": [1]}, "batch_size, sampler: the batch_sampler decides that"),
    ],
)
def test_one_decides(numbered: FastDataset, options: dict[str, Any], message: str) -> None:
    """Two options that decide the same are refused, as in torch; left out, as the message says, the other works."""
    with pytest.raises(ValueError, match=message):
        FastLoader(numbered, 4, **options)


def test_a_batch_that_is_drawn_twice_has_other_crops(tmp_path: Path) -> None:
    """A sample that a sampler draws several times gets random numbers of its own each time, on every rank."""
    store = write_store(tmp_path / "a.lmdb", [encode(pixels) for pixels in pictures(2, (40, 40, 3))], np.arange(2))
    crops = []
    for rank in range(2):
        options: dict[str, Any] = {"transforms": RandomCrop(8), "rank": rank, "world_size": 2}
        with FastLoader(store, 3, sampler=[1, 0, 1, 1, 0, 1], **options) as loader:
            crops += [image.numpy().tobytes() for image in next(iter(loader))[0]]
    assert len(set(crops)) == 6


def test_bad_samples_of_a_sampler(tmp_path: Path) -> None:
    """on_error goes by the samples drawn: each bad one is named once, however often it comes."""
    values = [encode(pixels) for pixels in pictures(4)]
    values[2] = values[2][:60]
    dataset = FastDataset(write_store(tmp_path / "a.lmdb", values, np.arange(4)))
    with FastLoader(dataset, 3, sampler=[3, 2, 2, 1, 2, 0], on_error="skip") as loader:
        assert [labels.tolist() for _, labels in loader] == [[3], [1, 0]]
        assert [error.index for error in loader.skipped] == [2]
    with FastLoader(dataset, 3, sampler=[3, 2, 2, 1, 2, 0], on_error="zero", device="cpu") as loader:
        assert [labels.tolist() for _, labels in loader] == [[3, 2, 2], [1, 2, 0]]
