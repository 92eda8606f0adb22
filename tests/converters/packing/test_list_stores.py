"""
Stores of lists, and of arrays of several free sizes, through every converter and back: none shortened, each difference
named with its place.
"""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fastio
from fastio import FastDataset, Writer
from fastio.converters import Part, open_source, pack, seal
from fastio.converters.inspect.unpack import unpack
from fastio.converters.inspect.verify import verify
from fastio.errors import FastioError, SourceError, StoreCorrupt
from fastio.store import SampleStore, open_store
from fastio.store.protocol import read_lists, read_values
from fastio.types.field_types import type_of
from tests.commands import run
from tests.converters.trees import picture
from tests.forking import in_fork
from tests.store.faults import fault, kill

FIELDS = {
    "images": "image[*]",
    "masks": "mask[*]",
    "control": "image?",
    "captions": "text[*]",
    "note": "text?",
    "ids": "tokens16[*]",
    "latents": "float16[2,3][*]",
    "boxes": "float32[*,4][*]",
    "sounds": "bytes[*]",
    "vae": "float16[2,*,*]",
    "maps": "int32[*,*][*]",
    "depth": "float32[*,*]?",
    "half": "bfloat16[3]",
    "halves": "bfloat16[2,*,*][*]",
    "rows": "bfloat16[*,2]",
    "chat": "json",
    "score": "float",
    "label": "label",
}
PICTURES = [picture(i, kind=("PNG", "JPEG")[i % 2]) for i in range(4)]
MASKS = [picture(i, mode="L") for i in range(2)]
VAE = [np.random.default_rng(i).normal(size=(2, 1 + i, 4 - i)).astype("f2") for i in range(4)]
HALVES = np.random.default_rng(7).normal(size=(4, 8)).astype("f4").view("<u2")[:, 1::2].repeat(2, 1).view("|V2")
FORMATS = ("lmdb", "h5", "tar", "zip")


def sample(draw: random.Random, number: int) -> dict[str, Any]:
    """A sample of any lists, of which many are empty, and of values of which every second one is missing."""

    def some(values: Sequence[Any]) -> list[Any]:
        return [draw.choice(values) for _ in range(draw.choice((0, 1, 2, 5)))]

    return {
        "images": some(PICTURES),
        "masks": some(MASKS),
        "control": draw.choice((None, *PICTURES)),
        "captions": some(("", "a b", "Käfer.png", "0", "null", 'a "quoted", text\n')),
        "note": draw.choice((None, "", "a note", "1.png")),
        "ids": some(([], [1], [65535, 0, 7])),
        "latents": some([np.array([[0.1, 2, 3], [4, np.inf, -0.0]], "f2") * i for i in (1, 2)]),
        "boxes": some([np.arange(4.0 * i, dtype="f4").reshape(i, 4) / 3 for i in range(3)]),
        "sounds": some((b"\0\1", b"RIFF")),
        "vae": draw.choice(VAE),
        "maps": some([np.full((i, 3 - i), i, "i4") for i in range(4)]),
        "half": HALVES[number % 4, :3],
        "halves": some([HALVES[:2, :6].reshape(2, 3, 2), HALVES[2:, :8].reshape(2, 1, 8)]),
        "rows": HALVES[1].reshape(-1, 2)[: number % 5],
        "depth": draw.choice((None, VAE[0][0].astype("f4"), VAE[1][1].astype("f4"))),
        "chat": draw.choice(([{"from": "human", "value": "<image>"}], {"a": None}, None, "text")),
        "score": draw.random(),
        "label": number % 3,
    }


def write(path: Path, count: int, seed: int = 0, fields: Mapping[str, str] = FIELDS) -> Path:
    """A store of such samples."""
    draw = random.Random(seed)
    with Writer(path, fields, metadata={"classes": ["b", "a", "c"]} if "label" in fields else None) as out:
        for number in range(count):
            made = sample(draw, number)
            out.write({name: made[name] for name in fields}, key=f"{number % 7}/s{number}")
    return path


