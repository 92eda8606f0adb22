"""How stores keep samples of many fields, and what the plain libraries and webdataset's decoders make of them."""

from __future__ import annotations

import gc
import io
import json
import tarfile
import warnings
import zipfile
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import pytest
import webdataset
from PIL import Image

from fastio.store import FORMATS, SampleBatch, create_store, open_store
from fastio.store.index.verify import verify_store
from fastio.types.field_types import field_of
from fastio.types.npy import npy_file
from fastio.types.schema import BYTES, Field, Schema
from tests.store.build import make_spans, read_all
from tests.store.list_conformance import list_batch

TYPES = {
    "mask": "mask",
    "image": "image",
    "caption": "text",
    "text": "text",
    "objects": "json",
    "json": "json",
    "boxes": "xyxy",
    "kinds": "int64[*] per boxes",
    "embedding": "float32[2,2]",
    "latent": "float16[2,*,*]",
    "half": "bfloat16[2]",
    "ids": "tokens16",
    "blob": "bytes",
    "label": "label",
    "weight": "float32[2] column",
}
KEYS = ["dog/0001.jpg", "dog/a.b", "000007"]


def png(mode: str, value: int) -> bytes:
    """A picture of one colour."""
    file = io.BytesIO()
    Image.new(mode, (3, 2), value).save(file, "PNG")
    return file.getvalue()


def jpeg(value: int) -> bytes:
    """A grey photo."""
    file = io.BytesIO()
    Image.new("L", (3, 2), value).save(file, "JPEG")
    return file.getvalue()


def sample(i: int) -> dict[str, Any]:
    """The values of one sample; boxes differ in number."""
    return {
        "mask": png("P", i),
        "image": jpeg(100 + i),
        "caption": f"ein Käfer {i}",
        "text": f"text {i}",
        "objects": [{"bbox": [0, i, 2, 2]}] * i,
        "json": {"name": f"é{i}", "n": None},
        "boxes": np.arange(4 * i, dtype="<f4").reshape(i, 4),
        "kinds": np.arange(i, dtype="<i8"),
        "embedding": np.full((2, 2), i, "<f4"),
        "latent": np.arange(2.0 * i * (i + 1), dtype="<f2").reshape(2, i, i + 1),
        "half": np.array([i, 0x3F80], "<u2").view("|V2"),
        "ids": np.arange(i + 1, dtype="<u2"),
        "blob": b"\0\1\2" + bytes([i]),
        "label": i - 1,
        "weight": np.array([i, 0.5], "<f4"),
    }


def stored(value: Any) -> bytes:
    """The bytes that a store keeps of a value."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (dict, list)):
        return json.dumps(value).encode()
    if isinstance(value, np.ndarray) and value.ndim == 3:
        return npy_file(value)
    return bytes(value.tobytes()) if isinstance(value, np.ndarray) else bytes(value)


@pytest.fixture(params=FORMATS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of each format with all of TYPES, written in two batches."""
    path = tmp_path / f"many{FORMATS[request.param].suffixes[0]}"
    schema = Schema(tuple(field_of(name, type_) for name, type_ in TYPES.items()))
    samples = [sample(i) for i in range(len(KEYS))]
    with create_store(path, schema) as writer:
        for part in (slice(0, 2), slice(2, 3)):
            spans = {f.name: make_spans([stored(s[f.name]) for s in samples[part]]) for f in schema.payload}
            columns = {f.name: np.array([s[f.name] for s in samples[part]], f.dtype) for f in schema.columns}
            writer.append(SampleBatch(KEYS[part], spans, columns))
    return str(path)


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """The same values in types that compare."""
    as_lists = {k: v.tolist() if isinstance(v, (np.ndarray, np.generic)) else v for k, v in values.items()}
    return {k: bytes(v) if isinstance(v, memoryview) else v for k, v in as_lists.items()}


# webdataset leaves its files to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_plain_library_reads_all_fields(store: str) -> None:
    """What `fastio info` prints gives a dict for each sample, and the columns, without fastio."""
    with open_store(store) as opened:
        code = FORMATS[opened.format].plain_reader(opened.schema)
    names: dict[str, Any] = {"path": store}
    exec(compile(code, "formats.md", "exec"), names)
    columns = names.get("columns", {})
    samples = [{**s, **{k: v[i] for k, v in columns.items()}} for i, s in enumerate(names["samples"])]

    assert "fastio" not in code.replace("__fastio__", "")
    assert [plain(sample(i)) for i in range(len(KEYS))] == [plain(each) for each in samples]


