"""iterable(): its state continues an epoch with the next sample, on any number of ranks."""

from __future__ import annotations

import gc
import json
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice, pairwise
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch.utils.data._utils.worker as torch_worker
from hypothesis import example, given
from hypothesis import strategies as st

from fastio import FastDataset
from fastio.dataset import iterable
from fastio.dataset.iterable import SequentialDataset
from fastio.samplers.share import Share
from fastio.store.files import KINDS
from fastio.types.schema import RAW, Field
from tests.conftest import write_store
from tests.servers.fixtures import Served
from tests.store.files.holding_toy import HoldingBucket, HoldingFiles
from tests.store.files.toy import SCHEME

COUNT = 200  # more than two chunks


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples that are their own index."""
    values = [np.int32([index]).tobytes() for index in range(COUNT)]
    path = tmp_path_factory.mktemp("iterable") / "indices.h5"
    return write_store(path, values, field=Field("number", RAW, "<i4", (1,)))


def parts(store: Path, world_size: int, state: Any = None) -> list[SequentialDataset]:
    """The iterable of every rank, which continues at a state."""
    ranks = [FastDataset(store).iterable(rank=rank, world_size=world_size) for rank in range(world_size)]
    for rank in ranks if state is not None else []:
        rank.load_state_dict(json.loads(json.dumps(state)))
    return ranks


def numbers(samples: Iterator[Any], most: int | None = None) -> list[int]:
    """The indices of the next samples."""
    return [int(sample[0]) for sample in islice(samples, most)]


@pytest.mark.parametrize("had", [0, 1, 63, 64, 65, COUNT - 1, COUNT])
def test_it_continues_with_the_next_sample(store: Path, had: int) -> None:
    """The rest of the epoch, then whole epochs."""
    (dataset,) = parts(store, 1)
    running = iter(dataset)
    assert list(range(had)) == numbers(running, had)
    (resumed,) = parts(store, 1, dataset.state_dict())

    assert list(range(had, COUNT)) == numbers(iter(resumed)) == numbers(running)
    assert list(range(COUNT)) == numbers(iter(resumed)) == numbers(iter(dataset))


def test_an_ended_epoch_is_followed_by_a_whole_one(store: Path) -> None:
    """A state saved after the loop has ended begins the next epoch, on other ranks too."""
    (dataset,) = parts(store, 1)
    numbers(iter(dataset))
    assert dataset.state_dict()["consumed"] is None
    assert list(range(COUNT)) == [
        number for part in parts(store, 3, dataset.state_dict()) for number in numbers(iter(part))
    ]


def test_a_loaded_position_belongs_to_the_iteration_that_begins_first(store: Path) -> None:
    """An iterator that nothing was taken from does not use it up; the state follows the latest iteration."""
    (dataset,) = parts(store, 1)
    assert [0, 1, 2] == numbers(iter(dataset), 3)
    state = dataset.state_dict()
    iter(dataset)
    assert dataset.state_dict()["consumed"] is None
    dataset.load_state_dict(state)
    assert state == dataset.state_dict()
    iter(dataset)
    assert state == dataset.state_dict()
    assert [3, 4] == numbers(iter(dataset), 2)


class Numbers:
    """A dataset of indices, for which no store is opened."""

    store: Any = SimpleNamespace(identity=1, files=SimpleNamespace(holds=False))
    readers: Any = MappingProxyType({})
    makes_samples = True

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitems__(self, indices: list[int]) -> list[int]:
        return indices


@contextmanager
def worker(number: int, workers: int) -> Iterator[None]:
    """Within it, this process is a worker of a DataLoader, if there are workers."""
    with pytest.MonkeyPatch.context() as patch:
        if workers:
            patch.setattr(torch_worker, "_worker_info", SimpleNamespace(id=number, num_workers=workers))
        yield


class Loader:
    """One rank's DataLoader, which asks its workers in turn for batches; all of it in this process."""

    def __init__(self, count: int, share: Share, *, workers: int, batch_size: int) -> None:
        self.datasets = [SequentialDataset(Numbers(count), share) for _ in range(max(1, workers))]
        self.workers = workers
        self.batch_size = batch_size
        self.turns = deque(range(len(self.datasets)))

    def load(self, state: Any) -> None:
        """Continue at a state."""
        for number, dataset in enumerate(self.datasets):
            with worker(number, self.workers):
                dataset.load_state_dict(json.loads(json.dumps(state["workers"][number])))
        self.turns.rotate(-state["next"])

    def state(self) -> Any:
        """What a StatefulDataLoader keeps, and what is left."""
        states = []
        for number, dataset in enumerate(self.datasets):
            with worker(number, self.workers):
                states.append(dataset.state_dict())
        return {"workers": states, "next": self.turns[0] if self.turns else 0, "ended": not self.turns}

    def batches(self) -> Iterator[list[int]]:
        """The batches of all workers, until the last of them ends."""
        running = [iter(dataset) for dataset in self.datasets]
        while self.turns:
            number = self.turns[0]
            with worker(number, self.workers):
                batch = list(islice(running[number], self.batch_size))
            if len(batch) == self.batch_size or (batch and self.workers):
                self.turns.rotate(-1)
            else:
                self.turns.popleft()
            if batch:
                yield batch


