"""Folders of ``datasets.save_to_disk`` with pictures: as the library reads them, and what is wrong with some."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from fastio import FastDataset, Unpacked
from fastio.converters import open_source, pack
from fastio.converters.labels.columns import LabelOptions
from fastio.errors import SourceError, StoreError
from tests.commands import run
from tests.converters.sources.arrow.picture_tables import (
    FEATURES,
    picture_table,
    stored,
    with_features,
    write_saved,
    write_stream,
)
from tests.converters.trees import picture


@pytest.fixture
def datasets() -> Iterator[Any]:
    """The library, without its bars of progress."""
    library = pytest.importorskip("datasets")
    library.disable_progress_bars()
    yield library
    library.enable_progress_bars()


def dataset(datasets: Any) -> Any:
    """Six pictures with captions, boxes with classes, an array and an embedding."""
    boxes = datasets.Sequence(datasets.Sequence(datasets.Value("float32"), length=4))
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=["zebra", "ant"]),
            "objects": {"bbox": boxes, "category": datasets.Sequence(datasets.ClassLabel(names=["x", "y"]))},
            "caption": datasets.Value("string"),
            "embedding": datasets.Sequence(datasets.Value("float32"), length=3),
            "grid": datasets.Array2D((2, 2), "float32"),
        }
    )
    columns = {
        "image": [Image.fromarray(np.full((4, 5, 3), i, np.uint8)) for i in range(6)],
        "label": [i % 2 for i in range(6)],
        "objects": [{"bbox": [[1, 2, 3, 4]] * i, "category": [i % 2] * i} for i in range(6)],
        "caption": [f"ü {i}" for i in range(6)],
        "embedding": [[i, 0.5, 2] for i in range(6)],
        "grid": [np.full((2, 2), i, np.float32) for i in range(6)],
    }
    return datasets.Dataset.from_dict(columns, features=features)


def test_what_the_library_saves(tmp_path: Path, datasets: Any) -> None:
    """The same samples as the library reads, from a folder of two files, of several splits, and from its Parquet."""
    whole = dataset(datasets)
    whole.save_to_disk(str(tmp_path / "saved"), num_shards=2)
    datasets.DatasetDict({"train": whole, "test": whole.select([5])}).save_to_disk(str(tmp_path / "dict"))
    whole.to_parquet(str(tmp_path / "a.parquet"))
    run("pack", tmp_path / "saved", tmp_path / "a.lmdb")
    run("pack", tmp_path / "dict", tmp_path / "b.lmdb", "--split", "train")
    run("pack", tmp_path / "a.parquet", tmp_path / "c.lmdb")
    raw = datasets.load_from_disk(str(tmp_path / "saved")).cast_column("image", datasets.Image(decode=False))
    expected = [
        {
            "image": row["image"]["bytes"],
            "label": row["label"],
            "objects": row["objects"],
            "caption": row["caption"].encode(),
            "embedding": list(row["embedding"]),
            "grid": np.asarray(row["grid"]).tolist(),
        }
        for row in raw
    ]

    for name in ("a", "b", "c"):
        assert expected == list(stored(tmp_path / f"{name}.lmdb").values())
    assert "all good" in run("verify", tmp_path / "a.lmdb", "--against", tmp_path / "saved")
    assert ["zebra", "ant"] == open_source(tmp_path / "saved").metadata["classes"]


def test_several_splits(tmp_path: Path, datasets: Any) -> None:
    """A dictionary of splits is not one source: its folders are named."""
    datasets.DatasetDict({"train": dataset(datasets)}).save_to_disk(str(tmp_path / "dict"))

    assert "holds several splits: pack one of them, " in run("pack", tmp_path / "dict", tmp_path / "a.lmdb", code=1)


def test_rows_chosen_by_indices(tmp_path: Path, datasets: Any) -> None:
    """What the library saves of a shuffled dataset are its rows in their new order."""
    dataset(datasets).shuffle(seed=3).save_to_disk(str(tmp_path / "saved"))
    pack(open_source(tmp_path / "saved"), tmp_path / "a.lmdb")
    captions = datasets.load_from_disk(str(tmp_path / "saved"))["caption"]

    assert [text.encode() for text in captions] == [each["caption"] for each in stored(tmp_path / "a.lmdb").values()]


def test_features_of_the_folder(tmp_path: Path) -> None:
    """Where the files do not note the names of classes, dataset_info.json does."""
    table = picture_table(2).replace_schema_metadata(None)
    source = open_source(write_saved(tmp_path / "saved", [table]))

    assert FEATURES["label"]["names"] == source.metadata["classes"]
    assert ["data-00000-of-00001/0", "data-00000-of-00001/1"] == source.keys


def test_text_stays_text(tmp_path: Path) -> None:
    """A saved dataset without pictures is packed as text, unless fields are asked for."""
    table = with_features(pa.table({"text": ["a", "b"], "n": [1, 2]}), {})
    folder = write_saved(tmp_path / "saved", [table])
    run("pack", folder, tmp_path / "a.lmdb")
    run("pack", folder, tmp_path / "b.lmdb", "--field", "text=text", "--field", "n=n")

    assert [{"text": b"a"}, {"text": b"b"}] == list(stored(tmp_path / "a.lmdb").values())
    assert [{"text": b"a", "n": 1}, {"text": b"b", "n": 2}] == list(stored(tmp_path / "b.lmdb").values())


STATES: list[tuple[dict[str, Any], str]] = [
    ({"_data_files": []}, r"state\.json names no data files"),
    ({"_data_files": None}, r"state\.json names no data files"),
    ({"_data_files": ["a.arrow"]}, r"state\.json names no data files"),
    ({"_data_files": [{}]}, r"None, which state\.json names, is missing"),
    (
        {"_data_files": [{"filename": "gone.arrow"}]},
        r"gone\.arrow, which state\.json names, is missing: copy the whole",
    ),
    ({"_data_files": [{"filename": "../other/a.arrow"}]}, "which is not a file in this folder"),
    ({"_data_files": [{"filename": "/etc/passwd"}]}, "which is not a file in this folder"),
    ({"_data_files": [{"filename": ".."}]}, r"which state\.json names, is missing|not a file in this folder"),
    ({"_data_files": [{"filename": "state.json"}]}, r"state\.json: expected arrow data"),
    ({"_indices_data_files": [{"filename": "i.arrow"}]}, r"i\.arrow, which state\.json names, is missing"),
    ({"_indices_data_files": [{"filename": "../i.arrow"}]}, "which is not a file in this folder"),
    (
        {"_data_files": [{"filename": "data-00000-of-00001.arrow", "skip": 1}]},
        r"state\.json names no data files as whole",
    ),
]


@pytest.mark.parametrize(("state", "message"), STATES)
def test_odd_states(tmp_path: Path, state: dict[str, Any], message: str) -> None:
    """A folder whose files are missing, lie elsewhere or mean other rows is refused."""
    folder = write_saved(tmp_path / "saved", [picture_table(2)], **state)
    with pytest.raises(SourceError, match=message):
        open_source(folder)


@pytest.mark.parametrize("name", ["state.json", "dataset_info.json"])
@pytest.mark.parametrize("content", ["", "{", "[]", "null", "\udcff", "[" * 5000])
def test_odd_notes(tmp_path: Path, name: str, content: str) -> None:
    """A folder whose notes are no JSON objects is refused, with the file's name."""
    folder = write_saved(tmp_path / "saved", [picture_table(2)])
    (folder / name).write_text(content, errors="surrogateescape")
    with pytest.raises(SourceError, match=rf"{name}: (cannot be read as JSON|expected a JSON object)"):
        open_source(folder)