def content(store: SampleStore) -> dict[str, dict[str, Any]]:
    """Every value of every sample, as stored, by its key."""
    indices = np.arange(len(store))
    columns: dict[str, list[Any]] = {}
    for field in store.schema.fields:
        if field.is_column:
            columns[field.name] = store.column(field.name).tolist()
        elif field.is_list:
            lists = read_lists(store, field.name, indices)
            views = iter([view.tobytes() for view in lists.spans.views()])
            columns[field.name] = [[next(views) for _ in range(count)] for count in lists.counts.tolist()]
        else:
            columns[field.name] = [view.tobytes() for view in read_values(store, field.name, indices).views()]
    classes = store.metadata.get("classes")
    if classes:
        columns["label"] = [classes[i] for i in columns["label"]]
    if "chat" in columns:
        columns["chat"] = [json.loads(each) for each in columns["chat"]]
    keys = store.keys(indices)
    assert len(set(keys)) == len(keys)
    return {key: {name: values[i] for name, values in columns.items()} for i, key in enumerate(keys)}


def content_of(path: str | Path) -> dict[str, dict[str, Any]]:
    """The same, of a path."""
    with open_store(path) as store:
        assert FIELDS == {each.name: type_of(each) for each in store.schema.fields} | {"label": "label"}
        return content(store)


def packed_again(store: Path, folder: Path, out: Path) -> None:
    """Unpack a store, and pack its files by the command that is printed then."""
    said = run("unpack", store, folder)
    command = shlex.split(said[said.index("fastio pack ") :].splitlines()[0])
    assert str(folder) == command[2]
    run("pack", folder, out, *command[4:])


def test_a_thousand_lists_through_every_converter(tmp_path: Path) -> None:
    """From each container to the next, in shards, merged, appended, from Python, to files and back, and compared."""
    first = write(tmp_path / "first.lmdb", 1000)
    expected = content_of(first)
    assert 1000 < sum(len(each["images"]) for each in expected.values())
    for before, after in (("first.lmdb", "a.h5"), ("a.h5", "b-%06d.tar"), ("b-%06d.tar", "c.zip"), ("c.zip", "d.lmdb")):
        pack(open_source(tmp_path / before), tmp_path / after, shard_bytes=80_000 if "%" in after else None)
        assert expected == content_of(tmp_path / after)
        assert "all good" in run("verify", tmp_path / after, "--against", tmp_path / before)
    with FastDataset(tmp_path / "d.lmdb") as dataset:
        fastio.pack(dataset, tmp_path / "e.zip")
    pack(open_source(tmp_path / "e.zip"), tmp_path / "e-%06d.tar", shard_bytes=80_000)
    assert expected == content_of(tmp_path / "e-%06d.tar")
    write(tmp_path / "more.h5", 20, seed=1)
    more = {f"m/{key}": value for key, value in content_of(tmp_path / "more.h5").items()}
    said = run("pack", tmp_path / "more.h5", tmp_path / "e-%06d.tar", "--append", code=1)
    assert "keys of a set are unique" in said
    with Writer(tmp_path / "m.tar", FIELDS, metadata={"classes": ["b", "a", "c"]}) as out:
        draw = random.Random(1)
        for number in range(20):
            out.write(sample(draw, number), key=f"m/{number % 7}/s{number}")
    run("pack", tmp_path / "m.tar", tmp_path / "e-%06d.tar", "--append")
    assert {**expected, **more} == content_of(tmp_path / "e-%06d.tar")
    run("pack", tmp_path / "m.tar", tmp_path / "m-%06d.tar")
    run("merge", tmp_path / "b-%06d.tar", tmp_path / "m-%06d.tar", "--out", tmp_path / "both.fastio-set")
    assert {**expected, **more} == content_of(tmp_path / "both.fastio-set")
    packed_again(tmp_path / "e-%06d.tar", tmp_path / "files", tmp_path / "back.lmdb")
    assert {**expected, **more} == content_of(tmp_path / "back.lmdb")
    said = run("verify", tmp_path / "back.lmdb", "--against", tmp_path / "e-%06d.tar", "--decode")
    assert "all good" in said


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(count=st.integers(1, 12), seed=st.integers(0, 99), there=st.sampled_from(FORMATS), then=st.sampled_from(FORMATS))
def test_any_store_to_any_other(
    tmp_path_factory: pytest.TempPathFactory, count: int, seed: int, there: str, then: str
) -> None:
    """The same samples, receipts and start points; in another order, too; and by way of files."""
    folder = tmp_path_factory.mktemp("lists")
    source = write(folder / f"a.{there}", count, seed)
    pack(open_source(source), folder / f"b.{then}")
    pack(open_source(source).shuffled(seed), folder / f"c.{then}")
    packed_again(source, folder / "files", folder / f"d.{then}")
    with open_store(source) as store, open_store(folder / f"b.{then}") as again:
        assert store.receipt() == again.receipt()
        assert store.elements("images").shapes("images").tolist() == again.elements("images").shapes("images").tolist()
    expected = content_of(source)
    for name in "bcd":
        assert expected == content_of(folder / f"{name}.{then}")
    assert not verify(folder / f"c.{then}", against=open_source(source), decode=True).problems


