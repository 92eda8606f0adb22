"""iterable() over files that no page cache keeps: it asks ahead in few requests, and yields the local samples."""

from __future__ import annotations

import gc
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastio import FastDataset
from fastio.dataset import runs_ahead
from fastio.store.files import KINDS
from fastio.types.schema import RAW, Field
from tests.conftest import write_store
from tests.servers.fixtures import Served
from tests.store.files.holding_toy import HoldingBucket, HoldingFiles
from tests.store.files.toy import SCHEME

COUNT = 1000  # of 200 bytes each: 16 chunks


def numbers(dataset: FastDataset, most: int | None = None, **share: Any) -> list[int]:
    """The first values of the samples, which are their indices."""
    return [int(sample[0]) for sample in islice(iter(dataset.iterable(**{"rank": 0, "world_size": 1} | share)), most)]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of samples that begin with their index."""
    values = [np.full(50, index, np.int32).tobytes() for index in range(COUNT)]
    path = tmp_path_factory.mktemp("ahead") / "numbers.h5"
    return write_store(path, values, field=Field("number", RAW, "<i4", (50,)))


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, local: Path) -> HoldingBucket:
    """Holds the store as ``toy://x.h5``; units are small, of two chunks."""
    bucket = HoldingBucket()
    monkeypatch.setitem(KINDS, "toy", bucket.kind())
    monkeypatch.setattr(runs_ahead, "_UNIT_BYTES", 20_000)
    bucket.put(f"{SCHEME}x.h5", local.read_bytes())
    return bucket


def test_a_url_takes_few_requests(served: Served, local: Path) -> None:
    """A piece of less than 4 MiB is one request, not one for each native call."""
    (served.root / "x.h5").write_bytes(local.read_bytes())
    with FastDataset(f"{served.url}/x.h5") as dataset:
        served.server.clear()
        assert list(range(COUNT)) == numbers(dataset)
        assert served.server.gets() == 1


def test_what_is_asked_for_is_what_is_read(bucket: HoldingBucket) -> None:
    """Every value is found in what is held, on any rank; at most a unit more than the bound is held, and all let go."""
    with FastDataset(f"{SCHEME}x.h5") as dataset:
        ranks = (numbers(dataset, rank=rank, world_size=3) for rank in range(3))
        assert list(range(COUNT)) == list(chain.from_iterable(ranks))
        assert (COUNT, 0) == (bucket.found, bucket.missed)
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
            either.samples = [either.samples[index] for index in range(COUNT - 1, 0, -7)]
        assert numbers(plain) == numbers(dataset)
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
        assert [0, 0, 1, 1, 2] == numbers(dataset, 5)
        assert bucket.most_held == 0
