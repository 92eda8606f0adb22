"""Every source whose samples are files, where it lies: the same samples as in a packed store."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fastio import FastDataset, Unpacked, open_store
from fastio.codec.copied import pixels_of
from fastio.converters import open_source, pack
from fastio.converters.fields.types import parse_choice
from fastio.converters.labels.columns import LabelOptions
from fastio.converters.sources.in_place import content_of
from fastio.errors import SampleError, StoreError
from fastio.store.foreign.folder import open_listed
from fastio.store.foreign.index import index_store
from fastio.store.index.store import SealedStore
from fastio.store.index.verify import verify_store
from fastio.store.kinds.unpacked import AS_IT_IS
from fastio.store.protocol import SampleStore, read_values
from fastio.types.field_types import type_of
from tests.converters.sources import layouts
from tests.converters.sources.conformance import MAKERS
from tests.converters.sources.in_place_kinds import Made, tfrecord, zip_classes
from tests.converters.sources.test_pairs import ALL, npy, pairs
from tests.converters.trees import class_folders, flat, pickled, picture, tree

PACKED_FIRST = {"store", "tokens"}
PACKED_FIRST |= {"hdf5", "zip", "parquet"}  # compressed here
_OF_PLACE = ("skipped", "left_out")


def values(store: SampleStore, name: str) -> list[bytes]:
    """All values of a field as packing gives them: of raw pictures, pixels with their channels last."""
    field, views = store.schema[name], read_values(store, name, np.arange(len(store))).views()
    return [(pixels_of(field, view) if field.is_raw_picture else view).tobytes() for view in views]


def same(one: SampleStore, other: SampleStore) -> None:
    """Both have the same fields, keys, columns, bytes and classes; pixels, where channels lie one behind the other."""
    every = np.arange(len(other))
    assert [type_of(field) for field in other.schema.fields] == [type_of(field) for field in one.schema.fields]
    assert other.keys(every) == one.keys(every)
    for field in other.schema.columns:
        assert np.array_equal(other.column(field.name), one.column(field.name), equal_nan=field.dtype[1] == "f")
    for field in other.schema.payload:
        assert values(one, field.name) == values(other, field.name)
    for name in ("classes", "field_classes", "source", "table", "coco"):
        assert other.metadata.get(name) == one.metadata.get(name)


@pytest.mark.parametrize("name", MAKERS)
def test_in_place_is_as_packed(name: str, tmp_path: Path) -> None:
    """Keys, labels, columns and bytes of every kind whose samples lie in files; others have none."""
    source = MAKERS[name](tmp_path)
    content = content_of(source, source.path)
    if isinstance(content, str):
        assert name in PACKED_FIRST
        return
    assert name not in PACKED_FIRST
    shard = open_listed(source.path, AS_IT_IS, content)
    pack(source, tmp_path / "packed.lmdb")
    with (
        SealedStore(source.path, format_name="files", shards=[shard], opener=open_store) as here,
        open_store(tmp_path / "packed.lmdb") as packed,
    ):
        same(here, packed)


def _classes(folder: Path) -> tuple[Path, Unpacked]:
    class_folders(folder)
    return folder, Unpacked()


def _flat(folder: Path) -> tuple[Path, Unpacked]:
    flat(folder)
    return folder, Unpacked()


def _labelled(folder: Path) -> tuple[Path, Unpacked]:
    labels = flat(folder)
    return folder, Unpacked(pickled(folder.parent / "labels.pkl", labels))


def _labelled_by_name(folder: Path) -> tuple[Path, Unpacked]:
    labels = flat(folder)
    rows = "".join(f"{name},{'ab'[label % 2]},{label}\n" for name, label in labels.items())
    (folder / "labels.csv").write_text(f"file,kind,number\n{rows}")
    return folder, Unpacked(folder / "labels.csv", label_columns=["kind"], without=["number"])


def _split(folder: Path) -> tuple[Path, Unpacked]:
    class_folders(folder / "train")
    class_folders(folder / "val")
    return folder, Unpacked(split="val")


def _pairs(folder: Path) -> tuple[Path, Unpacked]:
    return pairs(folder), Unpacked(fields=["image=images", *ALL])


def _pairs_beside(folder: Path) -> tuple[Path, Unpacked]:
    return pairs(folder) / "images", Unpacked(fields=["mask=masks/"])


def _metadata(folder: Path) -> tuple[Path, Unpacked]:
    labels = flat(folder)
    rows = [{"file_name": name, "label": label, "caption": f"é{'x' * label}"} for name, label in labels.items()]
    (folder / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder, Unpacked()


def _table(folder: Path) -> tuple[Path, Unpacked]:
    folder.mkdir()
    labels = flat(folder / "images")
    rows = "".join(f"{name},{label},{label / 2}\n" for name, label in labels.items())
    (folder / "list.csv").write_text(f"file_name,label,weight\n{rows}")
    return folder / "list.csv", Unpacked(root=folder / "images")


def _coco(folder: Path) -> tuple[Path, Unpacked]:
    folder.mkdir()
    names = list(flat(folder / "images"))
    coco = {
        "images": [{"id": i, "file_name": name, "licence": i} for i, name in enumerate(names)],
        "annotations": [{"id": i, "image_id": i // 2, "category_id": 1, "bbox": [1, 0, 2, 2]} for i in range(9)],
        "categories": [{"id": 1, "name": "bee"}],
    }
    (folder / "coco.json").write_text(json.dumps(coco))
    return folder / "coco.json", Unpacked()


LAYOUTS: dict[str, Callable[[Path], tuple[Path, Unpacked]]] = {
    "class folders": _classes,
    "a flat folder": _flat,
    "a label file": _labelled,
    "a table of names of labels": _labelled_by_name,
    "a split": _split,
    "folders of fields": _pairs,
    "a folder of masks beside": _pairs_beside,
    "metadata": _metadata,
    "a table with a root": _table,
    "COCO": _coco,
}


def packed(path: Path, unpacked: Unpacked, out: Path) -> SealedStore:
    """What ``fastio pack`` makes of it."""
    source = open_source(
        path,
        kind=unpacked.kind,
        split=unpacked.split,
        labels=unpacked.labels,
        label_options=LabelOptions(label_columns=unpacked.label_columns, ignore_columns=unpacked.without),
        fields=[parse_choice(words) for words in unpacked.fields],
        root=unpacked.root,
    )
    pack(source, out)
    return open_store(out)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_path_is_as_packed(layout: str, tmp_path: Path) -> None:
    """What FastDataset makes of a path and its options is what pack makes of them, listed now or by its index."""
    path, unpacked = LAYOUTS[layout](tmp_path / "set")
    settle(tmp_path)
    listed = FastDataset(path, unpacked=unpacked)
    assert [*tmp_path.rglob("*.fastio-index")]
    kept = FastDataset(path, unpacked=unpacked)
    with packed(path, unpacked, tmp_path / "packed.lmdb") as store:
        same(listed.store, store)
        same(kept.store, store)
        assert kept.store.identity == listed.store.identity


def settle(root: Path) -> None:
    """Give everything a time of long ago, as files have that were not copied this second."""
    for each in (root, *root.rglob("*")):
        os.utime(each, ns=(10**18, 10**18))


def test_what_is_no_sample_is_listed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What pack would refuse is left out, with its reason, and one line says so at every opening."""
    class_folders(tmp_path / "set")
    (tmp_path / "set/cat").mkdir(exist_ok=True)
    (tmp_path / "set/cat/empty.png").write_bytes(b"")
    settle(tmp_path)
    for _ in range(2):
        caplog.clear()
        with open_store(tmp_path / "set") as store:
            skipped = store.metadata["skipped"]
        assert {"key": "cat/empty.png", "problem": "is empty (0 bytes)"} in skipped
        assert f"{tmp_path / 'set'}: samples: {len(store)}; not among them: {len(skipped)}, e.g. " in caplog.text


