"""Fields of lists and of values that may be missing, from Writer to FastDataset and the commands."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from fastio import FastDataset, FastLoader, SampleError, SchemaError, StoreError, Writer, pack
from fastio.converters.inspect.contact_sheet import contact_sheet, shown_lists
from fastio.store import open_store
from fastio.transforms import Resize
from tests.commands import run

FIELDS = {
    "images": "image[*]",
    "caption": "text",
    "control": "image?",
    "refs": "text[*]",
    "ids": "tokens16[*]",
    "boxes": "float32[*,4]?",
    "label": "label",
}


def picture(number: int, size: int = 8, form: str = "PNG") -> bytes:
    """A picture of noise, smaller or larger than those that are decoded at once."""
    pixels = np.random.default_rng(number).integers(0, 255, (size + number % 3, size, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, form, quality=90)
    return file.getvalue()


def pixels_of(data: bytes) -> list[Any]:
    """What Pillow makes of it."""
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB")).tolist()


def sample(i: int, images: int, size: int = 8) -> dict[str, Any]:
    """A sample of so many pictures, whose other values are missing in every second one."""
    return {
        "images": [picture(10 * i + j, size) for j in range(images)],
        "caption": f"Käfer {i}",
        "control": picture(i, size, "JPEG") if i % 2 else None,
        "refs": [f"{j}" * j for j in range(i % 4)],
        "ids": [list(range(j)) for j in range(i % 3)],
        "boxes": np.arange(4.0 * i, dtype="f4").reshape(i, 4) if i % 2 else None,
        "label": i,
    }


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """A sample in types that compare."""
    return {
        "images": [pixels_of(data) for data in values["images"]],
        "caption": values["caption"],
        "control": None if values["control"] is None else pixels_of(values["control"]),
        "refs": values["refs"],
        "ids": values["ids"],
        "boxes": None if values["boxes"] is None else values["boxes"].tolist(),
        "label": values["label"],
    }


def loaded(values: dict[str, Any]) -> dict[str, Any]:
    """A sample of a FastDataset in types that compare."""
    return {
        **values,
        "images": [np.asarray(image).tolist() for image in values["images"]],
        "control": None if values["control"] is None else np.asarray(values["control"]).tolist(),
        "ids": [ids.tolist() for ids in values["ids"]],
        "boxes": None if values["boxes"] is None else values["boxes"].tolist(),
    }


def write(path: Path, samples: list[dict[str, Any]]) -> Path:
    """A store of these samples."""
    with Writer(path, FIELDS, overwrite=True) as out:
        for i, values in enumerate(samples):
            out.write(values, key=f"s{i}")
    return path


@pytest.mark.parametrize("suffix", [".lmdb", ".h5", ".tar", ".zip"])
def test_there_and_back(tmp_path: Path, suffix: str) -> None:
    """Lists, also empty ones, and missing values come back as they were written."""
    samples = [sample(i, images, size) for i, (images, size) in enumerate([(0, 8), (3, 8), (1, 70), (0, 70), (4, 70)])]
    dataset = FastDataset(write(tmp_path / f"s{suffix}", samples))
    expected = [plain(each) for each in samples]

    assert expected == [loaded(dataset[i]) for i in range(5)]
    assert expected[::-1] == [loaded(each) for each in dataset.__getitems__([4, 3, -3, 1, 0])]
    assert expected == [loaded(each) for each in dataset.iterable(rank=0, world_size=1)]
    assert expected[4] == loaded(pickle.loads(pickle.dumps(dataset))[4])
    images, control = FastDataset(dataset.store, fields=("images", "control"))[1]
    assert (3, expected[1]["control"]) == (len(images), np.asarray(control).tolist())
    assert [[0, 0], [1, 3], [2, 1], [3, 0], [4, 4]] == [
        [i, len(each)] for i, each in enumerate(FastDataset(dataset.store, fields="images"))
    ]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([4, 66])), min_size=1, max_size=6), st.data())
def test_any_indices(tmp_path: Path, shapes: list[tuple[int, int]], data: st.DataObject) -> None:
    """Any samples, in any order and more than once, are those that were written."""
    samples = [sample(i, images, size) for i, (images, size) in enumerate(shapes)]
    with FastDataset(write(tmp_path / "s.lmdb", samples)) as dataset:
        indices = data.draw(st.lists(st.integers(0, len(samples) - 1), max_size=8))
        found = [loaded(each) for each in dataset.__getitems__(indices)]

    assert [plain(samples[i]) for i in indices] == found


def test_samples_may_be_assigned(tmp_path: Path) -> None:
    """Lists follow the samples that are chosen, in their order, also in a loader."""
    samples = [sample(i, i % 3) for i in range(6)]
    dataset = FastDataset(write(tmp_path / "s.lmdb", samples))
    dataset.samples = [dataset.samples[i] for i in (4, 2, 4)]
    (batch,) = FastLoader(dataset, 3, transforms=Resize((8, 8)))

    assert [plain(samples[i]) for i in (4, 2, 4)] == [loaded(each) for each in dataset]
    assert ([1, 2, 1], [4, 2, 4]) == (batch["images_counts"].tolist(), batch["label"].tolist())


def test_workers_read_lists(tmp_path: Path) -> None:
    """DataLoader workers get them, with a collate_fn of the user's."""
    samples = [sample(i, i % 3) for i in range(8)]
    dataset = FastDataset(write(tmp_path / "s.h5", samples))
    loader = torch.utils.data.DataLoader(dataset, 3, num_workers=2, collate_fn=list)

    assert [plain(each) for each in samples] == [loaded(each) for batch in loader for each in batch]


