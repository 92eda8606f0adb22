"""FastLoader(cache=...): the same batches from samples that are kept decoded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fastio import FastDataset, FastLoader, SampleError, SchemaError
from fastio.transforms import (
    CenterCrop,
    Grayscale,
    Normalize,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
)
from fastio.types.schema import RAW, Field
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
    for module in ("memory_cache", "device_cache"):
        monkeypatch.setattr(f"fastio.loader.producer.{module}.available_memory", lambda: 1000)
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


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 PNGs of 7 sizes, some of them grey in a store of colours."""
    rng = np.random.default_rng(0)
    shapes = [(12 + 4 * (n % 3), 13 + 5 * (n % 2), 3) if n % 9 else (20, 15) for n in range(40)]
    values = [encode(rng.integers(0, 256, shape, np.uint8)) for shape in shapes]
    return write_store(tmp_path_factory.mktemp("mixed") / "a.lmdb", values, np.arange(40))


@CACHES
@pytest.mark.parametrize("shuffle", [False, "full"])
@pytest.mark.parametrize(
    "recipe",
    [
        [Resize((9, 10))],
        [Resize(12), CenterCrop(11)],
        [Resize(12), CenterCrop(11), RandomHorizontalFlip(), Normalize((0.5,), (0.5,))],
        [Grayscale(), CenterCrop(11), RandomHorizontalFlip()],
    ],
    ids=str,
)
def test_resizes_without_chance_are_kept(cache: Any, shuffle: Any, recipe: list[Any], mixed: Path) -> None:
    """Pictures of different sizes are kept as the first transforms without chance leave them: the same batches."""
    options: dict[str, Any] = {"transforms": recipe, "device": "cpu", "seed": 4, "shuffle": shuffle}
    with FastLoader(mixed, 7, **options) as plain, FastLoader(mixed, 7, cache=cache, **options) as cached:
        for _ in range(2):
            if cache == "ram" or not any(isinstance(each, RandomHorizontalFlip) for each in recipe):
                assert_same(plain, cached)
            else:  # a flip on the device has numbers of its own: each picture is the one or the other
                for one, other in zip(plain, cached, strict=True):
                    same = [torch.equal(*pair) for pair in zip(one[0], other[0], strict=True)]
                    flipped = [torch.equal(*pair) for pair in zip(one[0].flip(3), other[0], strict=True)]
                    assert torch.equal(one[1], other[1])
                    assert all(a or b for a, b in zip(same, flipped, strict=True))
        assert cached.stats.buffer_bytes < 40 * 20 * 20 * 4


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
@pytest.mark.parametrize(
    "recipe",
    [[RandomResizedCrop(6)], [Resize(12), RandomCrop(8), RandomHorizontalFlip()]],
    ids=["whole", "resized"],
)
def test_random_crops_of_different_sizes(recipe: list[Any], mode: Any, mixed: Path) -> None:
    """In memory, pictures of any sizes are kept as they are, and states fit both loaders."""
    dataset = FastDataset(mixed, mode=mode)
    options: dict[str, Any] = {"transforms": recipe, "seed": 4, "shuffle": "full"}
    with FastLoader(dataset, 7, **options) as plain, FastLoader(dataset, 7, cache="ram", **options) as cached:
        assert_same(plain, cached)
        iterator = iter(plain)
        next(iterator)
        cached.load_state_dict(plain.state_dict())
        assert_same(iterator, cached)


def test_what_a_device_cannot_keep(mixed: Path) -> None:
    """Random crops of different sizes are refused there; both ways that the message names work."""
    recipe = [RandomCrop(8), RandomHorizontalFlip()]
    with pytest.raises(
        SchemaError, match=r"different sizes, and RandomCrop.* Resize\(\(height, width\)\), or use cache"
    ):
        FastLoader(mixed, 4, device="cpu", cache="device", transforms=recipe)
    with pytest.raises(SchemaError, match=r"different sizes behind Resize, and RandomCrop"):
        FastLoader(mixed, 4, device="cpu", cache="device", transforms=[Resize(12), *recipe])
    with FastLoader(mixed, 4, device="cpu", cache="device", transforms=[Resize((10, 10)), *recipe]) as loader:
        assert next(iter(loader))[0].shape == (4, 3, 8, 8)
    with FastLoader(mixed, 4, device="cpu", cache="ram", transforms=recipe) as loader:
        assert next(iter(loader))[0].shape == (4, 3, 8, 8)


@CACHES
def test_pictures_of_different_sizes(cache: Any, mixed: Path) -> None:
    """Without transforms they are refused by name; with those that the message advises they are kept."""
    with pytest.raises(SchemaError, match=r"different sizes in one batch.* pass transforms that make them equal"):
        FastLoader(mixed, 2, device="cpu", cache=cache)
    with FastLoader(mixed, 40, device="cpu", cache=cache, transforms=CenterCrop(5)) as loader:
        assert next(iter(loader))[0].shape == (40, 3, 5, 5)


@CACHES
def test_only_the_samples_of_a_part_are_kept(cache: Any, tmp_path: Path) -> None:
    """A bad sample outside the part is not read, and memory is that of the part, in which samples may repeat."""
    values = [encode(pixels) for pixels in pictures(20)]
    values[17] = values[17][:50]
    path = write_store(tmp_path / "a.h5", values, np.arange(20))
    indices = [3, 9, 3, 12]
    with (
        FastLoader(path, 4, indices=indices) as plain,
        FastLoader(path, 4, indices=indices, device="cpu", cache=cache) as cached,
    ):
        assert_same(plain, cached)
        if cache == "device":
            assert cached.stats.buffer_bytes == 3 * 8 * 8 * 3


@CACHES
def test_a_bad_header_among_different_sizes(cache: Any, tmp_path: Path) -> None:
    """A picture whose size nobody knows is that sample's error."""
    values = [encode(pictures(1, (size, 9, 3))[0]) for size in (8, 10, 12)] + [b"no picture"]
    path = write_store(tmp_path / "a.h5", values, np.arange(4))
    for recipe in ([Resize((5, 5))], [CenterCrop(4), RandomHorizontalFlip()]):
        with pytest.raises(SampleError, match=r"\[3\]"):
            FastLoader(path, 2, device="cpu", cache=cache, transforms=recipe)


def test_arguments(store: Path) -> None:
    """What cannot be is said in one line."""
    with pytest.raises(ValueError, match="cache='disk': expected one of 'ram', 'device' or None"):
        FastLoader(store, 4, cache="disk")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="pass device= too"):
        FastLoader(store, 4, cache="device")
    with pytest.raises(ValueError, match="on_error='raise'"):
        FastLoader(store, 4, cache="ram", on_error="skip")
