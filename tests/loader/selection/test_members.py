"""FastLoader over a part of a store: indices, masks, torch's Subset and random_split, in order and with its labels."""

from __future__ import annotations

import json
import pickle
import re
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, DataLoader, Subset, random_split

from fastio import FastDataset, FastLoader, LengthBucketSampler, SampleError, SchemaError
from fastio.loader.producer.native import NativeProducer
from fastio.loader.producer.plain import PlainProducer
from fastio.samplers.order import Shuffle
from fastio.transforms import RandomCrop
from tests.conftest import encode, pictures, write_store
from tests.dataset.test_fast_dataset import to_tensor
from tests.numbered import COUNT, taken, write_numbers

parts = st.lists(st.integers(-COUNT, COUNT - 1), max_size=40)


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> FastDataset:
    """Samples that are their own index, with the index as label too."""
    return write_numbers(tmp_path_factory.mktemp("subset") / "a.h5")


def all_ranks(dataset: Any, world_size: int, **options: Any) -> list[int]:
    """The samples of an epoch in the order of steps; labels are those of their samples."""
    ranks = []
    for rank in range(world_size):
        with FastLoader(dataset, **{"batch_size": 3, "threads": 1, **options}, rank=rank, world_size=world_size) as own:
            batches = [(values.tolist(), labels.tolist()) for values, labels in own]
            assert len(own) == len(batches)
        assert all(values == labels for values, labels in batches)
        ranks.append([values for values, _ in batches])
    assert len({tuple(map(len, batches)) for batches in ranks}) == 1
    return [value for step in zip(*ranks, strict=True) for values in step for value in values]


@settings(max_examples=40, deadline=None)
@given(indices=parts, world_size=st.integers(1, 4), shuffle=st.sampled_from([False, True, "full"]))
def test_exactly_the_samples_asked_for(
    numbered: FastDataset, indices: list[int], world_size: int, shuffle: Shuffle
) -> None:
    """All ranks together have each sample as often as it is named, in the order of the list without a shuffle."""
    expected = [index % COUNT for index in indices]
    got = all_ranks(numbered, world_size, indices=indices, shuffle=shuffle, uneven="pad")

    assert set(expected) == set(got)
    if shuffle is False:
        assert expected == got[: len(expected)]
    elif world_size == 1:
        assert sorted(expected) == sorted(got)


@pytest.mark.parametrize(
    "indices",
    [
        [1, 5, 3],
        (1, 5, 3),
        np.array([1, 5, 3], np.uint8),
        torch.tensor([1, 5, 3]),
        [np.int32(1), 5, -20],
    ],
)
def test_forms_of_indices(numbered: FastDataset, indices: Any) -> None:
    """Lists, tuples, arrays and tensors of whole numbers, and from the end."""
    assert [1, 5, 3] == all_ranks(numbered, 1, indices=indices)


def test_masks_and_ranges(numbered: FastDataset) -> None:
    """A boolean for each sample, and a range."""
    mask = np.arange(COUNT) % 4 == 1
    for each in (mask, mask.tolist(), torch.from_numpy(mask)):
        assert np.flatnonzero(mask).tolist() == all_ranks(numbered, 1, indices=each)
    assert [20, 15, 10] == all_ranks(numbered, 1, indices=range(20, 5, -5))
    assert [] == all_ranks(numbered, 1, indices=[], shuffle=True)


@pytest.mark.parametrize(
    ("indices", "error", "message"),
    [
        ([0, COUNT], IndexError, rf"indices\[1\] is {COUNT}: expected indices of {COUNT} samples"),
        ([-COUNT - 1], IndexError, r"indices\[0\]"),
        ([True, False], ValueError, f"a mask of 2 entries for {COUNT} samples"),
        ([0.5], TypeError, "expected integers or booleans, got float64"),
        ({1, 2}, TypeError, "expected an array, list or range of integers, got set"),
        ([[1, 2]], ValueError, "expected one dimension"),
        (3, TypeError, "got int"),
    ],
)
def test_what_is_no_index(numbered: FastDataset, indices: Any, error: type[Exception], message: str) -> None:
    """One line says what was expected."""
    with pytest.raises(error, match=message):
        FastLoader(numbered, 4, indices=indices)


@settings(max_examples=20, deadline=None)
@given(outer=parts, data=st.data(), batch_size=st.integers(1, 7))
def test_the_same_as_torch(numbered: FastDataset, outer: list[int], data: st.DataObject, batch_size: int) -> None:
    """Over a Subset of a Subset, batches are those of torch's DataLoader, to the bit."""
    inner = data.draw(st.lists(st.integers(0, len(outer) - 1), max_size=20)) if outer else []
    subset = Subset(Subset(numbered, outer), inner)
    expected = list(DataLoader(subset, batch_size))
    with FastLoader(subset, batch_size, threads=1) as loader:
        assert loader.dataset is subset
        got = list(loader)

    assert len(expected) == len(got)
    for one, other in zip(expected, got, strict=True):
        assert all(torch.equal(*pair) for pair in zip(one, other, strict=True))


