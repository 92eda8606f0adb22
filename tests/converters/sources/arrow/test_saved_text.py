"""What the ``datasets`` library itself saves: strings, ready ids, class labels, several shards, several splits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from fastio.cli import cli
from fastio.converters.inspect.compare import read_again
from fastio.converters.inspect.unpack import unpack
from fastio.converters.inspect.verify import verify
from fastio.converters.text import TextOptions
from fastio.errors import SourceError
from fastio.store import open_store
from tests.converters.text.build import SUFFIXES, ids, packed, values

datasets = pytest.importorskip("datasets")

TEXTS = [f"row {i}\nwith a line end, ü" for i in range(10)]
IDS = [list(range(i + 1)) for i in range(10)]
LABELS = [i % 3 for i in range(10)]
NAMES = ["zebra", "ant", "bee"]  # not in the order of the alphabet: the order of ``datasets`` is kept


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """No bars of progress of its own."""
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


def dataset() -> Any:
    """Texts, ready ids and class labels."""
    features = {
        "text": datasets.Value("string"),
        "ids": datasets.List(datasets.Value("int32")),
        "label": datasets.ClassLabel(names=NAMES),
    }
    return datasets.Dataset.from_dict(
        {"text": TEXTS, "ids": IDS, "label": LABELS}, features=datasets.Features(features)
    )


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The data set, saved in three files."""
    dataset().save_to_disk(tmp_path / "saved", num_shards=3)
    return tmp_path / "saved"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_texts_and_class_labels(saved: Path, tmp_path: Path, suffix: str) -> None:
    """All rows of all files in their order; names of classes come along in theirs; the store equals its source."""
    out = tmp_path / f"out{suffix}"
    packed(saved, out, options=TextOptions(label_field="label"))

    assert [text.encode() for text in TEXTS] == list(values(out).values())
    with open_store(out) as store:
        assert LABELS == store.column("label").tolist()
        assert NAMES == store.metadata["classes"]
        report = verify(store.path, against=read_again(store, saved))
    assert ([], 10) == (report.problems, report.compared)


def test_ready_ids(saved: Path, tmp_path: Path) -> None:
    """Lists of int32 are ids as they are."""
    out = tmp_path / "out.lmdb"
    packed(saved, out, options=TextOptions(text_field="ids", label_field="label"))

    assert IDS == list(ids(out, "<u4").values())


def test_unpacked_rows(saved: Path, tmp_path: Path) -> None:
    """Unpacking gives a table with key, text and the name of the class."""
    packed(saved, tmp_path / "out.h5", options=TextOptions(label_field="label"))
    with open_store(tmp_path / "out.h5") as store:
        unpack(store, tmp_path / "again")
    (table,) = (tmp_path / "again").iterdir()
    rows = [json.loads(line) for line in table.read_text(encoding="utf-8").splitlines()]

    assert TEXTS == [row["text"] for row in rows]
    assert [NAMES[label] for label in LABELS] == [row["label"] for row in rows]


def test_rows_chosen_and_shuffled(tmp_path: Path) -> None:
    """What a selection saves is the selection, in its order."""
    chosen = dataset().shuffle(seed=3).select(range(4))
    chosen.save_to_disk(tmp_path / "saved")
    packed(tmp_path / "saved", tmp_path / "out.lmdb")

    assert [text.encode() for text in chosen["text"]] == list(values(tmp_path / "out.lmdb").values())


def test_splits(tmp_path: Path) -> None:
    """A dictionary names its splits; each of them is a source."""
    whole = dataset()
    datasets.DatasetDict(train=whole, test=whole.select([2, 4])).save_to_disk(tmp_path / "saved")
    with pytest.raises(SourceError, match=r"holds several splits: pack one of them, .*/train, .*/test"):
        packed(tmp_path / "saved", tmp_path / "out.lmdb")
    packed(tmp_path / "saved" / "test", tmp_path / "out.lmdb")

    assert [TEXTS[2].encode(), TEXTS[4].encode()] == list(values(tmp_path / "out.lmdb").values())


def test_nothing_where_something_belongs(tmp_path: Path) -> None:
    """None as text or label is a problem of its row."""
    rows = {"text": ["a", None, "c"], "label": [0, 1, None]}
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=NAMES)})
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(tmp_path / "saved")
    report = packed(
        tmp_path / "saved", tmp_path / "out.lmdb", options=TextOptions(label_field="label"), on_error="skip"
    )

    assert {
        "data-00000-of-00001.arrow:2": "has null in the column 'text'",
        "data-00000-of-00001.arrow:3": "has no label (column 'label')",
    } == {problem.key: problem.problem for problem in report.skipped}


def test_the_command_line(saved: Path, tmp_path: Path) -> None:
    """The folder is recognised, and the store is verified against it."""
    runner, out = CliRunner(), str(tmp_path / "out.tar")
    said = runner.invoke(
        cli, ["pack", str(saved), out, "--text-column", "text", "--label-column", "label", "--tokenizer", "bytes"]
    )
    assert (0, True) == (said.exit_code, "datasets, text in 'text'" in said.output), said.output
    assert "3 classes" in said.output
    said = runner.invoke(cli, ["verify", out, "--against", str(saved)])

    assert (0, True) == (said.exit_code, "all good" in said.output), said.output
    assert [np.frombuffer(text.encode(), np.uint8).tolist() for text in TEXTS] == list(ids(Path(out)).values())
