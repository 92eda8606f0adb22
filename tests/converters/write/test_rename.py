"""fastio.pack(rename=...): fields of a dataset under other names, with their types, classes and keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastio
from fastio import FastDataset
from fastio.errors import SchemaError, StoreError
from fastio.store import open_store
from tests.converters.trees import picture

ROWS: list[dict[str, Any]] = [{"img": picture(i), "name": f"n{i}", "fine": i % 2, "text": f"{i}"} for i in range(40)]
NAMES = {"img": "image", "fine": "label"}


@pytest.mark.parametrize(("how", "jobs"), [("list", None), ("list", 2), ("generator", None)])
def test_fields_have_the_new_names(tmp_path: Path, how: str, jobs: int | None) -> None:
    """Types, choice of fields and key are by the new names, in one process and in many."""
    rows: Any = ROWS if how == "list" else iter(ROWS)

    fastio.pack(rows, tmp_path / "s.lmdb", rename={**NAMES, "name": "id"}, key="id", jobs=jobs)

    with open_store(tmp_path / "s.lmdb") as store:
        assert ["image", "label", "text"] == sorted(field.name for field in store.schema.fields)
        assert [row["name"] for row in ROWS] == store.keys(np.arange(40))
        assert [row["fine"] for row in ROWS] == store.column("label").tolist()
        assert [row["img"] for row in ROWS] == [view.tobytes() for view in store.spans("image", np.arange(40)).views()]


def test_two_names_change_places(tmp_path: Path) -> None:
    """A new name may be one that another field gives up."""
    rows = [{"a": f"a{i}", "b": f"b{i}"} for i in range(3)]

    fastio.pack(rows, tmp_path / "s.lmdb", rename={"a": "b", "b": "a"})

    assert [("b0", "a0")] == list(FastDataset(tmp_path / "s.lmdb", fields=("a", "b")))[:1]


def test_classes_go_with_their_field(tmp_path: Path) -> None:
    """Those of the label become another field's, and the other way round."""
    fields = {"image": "image", "label": "label", "note": "text"}
    with fastio.Writer(tmp_path / "a.lmdb", fields, metadata={"classes": ["cat", "dog"]}) as out:
        out.write({"image": picture(0), "label": "dog", "note": ""})

    fastio.pack(FastDataset(tmp_path / "a.lmdb"), tmp_path / "b.lmdb", rename={"label": "animal"})
    fastio.pack(FastDataset(tmp_path / "b.lmdb"), tmp_path / "c.lmdb", rename={"animal": "label"})

    with open_store(tmp_path / "b.lmdb") as store:
        assert (None, {"animal": ["cat", "dog"]}) == (store.metadata["classes"], store.metadata["field_classes"])
    with open_store(tmp_path / "c.lmdb") as store:
        assert (["cat", "dog"], [1]) == (store.metadata["classes"], store.column("label").tolist())


@pytest.mark.parametrize(
    ("rename", "words"),
    [
        ({"imgs": "image"}, r"there is no field 'imgs'; the fields are img, name, fine, text"),
        ({"img": "text"}, r"there is a field 'text' already"),
        ({"img": "a", "fine": "a"}, r"expected different new names"),
    ],
)
def test_impossible_names(tmp_path: Path, rename: dict[str, str], words: str) -> None:
    """One line, and nothing is left."""
    with pytest.raises(SchemaError, match=words):
        fastio.pack(ROWS, tmp_path / "s.lmdb", rename=rename)

    assert [] == list(tmp_path.iterdir())


def test_samples_without_the_field(tmp_path: Path) -> None:
    """One sample that lacks it is that sample's problem; samples that are no dicts have no names."""
    rows = [*ROWS[:5], {"image": picture(1)}, *ROWS[5:]]
    report = fastio.pack(rows, tmp_path / "s.lmdb", rename=NAMES, on_error="skip")

    assert (40, ["00000005"]) == (report.packed, [each.key for each in report.skipped])
    assert "no field 'img'" in report.skipped[0].problem
    with pytest.raises(SchemaError, match="expected samples as dicts, got tuple: name their values with fields="):
        fastio.pack([(picture(0), 1)], tmp_path / "t.lmdb", rename=NAMES)
    with pytest.raises(StoreError, match="all 1 samples have problems"):
        fastio.pack([(picture(0), 1)], tmp_path / "t.lmdb", rename=NAMES, on_error="skip")


@pytest.mark.parametrize("options", [{"fields": ["text"], "key": "name"}, {"fields": ["sentence"]}])
def test_old_names_mean_nothing(tmp_path: Path, options: dict[str, Any]) -> None:
    """Also to a dataset that reads only the fields that are asked for."""
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"sentence": ["a", "b"], "name": ["0", "1"]})

    with pytest.raises(SchemaError, match=r"there is no field '(name|sentence)': rename= calls it '(id|text)'"):
        fastio.pack(rows, tmp_path / "s.lmdb", rename={"sentence": "text", "name": "id"}, **options)
    assert [] == list(tmp_path.iterdir())