@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.9, 0.999])
def test_cut_data(tmp_path: Path, share: float) -> None:
    """A data file that is cut off is an error that names it, and nothing is packed."""
    folder = write_saved(tmp_path / "saved", [picture_table(20), picture_table(20)])
    path = folder / "data-00001-of-00002.arrow"
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with pytest.raises(SourceError, match=r"data-00001-of-00002\.arrow"):
        pack(open_source(folder), tmp_path / "a.lmdb", on_error="skip")
    assert not (tmp_path / "a.lmdb").exists()


def test_rows_with_problems(tmp_path: Path) -> None:
    """A picture of which there is only a path is a problem; found is packed and skipped."""
    images = [{"bytes": picture(0), "path": None}, {"bytes": None, "path": "x.png"}, None]
    folder = write_saved(
        tmp_path / "saved", [with_features(pa.table({"image": images}), {"image": {"_type": "Image"}})]
    )
    report = pack(open_source(folder), tmp_path / "a.lmdb", on_error="skip")

    assert (3, 1, 2) == (report.found, report.packed, len(report.skipped))
    assert "has only the path 'x.png'" in report.skipped[0].problem


def test_a_cache_of_the_library(tmp_path: Path) -> None:
    """What the library keeps in its cache is no saved dataset, but Arrow files with splits in their names."""
    folder = write_saved(tmp_path / "cache", [picture_table(2)])
    (folder / "data-00000-of-00001.arrow").rename(folder / "set-train.arrow")
    (folder / "state.json").unlink()
    (folder / "dataset_info.json").write_text(json.dumps({"features": FEATURES}))
    run("pack", folder, tmp_path / "a.lmdb")

    assert ["set-train/0", "set-train/1"] == list(stored(tmp_path / "a.lmdb"))