@pytest.mark.parametrize("folder", ["", "cat/", "cat/deep/"])
def test_captions_beside_pictures(folder: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Texts of the names of pictures are left out in one line, which says what takes them along; it does."""
    files = {
        f"{folder}{i}{suffix}": content for i in range(3) for suffix, content in ((".png", picture(i)), (".txt", b"a"))
    }
    path = tree(tmp_path / "photos", files | ({"dog/9.png": picture(9), "dog/about.txt": b"-"} if folder else {}))
    with open_store(path) as store:
        assert ["image"] == [field.name for field in store.schema.payload]
    (told,) = [each for each in caplog.messages if "left out" in each]
    assert f"3 texts of the names of pictures, such as {folder}0.txt" in told
    assert "caption={stem}.txt" in told
    with open_store(path, unpacked=Unpacked(fields=["caption={stem}.txt"])) as store:
        assert [b"a"] * 3 == values(store, "caption")


def test_arrays_that_packing_changes(tmp_path: Path) -> None:
    """Their bytes are no values of the field, so that packing is what helps."""
    pairs(tmp_path / "set")
    (tmp_path / "set/boxes/1.npy").write_bytes(npy(np.zeros((1, 4))))
    unpacked = Unpacked(fields=["boxes=boxes:xyxy"])
    with pytest.raises(StoreError, match=r"1.npy: is <f8 \(1, 4\), which only packing turns into the field 'boxes'"):
        open_store(tmp_path / "set/images", unpacked=unpacked)


def test_pictures_in_a_table_are_packed_first(tmp_path: Path) -> None:
    """A table that holds pictures itself is no list of files."""
    rows = [{"image": base64.b64encode(picture(i)).decode(), "label": i} for i in range(3)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(StoreError, match=r"and not packed yet\. Pack it: fastio pack"):
        open_store(tmp_path / "rows.jsonl")


def test_options_are_explained() -> None:
    """One text is no list of texts, and other names are answered."""
    with pytest.raises(TypeError, match=r"fields='mask=masks/': expected a list of texts"):
        Unpacked(fields="mask=masks/")
    other: dict[str, Any] = {"label_column": "label_columns, a list", "field": "fields, a list", "no_header": "header="}
    for name, words in {**other, "filter": "filters, a list", "source_kind": "kind: kind="}.items():
        with pytest.raises(TypeError, match=f"Unpacked has no option {name}: it is .*{words}"):
            Unpacked(**{name: "x"})


def test_filters_are_read_as_those_of_pack(tmp_path: Path) -> None:
    """A pair, or an expression; what is neither is answered."""
    labels = flat(tmp_path / "set")
    rows = "".join(f"{name},{label},{'train' if i < 5 else 'val'}\n" for i, (name, label) in enumerate(labels.items()))
    (tmp_path / "labels.csv").write_text(f"file,label,part\n{rows}")

    def count(words: str) -> int:
        options = Unpacked(tmp_path / "labels.csv", filters=[words], without=["*"])
        return len(FastDataset(tmp_path / "set", unpacked=options))

    assert (5, 2, 3) == (count("part=train"), count("part=val"), count("label == 0"))
    with pytest.raises(StoreError, match="filters: 'part=': expected COLUMN=VALUE"):
        count("part=")


def test_fractions_become_pixels_of_pictures_that_lie_there(tmp_path: Path) -> None:
    """Boxes and polygons are those of the packed store; what has no size, or is turned, is no sample in either."""
    turned = Image.Exif()
    turned[0x0112] = 6
    root = layouts.yolo(tmp_path / "y")
    (root / "labels/1.txt").write_text("0 0.1 0.2 0.5 0.2 0.5 0.9\n1 0.5 0.5 1 1\n")
    (root / "images/2.png").write_bytes(b"no picture")
    Image.new("RGB", (40, 20)).save(root / "images/turned.jpg", exif=turned)
    shutil.copy(root / "labels/1.txt", root / "labels/turned.txt")
    large = Image.Exif()
    large[0x010E] = "x" * 60_000
    Image.new("RGB", (44, 22)).save(root / "images/7.jpg", exif=large, icc_profile=b"y" * 40_000)
    (root / "labels/7.txt").write_text("0 0.5 0.5 0.5 0.5\n")
    settle(tmp_path)
    pack(open_source(root), tmp_path / "packed.lmdb", on_error="skip")
    for _ in range(2):
        with open_store(root) as here, open_store(tmp_path / "packed.lmdb") as there:
            same(here, there)
            assert len(here) == 7
            skipped = {each["key"]: each["problem"] for each in here.metadata["skipped"]}
            assert skipped == {each["key"]: each["problem"] for each in there.metadata["skipped"]}
            assert skipped.keys() == {"images/2.png", "images/turned.jpg"}


@pytest.mark.parametrize("pattern", ["set/train-*", "s*/train-*-of-00002"])
def test_a_pattern(pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is as packed; its index lies in the cache directory, and files that come, go or change are noticed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "sets").mkdir()
    tfrecord(tmp_path / "sets" / "set", 12)
    settle(tmp_path)
    path = tmp_path / "sets" / pattern
    with packed(path, AS_IT_IS, tmp_path / "packed.lmdb") as store:
        for _ in range(2):
            with open_store(path) as here:
                same(here, store)
    assert 12 == index_store(str(path)).samples
    with open_store(path) as here, open_store(tmp_path / "packed.lmdb") as store:
        assert here.receipt() == store.receipt()
    assert [*tmp_path.rglob("*.fastio-index")] == [*(tmp_path / "cache").rglob("*.fastio-index")] != []
    (tmp_path / "sets" / "set" / "train-00001-of-00002").rename(tmp_path / "sets" / "set" / "other-00001-of-00002")
    assert 6 == len(FastDataset(path))
    with pytest.raises(StoreError, match=r"no such file or folder"):
        FastDataset(tmp_path / "sets" / "set" / "none-*")


def test_a_label_file_that_comes_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is noticed, and so are one that is written anew, and a picture in a folder of its own."""
    root = layouts.yolo(tmp_path / "y")
    (root / "labels/3.txt").unlink()

    def counts() -> list[int]:
        settle(tmp_path)
        with open_store(root) as store:
            return [int(size) // 16 for size in store.spans("boxes", np.arange(len(store))).sizes]

    assert [1, 1, 1, 0, 1, 1, 1] == counts()
    assert "1 picture without a label file, such as images/3.png: taken to have no objects" in caplog.text
    (root / "labels/3.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    assert [1] * 7 == counts()
    text = (root / "labels/4.txt").read_text()
    (root / "labels/4.txt").write_text(text.replace("0.1", " 1."))
    assert [1] * 7 == counts()
    with open_store(root) as store:
        assert 40 == read_values(store, "boxes", np.array([4])).view(0).view("<f4")[2]
    (root / "images/deep").mkdir()
    shutil.copy(root / "images/0.png", root / "images/deep/9.png")
    assert [*[1] * 7, 0] == counts()


@pytest.mark.parametrize(("make", "is_told_at_once"), [(tfrecord, False), (zip_classes, True)])
def test_damage_that_a_container_can_tell(
    make: Callable[[Path, int], Made], is_told_at_once: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index leaves out values that differ from the container's own checksums; CRC-32s are compared before, too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = make(tmp_path / "set", 6)
    file = made.path if made.path.is_file() else max(made.path.iterdir())
    data = bytearray(file.read_bytes())
    at = data.index(made.samples[-1]["image"]) + 60
    data[at] ^= 1
    file.write_bytes(data)
    settle(tmp_path)
    dataset = FastDataset(made.path)
    key = dataset.keys[-1]
    if is_told_at_once:
        (damage,) = verify_store(dataset.store)
        assert damage.shard == str(file)
        assert damage.start == at - 60
        with pytest.raises(SampleError, match=key):
            dataset[-1]
    index_store(str(made.path))
    with open_store(made.path) as store:
        (skipped,) = store.metadata["skipped"]
        assert len(store) == 5
        assert skipped["key"] == key
        assert "differs from its checksum" in skipped["problem"]
