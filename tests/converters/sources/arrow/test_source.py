"""Parquet and Arrow with pictures: which column becomes which field, keys, labels, filters, splits, the commands."""

from __future__ import annotations

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fastio.converters import LabelOptions, open_source, pack
from fastio.converters.fields.types import parse_choice
from fastio.errors import SourceError
from fastio.types.field_types import type_of
from tests.commands import run
from tests.converters.sources.arrow.picture_tables import (
    CLASSES,
    picture_table,
    stored,
    with_features,
    write_file,
    write_parquet,
    write_stream,
)
from tests.converters.trees import picture

WRITERS = {"parquet": write_parquet, "arrow": write_stream, "feather": write_file}


def fields(path: Path, **options: Any) -> dict[str, str]:
    """The types of a source's fields by their names."""
    return {field.name: type_of(field) for field in open_source(path, **options).schema.fields}


MANY = {
    "caption": [f"ü {i}" for i in range(7)],
    "score": pa.array([i / 2 for i in range(7)], pa.float32()),
    "count": pa.array(range(7), pa.uint8()),
    "is_new": [i % 2 == 0 for i in range(7)],
    "embedding": pa.array([[i, i + 0.5] for i in range(7)], pa.list_(pa.float32(), 2)),
    "ids": pa.array([list(range(i)) for i in range(7)], pa.list_(pa.int16())),
    "corners": pa.array([[[1, 2, 3, 4]] * i for i in range(7)], pa.list_(pa.list_(pa.float64(), 4))),
    "objects": [{"bbox": [[0.0, 1.0, 2.0, 3.0]] * i, "category": ["a"] * i} for i in range(7)],
    "tags": [["x", None][: i % 3] for i in range(7)],
    "taken": [datetime.datetime(2020, 1, 2, 3, i) for i in range(7)],
    "price": pa.array([decimal.Decimal(i) / 4 for i in range(7)], pa.decimal128(6, 2)),
    "Sound File": [bytes([0, i]) for i in range(7)],
    "took": pa.array(range(7), pa.duration("s")),
}
EXPECTED = {
    "image": "image",
    "caption": "text",
    "embedding": "float32[2]",
    "ids": "int16[*]",
    "corners": "float64[*,4]",
    "objects": "json",
    "tags": "json",
    "taken": "text",
    "price": "text",
    "sound_file": "bytes",
    "score": "float32",
    "count": "uint8",
    "is_new": "bool",
    "took": "int",
    "label": "int",
}


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("shuffle", [False, True], ids=["in order", "shuffled"])
def test_every_type(tmp_path: Path, suffix: str, shuffle: bool) -> None:
    """Columns become fields by their types, with the values that pyarrow reads."""
    table = picture_table(7, **MANY)
    path = WRITERS[suffix](tmp_path / f"a.{suffix}", table)
    source = open_source(path)
    report = pack(source.shuffled(3) if shuffle else source, tmp_path / "out.lmdb")
    rows = [
        {
            "image": row["image"]["bytes"],
            **{name: row[name] for name in ("embedding", "ids", "corners", "objects", "tags", "score", "count")},
            "caption": row["caption"].encode(),
            "taken": row["taken"].isoformat(" ", "microseconds").encode(),
            "price": str(row["price"]).encode(),
            "sound_file": row["Sound File"],
            "is_new": row["is_new"],
            "took": int(row["took"].total_seconds()),
            "label": row["label"],
        }
        for row in table.to_pylist()
    ]

    assert EXPECTED == fields(path)
    assert {f"a/{i}": row for i, row in enumerate(rows)} == stored(tmp_path / "out.lmdb")
    assert (7, 7, []) == (report.found, report.packed, list(report.skipped))
    assert list(CLASSES) == source.metadata["classes"]


@pytest.mark.parametrize("suffix", [".lmdb", ".h5", ".tar", ".zip"])
def test_the_commands(tmp_path: Path, suffix: str) -> None:
    """Packed into every format, verified against the source, and packed as it was asked for then."""
    path = write_parquet(tmp_path / "a.parquet", picture_table(7, **MANY))
    out = tmp_path / f"out{suffix}"
    said = run("pack", path, out, "--field", "boxes=objects.bbox:xywh", "--field", "image=image.bytes")

    assert "packed 7 of 7 samples" in said
    assert "3 classes" in said
    assert "7 compared" in (said := run("verify", out, "--against", path)), said
    assert "all good" in said