@pytest.mark.parametrize("suffix", [".lmdb", ".tar"])
def test_a_damaged_element_is_named(tmp_path: Path, suffix: str) -> None:
    """The error says which picture of which sample; blanks replace that picture alone."""
    samples = [sample(i, 3) for i in range(4)]
    path = write(tmp_path / f"s{suffix}", samples)
    with open_store(path) as store:
        elements = store.elements("images")
        which, _ = elements.of(np.array([2]))
        span = elements.spans("images", which[1:2])
        start, size = int(span.starts[0]), int(span.sizes[0])
    data = bytearray(path.read_bytes())
    data[start + size // 2] ^= 4
    path.write_bytes(data)
    dataset = FastDataset(path)

    with pytest.raises(SampleError, match=rf"s{suffix}\[2\] \('s2'\), field 'images' 2 of 3: ") as caught:
        dataset[2]
    assert (2, "s2", "images") == (caught.value.index, caught.value.key, caught.value.field)
    blank, expected = loaded(dataset.blank(2)), plain(samples[2])
    assert not np.any(blank["images"][1])
    assert (expected["images"][0], expected["images"][2]) == (blank["images"][0], blank["images"][2])
    assert expected["refs"] == blank["refs"]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"images": None}, "'s0' has a field 'images' that is of type NoneType; expected a list, an empty one"),
        ({"images": picture(1)}, "'s0' has a field 'images' that is of type bytes; expected a list"),
        (
            {"images": [picture(1), b"x"]},
            "'s0' has a field 'images' that has a bad element, 2 of 2: it is not an image",
        ),
        ({"refs": ["a", 3, "b"]}, "'s0' has a field 'refs' that has a bad element, 2 of 3: it "),
        ({"control": b"x"}, "'s0' has a field 'control' that is not an image"),
    ],
)
def test_what_does_not_fit(tmp_path: Path, values: dict[str, Any], sentence: str) -> None:
    """A wrong list is refused, and a wrong element is named by its number; the others are kept."""
    with Writer(tmp_path / "s.lmdb", FIELDS) as out:
        with pytest.raises(SampleError) as caught:
            out.write({**sample(1, 1), **values}, key="s0")
        out.write(sample(1, 2), key="s1")

    assert sentence in str(caught.value)
    assert [2] == [len(each["images"]) for each in FastDataset(tmp_path / "s.lmdb")]