def with_indices(folder: Path, *parts: list[int], name: str = "indices") -> Path:
    """A saved dataset of two files and seven rows with files that choose some of them, as older versions left it."""
    names = [f"indices-{i}.arrow" for i in range(len(parts))]
    entries = [{"filename": each} for each in names]
    write_saved(folder, [picture_table(4), picture_table(3)], _indices_data_files=entries)
    for each, rows in zip(names, parts, strict=True):
        write_stream(folder / each, pa.table({name: pa.array(rows, pa.uint64())}))
    return folder


def test_indices_choose_rows(tmp_path: Path) -> None:
    """The dataset is the rows that its indices choose, in their order; the others are left out by name."""
    source = open_source(with_indices(tmp_path / "saved", [6, 0], [5]))
    pack(source, tmp_path / "a.lmdb")

    assert ["data-00001-of-00002/2", "data-00000-of-00002/0", "data-00001-of-00002/1"] == source.keys
    assert [picture(i) for i in (2, 0, 1)] == [each["image"] for each in stored(tmp_path / "a.lmdb").values()]
    assert 4 == len(source.left_out)
    assert "the indices beside the data" in source.left_out[0].problem
    assert "indices-1.arrow" in {Path(each).name for each in source.files()}


def test_indices_and_a_filter(tmp_path: Path) -> None:
    """A filter takes some of the chosen rows, and a key that only rows have that are not chosen is no double one."""
    folder = with_indices(tmp_path / "saved", [6, 2, 0])
    source = open_source(folder, label_options=LabelOptions(filters=["label==2"], key_column="image.path"))

    assert ["2.png"] == source.keys  # row 6 has this name, too
    assert 1 == len(source.problems)


@pytest.mark.parametrize(
    ("rows", "name", "message"),
    [
        ([0, 7], "indices", "choose other rows than the 7 that its data have"),
        ([3, 1, 3], "indices", r"choose row 3 2 times: save it again after flatten_indices\(\)"),
        ([3], "rows", "expected a column 'indices', got 'rows'"),
    ],
)
def test_odd_indices(tmp_path: Path, rows: list[int], name: str, message: str) -> None:
    """Rows that are not there or come twice, and files of something else, are refused."""
    with pytest.raises(SourceError, match=message):
        open_source(with_indices(tmp_path / "saved", rows, name=name))


# Datasets in the cache of the library, as ``load_dataset`` leaves them.


def cached(folder: Path, splits: dict[str, int], **notes: Any) -> Path:
    """A folder of the cache with a file for each split, and what ``map`` and ``shuffle`` leave beside them."""
    folder.mkdir(parents=True)
    counts = {name: {"name": name, "num_examples": count, **notes} for name, count in splits.items()}
    info = {"dataset_name": "beans", "features": FEATURES, "splits": counts}
    (folder / "dataset_info.json").write_text(json.dumps(info))
    for name, count in splits.items():
        write_stream(folder / f"beans-{name}.arrow", picture_table(count))
    write_stream(folder / "cache-1b81114dce7f8319.arrow", picture_table(6))
    write_stream(folder / "cache-0fa5d886fdbad339.arrow", pa.table({"indices": pa.array([1, 0], pa.uint64())}))
    return folder