def test_boxes_in_structs(tmp_path: Path) -> None:
    """Parts of structs, and of structs in lists, are fields of their own; other columns are left out."""
    table = picture_table(2, objects=[[{"bbox": [1, 2, 3, 4], "id": 7}], []], meta=[{"a": {"b": 5}}, {"a": {"b": 6}}])
    path = write_parquet(tmp_path / "a.parquet", table)
    choices = ["image=image", "boxes=objects.bbox:xywh", "ids=objects.id:int64[*] per boxes", "b=meta.a.b"]
    pack(open_source(path, fields=[parse_choice(words) for words in choices]), tmp_path / "out.h5")

    assert [
        {"image": picture(0), "boxes": [[1.0, 2.0, 3.0, 4.0]], "ids": [7], "b": 5, "label": 0},
        {"image": picture(1), "boxes": [], "ids": [], "b": 6, "label": 1},
    ] == list(stored(tmp_path / "out.h5").values())


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()], ids=str)
def test_raw_columns(tmp_path: Path, kind: Any) -> None:
    """Columns of bytes are recognised by their first value: pictures, masks by their name, other bytes."""
    data = {
        "photo": [picture(i, kind="JPEG") for i in range(3)],
        "photo_mask": [picture(i, mode="L") for i in range(3)],
    }
    table = pa.table({**{name: pa.array(values, kind) for name, values in data.items()}, "blob": [b"x", b"", b"yy"]})
    path = write_file(tmp_path / "a.arrow", table)
    pack(open_source(path), tmp_path / "out.lmdb")

    assert {"image": "image", "photo_mask": "mask", "blob": "bytes"} == fields(path)
    assert data["photo_mask"] == [sample["photo_mask"] for sample in stored(tmp_path / "out.lmdb").values()]


def test_declared_by_datasets(tmp_path: Path) -> None:
    """Notes in the schema tell arrays of a fixed shape, sounds from pictures, and names of classes within JSON."""
    features = {
        "img": {"_type": "Image"},
        "audio": {"_type": "Audio"},
        "grid": {"_type": "Array2D", "shape": [2, 2], "dtype": "int32"},
        "objects": {"category": {"_type": "Sequence", "feature": {"_type": "ClassLabel", "names": ["x", "y"]}}},
        "digit": {"_type": "ClassLabel", "names": ["0", "1"]},
    }
    table = pa.table(
        {
            "img": [{"bytes": picture(1), "path": None}],
            "audio": [{"bytes": b"RIFF", "path": "a.wav"}],
            "grid": pa.array([[[1, 2], [3, 4]]], pa.list_(pa.list_(pa.int32()))),
            "objects": [{"category": [1, 0]}],
            "digit": [1],
        }
    )
    path = write_parquet(tmp_path / "a.parquet", with_features(table, features))
    source = open_source(path)
    pack(source, tmp_path / "out.lmdb")

    assert {"image": "image", "audio": "bytes", "grid": "int32[2,2]", "objects": "json", "label": "int"} == fields(path)
    assert [[1, 2], [3, 4]] == stored(tmp_path / "out.lmdb")["a/0"]["grid"]
    assert ["0", "1"] == source.metadata["classes"]
    assert {"objects.category": ["x", "y"]} == source.metadata["field_classes"]


def test_keys_of_a_column(tmp_path: Path) -> None:
    """Keys may come from a column or a part of one; a key that is missing or comes again is a problem of its row."""
    table = picture_table(4, name=["a", "b", "a", None])
    path = write_parquet(tmp_path / "a.parquet", table)
    options = LabelOptions(key_column="name")
    report = pack(open_source(path, label_options=options), tmp_path / "out.lmdb", on_error="skip")

    assert ["a", "b"] == list(stored(tmp_path / "out.lmdb"))
    assert {
        "a/2": "has the key 'a', which a/0 has already",
        "a/3": "has the key None in 'name'",
    } == {each.key: each.problem for each in report.skipped}
    paths = open_source(path, label_options=LabelOptions(key_column="image.path"))
    assert ["0.png", "1.png", "2.png", "3.png"] == paths.keys
    assert ["image", "name", "label"] == [field.name for field in paths.schema.fields]


def test_labels_that_are_names(tmp_path: Path) -> None:
    """Strings are sorted into classes; --label-column names another column; null is a problem."""
    table = pa.table({"jpg": [picture(i) for i in range(4)], "kind": ["b", "a", None, "b"], "label": [5, 6, 7, 8]})
    path = write_parquet(tmp_path / "a.parquet", table)
    source = open_source(path, label_options=LabelOptions(label_columns=("kind",), ignore_columns=("label",)))
    report = pack(source, tmp_path / "out.lmdb", on_error="skip")

    assert ["a", "b"] == source.metadata["classes"]
    assert [1, 0, 1] == [sample["label"] for sample in stored(tmp_path / "out.lmdb").values()]
    assert ["has no label (column 'kind')"] == [each.problem for each in report.skipped]


