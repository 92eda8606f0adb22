"""FastLoader over torch's ConcatDataset of FastDatasets: batches across stores, decoded natively."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, DataLoader, Subset

from fastio import FastDataset, FastLoader, SampleError, SchemaError
from fastio.loader.producer.native import NativeProducer
from fastio.loader.producer.plain import PlainProducer
from tests.conftest import encode, pictures, write_store
from tests.dataset.test_fast_dataset import to_tensor


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three stores of 4, 7 and 5 PNGs, each in another format."""
    folder = tmp_path_factory.mktemp("concat")
    counts = {"lmdb": 4, "h5": 7, "tar": 5}
    values = {suffix: [encode(each) for each in pictures(count, seed=count)] for suffix, count in counts.items()}
    return [write_store(folder / f"a.{name}", each, np.arange(len(each), dtype="<u2")) for name, each in values.items()]


def nested(paths: list[Path], transform: Any = None) -> ConcatDataset[Any]:
    """Stores within Subsets within ConcatDatasets, one of them twice."""
    a, b, c = (FastDataset(path, transform) for path in paths)
    return ConcatDataset([Subset(ConcatDataset([a, b]), [10, 3, 0, 5]), c, Subset(a, [2, 2])])


@pytest.mark.parametrize("read", ["map", "pread"])
def test_the_same_as_torch(paths: list[Path], read: Any) -> None:
    """Batches are those of torch's DataLoader, to the bit, by native threads; by the plain path with a transform."""
    expected = list(DataLoader(nested(paths, to_tensor), 3))
    native = ConcatDataset([FastDataset(path, read=read) for path in paths])
    plain = ConcatDataset([FastDataset(path, to_tensor) for path in paths])
    for dataset, batches, kind in (
        (nested(paths), expected, NativeProducer),
        (nested(paths, to_tensor), expected, PlainProducer),
        (native, list(DataLoader(plain, 3)), NativeProducer),
    ):
        with FastLoader(dataset, 3, threads=1) as loader:
            assert loader.dataset is dataset
            assert isinstance(loader._wiring.producer, kind)
            for one, other in zip(batches, loader, strict=True):
                assert all(torch.equal(*pair) for pair in zip(one, other, strict=True))


@settings(max_examples=20, deadline=None)
@given(step=st.integers(0, 4), rank=st.integers(0, 1), shuffle=st.sampled_from([False, True, "full"]))
def test_resume_and_ranks(paths: list[Path], step: int, rank: int, shuffle: Any) -> None:
    """Over several stores too, what is left after a state is loaded is what was left."""
    options: dict[str, Any] = {"rank": rank, "world_size": 2, "shuffle": shuffle, "threads": 1}
    with FastLoader(nested(paths), 2, **options) as loader:
        batches = iter(loader)
        list(islice(batches, min(step, len(loader))))
        state = json.loads(json.dumps(loader.state_dict()))
        rest = [images.clone() for images, _ in batches]
    with FastLoader(nested(paths), 2, **options) as resumed:
        resumed.load_state_dict(state)
        assert all(torch.equal(*pair) for pair in zip(rest, [images for images, _ in resumed], strict=True))
    with FastLoader(nested(paths[::-1]), 2, **options) as other, pytest.raises(ValueError, match=r"store is"):
        other.load_state_dict(state)


@pytest.mark.parametrize("cache", ["ram", "device"])
def test_a_cache_of_several_stores(paths: list[Path], cache: Any) -> None:
    """Samples of all stores are kept."""
    with FastLoader(nested(paths), 20) as plain, FastLoader(nested(paths), 20, cache=cache, device="cpu") as cached:
        for one, other in zip(next(iter(plain)), next(iter(cached)), strict=True):
            assert torch.equal(one, other)