def test_files_of_a_store(tmp_path: Path) -> None:
    """Elements are files with webdataset's names, which metadata.jsonl tells; values of text are in it themselves."""
    fields = {name: FIELDS[name] for name in ("images", "control", "captions", "latents")}
    with Writer(tmp_path / "a.tar", fields) as out:
        out.write({"images": PICTURES[:2], "control": None, "captions": ["x"], "latents": []}, key="a/1")
        out.write({"images": [], "control": PICTURES[0], "captions": [], "latents": [np.ones((2, 3))]}, key="2.jpg")
    report = unpack(open_store(tmp_path / "a.tar"), tmp_path / "out")
    found = {str(path.relative_to(tmp_path / "out")): path for path in (tmp_path / "out").rglob("*") if path.is_file()}
    rows = [json.loads(line) for line in found.pop("metadata.jsonl").read_text().splitlines()]

    assert ["2.jpg.control.png", "2.jpg.latents.0.npy", "a/1.images.0.png", "a/1.images.1.jpg"] == sorted(found)
    assert PICTURES[:2] == [found[name].read_bytes() for name in sorted(found)[2:]]
    assert [
        {
            "key": "a/1",
            "images_file_names": ["a/1.images.0.png", "a/1.images.1.jpg"],
            "control_file_name": None,
            "captions": ["x"],
            "latents_file_names": [],
        },
        {
            "key": "2.jpg",
            "images_file_names": [],
            "control_file_name": "2.jpg.control.png",
            "captions": [],
            "latents_file_names": ["2.jpg.latents.0.npy"],
        },
    ] == rows
    assert 5 == report.files
    assert any("--field 'images=images_file_names:image[*]'" in note for note in report.notes)


def test_tables_of_names_come_back(tmp_path: Path) -> None:
    """A table whose rows name files is written again, with the names that the files now have."""
    root = tmp_path / "photos"
    root.mkdir()
    for number, data in enumerate(PICTURES):
        (root / f"{number}.bin.png").write_bytes(data)
    rows = [
        {"id": "x", "images": ["0.bin.png", "1.bin.png"], "text": "two"},
        {"id": "y", "images": [], "text": "none"},
        {"id": "z", "images": ["2.bin.png"], "text": "one"},
    ]
    (tmp_path / "a.json").write_text(json.dumps(rows))
    options = ["--root", root, "--key-column", "id"]
    run("pack", tmp_path / "a.json", tmp_path / "a.lmdb", *options)
    run("pack", tmp_path / "a.lmdb", tmp_path / "b.h5")
    for source in ("a.json", "a.lmdb"):
        assert "all good" in run("verify", tmp_path / "b.h5", "--against", tmp_path / source)
    run("unpack", tmp_path / "b.h5", tmp_path / "out")
    again = json.loads((tmp_path / "out" / "a.json").read_text())

    assert [["x.images.0.png", "x.images.1.jpg"], [], ["z.images.0.png"]] == [row["images"] for row in again]
    assert [{**row, "images": 0} for row in rows] == [{**row, "images": 0} for row in again]
    run("pack", tmp_path / "out" / "a.json", tmp_path / "c.lmdb", "--key-column", "id")
    with open_store(tmp_path / "a.lmdb") as store, open_store(tmp_path / "c.lmdb") as back:
        assert content(store) == content(back)


