"""The fields of tar shards that others wrote: names, types, and what does not fit."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdataset
from PIL import Image

from fastio.errors import StoreError
from fastio.store import open_store
from fastio.store.foreign import sidecar
from fastio.store.foreign.fields import names_of
from fastio.store.index.store import SealedStore
from fastio.store.sets.names import SIDECAR_SUFFIX
from fastio.types.field_types import type_of
from tests.store.build import read_all


def npy(array: Any, **options: Any) -> bytes:
    """An array as an npy file."""
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def png(mode: str) -> bytes:
    """A small picture."""
    file = io.BytesIO()
    Image.new(mode, (4, 3)).save(file, "PNG")
    return file.getvalue()


def shard(path: Path, samples: list[dict[str, Any]]) -> Path:
    """A shard as webdataset writes it, which encodes objects by their extensions."""
    with webdataset.TarWriter(str(path)) as tar:
        for i, sample in enumerate(samples):
            tar.write({"__key__": f"s{i}", **sample})
    return path


def types(store: SealedStore) -> dict[str, str]:
    """The type of each field."""
    return {field.name: type_of(field) for field in store.schema.fields}


def test_types_of_members(tmp_path: Path) -> None:
    """Pictures, masks, text, JSON, arrays and labels have their types; the rest is bytes."""
    samples = [
        {
            "jpg": b"\xff\xd8\xff",
            "mask.png": png("P"),
            "seg.png": png("I;16"),
            "depth.png": png("L"),
            "color_mask.png": png("RGB"),
            "txt": f"text {i}",
            "caption.txt": "ü",
            "json": {"n": i},
            "boxes.json": [[0, 0, 1, 1]] * i,
            "npy": np.full(3, i, "<f4"),
            "points.npy": np.zeros((i, 2), "<f8"),
            "odd.npy": np.zeros((2,) * (i + 1), "<i4"),
            "cls": i,
            "left.flow": b"?",
        }
        for i in range(3)
    ]
    path = shard(tmp_path / "a.tar", samples)
    for _ in ("scanned", "from its index"):
        with open_store(path) as store:
            assert {
                "image": "image",
                "boxes": "json",
                "caption": "text",
                "color_mask": "image",
                "depth": "image",
                "json": "json",
                "left_flow": "bytes",
                "mask": "mask",
                "npy": "float32[3]",
                "odd": "bytes",
                "points": "float64[*,2]",
                "seg": "mask16",
                "text": "text",
                "label": "int",
            } == types(store)
            assert [np.full(3, i, "<f4").tobytes() for i in range(3)] == list(read_all(store, "npy").values())
            assert [0, 16, 32] == [len(value) for value in read_all(store, "points").values()]
            assert [npy(np.zeros((2,) * i, "<i4")) for i in (1, 2, 3)] == list(read_all(store, "odd").values())
            assert {"n": 2} == json.loads(read_all(store, "json")["s2"])
            assert ["mask.png"] == store.metadata["extensions"]["mask"]


@pytest.mark.parametrize(
    ("extensions", "expected"),
    [
        (["jpg", "png", "image.png"], ["image", "image", "image_png"]),
        (["mask.png", "mask.jpg"], ["mask", "mask"]),
        (["mask.png", "mask.json"], ["mask", "mask_json"]),
        (["txt", "text.txt", "text"], ["txt", "text_txt", "text"]),
        (["cls", "label.png", "label.json"], ["label", "label_png", "label_json"]),
        (["json", "json.json"], ["json", "json_json"]),
        (["a.b.png", "a_b.png", "7"], ["a_b_png", "a_b", "x_7"]),
    ],
)
def test_names(extensions: list[str], expected: list[str]) -> None:
    """A compound extension gives its first part; two that want one name get longer ones, pictures of one field none."""
    names = names_of(extensions)

    assert expected == [names[each] for each in extensions]


@pytest.mark.parametrize(
    "broken",
    [b"", b"\x93NUMPY", npy(np.zeros(3, "<f4"))[:-1], npy(np.zeros(3, "<f4")) + b"x", b"\x93NUMPY\1\0\4\0x=y\n"],
)
def test_damaged_arrays_are_problems_of_their_samples(tmp_path: Path, broken: bytes) -> None:
    """A member that is no npy file is named, and the other samples keep their type."""
    samples = [{"png": b"x", "a.npy": npy(np.zeros(3, "<f4"))} for _ in range(4)]
    samples[2]["a.npy"] = broken
    with open_store(shard(tmp_path / "a.tar", samples)) as store:
        assert {"image": "image", "a": "float32[3]"} == types(store)
        assert ["s2"] == [each["key"] for each in store.metadata["skipped"]]
        assert "npy" in store.metadata["skipped"][0]["problem"]
        assert ["s0", "s1", "s3"] == store.keys(np.arange(3))


@pytest.mark.parametrize(
    "array", [np.zeros((2, 3), "<f4", order="F"), np.zeros(3, ">f4"), np.array(["é"]), np.array([{}, 1], object)]
)
def test_arrays_that_cannot_be_read_in_place_are_bytes(tmp_path: Path, array: Any) -> None:
    """Fortran order, big endian, strings and objects stay the npy files that they are; nothing is unpickled."""
    samples = [{"png": b"x", "a.npy": npy(array, allow_pickle=True)} for _ in range(2)]
    with open_store(shard(tmp_path / "a.tar", samples)) as store:
        assert "bytes" == types(store)["a"]
        assert {npy(array, allow_pickle=True)} == set(read_all(store, "a").values())


def test_shards_agree_on_types(tmp_path: Path) -> None:
    """Arrays of two lengths are ragged, those of two dtypes are bytes, and masks beside photos are pictures."""
    first = {"png": b"x", "a.npy": npy(np.ones(3, "<f4")), "b.npy": npy(np.ones(3, "<f4")), "mask.png": png("L")}
    second = {"png": b"y", "a.npy": npy(np.ones(5, "<f4")), "b.npy": npy(np.ones(3, "<f8")), "mask.png": png("RGB")}
    shard(tmp_path / "s-0.tar", [first])
    shard(tmp_path / "s-1.tar", [second])
    for _ in ("scanned", "from their indices"):
        with open_store(tmp_path / "s-%d.tar") as store:
            assert {"image": "image", "a": "float32[*]", "b": "bytes", "mask": "image"} == types(store)
            spans = [store.spans("b", np.array([i])).view(0).tobytes() for i in (0, 1)]
            assert [first["b.npy"], second["b.npy"]] == spans
            assert [12, 20] == store.spans("a", np.arange(2)).sizes.tolist()


def test_shards_with_other_fields_are_refused(tmp_path: Path) -> None:
    """Fields that one shard lacks are no matter of types."""
    shard(tmp_path / "s-0.tar", [{"png": b"x", "txt": "a"}])
    shard(tmp_path / "s-1.tar", [{"png": b"x"}])
    with pytest.raises(StoreError, match=r"has fields \['image', 'text'\], but .*s-1.tar has \['image'\]"):
        open_store(tmp_path / "s-%d.tar")


def test_an_index_by_older_rules_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that was kept when JSON was bytes does not decide what it is now."""
    path = shard(tmp_path / "a.tar", [{"png": b"x", "json": {}}])
    monkeypatch.setattr(sidecar, "_RULES", 1)
    open_store(path).close()
    before = Path(f"{path}{SIDECAR_SUFFIX}").read_bytes()
    monkeypatch.undo()
    open_store(path).close()

    assert before != Path(f"{path}{SIDECAR_SUFFIX}").read_bytes()
