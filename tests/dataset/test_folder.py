"""What scripts expect of torchvision's ImageFolder beside samples: its lists, which may be assigned, and its names."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from fastio import FastDataset, FastLoader, SchemaError, Unpacked
from tests.conftest import encode, pictures, write_store


def first_byte(image: Image.Image) -> int:
    """A picture's first value: here it tells the pictures apart."""
    return int(np.asarray(image).reshape(-1)[0])


FIRST = [int(pixels.reshape(-1)[0]) for pixels in pictures(50)]


def test_the_names_of_an_image_folder(png_store: Path) -> None:
    """imgs, root, extensions and loader are there, and fit each other."""
    dataset = FastDataset(png_store)
    key, _ = dataset.samples[7]

    assert dataset.samples == dataset.imgs
    assert (str(png_store), (".png",)) == (dataset.root, dataset.extensions)
    assert np.array_equal(pictures(50)[7], np.array(dataset.loader(key)))
    assert dataset[7][0].filename == key
    with pytest.raises(SchemaError, match=r"no sample has the key 'cat\.png'; dataset\.keys lists them"):
        dataset.loader("cat.png")


def negative(label: int) -> int:
    """A target_transform."""
    return -label


def test_transforms_are_both_in_one(png_store: Path) -> None:
    """``transforms`` is torchvision's StandardTransform in call and words."""
    dataset = FastDataset(png_store, first_byte, negative)
    assert dataset.transforms is not None
    image, label = FastDataset(png_store)[5]

    assert dataset[5] == dataset.transforms(image, label) == (FIRST[5], -2)
    lines = repr(dataset.transforms).splitlines()
    assert ["StandardTransform", f"Transform: {first_byte!r}", f"Target transform: {negative!r}"] == lines
    assert FastDataset(png_store).transforms is None


@pytest.mark.parametrize("name", ["samples", "imgs"])
def test_samples_may_be_assigned(png_store: Path, name: str) -> None:
    """A list that is shorter, in another order and with other labels is what the dataset then holds."""
    dataset = FastDataset(png_store, first_byte)
    _ = dataset.targets, dataset.keys, dataset.classes
    chosen = [40, 3, 17, 3]
    setattr(dataset, name, [(dataset.samples[index][0], index % 2) for index in chosen])

    assert 4 == len(dataset) == len(list(dataset))  # type: ignore[call-overload]
    assert [(FIRST[index], index % 2) for index in chosen] == dataset.__getitems__(range(4))
    assert (FIRST[3], 1) == dataset[-1]
    assert [0, 1, 1, 1] == dataset.targets
    assert [f"a/{index:04d}.png" for index in chosen] == dataset.keys
    assert list(zip(dataset.keys, dataset.targets, strict=True)) == dataset.samples == dataset.imgs
    assert ["bee", "cat", "dog"] == dataset.classes
    assert dataset.__getitems__(range(4)) == pickle.loads(pickle.dumps(dataset)).__getitems__(range(4))
    with pytest.raises(IndexError, match="of 4 samples"):
        dataset[4]


def test_samples_may_be_assigned_again(png_store: Path) -> None:
    """Each list is one of the whole store, not of the list before; None as labels is without labels."""
    dataset = FastDataset(png_store, first_byte)
    samples = dataset.samples
    dataset.samples = samples[:10]
    dataset.samples = samples[10:20]
    assert FIRST[10:20] == [value for value, _ in dataset.__getitems__(range(10))]

    dataset.samples = [(key, None) for key, _ in samples[:3]]
    assert FIRST[:3] == dataset.__getitems__(range(3))
    assert [] == dataset.targets
    dataset.samples = []
    assert (0, []) == (len(dataset), dataset.samples)


def as_batch(dataset: FastDataset, **options: Any) -> tuple[NDArray[np.uint8], list[int]]:
    """The first batch of a FastLoader."""
    with FastLoader(dataset, 4, **options) as loader:
        images, labels = next(iter(loader))
        return images[:, 0, 0, 0].numpy().copy(), labels.tolist()