def test_labels_without_a_name(tmp_path: Path) -> None:
    """A label that is no position in the declared names is a problem, as -1 in test sets is."""
    table = picture_table(3).set_column(1, "label", [[0, -1, 3]])
    path = write_parquet(
        tmp_path / "a.parquet", with_features(table, {"label": {"names": ["x", "y"], "_type": "ClassLabel"}})
    )
    report = pack(open_source(path), tmp_path / "out.lmdb", on_error="skip")

    assert [
        "has the label -1, expected 0 to 1 (column 'label')",
        "has the label 3, expected 0 to 1 (column 'label')",
    ] == [each.problem for each in report.skipped]


def test_filters(tmp_path: Path) -> None:
    """Rows with other values are left out and counted; the column is no field."""
    path = write_parquet(tmp_path / "a.parquet", picture_table(6, split=["train", "val"] * 3, id=[1, 2, 3] * 2))
    options = LabelOptions(filters=(("split", "train"), ("id", "1"), ("id", "3")))
    source = open_source(path, label_options=options)
    report = pack(source, tmp_path / "out.lmdb")

    assert ["a/0", "a/2"] == list(stored(tmp_path / "out.lmdb"))
    assert (6, 2, 4) == (report.found, report.packed, len(report.left_out))
    assert {"image", "label"} == fields(path, label_options=options).keys()


def test_splits_by_name(tmp_path: Path) -> None:
    """The layout of Hugging Face's hub: files of several splits in data/, one of which --split chooses."""
    (tmp_path / "set" / "data").mkdir(parents=True)
    (tmp_path / "set" / "README.md").write_text("about")
    for name in ("train-00000-of-00002", "train-00001-of-00002", "test-00000-of-00001"):
        write_parquet(tmp_path / "set" / "data" / f"{name}.parquet", picture_table(2))
    with pytest.raises(
        SourceError, match=r"several splits, test \(1 file\), train \(2 files\): choose one with --split"
    ):
        open_source(tmp_path / "set")
    run("pack", tmp_path / "set", tmp_path / "train.lmdb", "--split", "train")
    run("pack", tmp_path / "set", tmp_path / "test.lmdb", "--split", "test")
    pattern = tmp_path / "set" / "data" / "train-*-of-*.parquet"

    assert [f"train-0000{i}-of-00002/{j}" for i in range(2) for j in range(2)] == list(stored(tmp_path / "train.lmdb"))
    assert ["test-00000-of-00001/0", "test-00000-of-00001/1"] == list(stored(tmp_path / "test.lmdb"))
    assert "4 compared" in run("verify", tmp_path / "train.lmdb", "--against", pattern)
    run("pack", tmp_path / "set", tmp_path / "x.lmdb", "--split", "val", code=1)


def test_a_missing_shard(tmp_path: Path) -> None:
    """A number that the names count and that is not there is a problem."""
    for number in (0, 2):
        write_parquet(tmp_path / f"train-0000{number}-of-00003.parquet", picture_table(1))
    source = open_source(tmp_path)

    assert ["train-00001-of-00003.parquet"] == [each.key for each in source.problems]
    assert 3 == len(source)


def test_text_stays_text(tmp_path: Path) -> None:
    """A table without pictures is packed as text, and so is the text of one with pictures when it is asked for."""
    plain = write_parquet(tmp_path / "a.parquet", pa.table({"text": ["one", "two"], "label": [1, 2]}))
    both = write_parquet(tmp_path / "b.parquet", picture_table(2, text=["one", "two"]))
    run("pack", plain, tmp_path / "a.lmdb")
    run("pack", both, tmp_path / "b.lmdb")
    run("pack", both, tmp_path / "c.lmdb", "--text-column", "text", "--without", "image")
    run("pack", plain, tmp_path / "d.lmdb", "--field", "words=text", "--source-kind", "parquet")

    assert [{"text": b"one"}, {"text": b"two"}] == list(stored(tmp_path / "a.lmdb").values())
    assert {"image": picture(0), "text": b"one", "label": 0} == stored(tmp_path / "b.lmdb")["b/0"]
    assert [{"text": b"one"}, {"text": b"two"}] == list(stored(tmp_path / "c.lmdb").values())
    assert {"words": b"one", "label": 1} == stored(tmp_path / "d.lmdb")["a/0"]
    assert "all good" in run("verify", tmp_path / "d.lmdb", "--against", plain)


