"""CIFAR-10 and CIFAR-100 as sources."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fastio import FastDataset
from fastio.converters.inspect.sample_words import value_words
from fastio.converters.inspect.unpack import unpack
from fastio.errors import StoreError
from fastio.store import open_store
from tests.commands import run
from tests.converters.sources.packed import packed, refused
from tests.converters.trees import cifar_folder


def batch(path: Path) -> dict[bytes, Any]:
    """A batch as everybody unpickles it."""
    return dict(pickle.loads(path.read_bytes(), encoding="bytes"))


def test_the_training_set(tmp_path: Path) -> None:
    """Pixels are those of torchvision's CIFAR10: data reshaped to (3, 32, 32), channels last; the test set is named."""
    folder = cifar_folder(tmp_path / "cifar-10-batches-py")
    types, samples, _ = packed(folder, tmp_path / "o.lmdb")

    assert {"image": "uint8[32,32,3]", "label": "int"} == types
    for number in range(1, 6):
        known = batch(folder / f"data_batch_{number}")
        for name, pixels, label in zip(known[b"filenames"], known[b"data"], known[b"labels"], strict=True):
            expected = pixels.reshape(3, 32, 32).transpose(1, 2, 0).tobytes()
            assert {"image": expected, "label": label} == samples[name.decode()]
    assert 20 == len(samples)
    assert "test_batch (is the test set: pack " in run("pack", folder, tmp_path / "p.lmdb")
    with open_store(tmp_path / "o.lmdb") as store:
        assert [f"c{i}" for i in range(10)] == store.metadata["classes"]


def test_one_batch(tmp_path: Path) -> None:
    """A batch by its name is a source too."""
    folder = cifar_folder(tmp_path / "c")
    _, samples, _ = packed(folder / "test_batch", tmp_path / "o.h5")

    assert [f"test_batch_{i}.png" for i in range(4)] == list(samples)


