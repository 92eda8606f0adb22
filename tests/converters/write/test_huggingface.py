"""fastio.pack of datasets by Hugging Face's library: features as types, pictures as the bytes they are."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fastio
from fastio.errors import SampleError, SchemaError, SourceError
from fastio.store import open_store
from tests.converters.trees import picture
from tests.converters.write.writing import values, visible

datasets = pytest.importorskip("datasets")


def table(count=150):
    """A dataset with a column of each kind, and its rows."""
    features = datasets.Features(
        {
            "Image": datasets.Image(),
            "mask": datasets.Image(),
            "label": datasets.ClassLabel(names=["cat", "dog"]),
            "colour": datasets.ClassLabel(names=["red"]),
            "Caption Text": datasets.Value("string"),
            "score": datasets.Value("float32"),
            "count": datasets.Value("int16"),
            "is_new": datasets.Value("bool"),
            "blob": datasets.Value("binary"),
            "boxes": datasets.List(datasets.List(datasets.Value("float32"), length=4)),
            "ids": datasets.List(datasets.Value("int64")),
            "embedding": datasets.List(datasets.Value("float32"), length=3),
            "grid": datasets.Array2D((2, 2), "uint8"),
            "objects": {"name": datasets.Value("string"), "sizes": datasets.List(datasets.Value("int32"))},
            "names": datasets.List(datasets.Value("string")),
        }
    )
    rows = [
        {
            "Image": {"bytes": picture(i, kind=("JPEG", "PNG")[i % 2]), "path": f"{i}.jpg"},
            "mask": {"bytes": picture(i, mode="L"), "path": None},
            "label": i % 2,
            "colour": 0,
            "Caption Text": f"number {i}",
            "score": i / 4,
            "count": i,
            "is_new": i % 2 == 0,
            "blob": bytes([i % 256]),
            "boxes": [[0, 0, 1, k] for k in range(i % 3)],
            "ids": list(range(i % 4)),
            "embedding": [i, 0, 1],
            "grid": [[i % 256, 1], [2, 3]],
            "objects": {"name": str(i), "sizes": [i]},
            "names": ["a", str(i)],
        }
        for i in range(count)
    ]
    return datasets.Dataset.from_list(rows, features=features), rows


@pytest.mark.parametrize("jobs", [None, 2])
def test_every_feature(tmp_path, jobs):
    """Pictures keep their bytes, numbers their dtypes, classes their names; lists are ragged, or of fixed shape."""
    dataset, rows = table()
    report = fastio.pack(dataset, tmp_path / "out.lmdb", jobs=jobs)
    with open_store(tmp_path / "out.lmdb") as store:
        assert {
            "image": "image",
            "mask": "mask",
            "label": "int",
            "colour": "int",
            "caption_text": "text",
            "score": "float32",
            "count": "int16",
            "is_new": "bool",
            "blob": "bytes",
            "boxes": "float32[*,4]",
            "ids": "int64[*]",
            "embedding": "float32[3]",
            "grid": "uint8[2,2]",
            "objects": "json",
            "names": "json",
        } == {field.name: fastio_type(field) for field in store.schema.fields}
        assert [row["Image"]["bytes"] for row in rows] == values(store, "image")
        assert [row["mask"]["bytes"] for row in rows] == values(store, "mask")
        assert [row["Caption Text"].encode() for row in rows] == values(store, "caption_text")
        assert [row["blob"] for row in rows] == values(store, "blob")
        assert [row["objects"] for row in rows] == [json.loads(data) for data in values(store, "objects")]
        for name, dtype in {"boxes": "<f4", "ids": "<i8", "embedding": "<f4", "grid": "|u1"}.items():
            assert [np.array(row[name], dtype).tobytes() for row in rows] == values(store, name)
        for name in ("label", "score", "count", "is_new"):
            assert [row[name] for row in rows] == store.column(name).tolist()
        assert ["cat", "dog"] == store.metadata["classes"]
        assert {"colour": ["red"]} == store.metadata["field_classes"]
    assert (150, 0) == (report.packed, report.made_pngs)


def fastio_type(field):
    """The words for a field's type."""
    from fastio.types.field_types import type_of

    return type_of(field)


