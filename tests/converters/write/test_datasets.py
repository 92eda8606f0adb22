"""A FastDataset handed to fastio.pack: a store packed again, whose pictures keep their bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torch.utils.data import Subset

import fastio
from fastio import FastDataset
from fastio.errors import SchemaError, StoreError
from fastio.store import open_store
from fastio.store.protocol import read_values
from tests.converters.trees import picture

SIZES = [(70 + i, 80 * (i % 2) + 9) for i in range(4)]
PHOTOS = [picture(i, kind="JPEG", size=size) for i, size in enumerate(SIZES)]
MASKS = [picture(i, mode="P", size=size) for i, size in enumerate(SIZES)]
BOXES = np.arange(8, dtype=np.float32).reshape(2, 4)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """JPEGs with labels."""
    with fastio.Writer(tmp_path / "photos.lmdb", {"photo": "image", "label": "label"}) as writer:
        for i, data in enumerate(PHOTOS):
            writer.write({"photo": data, "label": i % 2}, key=f"cat/{i}.jpg")
    return tmp_path / "photos.lmdb"


@pytest.fixture
def scenes(tmp_path: Path) -> Path:
    """Pictures with masks, boxes and JSON."""
    fields = {"image": "image", "mask": "mask", "boxes": "xyxy", "note": "json", "name": "text"}
    with fastio.Writer(tmp_path / "scenes.tar", fields) as writer:
        for i, (image, mask) in enumerate(zip(PHOTOS, MASKS, strict=True)):
            writer.write({"image": image, "mask": mask, "boxes": BOXES[:i], "note": {"i": i}, "name": "b\u00e9e"})
    return tmp_path / "scenes.tar"


def stored(path: Path, field: str) -> list[bytes]:
    """The values of a field as the store has them."""
    with open_store(path) as store:
        return [bytes(view) for view in read_values(store, field, np.arange(len(store))).views()]


@pytest.mark.parametrize("jobs", [None, 2])
def test_pairs_keep_bytes_keys_and_names(tmp_path: Path, photos: Path, jobs: int | None) -> None:
    """Pictures, labels, keys and the field's name are those of the store."""
    fastio.pack(FastDataset(photos), tmp_path / "again.h5", jobs=jobs)

    assert PHOTOS == stored(tmp_path / "again.h5", "photo")
    again = FastDataset(tmp_path / "again.h5")
    assert ([0, 1, 0, 1], [f"cat/{i}.jpg" for i in range(4)]) == (again.targets, again.keys)


def test_names_of_classes(tmp_path: Path) -> None:
    """Classes have the names that the store has, of every field; numbers without names get none."""
    names = {"classes": ["ant", "bee"], "field_classes": {"kinds": ["car", "bus"]}}
    for path, metadata in ((tmp_path / "with.lmdb", names), (tmp_path / "without.lmdb", {})):
        fields = {"image": "image", "kinds": "int64[*]", "label": "label"}
        with fastio.Writer(path, fields, metadata=metadata) as writer:
            writer.write({"image": PHOTOS[0], "kinds": np.array([1, 0]), "label": 1})
        fastio.pack(FastDataset(path), tmp_path / f"again_{path.name}")

        with open_store(path) as before, open_store(tmp_path / f"again_{path.name}") as after:
            for name in names:
                assert before.metadata.get(name) == after.metadata.get(name)


def test_names_of_the_user(tmp_path: Path, photos: Path) -> None:
    """Fields that the user names are the values of the pair in order."""
    fastio.pack(FastDataset(photos), tmp_path / "again.h5", fields={"image": None, "kind": "int"})

    assert PHOTOS == stored(tmp_path / "again.h5", "image")


@pytest.mark.parametrize("fields", [None, ("mask", "image", "boxes", "note", "name")])
def test_many_fields(tmp_path: Path, scenes: Path, fields: tuple[str, ...] | None) -> None:
    """Masks stay masks, boxes keep their format, and all values are equal."""
    dataset = FastDataset(scenes, fields=fields)
    fastio.pack(dataset, tmp_path / "again.lmdb")

    for name in ("image", "mask", "boxes", "note", "name"):
        assert stored(scenes, name) == stored(tmp_path / "again.lmdb", name)
    with open_store(tmp_path / "again.lmdb") as store:
        assert set(dataset.store.schema.fields) == set(store.schema.fields)


