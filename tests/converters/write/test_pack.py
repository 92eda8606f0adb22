"""fastio.pack: datasets of torch and generators, whole and in order, in one process and in many."""

from __future__ import annotations

import io
import os
import signal
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

import fastio
from fastio.errors import SampleError, SchemaError, SourceError, StoreError
from fastio.store import open_store
from tests.converters.trees import flat, picture
from tests.converters.write.writing import values, visible

JOBS = pytest.mark.parametrize("jobs", [None, 1, 2])


class Pictures(Dataset):
    """PIL images and labels, as torchvision's CIFAR10 gives them."""

    classes = ("cat", "dog", "owl")

    def __init__(self, count=150):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return Image.open(io.BytesIO(picture(index))).convert("RGB"), index % 3


class Failing(Pictures):
    """Pictures of which one cannot be read."""

    def __getitem__(self, index):
        if index == 100:
            raise OSError("broken file")
        return super().__getitem__(index)


class Dying(Pictures):
    """Pictures of which one ends the process."""

    def __getitem__(self, index):
        if index == 100:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def pixels(path):
    """The pictures of a store, decoded by Pillow."""
    with open_store(path) as store:
        return [np.asarray(Image.open(io.BytesIO(data))).tolist() for data in values(store, "image")]


@JOBS
def test_pairs_of_a_picture_and_a_number(tmp_path, jobs):
    """They become the fields image and label, in order, with the dataset's classes; the report counts the PNGs."""
    report = fastio.pack(Pictures(), tmp_path / "out.lmdb", jobs=jobs)
    expected = [np.asarray(Pictures()[i][0]).tolist() for i in range(150)]

    assert expected == pixels(tmp_path / "out.lmdb")
    with open_store(tmp_path / "out.lmdb") as store:
        assert [i % 3 for i in range(150)] == store.column("label").tolist()
        assert [f"{i:08d}" for i in range(150)] == store.keys(np.arange(150))
        assert ["cat", "dog", "owl"] == store.metadata["classes"]
        assert "Pictures" == store.metadata["source"]["name"]
    assert (150, 150) == (report.packed, report.made_pngs)


def test_the_store_does_not_depend_on_jobs(tmp_path):
    """One process and three write the same bytes."""
    for jobs in (None, 3):
        fastio.pack(Pictures(), tmp_path / f"out{jobs}.lmdb", jobs=jobs)

    assert (tmp_path / "outNone.lmdb").read_bytes() == (tmp_path / "out3.lmdb").read_bytes()


@pytest.mark.parametrize("jobs", [None, 2])
def test_dicts(tmp_path, jobs):
    """A list of dicts keeps its fields; one of them may be the key."""
    samples = [{"name": f"n{i}", "text": str(i), "vector": np.full(3, i, np.float32), "n": i} for i in range(200)]
    fastio.pack(samples, tmp_path / "out.h5", key="name", jobs=jobs)
    with open_store(tmp_path / "out.h5") as store:
        assert ["text", "vector", "n"] == [field.name for field in store.schema.fields]
        assert [f"n{i}" for i in range(200)] == store.keys(np.arange(200))
        assert [str(i).encode() for i in range(200)] == values(store, "text")
        assert list(range(200)) == store.column("n").tolist()


def test_keys(tmp_path):
    """The key's field stays if it is named among the fields; a function gives a key too; numbers become text."""
    samples = [{"id": i, "text": str(i)} for i in range(5)]
    fastio.pack(samples, tmp_path / "a.lmdb", key="id", fields={"id": "int", "text": "text"})
    fastio.pack(samples, tmp_path / "b.lmdb", key=lambda sample: f"k{sample['id']}")
    with open_store(tmp_path / "a.lmdb") as a, open_store(tmp_path / "b.lmdb") as b:
        assert ["0", "1", "2", "3", "4"] == a.keys(np.arange(5))
        assert "id" in a.schema
        assert ["k0", "k1", "k2", "k3", "k4"] == b.keys(np.arange(5))
    with pytest.raises(SampleError, match="lacks the field 'no', its key"):
        fastio.pack(samples, tmp_path / "c.lmdb", key="no")
    with pytest.raises(SchemaError, match="samples are no dicts, but str"):
        fastio.pack(["a"], tmp_path / "c.lmdb", key="no")


@pytest.mark.parametrize("jobs", [None, 2])
def test_keys_that_come_twice_or_cannot_be(tmp_path, jobs):
    """A bad key is the sample's problem, in workers too."""
    samples = [{"id": i, "text": "x"} for i in range(200)]
    samples[150]["id"], samples[160]["id"], samples[170]["id"] = 3, "", 169
    report = fastio.pack(samples, tmp_path / "out.lmdb", key="id", jobs=jobs, on_error="skip")

    assert ["", "169", "3"] == sorted(problem.key for problem in report.skipped)
    assert 197 == report.packed