divisions = st.tuples(st.integers(1, 5), st.integers(1, 9), st.integers(0, 12))


@given(
    count=st.integers(0, 120),
    workers=st.integers(0, 4),
    history=st.lists(divisions, min_size=1, max_size=4),
    rank=st.integers(0, 4),
)
@example(count=33, workers=1, history=[(2, 5, 4), (1, 1, 0)], rank=0)  # rank 1 has had one sample more
def test_any_ranks_in_step_continue(count: int, workers: int, history: list[tuple[int, int, int]], rank: int) -> None:
    """
    Each sample comes once, whatever ranks and batch sizes follow one another, from the state of any of the ranks.

    Only where the ranks of several workers change for the second time, that is refused.
    """
    state: Any = None
    seen: list[int] = []
    for number, (world_size, batch_size, steps) in enumerate(history):
        loaders = [
            Loader(count, Share(part, world_size, is_found=False), workers=workers, batch_size=batch_size)
            for part in range(world_size)
        ]
        if state is not None and workers > 1 and changes(state, world_size) > 1:
            with pytest.raises(ValueError, match="ranks may change once within an epoch"):
                loaders[0].load(state)
            return
        for loader in loaders if state is not None else []:
            loader.load(state)
        running = [loader.batches() for loader in loaders]
        seen += [sample for batches in running for batch in islice(batches, steps) for sample in batch]
        states = [loader.state() for loader in loaders]
        if number == len(history) - 1 or any(state["ended"] for state in states):
            seen += [sample for batches in running for batch in batches for sample in batch]
            break
        state = states[rank % world_size]
    assert list(range(count)) == sorted(seen)


def changes(state: Any, world_size: int) -> int:
    """How often the number of ranks has changed in an epoch, as its first worker tells, with the present one."""
    ranks = [entry["world_size"] for entry in state["workers"][0]["consumed"]]
    return sum(before != after for before, after in pairwise([*ranks, world_size]))


def test_others_pieces_are_refused(store: Path) -> None:
    """One line for the state of another number of workers, of another store, or a damaged one."""
    (dataset,) = parts(store, 1)
    numbers(iter(dataset), 3)
    state = dataset.state_dict()
    with worker(1, 2), pytest.raises(ValueError, match=r"worker 0 of 1 of an iterable\(\), and this is worker 1 of 2"):
        dataset.load_state_dict(state)
    dataset.load_state_dict(state)
    with worker(0, 2), pytest.raises(ValueError, match=r"worker 0 of 1 of an iterable\(\), and this is worker 0 of 2"):
        next(iter(dataset))
    for damage, message in {
        "samples": "samples is 7 in the state and 200 here",
        "store": "store is 7 in the state",
        "version": "version is 7 in the state and 1 here",
        "consumed": "consumed=7: expected a list",
        "worker": "worker=7: expected 0 to 0 in the state",
    }.items():
        with pytest.raises(ValueError, match=message):
            dataset.load_state_dict({**state, damage: 7})
    with pytest.raises(ValueError, match="samples=201: expected 0 to 200 in the state"):
        dataset.load_state_dict({**state, "consumed": [{"world_size": 1, "samples": 201}]})


