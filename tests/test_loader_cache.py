"""FastLoader(cache=...): the same batches from samples that are kept decoded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fastio import FastDataset, FastLoader, SampleError, SchemaError
from fastio.schema import RAW, Field
from fastio.transforms import Normalize, RandomCrop, RandomHorizontalFlip
from tests.conftest import encode, pictures, write_store

COUNT = 300
CACHES = pytest.mark.parametrize("cache", ["ram", "device"])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 PNGs 8x8 in colour: more than are decoded at a time for a cache."""
    values = [encode(pixels) for pixels in pictures(COUNT)]
    return write_store(tmp_path_factory.mktemp("cache") / "a.lmdb", values, np.arange(COUNT))


def assert_same(expected: Any, got: Any) -> None:
    for wanted, batch in zip(expected, got, strict=True):
        for one, other in zip(wanted, batch, strict=True):
            assert one.dtype == other.dtype
            assert torch.equal(one, other)


@CACHES
@pytest.mark.parametrize(
    "options", [{"shuffle": True}, {"shuffle": "full", "drop_last": True}, {"layout": "contiguous"}]
)
def test_the_same_batches(cache: Any, options: dict[str, Any], store: Path) -> None:
    """Pixels, labels, order and layout are those of the loader without a cache, in every epoch."""
    with (
        FastLoader(store, 64, seed=3, **options) as plain,
        FastLoader(store, 64, seed=3, device="cpu", cache=cache, **options) as cached,
    ):
        for _ in range(2):
            assert_same(plain, cached)
        assert next(iter(plain))[0].stride() == next(iter(cached))[0].stride()


def test_native_transforms_of_a_cache_in_memory(store: Path) -> None:
    """In memory, crops are done natively, and are those of the loader without a cache; states fit both."""
    options: dict[str, Any] = {"transforms": [RandomCrop(5), RandomHorizontalFlip()], "seed": 1}
    with FastLoader(store, 64, **options) as plain, FastLoader(store, 64, cache="ram", **options) as cached:
        iterator = iter(plain)
        next(iterator)
        cached.load_state_dict(plain.state_dict())
        assert_same(iterator, cached)


def test_all_transforms_of_a_cache_on_the_device(store: Path) -> None:
    """On the device, crops too are done there; a sample's crop depends on epoch and sample as ever."""
    recipe = [RandomCrop(5), RandomHorizontalFlip(), Normalize((0.5,), (0.5,))]
    whole, small = (
        FastLoader(store, size, transforms=recipe, device="cpu", cache="device", seed=5) for size in (300, 7)
    )
    expected = next(iter(whole))[0]

    assert torch.equal(expected, torch.cat([images for images, _ in small]))
    assert not torch.equal(expected, next(iter(whole))[0])


@CACHES
def test_without_labels_and_with_own_ones(cache: Any, tmp_path: Path) -> None:
    """Pictures alone, and labels by the dataset's target_transform."""
    values = [encode(pixels) for pixels in pictures(10)]
    alone = write_store(tmp_path / "alone.h5", values)
    images = next(iter(FastLoader(alone, 10, device="cpu", cache=cache)))
    assert torch.equal(torch.from_numpy(np.stack(pictures(10))).permute(0, 3, 1, 2), images)

    dataset = FastDataset(write_store(tmp_path / "a.h5", values, np.arange(10)), target_transform=lambda label: -label)
    assert next(iter(FastLoader(dataset, 4, device="cpu", cache=cache)))[1].tolist() == [0, -1, -2, -3]


@CACHES
def test_raw_arrays(cache: Any, tmp_path: Path) -> None:
    """Arrays of another dtype are kept as they are."""
    arrays = np.random.default_rng(0).random((6, 5), np.float32)
    path = write_store(tmp_path / "a.h5", [each.tobytes() for each in arrays], field=Field("x", RAW, "<f4", (5,)))

    assert torch.equal(torch.from_numpy(arrays), next(iter(FastLoader(path, 6, device="cpu", cache=cache))))


@CACHES
def test_what_does_not_fit(cache: Any, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is needed and what is free is said before anything is read."""
    monkeypatch.setattr("fastio.producer.resident.available_memory", lambda: 1000)
    with pytest.raises(MemoryError, match=r"300 samples of 8x8x3 take 0\.00 GB decoded, but only 0\.00 GB are free"):
        FastLoader(store, 64, device="cpu", cache=cache)


@CACHES
def test_a_bad_sample(cache: Any, tmp_path: Path) -> None:
    """It is named when the loader is built."""
    values = [encode(pixels) for pixels in pictures(20)]
    values[17] = values[17][:50]
    path = write_store(tmp_path / "a.h5", values, np.arange(20))
    with pytest.raises(SampleError, match=r"\[17\]"):
        FastLoader(path, 4, device="cpu", cache=cache)


@CACHES
def test_pictures_of_different_sizes(cache: Any, tmp_path: Path) -> None:
    """They are refused by name."""
    values = [encode(pictures(1, (size, 8, 3))[0]) for size in (8, 8, 9)]
    with pytest.raises(SchemaError, match="different sizes"):
        FastLoader(write_store(tmp_path / "a.h5", values), 2, device="cpu", cache=cache)


def test_arguments(store: Path) -> None:
    """What cannot be is said in one line."""
    with pytest.raises(ValueError, match="cache='disk': expected one of 'ram', 'device' or None"):
        FastLoader(store, 4, cache="disk")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="pass device= too"):
        FastLoader(store, 4, cache="device")
    with pytest.raises(ValueError, match="on_error='raise'"):
        FastLoader(store, 4, cache="ram", on_error="skip")