def test_rows_with_problems(tmp_path: Path) -> None:
    """Null, a path without bytes, and what is no picture are problems of their rows; JSON may be null."""
    images = [
        {"bytes": picture(0), "path": None},
        None,
        {"bytes": None, "path": "/data/x.png"},
        {"bytes": b"no picture", "path": None},
        {"bytes": picture(4), "path": None},
        {"bytes": picture(5), "path": None},
    ]
    table = pa.table(
        {"image": images, "meta": [{"a": 1}, None, None, None, None, {"a": 2}], "n": [1, 2, 3, 4, 5, None]}
    )
    path = write_parquet(tmp_path / "a.parquet", table)
    report = pack(open_source(path), tmp_path / "out.lmdb", on_error="skip")

    assert {"a/0": {"a": 1}, "a/4": None} == {
        key: sample["meta"] for key, sample in stored(tmp_path / "out.lmdb").items()
    }
    assert {
        "a/1": "has null in the column 'image'; --without leaves a column out",
        "a/2": "has only the path '/data/x.png' in the column 'image', without the bytes of that file",
        "a/3": "is not an image: its first bytes are those of no known kind",
        "a/5": "has null in the column 'n'; --without leaves a column out",
    } == {each.key: each.problem for each in report.skipped}
    assert 6 == report.found == report.packed + len(report.skipped)


def test_later_rows_of_another_size(tmp_path: Path) -> None:
    """A value that does not fit the type asked for is a problem that says what it is."""
    table = picture_table(3, v=[[1, 2], [1, 2, 3], [4, None]])
    path = write_parquet(tmp_path / "a.parquet", table)
    choices = [parse_choice("image=image"), parse_choice("v=v:int32[2]")]
    report = pack(open_source(path, fields=choices), tmp_path / "out.lmdb", on_error="skip")

    assert ["a/1", "a/2"] == [each.key for each in report.skipped]
    assert all("has a field 'v' that" in each.problem for each in report.skipped)


@pytest.mark.parametrize("batch", [1, 2, 1000])
def test_any_order_of_reading(tmp_path: Path, batch: int) -> None:
    """Rows come out the same whatever order they are asked for, by a stream that goes back or from mapped files."""
    path = write_parquet(tmp_path / "a.parquet", picture_table(20), rows=6, compression="zstd")
    source = open_source(path)
    order = np.random.default_rng(batch).permutation(20)
    for start in range(0, 20, batch):
        asked = order[start : start + batch]
        spans = source.read(asked, None)().spans["image"]
        assert [picture(i) for i in asked.tolist()] == [view.tobytes() for view in spans.views()]


def test_dictionaries_that_change(tmp_path: Path) -> None:
    """Columns of dictionaries, another one in each row group, are shuffled like others."""
    table = picture_table(9, kind=pa.array([f"kind {i // 3}" for i in range(9)]).dictionary_encode())
    path = write_parquet(tmp_path / "a.parquet", table)
    pack(open_source(path).shuffled(2), tmp_path / "out.lmdb")
    samples = stored(tmp_path / "out.lmdb")

    assert {f"a/{i}": f"kind {i // 3}".encode() for i in range(9)} == {
        key: each["kind"] for key, each in samples.items()
    }
    assert list(samples) != sorted(samples)


def test_a_full_folder_for_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no room for the rows in another order, it is not the file's fault."""
    source = open_source(write_parquet(tmp_path / "a.parquet", picture_table(9)))
    monkeypatch.setattr("tempfile.NamedTemporaryFile", lambda **_: Path("/dev/full").open("wb"))  # noqa: SIM115
    with pytest.raises(SourceError, match=r"a\.parquet: cannot be unpacked into .*free space there"):
        pack(source.shuffled(2), tmp_path / "out.lmdb")


def test_written_by_polars_and_pandas(tmp_path: Path) -> None:
    """Tables of other libraries: large strings, views, an index, dictionary encoding."""
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    columns = {"image": [picture(i) for i in range(3)], "caption": ["a", "b", "a"], "label": [0, 1, 2]}
    pandas.DataFrame(columns).to_parquet(tmp_path / "p.parquet")
    polars.DataFrame(columns).write_parquet(tmp_path / "q.parquet")
    for name in ("p", "q"):
        pack(open_source(tmp_path / f"{name}.parquet"), tmp_path / f"{name}.lmdb")
        samples = list(stored(tmp_path / f"{name}.lmdb").values())
        assert [(picture(i), c) for i, c in enumerate((b"a", b"b", b"a"))] == [
            (s["image"], s["caption"]) for s in samples
        ]


def test_the_record_opens_it_again(tmp_path: Path) -> None:
    """What a store keeps of its source opens it with the same fields."""
    path = write_parquet(
        tmp_path / "a.parquet", picture_table(3, **{name: MANY[name][:3] for name in ("ids", "objects")})
    )
    source = open_source(path)
    record = json.loads(json.dumps(source.metadata))["source"]
    again = open_source(path, fields=[parse_choice(words) for words in record["fields"]])

    assert source.schema == again.schema
    assert source.metadata == again.metadata
