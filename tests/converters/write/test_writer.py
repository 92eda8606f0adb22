"""fastio.Writer: what was written comes back in every format, and what is wrong is named."""

from __future__ import annotations

import io
import json
import zipfile

import h5py
import lmdb
import numpy as np
import pytest
import torch
import webdataset
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import fastio
from fastio.converters.inspect.verify import verify
from fastio.converters.write import encoder
from fastio.errors import SampleError, SchemaError, StoreError
from fastio.store import open_store
from fastio.types.field_types import field_of
from fastio.types.schema import Schema
from tests.converters.trees import picture
from tests.converters.write.writing import FIELDS, OUTPUTS, sample, values, visible, written

NO_PATHS = ("../../evil", "/abs", "a//b", "..", ".", "a/", "a/./b", "a/..")


def write_with_keys(writer, keys):
    """A text for each of these keys."""
    for key in keys:
        writer.write({"a": "later"}, key=key)


def test_every_type_comes_back(out):
    """Keys, bytes, arrays and columns are as they went in; the index knows the sizes of pictures; checksums agree."""
    report = written(out, map(sample, range(20))).report
    with open_store(out) as store:
        assert [f"{i:08d}" for i in range(20)] == store.keys(np.arange(20))
        assert list(FIELDS) == [field.name for field in store.schema.fields]
        assert [sample(i)["image"] for i in range(20)] == values(store, "image")
        assert [[5, 6 + i % 3, 3] for i in range(20)] == store.shapes("image").tolist()
        masks = [np.asarray(Image.open(io.BytesIO(data))) for data in values(store, "mask")]
        assert [np.full((5, 6 + i % 3), i * 250).tolist() for i in range(20)] == [mask.tolist() for mask in masks]
        assert [f"nümber {i}" for i in range(20)] == [data.decode() for data in values(store, "caption")]
        assert [sample(i)["objects"] for i in range(20)] == [json.loads(data) for data in values(store, "objects")]
        assert [sample(i)["blob"] for i in range(20)] == values(store, "blob")
        for name, dtype in {"embedding": "<f4", "boxes": "<f4", "kinds": "<i8", "ids": "<u4"}.items():
            expected = [np.array(sample(i)[name], dtype).tobytes() for i in range(20)]
            assert expected == values(store, name)
        for name in ("label", "score", "is_new", "pose"):
            assert np.array([sample(i)[name] for i in range(20)]).tolist() == store.column(name).tolist()
        assert [] == store.metadata["skipped"]
    assert (20, 20, 20) == (report.found, report.packed, report.made_pngs)
    assert "20 pictures came as pixels" in str(report)
    assert not verify(out, decode=True).problems


def test_what_plain_libraries_read(tmp_path):
    """lmdb, h5py, webdataset and zipfile find pictures, texts and labels without fastio."""
    for name in OUTPUTS:
        written(tmp_path / name, map(sample, range(5)))
    captions, pictures = [sample(i)["caption"] for i in range(5)], [sample(i)["image"] for i in range(5)]
    with lmdb.open(str(tmp_path / "out.lmdb"), subdir=False, readonly=True, lock=False) as env, env.begin() as txn:
        assert captions == [txn.get(b"%010d/caption" % i).decode() for i in range(5)]
        assert pictures == [txn.get(b"%010d/image" % i) for i in range(5)]
    with h5py.File(tmp_path / "out.h5") as file:
        assert [0, 1, 2, 3, 4] == file["label"][:].tolist()
    with (tmp_path / "out-000000.tar").open("rb") as stream:
        shard = {each["fname"]: each["data"] for each in webdataset.tariterators.tar_file_iterator(stream)}
    assert captions == [data.decode() for name, data in shard.items() if name.endswith("caption.txt")]
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        names = [name for name in archive.namelist() if name.endswith("caption.txt")]
        assert captions == [archive.read(name).decode() for name in names]