def test_a_folder_of_the_cache(tmp_path: Path) -> None:
    """The split that was loaded, without the results that are kept beside it, which are left out by name."""
    source = open_source(cached(tmp_path / "beans/default/0.0.0/ab45", {"train": 4}))

    assert [f"beans-train/{i}" for i in range(4)] == source.keys
    assert not source.problems
    reasons = {each.key: each.problem for each in source.left_out}
    assert "is a result that datasets keeps in its cache" == reasons["cache-1b81114dce7f8319.arrow"]


def test_splits_of_the_cache(tmp_path: Path) -> None:
    """One of several splits is chosen by name."""
    folder = cached(tmp_path / "cached", {"train": 4, "test": 3})
    with pytest.raises(SourceError, match=r"holds several splits, .*choose one with --split"):
        open_source(folder)

    assert [f"beans-test/{i}" for i in range(3)] == open_source(folder, split="test").keys


def test_splits_of_the_cache_by_any_name(tmp_path: Path) -> None:
    """Splits that are not called train or test are told apart, too."""
    folder = cached(tmp_path / "cached", {"train": 4, "more": 3})
    with pytest.raises(SourceError, match=r"holds several splits, train, more: choose one with --split"):
        open_source(folder)

    assert [f"beans-more/{i}" for i in range(3)] == open_source(folder, split="more").keys


def test_rows_that_the_cache_lacks(tmp_path: Path) -> None:
    """A file with other rows than its notes count is of another run."""
    folder = cached(tmp_path / "cached", {"train": 4}, num_examples=5)
    with pytest.raises(
        SourceError, match=r"'train' have 4 rows, but dataset_info\.json counts 5: load the dataset again"
    ):
        open_source(folder)


def test_text_of_the_cache(tmp_path: Path) -> None:
    """A text that was loaded is packed as text."""
    folder = tmp_path / "cached"
    folder.mkdir()
    (folder / "dataset_info.json").write_text(json.dumps({"features": {}}))
    write_stream(folder / "words-train.arrow", pa.table({"text": ["a", "b"]}))
    run("pack", folder, tmp_path / "a.lmdb")

    assert [{"text": b"a"}, {"text": b"b"}] == list(stored(tmp_path / "a.lmdb").values())


def test_what_the_library_loads(tmp_path: Path, datasets: Any) -> None:
    """What ``load_dataset`` keeps in its cache, after a shuffle of it was kept there, too."""
    dataset(datasets).to_parquet(str(tmp_path / "train.parquet"))
    loaded = datasets.load_dataset("parquet", data_files=str(tmp_path / "train.parquet"), cache_dir=str(tmp_path / "c"))
    loaded["train"].shuffle(seed=1)
    folder = Path(loaded["train"].cache_files[0]["filename"]).parent
    raw = loaded["train"].cast_column("image", datasets.Image(decode=False))
    pack(open_source(folder), tmp_path / "a.lmdb")

    assert [row["image"]["bytes"] for row in raw] == [each["image"] for each in stored(tmp_path / "a.lmdb").values()]
    assert raw["label"] == [each["label"] for each in stored(tmp_path / "a.lmdb").values()]


def test_the_cache_below_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dataset in the cache is read where it lies, by a path that begins with ~."""
    monkeypatch.setenv("HOME", str(tmp_path))
    cached(tmp_path / ".cache/huggingface/datasets/beans/default/0.0.0/ab45", {"train": 4, "test": 3})
    unpacked = Unpacked(split="test")
    dataset = FastDataset("~/.cache/huggingface/datasets/beans/default/0.0.0/ab45", unpacked=unpacked)

    assert [f"beans-test/{i}" for i in range(3)] == [*dataset.keys]
    assert [0, 1, 2] == dataset.column("label").tolist()
    with pytest.raises(StoreError, match=r"holds several splits, .*choose one with --split"):
        FastDataset("~/.cache/huggingface/datasets/beans/default/0.0.0/ab45")
