"""A loader over a set in an object store: the batches of the local files, to the bit."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from fastio import FastDataset, FastLoader, LengthBucketSampler, PackSampler
from fastio.errors import StoreError
from fastio.store import SampleBatch, create_store
from fastio.store.files.remote import clients
from fastio.store.files.remote_options import Remote
from fastio.store.folders import folder_of
from fastio.transforms import RandomCrop
from fastio.types.schema import COLUMN, IMAGE, RAW, TOKENS, Field, Schema
from tests.conftest import as_spans, encode, pictures, write_store
from tests.servers.fixtures import Bucket, Served


@pytest.fixture
def paths(bucket: Bucket, tmp_path: Path) -> tuple[str, str]:
    """A set of some shards by its pattern, as a URL and as files."""
    local = tmp_path / "in-%06d.tar"
    values = [encode(pixels) for pixels in pictures(300)]
    image = Field("image", IMAGE, "|u1", (None, None, None))
    label = np.arange(300, dtype=np.int64) % 3
    with create_store(local, Schema((image, Field("label", COLUMN, "<i8", ()))), shard_bytes=30_000) as writer:
        keys = [f"{number:04d}.png" for number in range(300)]
        writer.append(SampleBatch(keys, {"image": as_spans(values)}, {"label": label}, {}))
        writer.close({"classes": None})
    folder, _ = folder_of(f"{bucket.url}/", Remote(bucket.options))
    for path in sorted(tmp_path.iterdir()):
        folder.put(path.name, path)
    return f"{bucket.url}/in-%06d.tar", str(local)


@pytest.mark.parametrize("shuffle", [False, True, "full"])
def test_tensors_and_receipts_are_equal(bucket: Bucket, paths: tuple[str, str], shuffle: Any) -> None:
    """Crops, shuffle and two ranks: the same tensors and receipts, also after a resume."""
    url, local = paths
    options: dict[str, Any] = {"shuffle": shuffle, "seed": 5, "threads": 1, "transforms": [RandomCrop(8, padding=2)]}
    for rank in range(2):
        with (
            FastDataset(url, remote=Remote(bucket.options)) as remote,
            FastLoader(remote, 16, rank=rank, world_size=2, **options) as ours,
            FastLoader(local, 16, rank=rank, world_size=2, **options) as plain,
        ):
            batches = iter(plain)
            for _ in range(3):
                next(batches)
            ours.load_state_dict(plain.state_dict())
            for (got, labels), (expected, expected_labels) in zip(ours, batches, strict=True):
                assert torch.equal(got, expected)
                assert torch.equal(labels, expected_labels)
            assert [images.sum() for images, _ in ours] == [images.sum() for images, _ in plain]
            assert ours.receipt(own=True) == plain.receipt(own=True)


def test_workers(bucket: Bucket, paths: tuple[str, str]) -> None:
    """Spawned workers of a DataLoader read it with the options of its parent; forked ones say what to do."""
    url, local = paths
    with FastDataset(url, ToShape(), remote=Remote(bucket.options)) as dataset:
        expected = [tuple(sample) for sample in FastDataset(local, ToShape())]
        assert expected[7] == tuple(dataset[7])
        spawned = DataLoader(dataset, 150, num_workers=1, multiprocessing_context="spawn", collate_fn=list)
        assert expected == [tuple(sample) for batch in spawned for sample in batch]
        with pytest.raises(StoreError, match="spawn"):
            list(DataLoader(dataset, 150, num_workers=1, multiprocessing_context="fork", collate_fn=list))


class ToShape:
    """The size of a picture."""

    def __call__(self, picture: Any) -> Any:
        """Two numbers."""
        return picture.size


# Loaders of tokens and raw pictures behind a URL: the batches of the local file, to the bit.

COUNT = 90


def equal_epochs(served: Served, name: str, make: Any) -> int:
    """Two epochs of the loaders that ``make`` makes of URL and file are equal, by value and receipt; all batches."""
    batches = 0
    with make(f"{served.url}/{name}") as remote, make(served.root / name) as local:
        for _ in range(2):
            for got, expected in zip(remote, local, strict=True):
                batches += 1
                _assert_equal(got, expected)
            assert local.receipt(own=True) == remote.receipt(own=True)
    return batches


def _assert_equal(got: Any, expected: Any) -> None:
    if isinstance(expected, Mapping):
        assert list(expected) == list(got)
        got, expected = list(got.values()), list(expected.values())
    for value, other in zip(got, expected, strict=True):
        if torch.is_tensor(other):
            assert other.dtype == value.dtype
            assert torch.equal(other, value)
        else:
            assert other == value


@pytest.fixture
def tokens(served: Served) -> str:
    """The name of a store of 0 to 40 ids each."""
    random = np.random.default_rng(0)
    values = [random.integers(0, 60_000, int(size)).astype("<u2").tobytes() for size in random.integers(0, 41, COUNT)]
    metadata = {"tokenizer": {"vocab_size": 60_000, "special": {"pad": 9}}}
    field = Field("tokens", TOKENS, "<u2", (None,))
    write_store(served.root / "x.h5", values, np.arange(COUNT), field=field, metadata=metadata)
    return "x.h5"


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("collate", ["pad", "pack"])
def test_tokens(served: Served, tokens: str, collate: Any, *, shuffle: bool) -> None:
    """Padded and packed, in stored order and shuffled."""

    def make(path: Any) -> FastLoader:
        return FastLoader(path, 8, shuffle=shuffle, collate=collate, threads=1, seed=3)

    assert 24 == equal_epochs(served, tokens, make)


@pytest.mark.parametrize("collate", ["pad", "pack"])
def test_tokens_by_length(served: Served, tokens: str, collate: Any) -> None:
    """By the sampler that goes with each layout."""

    def make(path: Any) -> FastLoader:
        dataset = FastDataset(path)
        sampler = (
            LengthBucketSampler(dataset.lengths, batch_size=8, seed=3)
            if collate == "pad"
            else PackSampler(dataset.lengths, max_tokens=200, seed=3)
        )
        return FastLoader(dataset, batch_sampler=sampler, collate=collate, threads=1)

    assert equal_epochs(served, tokens, make) > 10


@pytest.mark.parametrize("shuffle", [False, True, "full"])
def test_raw_pictures(served: Served, shuffle: Any) -> None:
    """Pixels that no codec decodes."""
    values = [pixels.tobytes() for pixels in pictures(COUNT)]
    shape = pictures(1)[0].shape
    write_store(served.root / "x.tar", values, np.arange(COUNT), field=Field("image", RAW, "|u1", shape))

    def make(path: Any) -> FastLoader:
        return FastLoader(path, 8, shuffle=shuffle, threads=1, seed=3)

    assert 24 == equal_epochs(served, "x.tar", make)


@pytest.mark.parametrize("url", ["s3://bucket/x.tar", "https://host/x-%06d.tar", "gs://bucket/x.fastio-set"])
def test_without_the_client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str) -> None:
    """One line names the extra to install; what is on this machine opens without it."""
    monkeypatch.setattr(clients, "_clients", {})
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(StoreError, match=r"object stores need obstore: pip install 'fastio\[remote\]'$") as caught:
        FastLoader(url, 8)
    assert "\n" not in str(caught.value)
    path = write_store(tmp_path / "x.h5", [b"abcd"], field=Field("number", RAW, "<i4", (1,)))
    assert 1 == len(FastDataset(path))