VALUES: dict[str, list[Any]] = {
    "tokens16": [[1, 2], [], [7]],
    "tokens": [[1, 2], [3, 4], [1 << 31, 5]],
    "json": ["a", "b", "c"],
    "json ": [{"a": 1}, {"b": 2}, {}],
    "int64[*]": [[1, 2], [3, 4], [5, 6]],
    "float32[2]": [[1, 2], [3, 4], [5, 6]],
    "bytes?": [None, b"", b"x"],
    "text[*]": [["a"], ["b", "c"], ["d"]],
    "tokens16[*]": [[], [[1, 2], []], [[3]]],
}


@pytest.mark.parametrize(
    "beside", [{}, {"label": "label"}, {"image": "image", "count": "int8"}], ids=["alone", "pair", "more"]
)
@pytest.mark.parametrize("type_", VALUES)
def test_types_are_those_of_the_store(tmp_path: Path, type_: str, beside: dict[str, str]) -> None:
    """A field has its type and its bytes, whatever its values look like, and samples have their keys, in order."""
    others: dict[str, Any] = {"label": 1, "count": 3, "image": PHOTOS[0]}
    with fastio.Writer(tmp_path / "a.lmdb", {"value": type_.strip(), **beside}) as out:
        for number, value in enumerate(VALUES[type_]):
            out.write({"value": value, **{name: others[name] for name in beside}}, key=f"k{number}")
    fastio.pack(FastDataset(tmp_path / "a.lmdb"), tmp_path / "b.tar")

    names = ["value", *(name for name in beside if name != "image")]
    before, after = (FastDataset(tmp_path / name, fields=names) for name in ("a.lmdb", "b.tar"))
    assert before.store.schema == after.store.schema
    assert ["k0", "k1", "k2"] == after.keys
    assert repr(list(before)) == repr(list(after))


def test_rows_without_what_they_belong_to(tmp_path: Path) -> None:
    """Classes of boxes that are packed without the boxes are rows of their own."""
    with fastio.Writer(tmp_path / "a.h5", {"boxes": "xyxy", "kinds": "int64[*] per boxes"}) as out:
        out.write({"boxes": BOXES, "kinds": [4, 5]})
    fastio.pack(FastDataset(tmp_path / "a.h5", fields="kinds"), tmp_path / "b.h5")

    assert [4, 5] == FastDataset(tmp_path / "b.h5")[0].tolist()


def test_the_picture_alone_and_a_subset(tmp_path: Path, scenes: Path) -> None:
    """One field is packed alone; a Subset packs its samples, in its order."""
    fastio.pack(Subset(FastDataset(scenes, fields="image"), [2, 0]), tmp_path / "again.lmdb")

    assert [PHOTOS[2], PHOTOS[0]] == stored(tmp_path / "again.lmdb", "image")


def test_what_a_transform_makes_is_packed(tmp_path: Path, photos: Path) -> None:
    """With a transform, or a ``__getitem__`` of a subclass, the samples are what these return."""

    class Turned(FastDataset):
        def __getitem__(self, index: int) -> Any:
            image, label = super().__getitem__(index)
            return image.rotate(90, expand=True), label

    for name, dataset in (("a.h5", FastDataset(photos, Image.Image.copy)), ("b.h5", Turned(photos))):
        assert 4 == fastio.pack(dataset, tmp_path / name).made_pngs


def test_damaged_pictures_are_not_packed(tmp_path: Path, photos: Path) -> None:
    """A picture that differs from its checksum is an error that names it, or is left out and listed."""
    data = bytearray(photos.read_bytes())
    data[data.index(PHOTOS[1]) + 400] ^= 1
    photos.write_bytes(data)

    with pytest.raises(StoreError, match=r"photos.lmdb\[1\] \('cat/1.jpg'\).*checksum"):
        fastio.pack(FastDataset(photos), tmp_path / "again.h5")
    report = fastio.pack(FastDataset(photos), tmp_path / "again.h5", on_error="skip")
    assert (3, ["cat/1.jpg"]) == (report.packed, [problem.key for problem in report.skipped])


# fastio.pack(rename=...): fields of a dataset under other names, with their types, classes and keys.

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