def test_fastio_reads_all_fields(store: str) -> None:
    """Every value comes back by its field, and all checksums hold."""
    with open_store(store) as opened:
        assert [] == verify_store(opened)
        for field in opened.schema.payload:
            expected = {key: stored(sample(i)[field.name]) for i, key in enumerate(KEYS)}
            assert expected == read_all(opened, field.name)


@pytest.mark.parametrize("store", ["tar"], indirect=True)
def test_members_of_a_tar(store: str) -> None:
    """Pictures end with their own extension, whatever the key; documents are called .json, .NAME.json and .txt."""
    with tarfile.open(store) as tar:
        members = [name for name in tar.getnames() if not name.startswith("__fastio__/")]
    ends = ["mask.png", "jpg", "caption.txt", "txt", "objects.json", "json", "boxes.npy", "kinds.npy"]
    ends += ["embedding.npy", "latent.npy", "half.npy", "ids.npy", "blob", "cls", "weight.json"]

    assert [f"{stem}.{end}" for stem in ("dog/0001", "dog/a%2Eb", "000007") for end in ends] == members


@pytest.mark.parametrize("store", ["tar"], indirect=True)
def test_webdataset_decodes_the_members(store: str) -> None:
    """Its own decoders give pictures, indices of classes, texts, objects and arrays."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        dataset = webdataset.WebDataset(store, shardshuffle=False, empty_check=False).decode("pil", partial=True)
        found = list(dataset)
        gc.collect()

    last = found[2]
    expected = sample(2)
    assert (3, 2) == last["jpg"].size == last["mask.png"].size
    assert (expected["caption"], expected["text"]) == (last["caption.txt"], last["txt"])
    assert (expected["objects"], expected["json"], 1) == (last["objects.json"], last["json"], last["cls"])
    for name in ("boxes", "kinds", "embedding", "ids"):
        assert np.array_equal(expected[name], last[f"{name}.npy"]), name


@pytest.mark.parametrize("store", ["zip"], indirect=True)
def test_members_of_a_zip(store: str) -> None:
    """The picture is called as the key; the others add their field's name and an extension."""
    with zipfile.ZipFile(store) as archive:
        assert archive.testzip() is None
        members = [name for name in archive.namelist() if not name.startswith("__fastio__/")]
    ends = [".mask.png", "", ".caption.txt", ".text.txt", ".objects.json", ".json.json", ".boxes.npy", ".kinds.npy"]
    ends += [".embedding.npy", ".latent.npy", ".half.npy", ".ids.npy", ".blob"]

    assert [f"{key}{end}" for key in KEYS for end in ends] == members


@pytest.mark.parametrize("store", ["lmdb"], indirect=True)
def test_keys_of_an_lmdb(store: str) -> None:
    """Each value is under the sample's number and the field's name."""
    with lmdb.open(store, subdir=False, readonly=True, lock=False) as env, env.begin() as txn:
        assert sample(1)["mask"] == txn.get(b"0000000001/mask")
        assert np.array_equal(sample(2)["boxes"].ravel(), np.frombuffer(txn.get(b"0000000002/boxes"), "<f4"))


@pytest.mark.parametrize("store", ["hdf5"], indirect=True)
def test_fields_of_an_hdf5_file(store: str) -> None:
    """Each field has its starts and sizes within ``data``, and each column is a dataset."""
    with h5py.File(store) as f:
        start, size = f["mask_starts"][1], f["mask_sizes"][1]
        assert sample(1)["mask"] == f["data"][start : start + size].tobytes()
        assert [-1, 0, 1] == f["label"][:].tolist()


@pytest.mark.parametrize("form", ["tar", "zip"])
def test_pictures_of_unknown_kind_have_the_name_of_their_field(tmp_path: Path, form: str) -> None:
    """An extension that would not be true is not invented; one that another field has is not taken."""
    fields = (field_of("image", "image"), field_of("mask", "mask"), Field("png", BYTES, "|u1", (None,)))
    path = tmp_path / f"out.{form}"
    with create_store(path, Schema(fields)) as writer:
        spans = {"image": [b"?", png("L", 1)], "mask": [b"?", png("L", 2)], "png": [b"x", b"y"]}
        writer.append(SampleBatch(["a", "b"], {name: make_spans(values) for name, values in spans.items()}))
    with tarfile.open(path) if form == "tar" else zipfile.ZipFile(path) as archive:
        names = archive.getnames() if isinstance(archive, tarfile.TarFile) else archive.namelist()
    expected = {
        "tar": ["a.image", "a.mask", "a.png", "b.image", "b.mask.png", "b.png"],
        "zip": ["a", "a.mask", "a.png", "b", "b.mask.png", "b.png"],
    }

    assert expected[form] == [name for name in names if not name.startswith("__fastio__/")]