def test_chosen_columns_and_types(tmp_path):
    """``fields`` chooses columns and overrides types; formats and the library's selections count too."""
    dataset, rows = table(5)
    fastio.pack(dataset, tmp_path / "a.lmdb", fields={"image": None, "boxes": "xywh", "label": None})
    fastio.pack(dataset.with_format("torch", columns=["Image", "label"]), tmp_path / "b.lmdb")
    fastio.pack(dataset.select([3, 1]), tmp_path / "c.lmdb", fields=["image"])
    with (
        open_store(tmp_path / "a.lmdb") as a,
        open_store(tmp_path / "b.lmdb") as b,
        open_store(tmp_path / "c.lmdb") as c,
    ):
        assert ("xywh", "<f4") == (a.schema["boxes"].role, a.schema["boxes"].dtype)
        assert ["image", "boxes", "label"] == [field.name for field in a.schema.fields]
        assert ["image", "label"] == [field.name for field in b.schema.fields]
    with open_store(tmp_path / "c.lmdb") as c:
        assert [rows[3]["Image"]["bytes"], rows[1]["Image"]["bytes"]] == values(c, "image")


def test_a_transform_is_applied(tmp_path):
    """A dataset with a transform gives what that returns."""
    dataset, _ = table(3)
    dataset.set_transform(lambda batch: {"text": [name.upper() for name in batch["Caption Text"]]})
    fastio.pack(dataset, tmp_path / "out.lmdb")
    with open_store(tmp_path / "out.lmdb") as store:
        assert [b"NUMBER 0", b"NUMBER 1", b"NUMBER 2"] == values(store, "text")


def test_streams(tmp_path):
    """An IterableDataset is read once, its pictures unchanged too."""
    dataset, rows = table(100)
    fastio.pack(dataset.to_iterable_dataset(), tmp_path / "out.lmdb")
    with open_store(tmp_path / "out.lmdb") as store:
        assert [row["Image"]["bytes"] for row in rows] == values(store, "image")
        assert ["cat", "dog"] == store.metadata["classes"]


def test_nulls_are_named(tmp_path):
    """A null is the problem of its sample."""
    features = datasets.Features({"text": datasets.Value("string"), "n": datasets.Value("int64")})
    dataset = datasets.Dataset.from_list([{"text": "a", "n": 1}, {"text": None, "n": 2}], features=features)
    with pytest.raises(SampleError, match="'00000001' has a field 'text' that is None; expected text"):
        fastio.pack(dataset, tmp_path / "out.lmdb")

    assert [] == visible(tmp_path)


def test_what_is_refused(tmp_path):
    """Dicts of splits, names that become one, and features without a type are one clear line."""
    dataset, _ = table(2)
    with pytest.raises(SourceError, match="the dataset is a dict of train, test: pack these one by one"):
        fastio.pack(datasets.DatasetDict({"train": dataset, "test": dataset}), tmp_path / "out.lmdb")
    with pytest.raises(SchemaError, match="columns 'a b' and 'a_b' both become the field 'a_b': rename one"):
        fastio.pack(datasets.Dataset.from_list([{"a b": "x", "a_b": "y"}]), tmp_path / "out.lmdb")
    dates = datasets.Dataset.from_list(
        [{"when": None}], features=datasets.Features({"when": datasets.Value("timestamp[s]")})
    )
    with pytest.raises(SchemaError, match=r"column 'when': no field holds the feature timestamp\[s\]"):
        fastio.pack(dates, tmp_path / "out.lmdb")
    assert [] == visible(tmp_path)


def test_lists_of_pictures(tmp_path):
    """Rows as FineVision and the Cauldron have them become lists, none shortened, every byte as it was."""
    features = datasets.Features(
        {
            "images": datasets.List(datasets.Image()),
            "texts": datasets.List({"user": datasets.Value("string"), "assistant": datasets.Value("string")}),
            "source": datasets.Value("string"),
        }
    )
    rows = [
        {
            "images": [{"bytes": picture(10 * i + j, kind=("JPEG", "PNG")[j % 2]), "path": None} for j in range(i % 4)],
            "texts": [{"user": f"what is {i}?", "assistant": "a number"}] * (1 + i % 2),
            "source": "made",
        }
        for i in range(90)
    ]
    dataset = datasets.Dataset.from_list(rows, features=features)
    for each, out in ((dataset, "a.lmdb"), (dataset.to_iterable_dataset(), "b.tar")):
        fastio.pack(each, tmp_path / out)
        with open_store(tmp_path / out) as store:
            elements = store.elements("images")
            found = iter(values(elements, "images"))
            assert [i % 4 for i in range(90)] == elements.counts.tolist()
            assert [[image["bytes"] for image in row["images"]] for row in rows] == [
                [next(found) for _ in row["images"]] for row in rows
            ]
            assert [row["texts"] for row in rows] == [json.loads(value) for value in values(store, "texts")]
            assert "image[*]" == fastio_type(store.schema["images"])
