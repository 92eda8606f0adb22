"""Lists of pictures in tables: packed by one command, none shortened, a wrong element named with its place."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastio import FastDataset, Writer
from fastio.converters import open_source, pack
from fastio.converters.fields.types import parse_choice
from fastio.errors import SourceError
from fastio.store import open_store
from fastio.types.field_types import type_of
from tests.commands import run
from tests.converters.sources.arrow.picture_tables import (
    with_features,
    write_file,
    write_parquet,
    write_saved,
    write_stream,
)
from tests.converters.sources.packed import lists_of
from tests.converters.sources.test_pairs import tree
from tests.converters.trees import picture

PAIR = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
PICTURES = [picture(i, kind=("JPEG", "PNG")[i % 2]) for i in range(6)]
TURN = {"user": "what is it?", "assistant": "a number"}


def pairs(files: Sequence[bytes | None]) -> list[dict[str, Any] | None]:
    """Pictures as Hugging Face keeps them; None is null."""
    return [None if data is None else {"bytes": data, "path": None} for data in files]


def table_of(lists: Sequence[Sequence[bytes | None] | None], **columns: Any) -> pa.Table:
    """A column ``images`` of lists of structs, and others."""
    values = [None if each is None else pairs(each) for each in lists]
    return pa.table({"images": pa.array(values, pa.list_(PAIR)), **columns})


ROWS = [PICTURES[: i % 4] for i in range(10)]
TEXTS = [[TURN] * (1 + i % 2) for i in range(10)]
LAYOUTS: dict[str, pa.Table] = {
    "FineVision": table_of(ROWS, texts=TEXTS, source=["made"] * 10),
    "the Cauldron": with_features(
        table_of(ROWS, texts=TEXTS), {"images": {"_type": "List", "feature": {"_type": "Image"}}}
    ),
    "older notes": with_features(table_of(ROWS, texts=TEXTS), {"images": [{"_type": "Image"}]}),
    "bytes": pa.table({"images": pa.array(ROWS, pa.list_(pa.binary())), "texts": TEXTS}),
    "large": pa.table({"images": pa.array(ROWS, pa.large_list(pa.large_binary())), "texts": TEXTS}),
    "views": pa.table({"images": pa.array(ROWS, pa.list_view(pa.binary())), "texts": TEXTS}),
    "large views": pa.table({"images": pa.array(list(map(pairs, ROWS)), pa.large_list_view(PAIR)), "texts": TEXTS}),
    "a text beside them": table_of(ROWS, texts=TEXTS, text=["t"] * 10),
}
WRITERS = {"parquet": write_parquet, "arrow": write_stream, "feather": write_file}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_take_one_command(tmp_path: Path, name: str) -> None:
    """Every list is packed with the bytes of its pictures; conversations are JSON; the report counts the pictures."""
    table = LAYOUTS[name]
    for suffix, write in WRITERS.items():
        source = write(tmp_path / f"a.{suffix}", table)
        said = run("pack", source, tmp_path / f"{suffix}.lmdb")
        assert "images: 0 to 3 pictures a sample, 13 in all" in said
        with open_store(tmp_path / f"{suffix}.lmdb") as store:
            assert lists_of(store, "images") == ROWS
            assert {"images": "image[*]", "texts": "json"}.items() <= {
                each.name: type_of(each) for each in store.schema.fields
            }.items()
            values = store.spans("texts", np.arange(len(store))).views()
            assert TEXTS == [json.loads(value.tobytes()) for value in values]
        assert "all good" in run("verify", tmp_path / f"{suffix}.lmdb", "--decode")
    shown = run("info", tmp_path / "a.parquet")
    assert "0 to 3 a sample: JPEG, PNG of 5 x 6 (height x width)" in shown


def test_a_saved_dataset(tmp_path: Path) -> None:
    """A folder of save_to_disk, file after file, in any order."""
    tables = [table_of(ROWS[:4]), table_of(ROWS[4:])]
    source = write_saved(tmp_path / "saved", tables)
    pack(open_source(source), tmp_path / "a.lmdb")
    pack(open_source(source).shuffled(3), tmp_path / "b.lmdb")
    with open_store(tmp_path / "a.lmdb") as store, open_store(tmp_path / "b.lmdb") as shuffled:
        assert lists_of(store, "images") == ROWS
        found = dict(zip(shuffled.keys(np.arange(10)), lists_of(shuffled, "images"), strict=True))
        assert [found[key] for key in store.keys(np.arange(10))] == ROWS
        assert found != ROWS


def test_sets_of_shards_go_on(tmp_path: Path) -> None:
    """Shards of lists are made again with the same bytes, verified, and grow by another table."""
    source, out = write_parquet(tmp_path / "a.parquet", table_of(ROWS)), tmp_path / "a-%06d.tar"
    run("pack", source, out, "--shard-size", "8KB")
    names = sorted(tmp_path.glob("a-*.tar"))
    before = names[1].read_bytes()
    names[1].unlink()
    run("pack", source, out, "--shard-size", "8KB", "--resume")
    assert before == names[1].read_bytes()
    more = write_parquet(tmp_path / "b.parquet", table_of(ROWS[::-1]))
    run("pack", more, out, "--append")
    with open_store(out) as store:
        assert lists_of(store, "images") == [*ROWS, *ROWS[::-1]]
    assert "all good" in run("verify", out)


def test_another_order_of_sizes_is_another_plan(tmp_path: Path) -> None:
    """Shards of other lists are refused, in words that need no sizes of single samples."""
    out = tmp_path / "a-%06d.tar"
    run("pack", write_parquet(tmp_path / "a.parquet", table_of(ROWS)), out, "--shard-size", "8KB")
    changed = write_parquet(tmp_path / "a.parquet", table_of([*ROWS[:-1], PICTURES]))
    assert "--overwrite" in run("pack", changed, out, "--shard-size", "8KB", "--resume", code=1)


elements = st.sampled_from([*PICTURES, None, b"", b"no picture", PICTURES[0][:-20]])
tables = st.lists(st.none() | st.lists(elements, max_size=4), min_size=1, max_size=12)


@settings(max_examples=25, deadline=None)
@given(rows=tables, size=st.integers(1, 5), suffix=st.sampled_from(sorted(WRITERS)), data=st.data())
def test_the_writer_keeps_the_same(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[bytes | None] | None], size: int, suffix: str, data: Any
) -> None:
    """A table gives what Writer makes of its rows: the same lists, and as many samples left out. Null is no picture."""
    folder = tmp_path_factory.mktemp("lists")
    column = data.draw(st.sampled_from(["structs", "bytes"]))
    table = table_of(rows, n=range(len(rows)))
    if column == "bytes":
        table = pa.table({"images": pa.array(rows, pa.list_(pa.binary())), "n": range(len(rows))})
    source = open_source(
        WRITERS[suffix](folder / f"a.{suffix}", table, size), fields=[parse_choice("images=images:image[*]")]
    )
    good = [row or [] for row in rows if all(each in PICTURES for each in row or [])]
    if not good:
        with pytest.raises(SourceError, match="nothing left to pack"):
            pack(source, folder / "a.lmdb", on_error="skip")
        return
    report = pack(source, folder / "a.lmdb", on_error="skip")
    with Writer(folder / "b.lmdb", {"images": "image[*]"}, on_error="skip") as out:
        for row in rows:
            out.write({"images": row or []})
    assert len(report.skipped) == len(out.report.skipped) == len(rows) - len(good)
    with open_store(folder / "a.lmdb") as store, open_store(folder / "b.lmdb") as written:
        assert good == lists_of(store, "images") == lists_of(written, "images")
        assert store.receipt() == written.receipt()
        shapes = [each.elements("images").shapes("images").tolist() for each in (store, written)]
        assert shapes[0] == shapes[1]


DAMAGE: dict[str, tuple[bytes | None, str]] = {
    "null": (None, "has a bad element, 2 of 3: it has null in the column 'images'"),
    "not a picture": (b"text", "has a field 'images' that has a bad element, 2 of 3: it is not an image"),
    "empty": (b"", "has a field 'images' that has a bad element, 2 of 3: it is not an image"),
    "cut": (PICTURES[0][:-30], "has a field 'images' that has a bad element, 2 of 3: it cannot be decoded"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_bad_element_is_its_samples_problem(tmp_path: Path, name: str) -> None:
    """Its place is named; the sample is left out as a whole, and the others are there."""
    bad, words = DAMAGE[name]
    source = write_parquet(tmp_path / "a.parquet", table_of([ROWS[3], [PICTURES[0], bad, PICTURES[1]], ROWS[2]]))
    assert words in run("pack", source, tmp_path / "a.lmdb", code=1)
    assert not (tmp_path / "a.lmdb").exists()
    run("pack", source, tmp_path / "a.lmdb", "--on-error", "skip")
    with open_store(tmp_path / "a.lmdb") as store:
        assert [ROWS[3], ROWS[2]] == lists_of(store, "images")
        assert ["a/1"] == [each["key"] for each in store.metadata["skipped"]]
        assert words in store.metadata["skipped"][0]["problem"]


def test_damaged_codes_of_a_photo(tmp_path: Path) -> None:
    """JPEGs in lists have start points, and what making them finds is named with its place."""
    photo = picture(0, kind="JPEG", size=(256, 192))
    broken = bytearray(photo)
    broken[len(photo) // 2 : len(photo) // 2 + 64] = b"\xff\x00" * 32
    source = write_parquet(tmp_path / "a.parquet", table_of([[photo, PICTURES[1]], [photo, bytes(broken)]]))
    said = run("pack", source, tmp_path / "a.lmdb", code=1)
    assert "'images' that has a bad element, 2 of 2: it cannot be decoded: its data are damaged" in said
    said = run("pack", source, tmp_path / "a.lmdb", "--on-error", "skip")
    assert "start points within 1 of 2 pictures of 'images'" in said  # the other is small


@pytest.mark.parametrize("suffix", ["arrow", "feather"])
@pytest.mark.parametrize("last", [1 << 24, -1])
def test_damaged_offsets_of_lists(tmp_path: Path, suffix: str, last: int) -> None:
    """Lists that claim more elements than there are, or fewer than none, end the run in a line."""
    source = WRITERS[suffix](tmp_path / f"a.{suffix}", table_of([PICTURES[:1], PICTURES[:2], PICTURES[:1]]))
    offsets, damaged = (np.array([0, 1, each, 4], "<i4").tobytes() for each in (3, last))
    data = source.read_bytes()
    assert 1 == data.count(offsets)
    source.write_bytes(data.replace(offsets, damaged))
    said = run("pack", source, tmp_path / "a.lmdb", code=1)
    assert f"{source}: expected arrow data: " in said
    assert not (tmp_path / "a.lmdb").exists()


def test_only_the_path_of_a_picture(tmp_path: Path) -> None:
    """Files that a table names are not opened: that element is named, and so is its path."""
    values = [[{"bytes": PICTURES[0], "path": None}], [{"bytes": None, "path": "a.png"}]]
    source = write_parquet(tmp_path / "a.parquet", pa.table({"images": pa.array(values, pa.list_(PAIR))}))
    said = run("pack", source, tmp_path / "a.lmdb", code=1)
    assert "has a bad element, 1 of 1: it has only the path 'a.png' in the column 'images'" in said


def test_empty_lists_and_nulls_have_no_picture(tmp_path: Path) -> None:
    """A null in place of a list is an empty list, also where the first rows have nothing else."""
    rows = [*([None, []] * 800), [PICTURES[0]], None]
    source = write_parquet(tmp_path / "a.parquet", table_of(rows), 100)
    assert "images: 0 to 1 pictures a sample, 1 in all" in run("pack", source, tmp_path / "a.lmdb")
    with open_store(tmp_path / "a.lmdb") as store:
        assert [row or [] for row in rows] == lists_of(store, "images")
    assert [] == FastDataset(tmp_path / "a.lmdb", fields=("images",))[0][0]


def test_one_picture_that_may_be_missing(tmp_path: Path) -> None:
    """``image?`` takes nulls, and Hugging Face's structs of nulls, as no picture."""
    values = [{"bytes": PICTURES[0], "path": None}, None, {"bytes": None, "path": None}, *pairs(PICTURES[1:2])]
    table = pa.table({"image": pa.array(values, PAIR), "n": range(4)})
    source, out = write_parquet(tmp_path / "a.parquet", table), tmp_path / "a.lmdb"
    said = run("pack", source, out, "--field", "image=image:image?", "--field", "n=n")
    assert "image: pictures in 2 of 4 samples" in said
    with open_store(out) as store:
        assert [[PICTURES[0]], [], [], [PICTURES[1]]] == lists_of(store, "image")