def test_a_loader_reads_the_assigned_samples(png_store: Path) -> None:
    """FastLoader decodes the assigned samples natively, with their labels; another selection is another state."""
    dataset = FastDataset(png_store)
    samples = dataset.samples
    with FastLoader(dataset, 4) as before:
        dataset.samples = [(samples[index][0], index) for index in (40, 3, 17, 5)]
        values, labels = as_batch(dataset)
        with pytest.raises(
            ValueError, match=r"samples was assigned after this FastLoader was built.* build the loader"
        ):
            next(iter(before))
        with FastLoader(dataset, 4) as loader, pytest.raises(ValueError, match="store"):
            loader.load_state_dict(before.state_dict())

    assert ([FIRST[index] for index in (40, 3, 17, 5)], [40, 3, 17, 5]) == (values.tolist(), labels)
    assert sorted(labels) == sorted(as_batch(dataset, shuffle=True)[1])
    assert labels == as_batch(dataset, cache="ram")[1]


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ([("a/0001.png", 0), ("b.png", 1)], r"no sample has the key 'b\.png'"),
        ([("a/0001.png", "cat")], "expected a number as the label of each sample"),
        ([("a/0001.png", 1), ("a/0002.png", None)], "expected a number as the label of each sample"),
        (["a/0001.png"], "expected samples as pairs of key and label"),
    ],
)
def test_what_is_no_list_of_samples_is_refused(png_store: Path, samples: Any, words: str) -> None:
    """SchemaError in one line, and the dataset stays what it was."""
    dataset = FastDataset(png_store)

    with pytest.raises(SchemaError, match=words):
        dataset.samples = samples
    assert 50 == len(dataset.samples)


class Even(FastDataset):
    """Every second sample."""

    def __len__(self) -> int:
        return len(self.store) // 2

    def __getitem__(self, index: int) -> Any:
        if index >= len(self):
            raise IndexError(index)
        return super().__getitem__(2 * index)


class Twice(FastDataset):
    """Longer than its store."""

    def __len__(self) -> int:
        return 2 * len(self.store)

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index % len(self.store))


@pytest.mark.parametrize(("kind", "count"), [(Even, 25), (Twice, 100)])
def test_a_subclass_with_a_length_of_its_own(png_store: Path, kind: type[FastDataset], count: int) -> None:
    """Its lists are the store's, as ImageFolder's are its folder's; its samples and their number are its own."""
    dataset = kind(png_store, first_byte)

    assert 50 == len(dataset.keys) == len(dataset.targets) == len(dataset.samples)
    assert [f"a/{index:04d}.png" for index in range(50)] == [key for key, _ in dataset.samples]
    assert ["bee", "cat", "dog"] == dataset.classes
    assert count == len(dataset) == len(list(dataset.iterable()))
    with FastLoader(dataset, 10, shuffle="full") as loader:
        assert count == sum(len(labels) for _, labels in loader)


def test_classes_of_an_empty_subclass(tmp_path: Path) -> None:
    """Classes come from the store's labels, whatever length a subclass has."""

    class Nothing(FastDataset):
        def __len__(self) -> int:
            return 0

    values = [encode(pixels) for pixels in pictures(3)]
    assert ["0", "1", "2"] == Nothing(write_store(tmp_path / "a.lmdb", values, np.array([0, 2, 1]))).classes


def test_a_store_has_no_options_of_unpacked_files(tmp_path: Path) -> None:
    """A split that is asked of a packed store is refused: all samples would come."""
    path = write_store(tmp_path / "a.lmdb", [encode(pixels) for pixels in pictures(3)])
    with pytest.raises(SchemaError, match=r"a\.lmdb: is a store, of which --split train \(unpacked=\) says nothing"):
        FastDataset(path, unpacked=Unpacked(split="train"))