@given(
    st.lists(
        st.tuples(
            st.binary(max_size=40),
            st.text(st.characters(codec="utf-8")),
            st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5),
            st.floats(width=32),
            st.integers(-128, 127),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_what_is_written_comes_back(tmp_path_factory, rows):
    """Whatever the values, they come back, also over many pieces."""
    path = tmp_path_factory.mktemp("w") / "out.lmdb"
    fields = {"a": "bytes", "b": "text", "c": "int64[*]", "d": "float32", "e": "int8"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoder, "PIECE_SAMPLES", 7)
        written(path, (dict(zip(fields, row, strict=True)) for row in rows), fields)
    with open_store(path) as store:
        assert [row[0] for row in rows] == values(store, "a")
        assert [row[1] for row in rows] == [data.decode() for data in values(store, "b")]
        assert [row[2] for row in rows] == [np.frombuffer(data, "<i8").tolist() for data in values(store, "c")]
        assert np.array_equal(np.array([row[3] for row in rows], "f4"), store.column("d"), equal_nan=True)
        assert [row[4] for row in rows] == store.column("e").tolist()


def test_values_may_change_after_they_were_written(tmp_path):
    """Buffers that a program uses again are copied, with and without a schema."""
    for fields in ({"x": ("float32", (2,)), "c": "float32[2] column"}, {"x": None, "c": "float32[2] column"}):
        buffer = np.zeros(2, np.float32)
        with fastio.Writer(tmp_path / "out.lmdb", fields, overwrite=True) as writer:
            for i in range(70):
                buffer[:] = i
                writer.write({"x": buffer, "c": buffer})
        with open_store(tmp_path / "out.lmdb") as store:
            assert [[i, i] for i in range(70)] == store.column("c").tolist()
            assert [np.full(2, i, "f4").tobytes() for i in range(70)] == values(store, "x")


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"label": 1.5}, "label", "has a field 'label' that is float64 (1.5); expected a whole number"),
        ({"image": 3}, "image", "has a field 'image' that is int (3); expected encoded bytes, a path"),
        ({"image": "/no/such.png"}, "image", "that cannot be read: /no/such.png: No such file or directory"),
        ({"objects": {1: 2}}, "objects", "cannot be kept as JSON: the key 1 is not text"),
        ({"other": 1}, "other", "has a field 'other' that the store has not: expected image, mask, "),
        ({"caption": None}, "caption", "has a field 'caption' that is None; expected text"),
    ],
)
def test_a_wrong_sample_is_named_and_left_out(out, change, field, message):
    """The error has path, key and field; the writer goes on."""
    with fastio.Writer(out, FIELDS) as writer:
        writer.write(sample(0), key="a")
        with pytest.raises(SampleError) as caught:
            writer.write({**sample(1), **change}, key="b")
        writer.write(sample(2), key="c")
    assert (str(out), "b", field) == (caught.value.path, caught.value.key, caught.value.field)
    assert str(caught.value).startswith(f"{out}: 'b' has a field {field!r} that ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    with open_store(out) as store:
        assert ["a", "c"] == store.keys([0, 1])
        assert [sample(0)["image"], sample(2)["image"]] == values(store, "image")


def test_a_sample_that_lacks_a_field(tmp_path):
    """It is named, with the fields expected and those that it has; so is what is no sample."""
    with fastio.Writer(tmp_path / "out.lmdb", {"a": "text", "b": "int"}) as writer:
        writer.write({"a": "x", "b": 1})
        with pytest.raises(SampleError, match="'00000001' lacks the field 'b': expected a, b; got a"):
            writer.write({"a": "x"})
        with pytest.raises(SampleError, match="lacks the field 'b' and has 'B': expected a, b; got B, a"):
            writer.write({"B": 1, "a": "x"})
        with pytest.raises(SampleError, match="lacks the field 'a': expected a, b; got no field"):
            writer.write({})
        with pytest.raises(SampleError, match="'00000004' is of type tuple; expected a dict of its fields"):
            writer.write(("x", 1))


@pytest.mark.parametrize("field", ["image", "mask"])
@pytest.mark.parametrize("junk", [b"", b"no", picture(0)[:20]], ids=["empty", "no picture", "cut"])
def test_bytes_that_are_no_picture_are_an_error_of_their_own_write(out, tmp_path, field, junk):
    """Each write raises for its own sample, whether the value is bytes or a file; all others are kept."""
    file = tmp_path / "junk.png"
    file.write_bytes(junk)
    good = np.zeros((3, 4), np.uint8)
    refused = []
    with fastio.Writer(out, {"image": field, "label": "int"}) as writer:
        for i, value in enumerate([good, junk, good, file, good, junk]):
            try:
                writer.write({"image": value, "label": i})
            except SampleError as exc:
                refused.append((i, exc.key, exc.field, str(exc).split(" that ")[0]))
    assert [(i, f"{i:08d}", "image", f"{out}: '{i:08d}' has a field 'image'") for i in (1, 3, 5)] == refused
    with open_store(out) as store:
        assert [0, 2, 4] == store.column("label").tolist()


def test_pictures_too_large_to_decode_are_an_error_of_their_own_write(out, monkeypatch):
    """Pillow's limit holds at each write."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with fastio.Writer(out, {"image": "image"}) as writer:
        writer.write({"image": np.zeros((4, 5), np.uint8)})
        with pytest.raises(SampleError, match="'00000001' has a field 'image' that announces 3 x 7 pixels"):
            writer.write({"image": np.zeros((3, 7), np.uint8)})


def test_an_uncaught_error_leaves_nothing(tmp_path):
    """A wrong picture that nobody guards against ends the block; no store without it appears."""
    with pytest.raises(SampleError, match="'00000001' has a field 'image'"):
        written(tmp_path / "out.lmdb", [{"image": picture(0)}, {"image": b"no"}], {"image": "image"})

    assert [] == visible(tmp_path)


def test_what_shows_at_the_end_of_the_block_loses_no_good_sample(out, monkeypatch):
    """A key of an earlier piece in the last one: its sample is left out, the error says so, the store is complete."""
    monkeypatch.setattr(encoder, "PIECE_SAMPLES", 2)
    writer = fastio.Writer(out, {"a": "text"})
    for key in ("k", "l", "k"):
        writer.write({"a": key}, key=key)
    with pytest.raises(SampleError, match="'k' has the key of an earlier sample") as caught:
        writer.close()
    assert [f"{out} is complete, with all other samples"] == caught.value.__notes__
    assert 2 == writer.report.packed
    with open_store(out) as store:
        assert ["k", "l"] == store.keys([0, 1])


def test_first_samples_that_do_not_fit_lose_no_good_sample(out):
    """While types are inferred, samples wait; the end of the block names those that do not fit, and keeps the rest."""
    writer = fastio.Writer(out, {"image": "image", "caption": None})
    for i in range(4):
        writer.write({"image": b"no" if i in (1, 3) else picture(i), "caption": f"{i}"})
    with pytest.raises(SampleError, match=r"'00000001' has a field 'image' .* with it are left out '00000003'"):
        writer.close()
    with open_store(out) as store:
        assert [b"0", b"2"] == values(store, "caption")


def test_flush_shows_what_is_wrong_so_far(out):
    """It settles the types, names samples that do not fit, and the writer goes on."""
    with fastio.Writer(out, {"image": "image", "caption": None}) as writer:
        for i in range(2):
            writer.write({"image": b"no" if i == 1 else picture(i), "caption": f"{i}"})
        with pytest.raises(SampleError, match="'00000001'"):
            writer.flush()
        assert writer.schema["caption"].traits.is_text
        writer.write({"image": picture(2), "caption": "2"})
    with open_store(out) as store:
        assert [b"0", b"2"] == values(store, "caption")


def test_skip_lists_what_is_left_out(out, monkeypatch):
    """With on_error="skip", every wrong sample is in the store's ledger; found = packed + skipped."""
    monkeypatch.setattr(encoder, "PIECE_SAMPLES", 4)
    with fastio.Writer(out, {"image": "image", "label": "int"}, on_error="skip") as writer:
        for i in range(12):
            writer.write({"image": b"no" if i == 5 else picture(i), "label": "x" if i == 2 else i})
        writer.write({"image": picture(0), "label": 0}, key="00000003")
    report = writer.report
    with open_store(out) as store:
        assert [0, 1, 3, 4, 6, 7, 8, 9, 10, 11] == store.column("label").tolist()
        ledger = store.metadata["skipped"]
    assert ["00000002", "00000005", "00000003"] == [entry["key"] for entry in ledger]
    assert "has the key of an earlier sample; keys must be unique" == ledger[2]["problem"]
    assert (13, 10, 3) == (report.found, report.packed, len(report.skipped))
    assert "3 skipped" in str(report)


@pytest.mark.parametrize("distance", [1, 9])
def test_keys_come_once(out, monkeypatch, distance):
    """A key that comes again is an error, in the same piece and in a later one; the first sample stays."""
    monkeypatch.setattr(encoder, "PIECE_SAMPLES", 4)
    with fastio.Writer(out, {"a": "text"}) as writer:
        writer.write({"a": "first"}, key="k")
        for i in range(1, distance):
            writer.write({"a": str(i)})
        with pytest.raises(SampleError, match="'k' has the key of an earlier sample; keys must be unique"):
            write_with_keys(writer, ("k", "p", "q", "r"))
    with open_store(out) as store:
        assert "first" == values(store, "a")[store.keys(np.arange(len(store))).index("k")].decode()


@pytest.mark.parametrize("key", ["", "a\0b", "\ud800", 5, None.__class__, *NO_PATHS])
def test_keys_that_cannot_be(tmp_path, key):
    """Empty keys, NUL, what UTF-8 cannot write, other types and what is no path below a folder are errors."""
    with fastio.Writer(tmp_path / "out.lmdb", {"a": "text"}) as writer:
        writer.write({"a": "x"})
        with pytest.raises(SampleError, match="is a key "):
            writer.write({"a": "x"}, key=key)


def test_shards(tmp_path):
    """A name with a number makes shards of the given size."""
    report = written(tmp_path / "out-%06d.tar", map(sample, range(30)), shard_bytes=50_000).report

    assert report.shards == len(list(tmp_path.glob("out-*.tar"))) > 1
    with open_store(tmp_path / "out-%06d.tar") as store:
        assert 30 == len(store)


def test_memory_is_bounded(tmp_path):
    """No piece holds more than its bytes or its count, whatever comes."""
    sizes = []
    with fastio.Writer(
        tmp_path / "out.lmdb", {"a": "bytes"}, progress=lambda count, size: sizes.append((count, size))
    ) as writer:
        for i in range(1200):
            writer.write({"a": bytes(100 if i < 1100 else 1 << 20)})
    assert 1200 == sum(count for count, _ in sizes)
    assert 512 == max(count for count, _ in sizes)
    assert (4 << 20) + (1 << 20) >= max(size for _, size in sizes)


@pytest.mark.parametrize("piece", [2, 512])
def test_classes_by_name_and_number(out, monkeypatch, piece):
    """Names of classes become numbers; those that are no class are wrong, but -1 is none."""
    monkeypatch.setattr(encoder, "PIECE_SAMPLES", piece)
    classes = {"classes": ["cat", "dog"], "field_classes": {"colour": ["red"]}}
    with fastio.Writer(out, {"a": "text", "label": "label", "colour": "int"}, metadata=classes) as writer:
        for label in ("dog", 0, -1, np.int64(1)):
            writer.write({"a": "x", "label": label, "colour": "red"})
        for wrong, message in (
            ("bee", "is 'bee'; expected one of the 2 classes: cat, dog"),
            (2, "is class 2; expected"),
        ):
            with pytest.raises(SampleError, match=message):
                writer.write({"a": "x", "label": wrong, "colour": 0})
    with open_store(out) as store:
        assert [1, 0, -1, 1] == store.column("label").tolist()
        assert [0, 0, 0, 0] == store.column("colour").tolist()
        assert classes == {name: store.metadata[name] for name in classes}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"fields": {"a": "texte"}}, SchemaError, "expected a type such as"),
        ({"fields": {"A": "text"}}, SchemaError, "field name 'A'"),
        ({"fields": {"a": "int"}}, SchemaError, "are all columns"),
        ({"fields": "text"}, SchemaError, "expected names with types"),
        ({"fields": {}}, SchemaError, "at least one field"),
        ({"on_error": "zero"}, ValueError, "on_error='zero'"),
        ({"shard_bytes": 5}, StoreError, "a shard size needs a name with a number"),
        ({"metadata": {"a": {1, 2}}}, SchemaError, "metadata cannot be kept as JSON"),
        ({"metadata": {"skipped": []}}, SchemaError, "the entry 'skipped' is made by the writer"),
        ({"fields": {"a": "text"}, "metadata": {"classes": ["x"]}}, SchemaError, "classes of 'label', but no such"),
        ({"fields": {"a": "text", "label": "label"}, "metadata": {"classes": ["x", "x"]}}, SchemaError, "comes twice"),
        ({"fields": {"a": "text", "label": "float"}, "metadata": {"classes": ["x"]}}, SchemaError, "whole numbers"),
        ({"fields": 5}, SchemaError, "fields=5: expected names with types"),
        ({"fields": {5: "text"}}, SchemaError, "expected names with types"),
        ({"fields": [("a", "text")]}, SchemaError, "expected names with types"),
        ({"fields": {"a": "image[2]"}}, SchemaError, r"field 'a': image takes no \[2\]: a list of any number"),
        ({"path": "out-%06d.tar", "shard_bytes": "1GB"}, StoreError, "expected a shard size in bytes, .* got '1GB'"),
        ({"path": "out.xyz"}, StoreError, "expected a name that ends in one of"),
        ({"path": "no/out.lmdb"}, StoreError, "does not exist"),
    ],
)
def test_arguments_are_checked_at_once(tmp_path, arguments, error, message):
    """The constructor says what is wrong, and leaves nothing."""
    path = tmp_path / arguments.pop("path", "out.lmdb")
    with pytest.raises(error, match=message):
        fastio.Writer(path, **arguments)

    assert [] == visible(tmp_path)