def test_lists_of_other_values(tmp_path: Path) -> None:
    """Texts, sounds, masks and arrays in lists, as --field says or as the column is."""
    sounds = [[b"RIFFa"], [b"RIFFb", b""]]
    columns = {
        "captions": [["one", "two"], []],
        "sounds": sounds,
        "masks": [[picture(0, mode="L")], [picture(1, mode="L")] * 2],
        "rows": [[[1.0, 2.0], [3.0]], [[4.0]]],
    }
    source, out = write_parquet(tmp_path / "a.parquet", pa.table(columns)), tmp_path / "a.lmdb"
    types = {"captions": "text[*]", "sounds": "bytes[*]", "masks": "mask[*]", "rows": "float32[*][*]"}
    options = [word for name, type_ in types.items() for word in ("--field", f"{name}={name}:{type_}")]
    run("pack", source, out, *options)
    with open_store(out) as store:
        assert types == {each.name: type_of(each) for each in store.schema.fields}
        assert [[b"one", b"two"], []] == lists_of(store, "captions")
        assert sounds == lists_of(store, "sounds")
        assert columns["masks"] == lists_of(store, "masks")
        arrays = [[np.frombuffer(each, np.float32).tolist() for each in row] for row in lists_of(store, "rows")]
        assert columns["rows"] == arrays
    assert "all good" in run("verify", out, "--decode")