GUIDE = Path(__file__).parents[3] / "fastio" / "guide" / "formats.md"
SHOWN = {"image": "image", "mask": "mask", "caption": "text", "objects": "json", "boxes": "xywh", "label": "label"}


@pytest.mark.parametrize("form", FORMATS)
def test_the_guide_shows_the_readers(form: str) -> None:
    """The guide of formats holds exactly the lines that `fastio info` prints of a store of these fields."""
    schema = Schema(tuple(field_of(name, type_) for name, type_ in SHOWN.items()))

    assert f"```python\n{FORMATS[form].plain_reader(schema)}```" in GUIDE.read_text()


LISTED = {
    "image": "image",
    "images": "image[*]",
    "captions": "text[*]",
    "control": "image?",
    "ids": "tokens16[*]",
    "latents": "float16[2,*,*][*]",
    "blobs": "bytes[*]",
    "label": "label",
}


def listed_sample(i: int) -> dict[str, Any]:
    """The values of one sample; the second has empty lists, and nothing in ``control``."""
    return {
        "image": png("RGB", i),
        "images": [jpeg(10 * i + j) for j in range(i + 1)] if i != 1 else [],
        "captions": [f"Käfer {i}, {j}" for j in range(2 * i)] if i != 1 else [],
        "control": [png("L", i)] if i != 1 else [],
        "ids": [np.arange(j + 1, dtype="<u2") for j in range(i)] if i != 1 else [],
        "latents": [np.full((2, i, 3), j, "<f2") for j in range(i)] if i != 1 else [],
        "blobs": [b"", b"\0\1"] if i != 1 else [],
        "label": i,
    }


@pytest.fixture(params=FORMATS)
def lists(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of each format with all of LISTED, the second sample with empty lists."""
    path = tmp_path / f"lists{FORMATS[request.param].suffixes[0]}"
    schema = Schema(tuple(field_of(name, type_) for name, type_ in LISTED.items()))
    samples = {
        key: {
            field.name: [stored(each) for each in (values if field.is_list else [values])]
            for field in schema.payload
            for values in [listed_sample(i)[field.name]]
        }
        for i, key in enumerate(KEYS)
    }
    with create_store(path, schema) as writer:
        writer.append(list_batch(schema, samples))
    return str(path)


def plain_lists(values: dict[str, Any]) -> dict[str, Any]:
    """The same values in types that compare."""
    return {**values, **{name: [each.tolist() for each in values[name]] for name in ("ids", "latents")}}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_plain_library_reads_lists(lists: str) -> None:
    """What `fastio info` prints gives lists of the elements, without fastio."""
    with open_store(lists) as opened:
        code = FORMATS[opened.format].plain_reader(opened.schema)
    names: dict[str, Any] = {"path": lists}
    exec(compile(code, "formats.md", "exec"), names)
    columns = names.get("columns", {})
    samples = [{**s, **{k: v[i] for k, v in columns.items()}} for i, s in enumerate(names["samples"])]
    found = [plain_lists(each) for each in samples]
    expected = [plain_lists(listed_sample(i)) for i in range(3)]

    assert "fastio" not in code.replace("__fastio__", "")
    assert expected == found


@pytest.mark.parametrize("lists", ["tar", "zip"], indirect=True)
def test_members_of_lists(lists: str) -> None:
    """Elements are members with their number, and pictures have the extension of their content."""
    is_tar = lists.endswith(".tar")
    with tarfile.open(lists) if is_tar else zipfile.ZipFile(lists) as archive:
        names = archive.getnames() if isinstance(archive, tarfile.TarFile) else archive.namelist()
    last = ["images.0.jpg", "images.1.jpg", "images.2.jpg", *(f"captions.{i}.txt" for i in range(4)), "control.0.png"]
    last += ["ids.0.npy", "ids.1.npy", "latents.0.npy", "latents.1.npy", "blobs.0", "blobs.1"]
    found = [name for name in names if name.startswith("000007")]

    assert ["000007.png" if is_tar else "000007", *(f"000007.{each}" for each in last)] == found[: len(last) + 1]
    assert (["000007.cls"] if is_tar else []) == found[len(last) + 1 :]


SHOWN_LISTS = {"images": "image[*]", "caption": "text", "control": "image?", "label": "label"}


@pytest.mark.parametrize("form", FORMATS)
def test_the_guide_shows_the_readers_of_lists(form: str) -> None:
    """The guide of formats holds exactly the lines that `fastio info` prints of a store of such lists."""
    schema = Schema(tuple(field_of(name, type_) for name, type_ in SHOWN_LISTS.items()))

    assert f"```python\n{FORMATS[form].plain_reader(schema)}```" in GUIDE.read_text()