def test_random_split_of_pictures(png_stores: dict[str, Path]) -> None:
    """Both parts of a split give torch's pictures and labels; with a transform of the dataset too."""
    for transform in (None, to_tensor):
        dataset = FastDataset(png_stores["tar"], transform)
        reference = FastDataset(png_stores["tar"], to_tensor)
        whole = random_split(dataset, [30, 20], torch.Generator().manual_seed(1))
        for part in whole:
            with FastLoader(part, 7) as loader:
                got = list(loader)
            for one, other in zip(DataLoader(Subset(reference, part.indices), 7), got, strict=True):
                assert all(torch.equal(*pair) for pair in zip(one, other, strict=True))


@settings(max_examples=25, deadline=None)
@given(
    indices=st.lists(st.integers(0, COUNT - 1), min_size=1, max_size=30),
    step=st.integers(0, 12),
    rank=st.integers(0, 1),
    shuffle=st.sampled_from([False, True, "full"]),
)
def test_resume_at_every_batch(
    numbered: FastDataset, indices: list[int], step: int, rank: int, shuffle: Shuffle
) -> None:
    """What is left after a state is loaded is what was left when it was taken."""
    options: dict[str, Any] = {"indices": indices, "rank": rank, "world_size": 2, "shuffle": shuffle, "threads": 1}
    with FastLoader(numbered, 2, **options) as loader:
        loader.set_epoch(1)
        batches = iter(loader)
        taken(islice(batches, min(step, len(loader))))
        state = json.loads(json.dumps(loader.state_dict()))
        rest = taken(batches)
    with FastLoader(numbered, 2, **options) as resumed:
        resumed.load_state_dict(state)
        assert rest == taken(resumed)


def test_a_state_of_other_indices_is_refused(numbered: FastDataset) -> None:
    """A position means the same samples only in the same part."""
    with FastLoader(numbered, 2, indices=[1, 2, 3]) as loader:
        state = loader.state_dict()
    for indices, difference in (([1, 2, 4], "indices_crc32"), (None, "samples is 3 in the state")):
        with FastLoader(numbered, 2, indices=indices) as other, pytest.raises(ValueError, match=difference):
            other.load_state_dict(state)


def test_what_the_loader_says_of_its_dataset(png_stores: dict[str, Path]) -> None:
    """Length, keys, labels and classes are those of the part."""
    whole = FastDataset(png_stores["lmdb"])
    with FastLoader(whole, 4, indices=[7, 2, 2]) as loader:
        part = loader.dataset
        assert (3, 1, 4) == (len(part), len(loader), loader.batch_size)
        assert part.keys == [whole.keys[7], whole.keys[2], whole.keys[2]]
        assert part.labels.tolist() == part.targets == [whole.labels[7], whole.labels[2], whole.labels[2]]
        assert part.classes == whole.classes
        assert part.class_to_idx == whole.class_to_idx
        assert part.column("length").tolist() == whole.lengths[[7, 2, 2]].tolist()
        assert np.array_equal(np.array(part[1][0]), np.array(whole[2][0]))
        assert loader.base is whole
        assert "1 batch of 4, 3 samples\n" in repr(loader)
        assert [0, 1, 2] == list(loader.sampler)
    with FastLoader(Subset(whole, [9, 3, 5, 1]), 2, shuffle="full", seed=3) as loader:
        expected = [loader.dataset[place][1] for place in loader.sampler]
        assert expected == [label for _, labels in loader for label in labels.tolist()]
    assert pickle.loads(pickle.dumps(part)).keys == part.keys


def test_a_shuffled_part_does_not_depend_on_its_order(numbered: FastDataset) -> None:
    """Listed in another order, the same samples come in the same order: that of their places in the store."""
    listed = np.random.default_rng(0).permutation(COUNT)[:15]
    for shuffle in (True, "full"):
        expected = all_ranks(numbered, 1, indices=np.sort(listed), shuffle=shuffle)
        assert expected == all_ranks(numbered, 1, indices=listed, shuffle=shuffle)


