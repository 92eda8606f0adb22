"""Loaders of tokens and raw pictures behind a URL: the batches of the local file, to the bit."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fastio import FastDataset, FastLoader, LengthBucketSampler, PackSampler
from fastio.errors import StoreError
from fastio.store.files.remote import clients
from fastio.types.schema import RAW, TOKENS, Field
from tests.conftest import pictures, write_store
from tests.servers.fixtures import Served

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