def test_cifar_100(tmp_path: Path) -> None:
    """It has two labels, with names each; keys that repeat become numbers."""
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name, count in (("train", 6), ("test", 2)):
        values = {
            b"data": np.full((count, 3072), 7, np.uint8),
            b"fine_labels": list(range(count)),
            b"coarse_labels": [i // 2 for i in range(count)],
            b"filenames": [b"same.png"] * count,
        }
        (folder / name).write_bytes(pickle.dumps(values, 2))
    names = {
        b"fine_label_names": [b"f%d" % i for i in range(100)],
        b"coarse_label_names": [b"k%d" % i for i in range(20)],
    }
    (folder / "meta").write_bytes(pickle.dumps(names, 2))
    types, samples, _ = packed(folder, tmp_path / "o.lmdb")

    assert {"image": "uint8[32,32,3]", "label": "int", "coarse_label": "int"} == types
    assert [(i, i // 2) for i in range(6)] == [(s["label"], s["coarse_label"]) for s in samples.values()]
    with open_store(tmp_path / "o.lmdb") as store:
        assert "f99" == store.metadata["classes"][99]
        assert [f"k{i}" for i in range(20)] == store.metadata["field_classes"]["coarse_label"]


def binary_100(folder: Path, count: int = 5) -> Path:
    """The binary version of CIFAR-100: coarse label, fine label, planes."""
    folder.mkdir()
    for name in ("train.bin", "test.bin"):
        labels = np.array([[i % 20, i % 100] for i in range(count)], np.uint8)
        pixels = np.random.default_rng(len(name)).integers(0, 256, (count, 3072), np.uint8)
        np.concatenate([labels, pixels], axis=1).tofile(folder / name)
    for name, number in (("fine_label_names.txt", 100), ("coarse_label_names.txt", 20)):
        (folder / name).write_text("".join(f"{name[0]}{i}\n" for i in range(number)))
    return folder


def test_the_binary_version(tmp_path: Path) -> None:
    """Two labels and the pixels of each record; the test set by its name. A .bin elsewhere stays a row of token ids."""
    folder = binary_100(tmp_path / "cifar-100-binary")
    for name in ("train.bin", "test.bin"):
        records = np.fromfile(folder / name, np.uint8).reshape(-1, 3074)
        with open_store(folder if name == "train.bin" else folder / name) as store:
            assert [f"f{i}" for i in range(100)] == store.metadata["classes"]
            assert [f"c{i}" for i in range(20)] == store.metadata["field_classes"]["coarse_label"]
            assert records[:, 0].tolist() == store.column("coarse_label").tolist()
            assert records[:, 1].tolist() == store.column("label").tolist()
        images = [np.asarray(each["image"]) for each in FastDataset(folder if name == "train.bin" else folder / name)]
        assert np.array_equal(records[:, 2:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), images)
    types, samples, _ = packed(folder, tmp_path / "o.lmdb")
    assert {"image": "uint8[32,32,3]", "label": "int", "coarse_label": "int"} == types
    assert 5 == len(samples)
    (folder / "fine_label_names.txt").unlink()
    assert "what its ids are" in refused(folder / "train.bin")


@pytest.mark.parametrize(
    "damage", [b"", bytes(3074 * 2 - 1), bytes([20, 0]) + bytes(3072), bytes([0, 100]) + bytes(3072)]
)
def test_damaged_records(tmp_path: Path, damage: bytes) -> None:
    """Records of another size, and labels without a class, end in one line that names the file."""
    folder = binary_100(tmp_path / "c")
    (folder / "train.bin").write_bytes(damage)

    assert "train.bin: expected " in refused(folder)
    with pytest.raises(StoreError, match=r"train\.bin: expected "):
        open_store(folder)


@pytest.mark.parametrize("protocol", range(6))
def test_pickles_in_place(tmp_path: Path, protocol: int) -> None:
    """Python 3's protocols from 3 on keep bytes as they are; before, it wrote them as text, which is packed first."""
    folder = cifar_folder(tmp_path / "c")
    for number in range(1, 6):
        known = batch(folder / f"data_batch_{number}")
        (folder / f"data_batch_{number}").write_bytes(pickle.dumps(known, protocol))
    if protocol < 3:
        with pytest.raises(StoreError, match=r"its values 'image' are pickled as text\. Pack it: fastio pack "):
            open_store(folder)
        return
    with open_store(folder) as store:
        assert "planar" == store.schema["image"].codec
        assert "data_batch_1_0.png" == store.keys(np.array([0]))[0]


def test_commands_that_look_into_it(tmp_path: Path) -> None:
    """ls, show and verify take it where it lies; what unpack writes of it are its pictures."""
    folder = cifar_folder(tmp_path / "c")
    assert "data_batch_1_0.png" in run("ls", folder)
    assert "contact_sheet" in run("show", folder, "-o", tmp_path / "contact_sheet.png")
    assert "20 samples" in run("index", folder)
    assert "all good" in run("verify", folder)
    with open_store(folder) as store:
        unpack(store, tmp_path / "out")
        numbers = value_words(store, 0, store.schema.payload, width=40)["image"]
    pixels = batch(folder / "data_batch_1")[b"data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    for i, expected in enumerate(pixels):
        with Image.open(tmp_path / "out" / f"data_batch_1_{i}.png") as image:
            assert np.array_equal(expected, np.asarray(image))
    assert [int(each) for each in numbers.strip("[.] ").split()[:4]] == pixels[0].ravel()[:4].tolist()


def test_names_of_classes_that_change(tmp_path: Path) -> None:
    """The names lie in a file of their own, which is watched, too."""
    folder = cifar_folder(tmp_path / "c")
    assert "c3" == FastDataset(folder).classes[3]
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"d{i}" for i in range(10)]}))
    assert "d3" == FastDataset(folder).classes[3]


def changed(**values: Any) -> Callable[[dict[bytes, Any]], bytes]:
    """A batch with some values replaced, or left out if None."""

    def change(known: dict[bytes, Any]) -> bytes:
        more = {key.encode(): value for key, value in values.items()}
        return pickle.dumps({key: value for key, value in {**known, **more}.items() if value is not None}, 2)

    return change


