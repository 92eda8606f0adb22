"""TFRecord: the wire format against golden bytes, features as fields, checksums, and what is no Example."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastio._native import checksum_crc32c
from fastio.converters import LabelOptions, open_source, pack
from fastio.converters.fields.types import parse_choice
from fastio.converters.sources.tfrecord.records import Example, NotAnExampleError, parse_examples
from fastio.errors import SourceError
from fastio.types.field_types import type_of
from fastio.types.spans import Spans
from tests.commands import run
from tests.converters.sources.arrow.picture_tables import stored
from tests.converters.sources.tfrecord.records import crc32c, example, feature, record, sized, varint, write_records
from tests.converters.trees import picture

# A record of TensorFlow 2.21: Example(features={"a": Int64List([1, -2, 300])}).
GOLDEN = bytes.fromhex(
    "1a00000000000000129bd82d"  # 26 bytes, and the checksum of that
    "0a18"  # Example.features
    "0a16"  # an entry of the map
    "0a0161"  # its key, "a"
    "1211"  # its value, a Feature
    "1a0f"  # int64_list
    "0a0d01feffffffffffffffff01ac02"  # value, packed: 1, -2, 300
    "fd86b0fe"  # the checksum of the record
)


def packed(path: Path, *choices: str, **options: Any) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """The samples of a source, and what is wrong with the others."""
    fields = [parse_choice(words) for words in choices]
    out = path.parent / "out.lmdb"
    source = open_source(path, fields=fields, label_options=LabelOptions(**options))
    report = pack(source, out, on_error="skip", overwrite=True)
    assert report.found == report.packed + len(report.skipped) + len(report.left_out)
    return stored(out), {each.key: each.problem for each in report.skipped}


def one(path: Path, *examples: dict[str, object]) -> Path:
    """A file of these examples."""
    return write_records(path / "a.tfrecord", map(example, examples))


def test_golden_record(tmp_path: Path) -> None:
    """The tests' writer makes the bytes that TensorFlow makes, and they are read as what they say."""
    assert GOLDEN == record(example({"a": [1, -2, 300]}))
    (tmp_path / "a.tfrecord").write_bytes(GOLDEN)

    assert {"a/0": {"a": [1, -2, 300], "n": b"[1,-2,300]"}} == {
        key: {**sample, "n": b"[1,-2,300]"} for key, sample in packed(tmp_path / "a.tfrecord")[0].items()
    }


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 63, 64, 1000])
def test_crc32c(size: int) -> None:
    """The native checksum is the one computed bit by bit."""
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    found = np.zeros(1, np.uint32)
    checksum_crc32c(Spans.of(data, np.zeros(1, np.int64), np.array([size], np.int64)), found).wait()

    assert crc32c(data.tobytes()) == found[0]


def test_features_become_fields(tmp_path: Path) -> None:
    """By the kind and the number of their values, under their names; the label is found."""
    examples = [
        {
            "image/encoded": picture(i),
            "image/class/label": i + 1,
            "image/filename": f"{i}.png",
            "image/object/bbox/xmin": [0.5] * i,
            "height": 5,
            "weight": 0.25,
            "names": ["a", "ü"][:i],
            "blob": b"\xff\x00",
        }
        for i in range(3)
    ]
    path = one(tmp_path, *examples)
    schema = open_source(path).schema

    assert {
        "image": "image",
        "blob": "bytes",
        "image_filename": "text",
        "image_object_bbox_xmin": "float32[*]",
        "names": "json",
        "height": "int",
        "weight": "float32",
        "label": "int",
    } == {each.name: type_of(each) for each in schema.fields}
    samples, problems = packed(path)
    assert {
        "image": picture(2),
        "blob": b"\xff\x00",
        "image_filename": b"2.png",
        "image_object_bbox_xmin": [0.5, 0.5],
        "names": ["a", "ü"],
        "height": 5,
        "weight": 0.25,
        "label": 3,
    } == samples["a/2"]
    assert [[], ["a"], ["a", "ü"]] == [sample["names"] for sample in samples.values()]
    assert {} == problems