@pytest.mark.parametrize("path", [["out.lmdb"], ("a.tar", "b.tar"), None, {}, 5, b"out.lmdb"])
def test_what_is_no_path(path):
    """A list of files, None, a number: one line says what is expected instead."""
    expected = r"expected the name of one store to write, such as 'out.lmdb' or 'out-%06d.tar', got "
    for write in (fastio.Writer, lambda path: fastio.pack([{"a": "text"}], path)):
        with pytest.raises(TypeError, match=expected + ("None" if path is None else type(path).__name__)):
            write(path)


def test_a_schema_may_be_given(tmp_path):
    """A Schema stands for its fields."""
    schema = Schema((field_of("a", "text"), field_of("b", "int")))

    assert schema == written(tmp_path / "out.lmdb", [{"a": "x", "b": 1}], schema).schema


def test_a_dataset_reads_it(tmp_path):
    """Pictures and labels train at once."""
    pixels = np.random.default_rng(0).integers(0, 256, (8, 6, 5, 3), np.uint8)
    written(
        tmp_path / "out.lmdb",
        ({"image": p, "label": i} for i, p in enumerate(pixels)),
        {"image": "image", "label": "label"},
    )
    images, labels = next(iter(fastio.FastLoader(tmp_path / "out.lmdb", batch_size=8)))

    assert torch.equal(torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy()), images)
    assert list(range(8)) == labels.tolist()