DAMAGES: dict[str, Callable[[dict[bytes, Any]], bytes]] = {
    "empty": lambda _: b"",
    "text": lambda _: b"no pickle",
    "cut": lambda known: pickle.dumps(known, 2)[:-5000],
    "a list": lambda _: pickle.dumps([1], 2),
    "code": lambda _: b"\x80\x02cos\nsystem\nU\x04echo\x85R.",
    "greedy": lambda _: b"\x80\x02r\xff\xff\xff\x7f.",
    "no data": changed(data=None),
    "floats": changed(data=np.zeros((4, 3072))),
    "other size": changed(data=np.zeros((4, 3071), np.uint8)),
    "one dimension": changed(data=np.zeros(3072, np.uint8)),
    "fewer labels": changed(labels=[1, 2]),
    "no labels": changed(labels=None),
    "label too high": changed(labels=[1, 2, 3, 10]),
    "negative label": changed(labels=[1, 2, 3, -1]),
    "labels of text": changed(labels=["a", "b", "c", "d"]),
}


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize("file", ["data_batch_1", "data_batch_3"])
def test_damaged_or_hostile(tmp_path: Path, name: str, file: str) -> None:
    """One line that names the file; nothing in a pickle runs."""
    folder = cifar_folder(tmp_path / "c")
    (folder / file).write_bytes(DAMAGES[name](batch(folder / file)))

    assert "data_batch_" in refused(folder)


def test_batches_that_are_missing_or_twice(tmp_path: Path) -> None:
    """A batch before the last one is missed; a copy of one is no batch."""
    folder = cifar_folder(tmp_path / "c")
    count = len(open_store(folder))
    (folder / "data_batch_1~").write_bytes((folder / "data_batch_1").read_bytes())

    assert count == len(open_store(folder)) == len(packed(folder, tmp_path / "o.lmdb")[1])
    (folder / "data_batch_2").unlink()
    assert "c: lacks data_batch_2 before data_batch_" in refused(folder)


@pytest.mark.parametrize("kept", [1, 3, 4])
def test_last_batches_that_are_missing(tmp_path: Path, kept: int) -> None:
    """The others say how many there are; one that says to be another is no batch of this name."""
    folder = cifar_folder(tmp_path / "c")
    for number in range(kept + 1, 6):
        (folder / f"data_batch_{number}").unlink()
    lacks = ", ".join(f"data_batch_{number}" for number in range(kept + 1, 6))
    expected = f"c: lacks {lacks} after data_batch_{kept}: there are 5 batches, as they say: download CIFAR"

    assert expected in refused(folder)
    with pytest.raises(StoreError, match=expected):
        open_store(folder)
    assert 4 == len(packed(folder / "data_batch_1", tmp_path / "o.lmdb")[1])
    for number in range(kept + 1, 6):
        (folder / f"data_batch_{number}").write_bytes((folder / "data_batch_1").read_bytes())
    assert f"data_batch_{kept + 1}: says that it is training batch 1 of 5: download" in refused(folder)


@pytest.mark.parametrize("form", ["binary", "pickled"])
def test_last_batches_that_nothing_tells(tmp_path: Path, form: str, caplog: pytest.LogCaptureFixture) -> None:
    """What is usual of CIFAR-10 is said, by its classes; other datasets in its form have as many as they have."""
    folder = tmp_path / "c"
    cifar_folder(folder, batches=2)
    known = batch(folder / "batches.meta")
    suffix = ".bin" if form == "binary" else ""
    for number in (1, 2):
        values = batch(folder / f"data_batch_{number}")
        if suffix:
            records = np.concatenate([np.array([values[b"labels"]], np.uint8).T, values[b"data"]], axis=1)
            records.tofile(folder / f"data_batch_{number}.bin")
            (folder / f"data_batch_{number}").unlink()
            (folder / "batches.meta.txt").write_bytes(b"\n".join(known[b"label_names"]))
        else:
            (folder / f"data_batch_{number}").write_bytes(changed(batch_label=None)(values))
    assert 8 == len(packed(folder, tmp_path / "o.lmdb")[1])
    assert "" == caplog.text
    names = b"airplane automobile bird cat deer dog frog horse ship truck".split()
    (folder / "batches.meta.txt").write_bytes(b"\n".join(names))
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": names}, 2))
    assert 8 == len(packed(folder, tmp_path / "p.lmdb")[1])
    lacks = ", ".join(f"data_batch_{number}{suffix}" for number in (3, 4, 5))
    assert f"c: lacks {lacks} of CIFAR-10: download it again if it should be whole" in caplog.text


@pytest.mark.parametrize("content", [b"", pickle.dumps({}, 2), pickle.dumps({b"label_names": [1, 2]}, 2)])
def test_damaged_names(tmp_path: Path, content: bytes) -> None:
    """Without the names of classes, nothing is packed."""
    folder = cifar_folder(tmp_path / "c")
    (folder / "batches.meta").write_bytes(content)

    assert "/c" in refused(folder)