def test_tuples_by_name(tmp_path):
    """Fields name the values of tuples in order, with types or without; named tuples name their own."""
    rows = [(picture(i), f"t{i}", [1.5] * i) for i in range(4)]
    fastio.pack(rows, tmp_path / "a.lmdb", fields=["image", "caption", "numbers"])
    fastio.pack(rows, tmp_path / "b.lmdb", fields={"image": None, "caption": None, "numbers": "float32[*]"})
    row = namedtuple("row", ["image", "caption", "numbers"])
    fastio.pack((row(*each) for each in rows), tmp_path / "c.lmdb")
    for name, dtype in (("a", "<f8"), ("b", "<f4"), ("c", "<f8")):
        with open_store(tmp_path / f"{name}.lmdb") as store:
            assert [("image", "image"), ("caption", "text"), ("numbers", "ragged")] == [
                (field.name, field.codec) for field in store.schema.fields
            ]
            assert dtype == store.schema["numbers"].dtype
            assert [row[0] for row in rows] == values(store, "image")
    with pytest.raises(SchemaError, match="tuples of 3 values: name these"):
        fastio.pack(rows, tmp_path / "d.lmdb")
    with pytest.raises(SampleError, match="is of type tuple of 2 values; expected a tuple of image, caption, numbers"):
        fastio.pack([*rows, (1, 2)], tmp_path / "d.lmdb", fields=["image", "caption", "numbers"])


def test_tensors(tmp_path):
    """A TensorDataset of arrays and labels needs no names."""
    data = torch.arange(24, dtype=torch.float32).reshape(6, 4)
    fastio.pack(TensorDataset(data, torch.arange(6)), tmp_path / "out.lmdb")
    with open_store(tmp_path / "out.lmdb") as store:
        assert [row.numpy().tobytes() for row in data] == values(store, "array")
        assert list(range(6)) == store.column("label").tolist()


def test_iterables(tmp_path):
    """Generators and torch's IterableDataset are read once, in order; workers cannot share them."""

    class Stream(IterableDataset):
        def __iter__(self):
            return iter([f"text {i}" for i in range(1000)])

    for number, dataset in enumerate((Stream(), (f"text {i}" for i in range(1000)))):
        fastio.pack(dataset, tmp_path / f"{number}.lmdb")
        with open_store(tmp_path / f"{number}.lmdb") as store:
            assert [f"text {i}".encode() for i in range(1000)] == values(store, "text")
    with pytest.raises(ValueError, match="jobs=2: expected a dataset with a length"):
        fastio.pack(Stream(), tmp_path / "2.lmdb", jobs=2)
    assert not (tmp_path / "2.lmdb").exists()


def test_subsets(tmp_path):
    """A Subset has its samples in its own order."""
    fastio.pack(Subset(Pictures(), [5, 3, 140]), tmp_path / "out.lmdb")

    assert [np.asarray(Pictures()[i][0]).tolist() for i in (5, 3, 140)] == pixels(tmp_path / "out.lmdb")


@JOBS
def test_a_sample_that_the_dataset_cannot_read(tmp_path, jobs):
    """Its exception arrives with the sample's index, or it is listed."""
    with pytest.raises(OSError, match="broken file") as caught:
        fastio.pack(Failing(), tmp_path / "out.lmdb", jobs=jobs)
    assert any("raised by sample 100 of Failing" in note for note in caught.value.__notes__)
    assert [] == visible(tmp_path)
    report = fastio.pack(Failing(), tmp_path / "out.lmdb", jobs=jobs, on_error="skip")
    assert [("00000100", "cannot be read: OSError: broken file")] == [
        (problem.key, problem.problem) for problem in report.skipped
    ]
    assert (149, 150) == (report.packed, report.found)


def test_a_worker_that_dies(tmp_path):
    """It is an error, and nothing is left."""
    with pytest.raises(StoreError, match="one of 2 worker processes died while it read samples"):
        fastio.pack(Dying(), tmp_path / "out.lmdb", jobs=2)

    assert [] == visible(tmp_path)


