"""Tar shards of webdataset, and stores, as sources of chosen fields."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdataset

from fastio.converters import LabelOptions
from fastio.converters.inspect.verify import verify
from fastio.store import SampleBatch, create_store
from fastio.types.field_types import field_of
from fastio.types.schema import Schema
from fastio.types.spans import Spans
from tests.commands import run
from tests.converters.sources.packed import packed, refused
from tests.converters.trees import picture


def objects(i: int) -> list[dict[str, Any]]:
    """So many boxes as the sample's number."""
    return [{"bbox": [0, 0, k + 1, i], "category": k} for k in range(i)]


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    """An archive of members with these names, as they are."""
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


@pytest.fixture
def shards(tmp_path: Path) -> str:
    """Two shards of three samples each."""
    for number in range(2):
        with webdataset.TarWriter(str(tmp_path / f"s-{number}.tar")) as tar:
            for i in range(3 * number, 3 * number + 3):
                mask, array = picture(i, mode="L"), np.arange(3, dtype="<f4") + i
                values = {"jpg": picture(i, kind="JPEG"), "mask.png": mask, "txt": f"é{i}", "cls": i, "emb.npy": array}
                tar.write({"__key__": f"k{i}", **values, "json": {"n": i, "objects": objects(i)}})
    return str(tmp_path / "s-{0..1}.tar")


def test_all_fields(tmp_path: Path, shards: str) -> None:
    """Every member is a field with its type."""
    types, samples, _ = packed(Path(shards), tmp_path / "o.lmdb")

    assert {
        "image": "image",
        "emb": "float32[3]",
        "json": "json",
        "mask": "mask",
        "text": "text",
        "label": "int",
    } == types
    assert (picture(4, kind="JPEG"), picture(4, mode="L")) == (samples["k4"]["image"], samples["k4"]["mask"])
    assert ("é4".encode(), 4, {"n": 4, "objects": objects(4)}) == (
        samples["k4"]["text"],
        samples["k4"]["label"],
        json.loads(samples["k4"]["json"]),
    )
    assert (np.arange(3, dtype="<f4") + 4).tobytes() == samples["k4"]["emb"]


def test_chosen_fields(tmp_path: Path, shards: str) -> None:
    """Extensions and names say where, JSON is gone into, and picture and label stay."""
    asked = ("caption=txt:text", "boxes=json.objects.bbox:xywh", "kinds=json.objects.category:int64[*] per boxes")
    types, samples, _ = packed(Path(shards), tmp_path / "o.h5", *asked, "n=json.n:int", "seg=mask.png")

    assert {
        "image": "image",
        "caption": "text",
        "boxes": "xywh",
        "kinds": "int64[*] per boxes",
        "seg": "mask",
        "n": "int",
        "label": "int",
    } == types
    boxes = np.array([each["bbox"] for each in objects(5)], "<f4")
    assert (boxes.tobytes(), np.arange(5).tobytes()) == (samples["k5"]["boxes"], samples["k5"]["kinds"])
    assert (b"", "é0".encode(), 0) == (samples["k0"]["boxes"], samples["k0"]["caption"], samples["k0"]["n"])


def test_fields_of_a_packed_store(tmp_path: Path, shards: str) -> None:
    """A store of ours gives its fields under other names and types, and boxes with what belongs to them."""
    asked = ("boxes=json.objects.bbox:xywh", "kinds=json.objects.category:int64[*] per boxes")
    packed(Path(shards), tmp_path / "a.lmdb", *asked, label_options=LabelOptions(ignore_columns=("mask",)))
    types, _, _ = packed(tmp_path / "a.lmdb", tmp_path / "b.tar", "found=boxes", "kinds=kinds")
    assert {"image": "image", "found": "xywh", "kinds": "int64[*] per found", "label": "int"} == types
    types, samples, _ = packed(tmp_path / "a.lmdb", tmp_path / "c.lmdb", "kinds=kinds", "score=label:float")
    assert {"image": "image", "kinds": "int64[*]", "score": "float"} == types
    assert 3.0 == samples["k3"]["score"]


def test_fields_that_stay_behind_are_named(tmp_path: Path, shards: str) -> None:
    """Packing a store again with --field names the fields that the new store lacks, in pack and info."""
    packed(Path(shards), tmp_path / "a.lmdb")
    line = "left out: of the store's fields, emb, json, mask"

    assert line in run("pack", tmp_path / "a.lmdb", tmp_path / "b.tar", "--field", "caption=text", "--without", "mask")
    assert line in run("info", tmp_path / "b.tar")
    assert "left out" not in run("pack", tmp_path / "a.lmdb", tmp_path / "c.tar")