def test_fields_asked_for(tmp_path: Path) -> None:
    """Types may be given: boxes from numbers in one row, arrays from bytes, tokens, JSON; other features are left."""
    values = {
        "x": picture(1),
        "boxes": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
        "raw": np.arange(6, dtype="<i2").tobytes(),
        "ids": [5, 70_000],
        "meta": '{"a": [1]}',
        "label": 4,
        "other": 1,
    }
    choices = ("image=x", "boxes=boxes:xyxy", "raw=raw:int16[2,3]", "ids=ids:tokens", "meta=meta:json")
    samples, problems = packed(one(tmp_path, values, {"x": picture(2), "label": 1}), *choices)

    assert {"boxes": [[1, 2, 3, 4], [5, 6, 7, 8]], "raw": [[0, 1, 2], [3, 4, 5]], "meta": {"a": [1]}, "label": 4} == {
        name: samples["a/0"][name] for name in ("boxes", "raw", "meta", "label")
    }
    assert np.array([5, 70_000], "<u4").tobytes() == samples["a/0"]["ids"]
    assert {"a/1": "has no such feature (feature 'raw')"} == problems


def test_keys_labels_filters(tmp_path: Path) -> None:
    """Keys and labels may come from features; filters leave out others."""
    names = [("a", "dog", 1), ("b", "cat", 1), ("b", "cat", 1), ("d", "cat", 2)]
    path = one(tmp_path, *({"jpg": picture(i), "k": k, "kind": c, "n": n} for i, (k, c, n) in enumerate(names)))
    samples, problems = packed(path, key_column="k", label_columns=("kind",), filters=(("n", "1"),), many_classes=True)

    assert {"a": 1, "b": 0} == {key: sample["label"] for key, sample in samples.items()}
    assert {"a/2": "has the key 'b', which a/1 has already"} == problems


def test_the_commands(tmp_path: Path) -> None:
    """A set of shards with splits in its names is packed and verified."""
    (tmp_path / "set").mkdir()
    for split, number in (("train", 0), ("train", 1), ("validation", 0)):
        examples = [{"image/encoded": picture(i), "image/class/label": i} for i in range(3)]
        count = 2 if split == "train" else 1
        write_records(tmp_path / "set" / f"{split}-{number:05d}-of-{count:05d}", map(example, examples))
    out = tmp_path / "out.h5"
    assert "several splits" in run("pack", tmp_path / "set", out, code=1)
    said = run("pack", tmp_path / "set", out, "--split", "train", "--field", "image=image/encoded")

    assert "TFRecord files, 6 samples" in said
    assert "packed 6 of 6 samples" in said
    verified = run("verify", out, "--against", tmp_path / "set" / "train-*-of-*")
    assert "6 compared" in verified
    assert "all good" in verified


def test_later_features(tmp_path: Path) -> None:
    """A feature that the first examples lack is not lost silently."""
    path = one(tmp_path, *[{"image": picture(0)}] * 64, {"image": picture(1), "extra": 1})
    samples, problems = packed(path)

    assert 64 == len(samples)
    assert ["a/64"] == list(problems)
    assert "has the feature 'extra', which the first 64 examples lack" in problems["a/64"]
    assert 65 == len(packed(path, "image=image")[0])


WHOLE = b"".join(record(example({"image": picture(i), "n": i})) for i in range(3))
SIZE = len(WHOLE) // 3


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-1], "record 2 begins at byte .*, but the file ends within it"),
        (lambda data: data[: SIZE + 20], "record 1 begins at byte .*, but the file ends within it"),
        (lambda data: data[: SIZE + 5], "record 1 begins at byte .*, but the file ends within it"),
        (lambda data: data + b"\0", "record 3 begins at byte .*, but the file ends within it"),
        (lambda data: data + bytes(16), "record 3 .*its size differs from its checksum"),
        (lambda data: b"\1" + data[1:], r"record 0 \(at byte 0\): its size differs from its checksum: .*no TFRecord"),
        (lambda data: data[:7] + b"\x7f" + data[8:], r"record 0 \(at byte 0\): its size differs from its checksum"),
        (lambda data: data[:8] + b"\0" + data[9:], r"record 0 \(at byte 0\): its size differs from its checksum"),
        (lambda data: data[:SIZE] + b"\xff" + data[SIZE + 1 :], "where the next record begins is unknown"),
        (lambda _: b"", "nothing to pack, there is no record in it"),
        (lambda _: b"short", "record 0 begins at byte 0, but the file ends within it at byte 5"),
        (lambda _: b"no records at all, but text", "its size differs from its checksum: the file is no TFRecord file"),
        (lambda _: bytes(100), "its size differs from its checksum: the file is no TFRecord file"),
        (lambda data: gzip.compress(data), r"is compressed with gzip: decompress it first \(gunzip\)"),
    ],
)
def test_damaged_files(tmp_path: Path, damage: Callable[[bytes], bytes], message: str) -> None:
    """A file whose records cannot be found is an error that names it and the record."""
    (tmp_path / "a.tfrecord").write_bytes(damage(WHOLE))
    with pytest.raises(SourceError, match=rf"a\.tfrecord: .*{message}"):
        pack(open_source(tmp_path / "a.tfrecord"), tmp_path / "out.lmdb", on_error="skip")
    assert not (tmp_path / "out.lmdb").exists()


