"""Folders of ``datasets.save_to_disk`` with pictures: as the library reads them, and what is wrong with some."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from PIL import Image

from fastio.cli import cli
from fastio.converters import open_source, pack
from fastio.errors import SourceError
from tests.converters.sources.arrow.picture_tables import FEATURES, picture_table, stored, with_features, write_saved
from tests.converters.trees import picture


def run(*arguments: object, code: int = 0) -> str:
    """Run a command in this process; its exit code is as expected."""
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert code == result.exit_code, result.output
    return result.output


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
    ({"_indices_data_files": [{"filename": "i.arrow"}]}, r"save it again after flatten_indices\(\)"),
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
