"""Whose samples an object hands out: found when it is built, and refused where that has changed since."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fastio import FastDataset, FastLoader, LengthBucketSampler, PackSampler
from fastio.samplers.share import Share
from tests.conftest import encode, pictures, write_store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Six pictures of one size."""
    return write_store(tmp_path / "a.lmdb", [encode(each) for each in pictures(6)])


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[[], None]]:
    """A function that begins a process group, of which this process is rank 0 of 1."""
    distributed = torch.distributed
    yield lambda: distributed.init_process_group(
        "gloo", store=distributed.FileStore(str(tmp_path / "meeting"), 1), rank=0, world_size=1
    )
    if distributed.is_initialized():
        distributed.destroy_process_group()


def test_what_is_passed_is_not_found() -> None:
    """Only what nobody named can have become wrong."""
    assert Share(1, 2, is_found=False) == Share.of(1, 2)
    assert Share(0, 1, is_found=True) == Share.of(None, None)


MAKERS: dict[str, Callable[..., Any]] = {
    "FastLoader": lambda dataset, **ranks: FastLoader(dataset, 2, threads=1, **ranks),
    "LengthBucketSampler": lambda dataset, **ranks: LengthBucketSampler(dataset.lengths, batch_size=2, **ranks),
    "PackSampler": lambda dataset, **ranks: PackSampler(dataset.lengths, max_tokens=1 << 20, **ranks),
    "iterable()": lambda dataset, **ranks: dataset.iterable(**ranks),
}


@pytest.mark.parametrize("name", MAKERS)
def test_ranks_that_have_changed_are_refused(
    store: Path, begin: Callable[[], None], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Built before torch.distributed began, for other ranks: an error, where samples would come twice or be lost."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with FastDataset(store) as dataset:
        found, given = MAKERS[name](dataset), MAKERS[name](dataset, rank=1, world_size=2)
        assert len(list(found)) == len(list(given))
        begin()
        with pytest.raises(ValueError, match=rf"{name[:-2]}.* for rank 1 of 2, but this process is rank 0 of 1"):
            list(found)
        assert list(given)
        assert list(MAKERS[name](dataset))


def test_a_loader_learns_it_from_its_batch_sampler(
    store: Path, begin: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """FastLoader takes its ranks from a sampler, and the sampler's error too."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with FastDataset(store) as dataset:
        sampler = LengthBucketSampler(dataset.lengths, batch_size=2)
        with FastLoader(dataset, batch_sampler=sampler) as loader:
            begin()
            with pytest.raises(ValueError, match="this LengthBucketSampler was built for rank 1 of 2"):
                list(loader)


def test_a_spawned_worker_believes_its_parent(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a process group of its own it takes the ranks that were found at home."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with FastDataset(store) as dataset:
        sent = pickle.dumps(dataset.iterable())
    monkeypatch.delenv("RANK")
    assert len(list(pickle.loads(sent))) == 3