# iterable() over files that no page cache keeps: it asks ahead in few requests, and yields the local samples.

REMOTE_COUNT = 1000  # of 200 bytes each: 16 chunks


def numbers_of(dataset: FastDataset, most: int | None = None, **share: Any) -> list[int]:
    """The first values of the samples, which are their indices."""
    return [int(sample[0]) for sample in islice(iter(dataset.iterable(**{"rank": 0, "world_size": 1} | share)), most)]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of samples that begin with their index."""
    values = [np.full(50, index, np.int32).tobytes() for index in range(REMOTE_COUNT)]
    path = tmp_path_factory.mktemp("ahead") / "numbers.h5"
    return write_store(path, values, field=Field("number", RAW, "<i4", (50,)))


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, local: Path) -> HoldingBucket:
    """Holds the store as ``toy://x.h5``; units are small, of two chunks."""
    bucket = HoldingBucket()
    monkeypatch.setitem(KINDS, "toy", bucket.kind())
    monkeypatch.setattr(iterable, "_UNIT_BYTES", 20_000)
    bucket.put(f"{SCHEME}x.h5", local.read_bytes())
    return bucket


def test_a_url_takes_few_requests(served: Served, local: Path) -> None:
    """A piece of less than 4 MiB is one request, not one for each native call."""
    (served.root / "x.h5").write_bytes(local.read_bytes())
    with FastDataset(f"{served.url}/x.h5") as dataset:
        served.server.clear()
        assert list(range(REMOTE_COUNT)) == numbers_of(dataset)
        assert served.server.gets() == 1


def test_what_is_asked_for_is_what_is_read(bucket: HoldingBucket) -> None:
    """Every value is found in what is held, on any rank; at most a unit more than the bound is held, and all let go."""
    with FastDataset(f"{SCHEME}x.h5") as dataset:
        ranks = (numbers_of(dataset, rank=rank, world_size=3) for rank in range(3))
        assert list(range(REMOTE_COUNT)) == list(chain.from_iterable(ranks))
        assert (REMOTE_COUNT, 0) == (bucket.found, bucket.missed)
        unit = 2 * 64 * 200
        assert unit < bucket.most_held <= HoldingFiles.ahead_bytes + 2 * unit
        gc.collect()
        assert not any(held.nbytes for held in bucket.held)


def test_two_units_are_asked_for_before_the_first_sample(bucket: HoldingBucket) -> None:
    """One is on its way while the other is read; an iteration that is left lets both go."""
    with FastDataset(f"{SCHEME}x.h5") as dataset:
        running = iter(dataset.iterable(rank=0, world_size=1))
        next(running)
        assert 2 * 2 * 64 * 200 == sum(held.nbytes for held in bucket.held)
        running.close()
        assert not any(held.nbytes for held in bucket.held)


def test_chosen_samples(bucket: HoldingBucket, local: Path) -> None:
    """Of chosen samples, only these are asked for, in any order."""
    with FastDataset(f"{SCHEME}x.h5", fields="number") as dataset, FastDataset(local, fields="number") as plain:
        for either in (dataset, plain):
            either.samples = [either.samples[index] for index in range(REMOTE_COUNT - 1, 0, -7)]
        assert numbers_of(plain) == numbers_of(dataset)
        assert (len(plain), 0) == (bucket.found, bucket.missed)


class Doubled(FastDataset):
    """Has samples of its own, twice as many as the store."""

    def __len__(self) -> int:
        """Twice."""
        return 2 * len(self.store)

    def __getitem__(self, index: int) -> Any:
        """Each sample of the store twice."""
        return super().__getitem__(index // 2)


def test_samples_of_a_subclass(bucket: HoldingBucket) -> None:
    """Nobody knows what it reads: nothing is asked for ahead."""
    with Doubled(f"{SCHEME}x.h5") as dataset:
        assert [0, 0, 1, 1, 2] == numbers_of(dataset, 5)
        assert bucket.most_held == 0
