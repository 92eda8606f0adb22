"""Shares of ours in the hands of frameworks that share out by themselves: right, or refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.data_loader import prepare_data_loader
from accelerate.state import AcceleratorState, GradientState, PartialState
from torch.utils.data import DataLoader

from fastio import FastDataset, FastLoader, LengthBucketSampler, PackSampler
from tests.integrations.conftest import COUNT
from tests.integrations.test_lightning import Model, trainer_of

Build = Callable[[FastDataset, dict[str, int]], DataLoader[Any]]

BUILDS: dict[str, Build] = {
    "LengthBucketSampler": lambda dataset, ranks: DataLoader(
        dataset, batch_sampler=LengthBucketSampler(dataset.lengths, batch_size=4, **ranks)
    ),
    "PackSampler": lambda dataset, ranks: DataLoader(
        dataset, batch_sampler=PackSampler(dataset.lengths, max_tokens=16, **ranks)
    ),
    "EpochSampler": lambda dataset, ranks: DataLoader(
        dataset, 4, sampler=FastLoader(dataset, 4, threads=1, **ranks).sampler
    ),
    "SequentialDataset": lambda dataset, ranks: DataLoader(dataset.iterable(**ranks), 4),
}


@pytest.fixture(autouse=True)
def accelerator() -> Iterator[Accelerator]:
    """One process on the CPU; what accelerate keeps for the whole process is forgotten afterwards."""
    yield Accelerator(cpu=True)
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    PartialState._reset_state()


@pytest.fixture
def dataset(store: Path) -> Iterator[FastDataset]:
    """The store of indices."""
    with FastDataset(store) as opened:
        yield opened


def shared(loader: DataLoader[Any], *, process: int = 0, of: int = 2, **options: Any) -> DataLoader[Any]:
    """As ``prepare`` shares a loader out in one of several processes."""
    return prepare_data_loader(loader, num_processes=of, process_index=process, even_batches=False, **options)


def labels(loader: DataLoader[Any]) -> list[int]:
    """The samples of an epoch."""
    return [label for _, batch in loader for label in batch.tolist()]


@pytest.mark.parametrize("name", BUILDS)
def test_a_share_is_not_shared_out_again(dataset: FastDataset, name: str) -> None:
    """One clear error instead of half of the samples, also where batches are skipped."""
    loader = shared(BUILDS[name](dataset, {"rank": 1, "world_size": 2}))
    with pytest.raises(ValueError, match=rf"{name} gives rank 1 of 2 its share, .* again among 2 processes"):
        next(iter(loader))
    if name != "SequentialDataset":
        with pytest.raises(ValueError, match=rf"{name} gives rank 1 of 2 its share"):
            next(iter(skip_first_batches(loader, 1)))


@pytest.mark.parametrize("name", BUILDS)
def test_one_share_of_all_is_shared_out(dataset: FastDataset, name: str) -> None:
    """As the error says: with rank=0, world_size=1 accelerate gives each process its batches."""
    ranks = {"rank": 0, "world_size": 1}
    first, second = (labels(shared(BUILDS[name](dataset, ranks), process=rank)) for rank in range(2))
    repeated = 1 if name == "SequentialDataset" else 0  # accelerate fills the last batch of an iterable

    assert set(range(COUNT)) == set(first) | set(second)
    assert COUNT + repeated == len(first) + len(second)


@pytest.mark.parametrize("processes", [1, 2])
def test_batches_of_another_epoch_are_not_skipped(dataset: FastDataset, processes: int) -> None:
    """A training that goes on in epoch 1, as transformers does it: the sampler has to know, or it is an error."""

    def resumed(epoch: int | None) -> list[int]:
        sampler = LengthBucketSampler(dataset.lengths, batch_size=4, rank=0, world_size=1)
        if epoch is not None:
            sampler.set_epoch(epoch)
        rest = skip_first_batches(shared(DataLoader(dataset, batch_sampler=sampler), of=processes), 1)
        rest.set_epoch(1)
        return labels(rest)

    for epoch in (None, 2):
        with pytest.raises(ValueError, match=rf"within epoch 1, but this LengthBucketSampler .* epoch {epoch or 0},"):
            resumed(epoch)
    sampler = LengthBucketSampler(dataset.lengths, batch_size=4, rank=0, world_size=1)
    whole = shared(DataLoader(dataset, batch_sampler=sampler), of=processes)
    labels(whole)
    assert labels(whole)[4:] == resumed(1)


@pytest.mark.parametrize("name", BUILDS)
def test_a_share_that_nobody_shares_out_passes(dataset: FastDataset, name: str) -> None:
    """By itself, prepared in one process, and beside a loader that is shared out."""
    ranks = {"rank": 1, "world_size": 2}
    alone = labels(BUILDS[name](dataset, ranks))
    prepared = shared(BUILDS[name](dataset, ranks), of=1)
    assert len(alone) == len(labels(prepared))
    for _ in shared(DataLoader(dataset, 4)):
        assert len(alone) == len(labels(BUILDS[name](dataset, ranks)))


@pytest.mark.parametrize("name", BUILDS)
def test_a_share_is_not_dispatched(dataset: FastDataset, name: str) -> None:
    """Where the first process reads for all, it must read all."""
    loader = shared(BUILDS[name](dataset, {"rank": 0, "world_size": 2}), dispatch_batches=True, put_on_device=True)
    PartialState().num_processes = 2
    with pytest.raises(ValueError, match=rf"{name} gives rank 0 of 2 its share, .* again among 2 processes"):
        next(iter(loader))


def test_forked_workers_of_an_iterable_see_it_too(dataset: FastDataset) -> None:
    """The error comes through the DataLoader's worker process."""
    loader = DataLoader(dataset.iterable(rank=1, world_size=2), 4, num_workers=1, multiprocessing_context="fork")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # CPython's, of forks beside threads
        with pytest.raises(ValueError, match="SequentialDataset gives rank 1 of 2 its share"):
            next(iter(shared(loader)))


def test_spawned_workers_of_an_iterable_do_not_begin(dataset: FastDataset) -> None:
    """They could not see who shares it out: the error comes when it is sent to them."""
    loader = DataLoader(dataset.iterable(rank=1, world_size=2), 4, num_workers=1, multiprocessing_context="spawn")
    with pytest.raises(ValueError, match="SequentialDataset gives rank 1 of 2 its share"):
        next(iter(shared(loader)))


class Predicting(Model):
    """Predicts labels."""

    def predict_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        labels: torch.Tensor = batch[1]
        return labels


def test_lightning_cannot_build_a_sampler_anew(dataset: FastDataset) -> None:
    """It passes a sampler of its own for the lengths: the error says what to do."""
    loader = DataLoader(dataset, batch_sampler=LengthBucketSampler(dataset.lengths, batch_size=4))
    with pytest.raises(TypeError, match=r"lengths are a .*Sampler.* use_distributed_sampler=False"):
        trainer_of().predict(Predicting(), loader)


def test_lightning_leaves_a_loaders_sampler_alone(dataset: FastDataset) -> None:
    """It is a DistributedSampler of its rank, as Lightning looks for one."""
    with FastLoader(dataset, 4, rank=1, world_size=2, threads=1) as loader:
        sampler = loader.sampler
    assert isinstance(sampler, torch.utils.data.DistributedSampler)
    assert (1, 2) == (sampler.rank, sampler.num_replicas)