@pytest.mark.parametrize("at", range(12, SIZE, SIZE // 9))
def test_a_changed_byte(tmp_path: Path, at: int) -> None:
    """A record that differs from its checksum is a problem; the others are packed."""
    at += SIZE
    (tmp_path / "a.tfrecord").write_bytes(WHOLE[:at] + bytes([WHOLE[at] ^ 1]) + WHOLE[at + 1 :])
    samples, problems = packed(tmp_path / "a.tfrecord")

    assert ["a/0", "a/2"] == list(samples)
    assert {"a/1": "differs from its checksum: the file is damaged"} == problems


GOOD = example({"image": picture(0)})


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"no message", "is not a tf.train.Example: "),
        (b"\xff" * 20, "is not a tf.train.Example: a number without an end"),
        (b"\x0a\xff\xff\xff\xff\x0f", "is not a tf.train.Example: a field leads out of its message"),
        (b"\x0b", "is not a tf.train.Example: a field of the unknown type 3"),
        (b"\x00\x01", "is not a tf.train.Example: a field leads out of its message"),
        (GOOD[:-1], "is not a tf.train.Example: a field leads out of its message"),
        (sized(1, sized(1, sized(1, b"\xff") + sized(2, feature(1)))), "the name of a feature is not UTF-8"),
        (GOOD + sized(2, b""), "is a tf.train.SequenceExample, which fastio does not read"),
        (b"", "has no feature 'image'"),
        (example({"image": []}), "has no feature 'image'"),
        (example({"image": 3}), "has integers in the feature 'image', expected bytes"),
        (example({"image": [b"a", b"b"]}), "has 2 values in the feature 'image', expected one"),
        (example({"image": b"no picture", "n": 1}), "is not an image"),
        (example({"image": picture(0), "n": [1, 2]}), "has a field 'n'"),
        (example({"image": picture(0), "n": 0.5}), "has a field 'n' that"),
        (example({"image": picture(0), "n": "x"}), "expected one array of int64"),
        (sized(1, sized(1, sized(1, b"n") + sized(2, sized(3, sized(1, b"\x80"))))), "has no feature 'image'"),
    ],
)
def test_odd_records(tmp_path: Path, data: bytes, problem: str) -> None:
    """A record that is no Example, or whose features do not fit, is a problem with its reason."""
    good = example({"image": picture(1), "n": 1})
    write_records(tmp_path / "a.tfrecord", [good, data, good])
    samples, problems = packed(tmp_path / "a.tfrecord", "image=image:image", "n=n:int")

    assert ["a/0", "a/2"] == list(samples)
    assert ["a/1"] == list(problems)
    assert problem in problems["a/1"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff" * 30, "the first record is not a tf.train.Example"),
        (GOOD + sized(2, b""), "the first record is a tf.train.SequenceExample"),
        (example({}), "no feature is left to pack, of none"),
    ],
)
def test_no_examples_at_all(tmp_path: Path, data: bytes, message: str) -> None:
    """Records of another kind are refused when the source is opened."""
    with pytest.raises(SourceError, match=message):
        open_source(write_records(tmp_path / "a.tfrecord", [data]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"fields": ["x=gone"]},
            r"--field x=gone: there is no such feature among 'image' \(1 bytes\), 'n' \(1 integers\)",
        ),
        ({"key_column": "gone"}, "--key-column gone: there is no such feature"),
        ({"filters": (("gone", "1"),)}, "--filter gone=1: there is no such feature"),
        ({"label_columns": ("gone",)}, "--label-column gone: there is no such feature"),
        ({"label_columns": ("n", "image")}, "an example has one label"),
        ({"label_columns": ("image",)}, "expected one number or name a sample as label"),
        ({"ignore_columns": ("gone",)}, "--without gone: there is no such feature"),
        ({"ignore_columns": ("*",)}, "no feature is left to pack"),
        ({"header": False}, "its features have names: drop --no-header"),
    ],
)
def test_what_cannot_be_meant(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    """Features that are not there are named, with those that are."""
    path = one(tmp_path, {"image": picture(0), "n": 1})
    fields = [parse_choice(words) for words in options.pop("fields", ())]
    with pytest.raises(SourceError, match=message):
        open_source(path, fields=fields, label_options=LabelOptions(**options))


def parsed(data: bytes) -> Example | NotAnExampleError:
    """The features of one example, or why it is none."""
    (found,) = parse_examples(Spans.joined(np.frombuffer(data, np.uint8), np.array([len(data)])), [memoryview(data)])
    return found


def test_protocol_buffers_in_other_words() -> None:
    """Unpacked numbers, unknown fields, a feature written twice and lists in parts are what the rules say."""
    unpacked = sized(3, varint(1 << 3) + varint(7) + varint(1 << 3) + varint(8))
    floats = sized(2, b"\x0d" + struct.pack("<f", 0.5) + sized(1, struct.pack("<f", 1.5)))
    unknown = varint(9 << 3) + varint(1) + varint(10 << 3 | 1) + bytes(8) + varint(11 << 3 | 5) + bytes(4)
    entries = {"u": unpacked, "f": floats, "two": sized(3, sized(1, b"\1")) + sized(3, sized(1, b"\2"))}
    features = b"".join(sized(1, sized(1, name.encode()) + sized(2, value)) for name, value in entries.items())
    last = sized(1, sized(1, b"u") + sized(2, feature(9)))
    found = parsed(unknown + sized(1, features) + sized(1, last))
    assert not isinstance(found, NotAnExampleError)

    assert {"u": [9], "f": [0.5, 1.5], "two": [1, 2]} == {name: each.numbers().tolist() for name, each in found.items()}


@pytest.mark.parametrize(
    "values", [[0], [127, 128], [2**63 - 1, -(2**63)], list(range(-300, 300)), [1 << (7 * k) for k in range(9)]]
)
def test_varints(values: list[int]) -> None:
    """Integers of any size come back."""
    found = parsed(example({"a": values}))

    assert not isinstance(found, NotAnExampleError)
    assert values == found["a"].numbers().tolist()


_NUMBERS = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=4)
_VALUES = st.one_of(_NUMBERS, st.lists(st.binary(max_size=9), min_size=1, max_size=3))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.dictionaries(st.text(max_size=5), _VALUES, max_size=4), min_size=1, max_size=5))
def test_any_examples(samples: list[dict[str, Any]]) -> None:
    """Names and values of several examples come back, each with its own."""
    data = [np.frombuffer(example(each), np.uint8) for each in samples]
    sizes = np.array([len(each) for each in data], np.int64)
    joined = np.concatenate(data)
    found = list(parse_examples(Spans.joined(joined, sizes), [joined.data]))
    for sample, each in zip(samples, found, strict=True):
        assert not isinstance(each, NotAnExampleError)
        values = {n: f.numbers().tolist() if f.kind == 3 else f.bytes_values() for n, f in each.items()}
        assert sample == values


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 255), st.integers(0, 10_000))
def test_damaged_examples(place: int, byte: int, stop: int) -> None:
    """A byte that changed, and an end that is missing, are an error of the example, or values that lie within it."""
    data = bytearray(example({"image": picture(1), "label": [1, 300], "caption": "x", "scores": [0.5, 1.5]}))
    data[place % len(data)] = byte
    del data[1 + stop % len(data) :]
    found = parsed(bytes(data))
    if not isinstance(found, NotAnExampleError):
        parts = [part for each in found.values() for part in each.parts]
        assert all(0 <= start <= end <= len(data) for start, end in parts)


def test_against_tensorflow(tmp_path: Path) -> None:
    """TensorFlow reads what the tests write, and fastio what TensorFlow writes."""
    tf = pytest.importorskip("tensorflow")
    path = one(tmp_path, {"a": [1, -2], "b": "x"})
    parsed = [tf.train.Example.FromString(each.numpy()) for each in tf.data.TFRecordDataset(str(path))]
    assert [1, -2] == list(parsed[0].features.feature["a"].int64_list.value)
    with tf.io.TFRecordWriter(str(tmp_path / "b.tfrecord")) as writer:
        writer.write(parsed[0].SerializeToString())

    assert {"a": [1, -2], "b": b"x"} == packed(tmp_path / "b.tfrecord")[0]["b/0"]