def test_chosen_fields_of_a_table_unpack(tmp_path: Path) -> None:
    """Fields of a table that got other names, or were left out, are unpacked as files: the table is none any more."""
    (tmp_path / "a.png").write_bytes(PICTURES[0])
    (tmp_path / "a.jsonl").write_text(json.dumps({"file_name": "a.png", "caption": "x", "number": 1}))
    run("pack", tmp_path / "a.jsonl", tmp_path / "a.lmdb")
    run("pack", tmp_path / "a.lmdb", tmp_path / "b.h5", "--field", "said=caption")
    run("unpack", tmp_path / "b.h5", tmp_path / "out")
    found = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}

    assert {"a.png": PICTURES[0], "a.png.said.txt": b"x"} == found


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "shorter": ({"images": PICTURES[:1]}, "has 1 elements in the store, 2 in the source (field 'images')"),
    "longer": ({"images": PICTURES[:3]}, "has 3 elements in the store, 2 in the source (field 'images')"),
    "turned": (
        {"images": PICTURES[1::-1]},
        "has other bytes in the store than in the source (field 'images', element 1",
    ),
    "missing": ({"control": None}, "has 0 elements in the store, 1 in the source (field 'control')"),
    "text": (
        {"captions": ["a", "c"]},
        "has other bytes in the store than in the source (field 'captions', element 2 of 2)",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_verify_names_each_difference(tmp_path: Path, name: str) -> None:
    """A list that is shorter, longer or in another order than that of the source is found, with its sample."""
    changed, words = OTHERS[name]
    fields = {each: FIELDS[each] for each in ("images", "control", "captions")}
    values = {"images": PICTURES[:2], "control": PICTURES[0], "captions": ["a", "b"]}
    for path, second in (("a.lmdb", values), ("b.h5", {**values, **changed})):
        with Writer(tmp_path / path, fields) as out:
            out.write(values, key="s0")
            out.write(second, key="s1")
    found = verify(tmp_path / "b.h5", against=open_source(tmp_path / "a.lmdb"))
    assert ["s1"] == [each.key for each in found.problems]
    assert words in found.problems[0].problem


def test_another_type_is_not_compared(tmp_path: Path) -> None:
    """A picture and a list of pictures, under one name, are told apart in a line that says what to type."""
    with Writer(tmp_path / "a.lmdb", {"image": "image?"}) as out:
        out.write({"image": PICTURES[0]}, key="s0")
    with Writer(tmp_path / "b.lmdb", {"image": "image"}) as out:
        out.write({"image": PICTURES[0]}, key="s0")
    with pytest.raises(SourceError, match=r"has image in the field 'image', .*a.lmdb has image\?: name the type"):
        verify(tmp_path / "a.lmdb", against=open_source(tmp_path / "b.lmdb"))


def test_fields_that_are_chosen(tmp_path: Path) -> None:
    """Lists get other names and may be left out by name; they are not made anything else."""
    source = write(tmp_path / "a.lmdb", 9)
    without = ["--without", "masks", "--without", "control"]
    run("pack", source, tmp_path / "b.h5", "--field", "frames=images", "--field", "said=captions", *without)
    expected = content_of(source)
    with open_store(tmp_path / "b.h5") as store:
        found = content(store)
        assert {"frames": "image[*]", "said": "text[*]"}.items() <= {
            each.name: type_of(each) for each in store.schema.fields
        }.items()
    assert [each["images"] for each in expected.values()] == [each["frames"] for each in found.values()]
    assert [each["captions"] for each in expected.values()] == [each["said"] for each in found.values()]
    run("pack", source, tmp_path / "c.tar", "--without", "images", *without)
    with open_store(tmp_path / "c.tar") as store:
        assert {"images", "masks", "control"}.isdisjoint(each.name for each in store.schema.fields)
    said = run("pack", source, tmp_path / "d.lmdb", "--field", "captions=captions:json", code=1)
    assert "'captions' is text[*], which stays so" in said


def test_parts_and_what_was_killed(tmp_path: Path) -> None:
    """Parts of a store of lists give the bytes of one run, and so does a run that goes on after each of some kills."""
    source = write(tmp_path / "a.lmdb", 60)

    def packing(folder: Path, part: Part | None = None) -> None:
        folder.mkdir(exist_ok=True)
        out = folder / "o-%06d.tar"
        pack(open_source(source), out, shard_bytes=40_000, resume=True, part=part, jobs=1)

    def files(folder: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}

    packing(tmp_path / "whole")
    expected = files(tmp_path / "whole")
    assert 3 < len(expected)
    for number in range(3):
        packing(tmp_path / "parts", Part(number, 3))
    seal(tmp_path / "parts" / "o-%06d.tar")
    assert expected == files(tmp_path / "parts")
    for at in (3, 17, 40):
        folder = tmp_path / f"killed{at}"
        folder.mkdir()

        def killed(at: int = at, folder: Path = folder) -> None:
            with fault(at, kill):
                packing(folder)

        in_fork(killed)
        assert files(folder).items() <= expected.items()
        packing(folder)
        assert expected == files(folder)


@pytest.mark.parametrize("suffix", FORMATS)
def test_damage_is_never_packed_again(tmp_path: Path, suffix: str) -> None:
    """Flipped bits and cuts: packing the store again, and unpacking it, give all of it, or an error and nothing."""
    source = write(tmp_path / f"a.{suffix}", 6)
    data, expected = source.read_bytes(), content_of(source)
    draw = random.Random(5)
    for number in range(18):
        broken = bytearray(data)
        if number % 6:
            broken[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        else:
            del broken[draw.randrange(len(data)) :]
        source.write_bytes(broken)
        out = tmp_path / f"b{number}.lmdb"
        try:
            pack(open_source(source), out)
        except FastioError:
            assert not out.exists()
        else:
            assert expected == content_of(out)
        try:
            with open_store(source) as store:
                unpack(store, tmp_path / f"files{number}")
        except FastioError:
            assert not (tmp_path / f"files{number}").exists()
        else:
            for path in (tmp_path / f"files{number}").rglob("*.images.*"):
                assert path.read_bytes() in PICTURES


def test_a_damaged_element_is_left_out_with_its_sample(tmp_path: Path) -> None:
    """The others are unpacked, and packed again; what is left out is named with its place."""
    source = write(tmp_path / "a.h5", 8)
    expected = content_of(source)
    with open_store(source) as store:
        elements = store.elements("images")
        sample_index = int(np.flatnonzero(elements.counts > 1)[0])
        second = int(elements.of(np.array([sample_index]))[0][1])
        span, key = elements.spans("images", np.array([second])), store.keys([sample_index])[0]
    data = bytearray(source.read_bytes())
    data[int(span.starts[0]) + 9] ^= 16
    source.write_bytes(data)
    del expected[key]
    with open_store(source) as store, pytest.raises(StoreCorrupt, match=f"'{key}', field 'images'"):
        unpack(store, tmp_path / "none")
    with open_store(source) as store:
        report = unpack(store, tmp_path / "some", on_error="skip")
    assert [key] == [each.key for each in report.skipped]
    command = shlex.split(next(note for note in report.notes if "fastio pack" in note).partition("again: ")[2])
    run("pack", tmp_path / "some", tmp_path / "b.lmdb", *command[4:])
    assert expected == content_of(tmp_path / "b.lmdb")
    said = run("pack", source, tmp_path / "c.lmdb", "--on-error", "skip")
    assert "has a field 'images' that has a bad element, 2 of" in " ".join(said.split())
    assert expected == content_of(tmp_path / "c.lmdb")