def test_a_damaged_photo_in_a_list(tmp_path: Path) -> None:
    """JPEGs of lists get start points, and those whose codes are damaged are named as others are."""
    good = picture(3, 160, "JPEG")
    bad = bytearray(good)
    bad[len(bad) // 2 : len(bad) // 2 + 60] = b"\xff" * 60
    with Writer(tmp_path / "s.h5", {"images": "image[*]"}, on_error="skip") as out:
        out.write({"images": [good, good]}, key="good")
        out.write({"images": [good, bytes(bad)]}, key="bad")
    with open_store(tmp_path / "s.h5") as store:
        elements = store.elements("images")
        intervals = elements.spans("images", np.arange(2)).intervals

        assert ["good"] == store.keys([0])
        assert intervals is not None
        assert intervals.sizes.all()
        assert [[160, 160, 3]] * 2 == elements.shapes("images").tolist()
    assert ["bad"] == [problem.key for problem in out.report.skipped]


def test_lists_of_files_are_inferred(tmp_path: Path) -> None:
    """Lists of bytes, paths and PIL images are pictures; of texts, JSON as before; of numbers, ragged arrays."""
    (tmp_path / "a.png").write_bytes(picture(1))
    with Writer(tmp_path / "s.lmdb") as out:
        for i in range(3):
            files = [picture(2), tmp_path / "a.png", Image.new("RGB", (3, 2))][:i]
            out.write({"pictures": files, "blobs": [b"no picture"] * i, "words": ["a"] * 2, "numbers": [1] * i})
    types = {field.name: field.codec for field in FastDataset(tmp_path / "s.lmdb").store.schema.fields}

    assert {"pictures": "image[*]", "blobs": "bytes[*]", "words": "json", "numbers": "ragged"} == types


def test_one_field_of_lists_and_labels(tmp_path: Path) -> None:
    """A list and a label are a dict; what is of one picture a sample is refused in one line."""
    with Writer(tmp_path / "s.lmdb", {"images": "image[*]", "label": "label"}) as out:
        for i in range(3):
            out.write({"images": [picture(j) for j in range(i)], "label": i})
    dataset = FastDataset(tmp_path / "s.lmdb")

    assert [(0, 0), (1, 1), (2, 2)] == [(len(each["images"]), each["label"]) for each in dataset]
    assert [0, 1, 2] == dataset.store.elements("images").counts.tolist()
    with pytest.raises(SchemaError, match=r"sizes are those of one picture a sample, but lists of encoded pictures"):
        dataset.sizes()
    assert dataset.lengths.tolist() == [sum(len(picture(j)) for j in range(i)) for i in range(3)]
    assert 2 == len(dataset.where("size_bytes > 0"))


@pytest.mark.parametrize("suffix", [".lmdb", ".tar"])
def test_commands(tmp_path: Path, suffix: str) -> None:
    """Info counts elements, ls shows them, verify decodes all of them."""
    path = write(tmp_path / f"s{suffix}", [sample(i, i % 3) for i in range(5)])
    info = run("info", path)
    described = json.loads(run("info", path, "--json"))["fields"]["images"]
    rows = [json.loads(line)["fields"] for line in run("ls", path, "--json").splitlines()]

    assert "0 to 2 a sample: 4 PNG; height 8 to 10, width 8" in info
    assert (0, 2, 4) == tuple(described["elements"][name] for name in ("min", "max", "total"))
    assert [0, 1, 2, 0, 1] == [len(row["images"]) for row in rows]
    assert [None, ["", "1"]] == [rows[0]["control"], rows[2]["refs"]]
    assert "images: 2: PNG, 10 x 8" in run("ls", path)
    assert "6 images decoded; 11 documents parsed" in run("verify", path, "--decode")


def test_all_pictures_of_a_sample_are_shown(tmp_path: Path) -> None:
    """Each sample begins a row of the sheet; one without pictures has a cell that says so, a damaged one is listed."""
    path = write(tmp_path / "s.lmdb", [sample(i, i) for i in range(4)])
    with open_store(path) as store:
        rows = shown_lists(store, count=4, size=32)
        sheet, problems = contact_sheet(store, count=4, columns=2, size=32)

    assert [1, 2, 2, 4] == [len(row) for row in rows]
    assert "no picture: label 0" == rows[0][0].label
    assert ["label 2: images 1 of 2", "images 2 of 2"] == [each.label for each in rows[2]]
    assert ("control 1 of 1", []) == (rows[3][3].label, problems)
    assert sheet.height > 5 * 32


@pytest.mark.parametrize("suffix", [".h5", ".tar", ".zip"])
def test_packed_again_in_another_format(tmp_path: Path, suffix: str) -> None:
    """fastio.pack of a FastDataset keeps every byte of every list, and names a sample with a damaged picture."""
    samples = [sample(i, i % 5) for i in range(12)]
    dataset = FastDataset(write(tmp_path / "s.lmdb", samples))
    pack(dataset, tmp_path / f"again{suffix}")
    with open_store(tmp_path / f"again{suffix}") as again:
        assert (dataset.store.schema, dataset.keys) == (again.schema, again.keys(np.arange(12)))
        assert dataset.store.receipt() == again.receipt() is not None

    with open_store(tmp_path / "s.lmdb") as store:
        elements = store.elements("images")
        start = int(elements.spans("images", elements.of(np.array([3]))[0]).starts[1]) + 40
    data = bytearray((tmp_path / "s.lmdb").read_bytes())
    data[start] ^= 1
    (tmp_path / "s.lmdb").write_bytes(data)
    with pytest.raises(
        StoreError, match=r"'s3'\) has a field 'images' that has a bad element, 2 of 3: it differs from"
    ):
        pack(FastDataset(tmp_path / "s.lmdb"), tmp_path / f"bad{suffix}")


def test_merged(tmp_path: Path) -> None:
    """Sets of shards with lists are merged as others are, without moving a byte."""
    for name, first in (("a", 0), ("b", 6)):
        with Writer(tmp_path / f"{name}-%03d.tar", FIELDS, shard_bytes=20_000) as out:
            for i in range(first, first + 6):
                out.write(sample(i, i % 4), key=f"s{i}")
    run("merge", tmp_path / "a.fastio-set", tmp_path / "b.fastio-set", "--out", tmp_path / "all.fastio-set")
    merged = FastDataset(tmp_path / "all.fastio-set")

    assert [plain(sample(i, i % 4)) for i in range(12)] == [loaded(each) for each in merged]
    assert "all good" in run("verify", tmp_path / "all.fastio-set", "--decode")