def test_one_store_in_parts_is_not_joined(paths: list[Path]) -> None:
    """Parts of one dataset are read from it; all of it in order is the dataset itself."""
    dataset = FastDataset(paths[1])
    halves = ConcatDataset([Subset(dataset, [0, 1, 2]), Subset(dataset, [3, 4, 5, 6])])
    with FastLoader(halves, 7) as loader, FastLoader(dataset, 7) as plain:
        assert loader.base is dataset
        assert loader.state_dict() == plain.state_dict()


def test_a_bad_sample_names_its_store(tmp_path: Path, paths: list[Path]) -> None:
    """The error has the file of the member and the key there."""
    values = [encode(pixels) for pixels in pictures(3)]
    values[1] = values[1][:70]
    bad = FastDataset(write_store(tmp_path / "bad.h5", values, np.arange(3)))
    with (
        FastLoader(ConcatDataset([FastDataset(paths[0]), bad]), 7) as loader,
        pytest.raises(SampleError, match=r"bad\.h5.*'a/0001\.png'"),
    ):
        next(iter(loader))
    with FastLoader(ConcatDataset([FastDataset(paths[0]), bad]), 7, on_error="skip") as loader:
        assert next(iter(loader))[1].tolist() == [0, 1, 2, 3, 0, 2]


def named(path: Path, classes: list[str], transform: Any = None) -> FastDataset:
    """Two pictures of two named classes."""
    values = [encode(pixels) for pixels in pictures(2)]
    store = write_store(path, values, np.arange(2), metadata={"classes": classes})
    return FastDataset(store, target_transform=transform)


def test_classes_that_differ(tmp_path: Path) -> None:
    """A number that means two classes is refused; target_transforms, which the message advises, work as in torch."""
    pets = named(tmp_path / "a.h5", ["cat", "dog"])
    fish = named(tmp_path / "b.h5", ["eel", "ray"])
    with pytest.raises(SchemaError, match=r"label 0 is 'cat' .* but 'eel' .* a target_transform"):
        FastLoader(ConcatDataset([pets, fish]), 4)

    fish.target_transform = lambda label: label + 2
    both = ConcatDataset([pets, fish])
    with FastLoader(both, 4) as loader:
        assert next(iter(loader))[1].tolist() == [0, 1, 2, 3]
        pets.target_transform = None
    fish.transform = pets.transform = to_tensor
    with FastLoader(both, 3, shuffle="full") as loader:
        assert sorted(label for _, labels in loader for label in labels.tolist()) == [0, 1, 2, 3]
    assert [label for _, labels in DataLoader(both, 4) for label in labels.tolist()] == [0, 1, 2, 3]


def test_what_differs_between_datasets(paths: list[Path]) -> None:
    """Pictures that would come differently are refused, and torch's DataLoader takes them, as the message says."""
    mixed = ConcatDataset([FastDataset(paths[0], to_tensor), FastDataset(paths[1])])
    with pytest.raises(
        SchemaError, match=r"has transform=None, but .*: all datasets of a ConcatDataset need the same transform: use"
    ):
        FastLoader(mixed, 2)
    with pytest.raises(SchemaError, match=r"has mode='L', but .* has 'RGB'"):
        FastLoader(ConcatDataset([FastDataset(paths[0]), FastDataset(paths[1], mode="L")]), 2)

    class Own(FastDataset):
        def __getitem__(self, index: int) -> Any:
            return index

    with pytest.raises(TypeError, match=r"Own makes its own samples .* use torch's DataLoader for the ConcatDataset"):
        FastLoader(ConcatDataset([FastDataset(paths[0]), Own(paths[1])]), 2)
    own = ConcatDataset([Own(paths[0]), Own(paths[1])])
    assert next(iter(DataLoader(own, 11))).tolist() == [*range(4), *range(7)]


def test_a_transform_set_later_is_not_passed_over(paths: list[Path]) -> None:
    """A member's transform that comes after the loader was built is refused when the epoch starts."""
    datasets = [FastDataset(path) for path in paths]
    with FastLoader(ConcatDataset(datasets), 4) as loader:
        datasets[1].transform = to_tensor
        with pytest.raises(ValueError, match=r"got its transform after this FastLoader was built"):
            iter(loader)