def test_values_that_do_not_fit(tmp_path: Path) -> None:
    """JSON that is none, or has no such value, is a problem of its sample."""
    with webdataset.TarWriter(str(tmp_path / "a.tar")) as tar:
        for i, document in enumerate([b'{"b": [[0, 0, 1, 1]]}', b"{no json", b"{}", b'{"b": [[1, 2]]}', b'{"b": []}']):
            tar.write({"__key__": f"k{i}", "png": picture(i), "json": document})
    types, samples, skipped = packed(tmp_path / "a.tar", tmp_path / "o.lmdb", "boxes=json.b:xyxy", skip=True)

    assert ({"image": "image", "boxes": "xyxy"}, {"k0", "k4"}) == (types, set(samples))
    assert "that is not JSON" in skipped["k1"]
    assert {"k1", "k2", "k3"} == set(skipped)


def test_what_is_not_there(shards: str) -> None:
    """The message says what there is, and what else to type."""
    assert "there is no field 'text2'; there is image, emb, json" in refused(Path(shards), "a=text2")
    assert "only JSON has values in it" in refused(Path(shards), "a=text.b:int")
    assert "name the type" in refused(Path(shards), "a=json.n")
    assert "has nothing for the field 'a': no 'objectss' in 'json', only 'n', 'objects'" in refused(
        Path(shards), "a=json.objectss.bbox:xywh", "mask=mask"
    )
    assert "asked for twice" in refused(Path(shards), "a=json", "a=text")


def broken_documents(path: Path) -> Path:
    """A shard with a good sample, one of broken JSON and one of a text that is not UTF-8."""
    with webdataset.TarWriter(str(path)) as tar:
        for key, document, text in (("a", b"{bad", b"x"), ("b", b"{}", b"y"), ("c", b"[1]", b"\xff")):
            tar.write({"__key__": key, "png": picture(1), "json": document, "txt": text})
    return path


def test_broken_json_and_text_are_problems_of_their_samples(tmp_path: Path) -> None:
    """Packing names key and field, and keeps the others."""
    _, samples, skipped = packed(broken_documents(tmp_path / "a.tar"), tmp_path / "o.lmdb", skip=True)

    assert {"b"} == set(samples)
    assert {"a", "c"} == set(skipped)
    assert "that is not a JSON document in UTF-8: Expecting property name" in skipped["a"]
    assert "that is not UTF-8: byte 0 is 0xff" in skipped["c"]


@pytest.mark.parametrize("key", ["/data/a", "../a", "b/../a", "b//a"])
def test_keys_that_unpack_would_refuse(tmp_path: Path, key: str) -> None:
    """Keys that lead out of a folder are problems when packing, not only when unpacking."""
    write_tar(tmp_path / "a.tar", {f"{key}.png": picture(1), f"{key}.txt": b"x", "c.png": picture(2), "c.txt": b"y"})

    assert f"{key}: has a key that is not a path below a folder" in refused(tmp_path / "a.tar")
    for fields in ((), ("caption=txt:text",)):
        out = tmp_path / f"{len(fields)}.lmdb"
        _, samples, skipped = packed(tmp_path / "a.tar", out, *fields, skip=True)
        assert ({"c"}, {key}) == (set(samples), set(skipped))
        run("unpack", out, tmp_path / f"unpacked-{len(fields)}")


def test_keys_of_a_packed_store_stay(tmp_path: Path) -> None:
    """A store of an earlier version may have such keys: packing it again loses none of its samples."""
    schema = Schema((field_of("image", "image"),))
    data = picture(1)
    spans = {"image": Spans.of(np.frombuffer(data, np.uint8), np.zeros(1, np.int64), np.array([len(data)]))}
    with create_store(tmp_path / "old.lmdb", schema) as writer:
        writer.append(SampleBatch(["/data/a.png"], spans, {}, {}))
        writer.close({"classes": None, "source": {}, "skipped": []})
    _, samples, skipped = packed(tmp_path / "old.lmdb", tmp_path / "new.h5")

    assert ({"/data/a.png"}, {}) == (set(samples), skipped)


def test_verify_parses_json_and_text(tmp_path: Path) -> None:
    """With --decode, broken documents of any store are problems that name key and field."""
    path = broken_documents(tmp_path / "a.tar")
    problems = {problem.key: problem.problem for problem in verify(path, decode=True).problems}

    assert [] == list(verify(path).problems)
    assert {"a", "c"} == set(problems)
    assert "is not a JSON document in UTF-8" in problems["a"]
    assert "is not UTF-8: byte 0 is 0xff" in problems["c"]
    assert "documents parsed" in run("verify", path, "--decode", code=1)