def test_what_cannot_be_done_is_said_in_a_line(tmp_path: Path) -> None:
    """Other types, rewriting, lists in lists, and columns that nobody asked for."""
    nested = pa.array([[[PICTURES[0]]]], pa.list_(pa.list_(pa.binary())))
    nest = write_parquet(tmp_path / "n.parquet", pa.table({"images": nested}))
    source, out = write_parquet(tmp_path / "a.parquet", table_of(ROWS, source=["s"] * 10)), tmp_path / "a.lmdb"
    for arguments, words in (
        ((source, out, "--restart", "8"), "whose pictures are packed as they are: drop the options that change"),
        ((source, out, "--field", "s=source:text[*]"), "column 'source' is string, expected lists for text[*]"),
        ((source, out, "--field", "s=source"), "--field NAME=images packs them; --without images leaves it out"),
        ((nest, out), "column 'images' holds lists of pictures, in a form that fastio.Writer alone packs"),
    ):
        said = run("pack", *arguments, code=1)
        assert words in said
        assert "Traceback" not in said


# Lists of files that tables of JSON name.

TURNS = [{"from": "human", "value": "<image>\nwhat?"}, {"from": "gpt", "value": "a number"}]
FILES = {f"{i}.png": picture(i) for i in range(6)}


def rows_of(names: Sequence[Any], title: str = "images") -> list[dict[str, Any]]:
    """Rows of chats that name files, "absent" for those without the column."""
    return [
        {"id": str(i), **({} if each == "absent" else {title: each}), "conversations": TURNS}
        for i, each in enumerate(names)
    ]