def test_repeated_samples_have_crops_of_their_own(tmp_path: Path) -> None:
    """A sample that is named several times gets another crop each time, the first one that it has alone."""
    store = write_store(tmp_path / "a.lmdb", [encode(pixels) for pixels in pictures(3, (40, 40, 3))], np.arange(3))
    options: dict[str, Any] = {"transforms": RandomCrop(8), "seed": 1}
    with FastLoader(store, 9, **options) as loader:
        alone = next(iter(loader))[0]
    with FastLoader(store, 9, indices=[2, 0, 2, 2], **options) as loader:
        images = next(iter(loader))[0]

    assert torch.equal(alone[[2, 0]], images[:2])
    assert len({image.numpy().tobytes() for image in images}) == 4
    with FastLoader(store, 9, indices=[2, 0, 2, 2], device="cpu", cache="device", **options) as cached:
        assert len({image.numpy().tobytes() for image in next(iter(cached))[0]}) == 4


class Doubled(FastDataset):
    """Twice as many samples as the store has, each a pair of its index and twice the index."""

    def __len__(self) -> int:
        return 2 * len(self.store)

    def __getitem__(self, index: int) -> Any:
        return index, 2 * index


@pytest.mark.parametrize("shuffle", [False, True, "full"])
def test_a_part_of_a_subclass(numbered: FastDataset, shuffle: Shuffle) -> None:
    """A subclass with samples and a length of its own is read through its own methods."""
    with FastLoader(Subset(Doubled(numbered.store), [40, 2, 45]), 2, shuffle=shuffle) as loader:
        pairs = [pair for first, second in loader for pair in zip(first.tolist(), second.tolist(), strict=True)]
    assert sorted(pairs) == [(2, 4), (40, 80), (45, 90)]


class FirstOnes(FastDataset):
    """The store's first samples."""

    def __len__(self) -> int:
        return 7


@pytest.mark.parametrize("shuffle", [False, True, "full"])
def test_a_shorter_subclass_is_a_part(numbered: FastDataset, shuffle: Shuffle) -> None:
    """A length of its own alone leaves decoding native, with any shuffle."""
    assert list(range(7)) == sorted(all_ranks(FirstOnes(numbered.store), 1, shuffle=shuffle))


class Changed(Subset[Any]):
    """A Subset with a transform, as scripts write it."""

    def __getitem__(self, index: Any) -> Any:
        image, label = super().__getitem__(index)
        return image, -label

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


def test_a_subset_that_changes_samples_is_refused(numbered: FastDataset) -> None:
    """It would be passed over; torch's DataLoader, which the message names, takes it."""
    changed = Changed(numbered, [3, 4])
    with pytest.raises(TypeError, match="got Changed: use torch's DataLoader"):
        FastLoader(changed, 2)
    assert next(iter(DataLoader(changed, 2)))[1].tolist() == [-3, -4]


def test_a_sampler_of_ours_over_a_part(numbered: FastDataset) -> None:
    """A batch_sampler counts the samples of the part."""
    part = Subset(numbered, [4, 8, 15, 16])
    with FastLoader(part, batch_sampler=LengthBucketSampler([1, 2, 1, 2], batch_size=2, seed=2)) as loader:
        assert sorted(map(sorted, taken(loader))) == [[4, 15], [8, 16]]
    with pytest.raises(ValueError, match="4 samples, but the batch_sampler plans 5"):
        FastLoader(part, batch_sampler=LengthBucketSampler([1] * 5, batch_size=2))


def test_k_folds(numbered: FastDataset) -> None:
    """Five folds validate each sample once and never train on it."""
    fold = np.random.default_rng(0).permutation(COUNT) % 5
    validated: list[int] = []
    for k in range(5):
        held_out = all_ranks(numbered, 1, indices=fold == k)
        assert set(held_out).isdisjoint(all_ranks(numbered, 1, indices=fold != k, shuffle="full"))
        validated += held_out
    assert sorted(validated) == list(range(COUNT))


def test_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The guide's lines for parts, folds, weights and samplers run as they stand there, each loader to its end."""
    text = (Path(__file__).parents[3] / "fastio" / "guide" / "loading.md").read_text()
    part = text[text.index("## A part of the samples") : text.index("## An unchanged script")]
    values = [encode(pixels) for pixels in pictures(1100, (8, 8, 3))]
    for name in ("train", "val"):
        write_store(tmp_path / f"{name}.lmdb", values, np.arange(1100) % 3)
    monkeypatch.chdir(tmp_path)
    counts = []

    class Tried(FastLoader):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            counts.append(sum(len(batch[1]) for batch in self))

    monkeypatch.setattr("fastio.FastLoader", Tried)
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", part, re.DOTALL):
        exec(compile(block, "loading.md", "exec"), names)

    assert [1000, 734, 990, 2200, 733, 2200, *[880, 220] * 5, 1100, 2000, 2000, 6, 2000, 5] == counts
    assert not caplog.records


# FastLoader over torch's ConcatDataset of FastDatasets: batches across stores, decoded natively.


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
def test_joined_datasets_are_the_same_as_torch(paths: list[Path], read: Any) -> None:
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