@JOBS
def test_wrong_samples(tmp_path, jobs):
    """A sample of another type is named by key and field, and skipped if asked."""
    samples = [{"text": str(i), "n": i} for i in range(150)]
    samples[120] = {"text": 5, "n": 1}
    samples[130] = None
    with pytest.raises(SampleError, match="'00000120' has a field 'text' that is int"):
        fastio.pack(samples, tmp_path / "out.lmdb", jobs=jobs)
    report = fastio.pack(samples, tmp_path / "out.lmdb", jobs=jobs, on_error="skip")
    assert ["00000120", "00000130"] == [problem.key for problem in report.skipped]
    assert 148 == report.packed


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ("train", "'train': is no dataset: `fastio pack`"),
        (Path("train"), "is no dataset: `fastio pack`"),
        ({"train": [], "test": []}, "the dataset is a dict of train, test: pack these one by one"),
        (DataLoader([1, 2]), "a DataLoader yields batches: pack its dataset"),
        (5, "expected a dataset, a generator or a list of samples, got int"),
    ],
)
def test_what_is_no_dataset(tmp_path, dataset, message):
    """Paths, dicts of splits, loaders and numbers say what to do instead."""
    with pytest.raises(SourceError, match=message):
        fastio.pack(dataset, tmp_path / "out.lmdb")

    assert [] == visible(tmp_path)


def test_a_writer_takes_datasets(tmp_path):
    """Several datasets and single samples go into one store."""
    with fastio.Writer(tmp_path / "out.lmdb", {"text": "text"}) as writer:
        writer.write_all(["a", "b"])
        writer.write({"text": "c"})
        writer.write_all(["d"] * 100, jobs=2)
    with open_store(tmp_path / "out.lmdb") as store:
        assert [b"a", b"b", b"c", *[b"d"] * 100] == values(store, "text")


def test_image_folders_keep_their_files(tmp_path):
    """torchvision's ImageFolder without transforms gives its files' bytes, names and classes; with one, its samples."""
    folders = pytest.importorskip("torchvision.datasets")
    for name in ("cat/1.jpg", "cat/2.jpg", "dog/1.png"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / name).write_bytes(picture(len(name), kind="JPEG" if "jpg" in name else "PNG"))
    fastio.pack(folders.ImageFolder(tmp_path / "photos"), tmp_path / "a.lmdb")
    fastio.pack(folders.ImageFolder(tmp_path / "photos", lambda image: image.resize((2, 2))), tmp_path / "b.lmdb")
    with open_store(tmp_path / "a.lmdb") as a, open_store(tmp_path / "b.lmdb") as b:
        assert ["cat/1.jpg", "cat/2.jpg", "dog/1.png"] == a.keys(np.arange(3))
        assert [(tmp_path / "photos" / key).read_bytes() for key in a.keys(np.arange(3))] == values(a, "image")
        assert (["cat", "dog"], [0, 0, 1]) == (a.metadata["classes"], a.column("label").tolist())
        assert [[2, 2, 3]] * 3 == b.shapes("image").tolist()


def test_a_sample_wrong_among_the_last_leaves_nothing(tmp_path):
    """Pack is all or nothing also for what shows only when the types are known."""
    samples = [{"image": b"no", "caption": "a"}, {"image": picture(1), "caption": "b"}]
    with pytest.raises(SampleError, match="'00000000' has a field 'image'"):
        fastio.pack(samples, tmp_path / "out.lmdb", fields={"image": "image", "caption": None})

    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("dataset", "options", "message"),
    [
        (dict, {}, "expected a dataset, got the class dict"),
        ([{"a": "x"}], {"jobs": "4"}, "jobs='4': expected a whole number from 1 on"),
        ([{"a": "x"}], {"jobs": 2.5}, "jobs=2.5: expected a whole number"),
        ([{"a": "x"}], {"rename": "a"}, "rename='a': expected old and new names"),
    ],
)
def test_values_that_are_no_options(tmp_path, dataset, options, message):
    """A class for its instance, numbers as text, a name for a dict: one line each."""
    with pytest.raises(ValueError, match=message):
        fastio.pack(dataset, tmp_path / "out.lmdb", **options)

    assert [] == visible(tmp_path)


def test_names_of_files_are_not_packed_as_text(tmp_path, monkeypatch):
    """A list of files that exist may mean their names or the pictures: the types say which."""
    monkeypatch.chdir(tmp_path)
    flat(tmp_path / "f", 2)
    names = ["f/0000.png", "f/0001.png"]
    with pytest.raises(SchemaError, match="names of files that exist"):
        fastio.pack(names, "out.lmdb")
    pictures = fastio.pack(names, "pictures.lmdb", fields={"image": "image"})
    texts = fastio.pack(names, "texts.lmdb", fields={"file": "text"})

    assert (2, 2) == (pictures.packed, texts.packed)
    with open_store("pictures.lmdb") as store:
        assert [picture(0), picture(1)] == values(store, "image")