def table(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """A .json, a .jsonl, or a file of Parquet or Arrow, in which a column is there with nulls or not at all."""
    if path.suffix[1:] in WRITERS:
        return WRITERS[path.suffix[1:]](path, pa.Table.from_pylist(list(rows)))
    text = json.dumps(rows) if path.suffix == ".json" else "".join(f"{json.dumps(row)}\n" for row in rows)
    path.write_text(text)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder of pictures."""
    return tree(tmp_path / "photos", FILES)


SAID: dict[str, tuple[str, list[Any], list[str], str]] = {
    # the title, names by row, options, the type
    "LLaVA, one or none": ("image", ["0.png", "absent", "2.png", None], ["--field", "image=image:image?"], "image?"),
    "LLaVA, names and lists": ("image", ["0.png", "absent", ["2.png", "3.png", "2.png"], []], [], "image[*]"),
    "ShareGPT": ("images", [[], ["1.png"], ["./2.png", "3.png"], ["4.png"]], [], "image[*]"),
    "masks": ("masks", [["1.png"], [], ["2.png", "3.png"]], [], "mask[*]"),
    "bytes": ("clips", [["1.png"], [], ["2.png"]], ["--field", "clips=clips:bytes[*]"], "bytes[*]"),
}


@pytest.mark.parametrize("name", SAID)
@pytest.mark.parametrize("suffix", ["json", "jsonl", "parquet", "feather"])
def test_names_of_files_take_one_command(tmp_path: Path, root: Path, name: str, suffix: str) -> None:
    """Every list is packed, in the order of its names; chats stay JSON, and a column may give the keys."""
    title, names, options, type_ = SAID[name]
    if suffix in WRITERS:  # whose lists have no single names among them
        names = [
            [each] if type_ == "image[*]" and isinstance(each, str) and each != "absent" else each for each in names
        ]
    if type_ == "mask[*]":
        tree(root, {file: picture(i, mode="L") for i, file in enumerate(FILES)})
    source, out = table(tmp_path / f"a.{suffix}", rows_of(names, title)), tmp_path / "a.lmdb"
    said = run("pack", source, out, "--root", root, "--key-column", "id", *options)
    assert f"{title}: " in said
    listed = [[] if each in ("absent", None) else each if isinstance(each, list) else [each] for each in names]
    with open_store(out) as store:
        assert type_ == type_of(store.schema[title])
        assert [[(root / file).read_bytes() for file in each] for each in listed] == lists_of(store, title)
        assert [str(i) for i in range(len(names))] == store.keys(np.arange(len(names)))
        chats = store.spans("conversations", np.arange(len(names))).views()
        assert [TURNS] * len(names) == [json.loads(each.tobytes()) for each in chats]
    assert "all good" in run("verify", out, "--decode")
    assert "a sample" in run("info", source, "--root", root, *options) or type_ == "image?"


def test_file_names_of_an_image_folder(tmp_path: Path, root: Path) -> None:
    """metadata.jsonl with ``file_names``, in the folder itself; a picture that no row names is a problem."""
    table(root / "metadata.jsonl", [{"file_names": ["0.png", "1.png"], "text": "a"}, {"file_names": ["2.png"]}])
    said = run("pack", root, tmp_path / "a.lmdb", code=1)
    assert "3.png: has no row in metadata.jsonl" in said
    for i in (3, 4, 5):
        (root / f"{i}.png").unlink()
    assert "images: 1 to 2 pictures a sample, 3 in all" in run("pack", root, tmp_path / "a.lmdb")
    with open_store(tmp_path / "a.lmdb") as store:
        assert [[picture(0), picture(1)], [picture(2)]] == lists_of(store, "images")


@settings(max_examples=20, deadline=None)
@given(
    names=st.lists(
        st.just("absent") | st.none() | st.sampled_from(sorted(FILES)) | st.lists(st.sampled_from(sorted(FILES))),
        min_size=1,
        max_size=8,
    ).filter(lambda names: any(isinstance(each, list) and each for each in names)),
    seed=st.none() | st.integers(0, 3),
)
def test_files_as_the_writer_takes_them(
    tmp_path_factory: pytest.TempPathFactory, names: list[Any], seed: int | None
) -> None:
    """A table of names gives what Writer makes of the files, in any order, in shards as in one file."""
    folder = tmp_path_factory.mktemp("lists")
    tree(folder / "photos", FILES)
    source = open_source(table(folder / "a.jsonl", rows_of(names)), root=str(folder / "photos"))
    source = source if seed is None else source.shuffled(seed)
    pack(source, folder / "a.lmdb")
    pack(source, folder / "a-%06d.tar", shard_bytes=4096)
    files = {
        f"a.jsonl:{i + 1}": [FILES[file] for file in ([each] if isinstance(each, str) else each)]
        if each not in ("absent", None)
        else []
        for i, each in enumerate(names)
    }
    with open_store(folder / "a.lmdb") as store, open_store(folder / "a-%06d.tar") as shards:
        for each in (store, shards):
            assert files == dict(zip(each.keys(np.arange(len(each))), lists_of(each, "images"), strict=True))
        assert store.receipt() == shards.receipt()


BAD: dict[str, tuple[list[str], str]] = {
    "gone": (["0.png", "gone.png"], "has a 'images' that has a bad element, 2 of 2: it is 'gone.png', but there is no"),
    "outside": (["../a.png"], "has a 'images' that has a bad element, 1 of 1: it leads out of the folder"),
    "damaged": (["0.png", "1.png", "bad.png"], "has a field 'images' that has a bad element, 3 of 3: it is not an im"),
    "empty": (["empty.png"], "has a bad element, 1 of 1: it is 'empty.png', which is empty"),
}


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_its_rows_problem(tmp_path: Path, root: Path, name: str, suffix: str) -> None:
    """The place in the list is named, the row is left out as a whole, and the other rows are there."""
    names, words = BAD[name]
    tree(root, {"bad.png": b"no picture", "empty.png": b""})
    source = table(tmp_path / f"a.{suffix}", rows_of([["0.png"], names, ["1.png", "2.png"]]))
    assert words in run("pack", source, tmp_path / "a.lmdb", "--root", root, code=1)
    run("pack", source, tmp_path / "a.lmdb", "--root", root, "--on-error", "skip")
    with open_store(tmp_path / "a.lmdb") as store:
        assert [[picture(0)], [picture(1), picture(2)]] == lists_of(store, "images")
        assert [words in each["problem"] for each in store.metadata["skipped"]] == [True]


def test_what_names_no_files_is_said_in_a_line(tmp_path: Path, root: Path) -> None:
    """Mixed types, files elsewhere, lists of other values, several where one is expected, and other kinds."""
    late = rows_of([["0.png"]] * 60 + [[3], {"a": "0.png"}])
    said = run("pack", table(tmp_path / "l.jsonl", late), tmp_path / "o.lmdb", "--root", root, "--on-error", "skip")
    assert "has a bad element, 1 of 1: it is 3, expected the name of a file" in " ".join(said.split())
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 4)))
    one = table(tmp_path / "a.jsonl", rows_of([["0.png", "1.png"]]))
    for arguments, words in (
        (
            (table(tmp_path / "m.jsonl", rows_of([["0.png"], [3], {}])), "--root", root),
            "column 'images' holds lists of",
        ),
        ((table(tmp_path / "e.jsonl", rows_of([["a/0.png"]])), "--root", root), "name their folder with --root"),
        (
            (table(tmp_path / "p.parquet", rows_of([["photos/0.png"]])), "--field", "n=id"),
            "--root FOLDER packs the files, --field NAME=images:json keeps the names alone",
        ),
        ((one, "--root", root, "--field", "t=conversations:text[*]"), "has a bad element, 1 of 2: it is dict"),
        ((one, "--root", root, "--field", "t=conversations.x:image[*]"), "image[*] takes a column that names files"),
        ((one, "--root", root, "--field", "images=images:image?"), "is a list of 2, expected one name or none"),
        ((tmp_path / "a.npz", "--field", "x=x:float32[4][*]"), "which has no lists and no missing values"),
        ((table(tmp_path / "n.jsonl", rows_of(["0.png", None], "image")), "--root", root), "image=image:image? packs"),
    ):
        said = run("pack", arguments[0], tmp_path / "o2.lmdb", *arguments[1:], code=1)
        assert words in said
        assert "Traceback" not in said


# Interleaved documents.


@pytest.mark.parametrize(
    ("suffix", "kept"), [("jsonl", "names"), ("json", "names"), ("parquet", "names"), ("jsonl", "base64")]
)
def test_interleaved_documents(tmp_path: Path, root: Path, suffix: str, kept: str) -> None:
    """OBELICS: null in one list where the other has a value. Pictures that are there are packed, texts keep places."""
    files = [["0.png", None, "1.png"], [None, None], [None, "2.png"], []]
    texts = [[None, "a", None], ["b", "c"], ["d", None], []]
    encode = {"names": str, "base64": lambda name: base64.b64encode(FILES[name]).decode()}[kept]
    images = [[None if each is None else encode(each) for each in row] for row in files]
    rows = [{"images": one, "texts": other} for one, other in zip(images, texts, strict=True)]
    source, words = table(tmp_path / f"a.{suffix}", rows), ["--root", root] if kept == "names" else []
    said = run("pack", source, tmp_path / "a.lmdb", *words)
    assert "images: 0 to 2 pictures a sample, 3 in all" in said
    with open_store(tmp_path / "a.lmdb") as store:
        assert [[FILES[each] for each in row if each] for row in files] == lists_of(store, "images")
        assert texts == [json.loads(each.tobytes()) for each in store.spans("texts", np.arange(4)).views()]
    assert "all good" in run("verify", tmp_path / "a.lmdb", "--against", source)

    rows[2]["texts"] = ["d", "e"]  # which does not say where the picture belongs
    said = run("pack", table(tmp_path / f"b.{suffix}", rows), tmp_path / "b.lmdb", *words, code=1)
    assert "has a bad element, 1 of 2" in said
    assert f"b.{suffix}:3" in said


def test_names_in_objects(tmp_path: Path, root: Path) -> None:
    """MMC4: a path leads to the names of files in a list of objects, which stays as it is."""
    info = [
        [{"image_name": each, "matched_text_index": 0} for each in row] for row in (["0.png", "1.png"], [], ["2.png"])
    ]
    source = table(tmp_path / "a.jsonl", [{"image_info": each, "text_list": ["a", "b"]} for each in info])
    words = ("--root", root, "--field", "images=image_info.image_name:image[*]")
    run("pack", source, tmp_path / "a.lmdb", *words)
    with open_store(tmp_path / "a.lmdb") as store:
        assert [[FILES[each["image_name"]] for each in row] for row in info] == lists_of(store, "images")
        assert info == [json.loads(each.tobytes()) for each in store.spans("image_info", np.arange(3)).views()]
    assert "all good" in run("verify", tmp_path / "a.lmdb", "--against", source)
    said = run("pack", source, tmp_path / "b.lmdb", "--root", root, code=1)
    assert "column 'image_info' holds lists of names of pictures" in said
    bad = table(tmp_path / "b.jsonl", [{"image_info": info[0]}, {"image_info": "gone"}])
    assert "b.jsonl:2: has a 'image_info' that has no 'image_info.image_name'" in run(
        "pack", bad, tmp_path / "b.lmdb", *words, code=1
    )
