"""Several Python threads that read one data set: samples, batches, epochs and counts are as if each were alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import RandomSampler

from fastio import FastDataset, FastLoader, PackSampler
from fastio.transforms import RandomResizedCrop
from tests.at_once import at_once
from tests.conftest import encode, pictures, write_store
from tests.loader.producer.test_tokens import samples_of, write_tokens
from tests.numbered import COUNT, loader_of, taken, write_numbers

PHOTOS = 24
EPOCHS = 4


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PNGs of 60 x 50, JPEGs of that size, and WebPs, which Pillow may have to decode; labels are the index."""
    path = tmp_path_factory.mktemp("photos") / "a.lmdb"
    kinds = ("PNG", "JPEG", "WEBP")
    files = [encode(pixels, kinds[number % 3]) for number, pixels in enumerate(pictures(PHOTOS, (60, 50, 3)))]
    return write_store(path, files, np.arange(PHOTOS))


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> FastDataset:
    """Samples that are their own index."""
    return write_numbers(tmp_path_factory.mktemp("numbered") / "a.lmdb")


def as_array(picture: Any) -> NDArray[Any]:
    """A transform of the user's, which puts samples on the plain path."""
    return np.array(picture)


def test_samples_of_one_dataset(photos: Path) -> None:
    """Threads that take samples of one FastDataset get Pillow's pixels, and so do those that share a picture."""
    dataset = FastDataset(photos)
    shared = [dataset[index][0] for index in range(PHOTOS)]

    def seen(picture: Image.Image) -> list[bytes]:
        cropped = picture.crop((1, 2, 41, 42))
        return [part.tobytes() for part in (cropped, cropped.resize((20, 20)), picture, picture.transpose(0))]

    expected = [seen(Image.fromarray(np.array(dataset[index][0]))) for index in range(PHOTOS)]

    def read(number: int) -> bool:
        order = np.random.default_rng(number).permutation(PHOTOS).tolist()
        own = {index: seen(dataset[index][0]) for index in order}
        return all(expected[index] == own[index] == seen(shared[index]) for index in order)

    assert all(at_once(read))


LOADERS: dict[str, Callable[[Path, int], FastLoader]] = {
    "native": lambda path, seed: FastLoader(path, 5, shuffle=True, seed=seed, transforms=[RandomResizedCrop(16)]),
    "plain": lambda path, seed: FastLoader(FastDataset(path, transform=as_array), 5, shuffle=True, seed=seed),
    "fields": lambda path, seed: FastLoader(FastDataset(path, fields=("image", "label")), 5, shuffle=True, seed=seed),
}


@pytest.mark.parametrize("kind", LOADERS)
def test_loaders_of_one_store(photos: Path, kind: str) -> None:
    """Each thread with a loader of its own gets the batches that it would get alone, and an exact receipt."""

    def batches(seed: int) -> list[list[Any]]:
        with LOADERS[kind](photos, seed) as loader:
            taken = [[images.numpy().tobytes(), labels.tolist()] for _ in range(2) for images, labels in loader]
            assert loader.receipt().is_exact
        return taken

    expected = [batches(seed) for seed in range(3)]

    assert expected == at_once(batches, threads=3)


ORDERS: dict[str, Callable[[FastDataset], dict[str, Any]]] = {
    "ours": lambda dataset: {"shuffle": "full"},
    "a user's": lambda dataset: {"shuffle": False, "sampler": RandomSampler(dataset)},
}


@pytest.mark.parametrize("kind", ORDERS)
def test_iterations_of_one_loader(numbered: FastDataset, kind: str) -> None:
    """Threads that iterate over one loader get an epoch each, whole and in its order; all batches are counted."""
    options = ORDERS[kind](numbered)
    with loader_of(numbered, **options) as loader:
        expected = sorted(taken(loader) for _ in range(EPOCHS))
    with loader_of(numbered, **options) as loader:
        epochs = at_once(lambda _: taken(loader), threads=EPOCHS)
        stats = loader.stats

    assert expected == sorted(epochs)
    assert (EPOCHS * len(expected[0]), EPOCHS * COUNT) == (stats.batches, stats.samples)


def test_iterations_over_tokens(tmp_path: Path) -> None:
    """The same for batches of token ids, planned by their lengths."""
    dataset = FastDataset(write_tokens(tmp_path / "a.lmdb", samples_of()))
    loaders = [FastLoader(dataset, batch_sampler=PackSampler(dataset.lengths, max_tokens=200)) for _ in range(2)]

    def epoch(loader: FastLoader) -> list[list[int]]:
        return [batch["input_ids"].tolist() for batch in loader]

    expected = sorted(epoch(loaders[0]) for _ in range(EPOCHS))

    assert expected == sorted(at_once(lambda _: epoch(loaders[1]), threads=EPOCHS))
    assert loaders[0].stats.tokens == loaders[1].stats.tokens == EPOCHS * int(dataset.lengths.sum())
    for loader in loaders:
        loader.close()
