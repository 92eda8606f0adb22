"""``fastio info`` of what is not packed: what it is, its fields, the command to type; formats of other libraries."""

from __future__ import annotations

import json
import re
import shlex
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

from fastio import FastDataset, TokenStream
from fastio.cli import cli
from fastio.converters import SOURCES
from fastio.errors import StoreError
from tests.commands import run
from tests.converters.sources.arrow.picture_tables import picture_table, write_parquet
from tests.converters.sources.conformance import MAKERS
from tests.converters.sources.text_conformance import MAKERS as TEXT_MAKERS
from tests.converters.trees import flat, foreign_tar, picture
from tests.dataset.streams import documents_of, write_megatron

SAMPLES = [name for name, kind in SOURCES.items() if kind.open]
TEXTS = [name for name, kind in SOURCES.items() if kind.open_text]


def described(path: object, *options: str) -> dict[str, Any]:
    """What ``info --json`` says."""
    report: dict[str, Any] = json.loads(run("info", path, *options, "--json"))
    return report


def test_a_table(tmp_path: Path) -> None:
    """Fields with where they come from, their types and first values; the command packs it."""
    path = write_parquet(tmp_path / "a b.parquet", picture_table(5, Size=[3, 1, 2, 5, 4], tag=["x"] * 5))
    said = run("info", path)

    assert "Parquet files (parquet), not packed; 5 samples, " in said
    assert "image  image  image  PNG of 5 x 6 (height x width)" in said
    assert "size   Size   int    1 to 5" in said
    assert "3 classes: bee, cat, dog" in said
    assert f"pack it: fastio pack '{path}' 'a b.lmdb'" in said
    report = described(path)
    assert ("source", "parquet", 5, 0, 1) == tuple(report[n] for n in ("is", "kind", "samples", "problems", "files"))
    assert ["image", "tag", "size", "label"] == [each["name"] for each in report["fields"]]


@pytest.mark.parametrize("kind", [name for name in SAMPLES if not SOURCES[name].needs_fields and name != "store"])
def test_every_source(tmp_path: Path, kind: str) -> None:
    """Whatever can be packed is described, with the kind that packs it and all its samples."""
    source = MAKERS[kind](tmp_path)
    part = source.metadata["source"].get("part")
    report = described(source.path, *(() if part is None else ("--split", part)))

    assert kind == report["kind"]
    assert len(source) == report["samples"]
    assert report["command"].startswith("fastio pack ")
    assert source.schema.payload[0].name in {each["name"] for each in report["fields"]}


@pytest.mark.parametrize("kind", TEXTS)
def test_every_kind_of_text(tmp_path: Path, kind: str) -> None:
    """Text is named, with the kind that packs it."""
    report = described(TEXT_MAKERS[kind](tmp_path).path)

    assert ("text", kind) == (report["is"], report["kind"])
    assert "pack it: fastio pack " in run("info", report["path"])


OPTIONS = {"pairs": ["--field", "mask=masks/"]}


@pytest.mark.parametrize("kind", [name for name in SAMPLES if name != "store"])
def test_the_command_packs_every_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The command that info prints succeeds as it stands, and packs all samples."""
    source = MAKERS[kind](tmp_path)
    monkeypatch.chdir(tmp_path)
    part = source.metadata["source"].get("part")
    options = [*OPTIONS.get(kind, []), *([] if part is None else ["--split", part])]
    report = json.loads(run("info", source.path, *options, "--json"))
    words = shlex.split(report["command"])
    run(*words[1:])

    assert ["fastio", "pack", source.path] == words[:3]
    assert len(source) == described(words[3])["samples"]


@pytest.mark.parametrize("kind", TEXTS)
def test_the_command_packs_every_kind_of_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The command that info prints succeeds as it stands."""
    source = TEXT_MAKERS[kind](tmp_path)
    monkeypatch.chdir(tmp_path)
    words = shlex.split(described(source.path)["command"])
    run(*words[1:])

    assert 12 == described(words[3])["samples"]


def _texts(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


CHAT = {"messages": [{"role": "user", "content": "q"}]}
TURNS = {"id": "1", "image": "0.png", "conversations": [{"from": "human", "value": "q"}]}
COMMANDS: dict[str, tuple[dict[str, str], list[str], str]] = {
    # files, options, and what the command ends with
    "chats": ({"sft.jsonl": _texts(CHAT)}, [], "sft.jsonl sft.lmdb --field messages=messages"),
    "preferences": (
        {"dpo.jsonl": _texts({"prompt": "p", "chosen": "a", "rejected": "b"})},
        [],
        "--field prompt=prompt --field chosen=chosen --field rejected=rejected",
    ),
    "pictures of another folder": ({"llava.json": json.dumps([TURNS])}, ["--root", "photos"], "--root photos"),
    "text in another column": (
        {"a.jsonl": _texts({"body": "x", "n": 1})}, ["--text-column", "body"], "a.lmdb --text-column body",
    ),
    "lists as text": ({"a.jsonl": _texts({"text": ["x"]})}, [], "--field text=text"),
    "bad lines": ({"a.jsonl": _texts({"text": "x"}) + "{\n"}, [], "a.jsonl a.lmdb --on-error skip"),
    "a file of that name": ({"a.txt": "x\n", "a.lmdb": "x"}, [], "a.txt a-1.lmdb"),
    "a split": ({"d/train/a.txt": "x", "d/val/b.txt": "y"}, ["--split", "val"], "d d.lmdb --split val"),
    "a filter": (
        {"a.csv": "image,part\nphotos/0.png,x\nphotos/0.png,y\n"}, ["--filter", "part=y"], "--filter part=y",
    ),
    "columns left out": (
        {"a.jsonl": _texts({"text": "x", "b,c": 1, "d": 2})},
        ["--without", "d", "--without", '"b,c"', "--field", "text=text"],
        "--without 'd,\"b,c\"' --field text=text",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_that_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Info never prints a command that fails: with its options, without what is wrong, into a new file."""
    files, options, end = COMMANDS[name]
    monkeypatch.chdir(tmp_path)
    flat(tmp_path / "photos", 1)
    (tmp_path / "photos/0000.png").rename(tmp_path / "photos/0.png")
    for path, content in files.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(content)
    source = next(iter(files)).partition("/")[0]
    command = json.loads(run("info", source, *options, "--json"))["command"]

    assert command.endswith(end)
    assert f"pack it: {command}\n" in run("info", source, *options)
    run(*shlex.split(command)[1:])
    assert Path(shlex.split(command)[3]).is_file()


def test_some_of_a_table_of_files(tmp_path: Path) -> None:
    """A table keeps all columns beside those asked for, so that --field is not how to pack some of it."""
    path = MAKERS["table"](tmp_path).path

    assert "or some of it" not in run("info", path)
    assert "or some of it" in run("info", MAKERS["parquet"](tmp_path).path)


def test_nothing_to_pack(tmp_path: Path) -> None:
    """Where no sample is good, no command is printed."""
    (tmp_path / "a.txt").touch()
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "bad.png").write_bytes(b"no picture")

    for path, what in (
        ("a.txt", "holds no document: there is nothing to pack"),
        ("f", "none of the first samples is good"),
    ):
        said = run("info", tmp_path / path, code=1)
        assert "pack it" not in said
        assert f"error: {tmp_path / path}: {what}" in said


def test_documents_that_are_no_text(tmp_path: Path) -> None:
    """The command skips what pack would refuse, and works."""
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "a.txt").write_bytes(b"a\0b")
    (tmp_path / "f" / "b.txt").write_bytes(b"good")
    report = described(tmp_path / "f")

    assert ["a.txt"] == [each["key"] for each in report["problems_shown"]]
    assert report["command"].endswith(" --on-error skip")


def test_columns_that_are_refused_are_listed(tmp_path: Path) -> None:
    """Lists of pictures are no reason to say nothing of the other columns; the command leaves them out."""
    many, more = [[[picture(0)]]], [[[picture(1)]]]
    path = write_parquet(tmp_path / "a.parquet", pa.table({"many": many, "more": more, "n": [1]}))
    said = run("info", path)

    assert "column 'many' holds lists of pictures, in a form that fastio.Writer alone packs, as image[*]" in said
    assert "column 'more' holds lists" in said
    plain = write_parquet(tmp_path / "p.parquet", pa.table({"many": many, "x": [picture(1)]}), compression="none")
    assert "take the path, with the options of the command below as unpacked=Unpacked(...)" in run("info", plain)
    assert ".lmdb --without many,more " in said
    only = write_parquet(tmp_path / "b.parquet", pa.table({"many": many}))
    assert "column 'many' holds lists of pictures" in run("info", only, code=1)


def test_options_say_what_a_path_is(tmp_path: Path) -> None:
    """Info and pack decide by the same options, and refuse the same ones."""
    (tmp_path / "a.txt").write_text("x\n")
    flat(tmp_path / "f", 1)

    assert "is for pictures and tables" in run("info", tmp_path / "a.txt", "--key-column", "a", code=2)
    assert "--text-column is for text" in run("info", tmp_path / "f", "--text-column", "a", code=2)
    for command in (["info", tmp_path / "f"], ["pack", tmp_path / "f", tmp_path / "o.lmdb"]):
        assert "--key-column needs a label file" in run(*command, "--key-column", "a", code=2)
        assert "--filter needs a label file" in run(*command, "--filter", "width>=400", code=2)


@pytest.mark.parametrize("options", [[], ["--text-column", "messages"]])
def test_chats_are_no_text(tmp_path: Path, options: list[str]) -> None:
    """Pack of chats without a word of them says what packs them."""
    (tmp_path / "sft.jsonl").write_text(_texts(CHAT))
    said = run("pack", tmp_path / "sft.jsonl", tmp_path / "o.lmdb", *options, code=1)

    words = "--tokenizer FILE --chat messages packs chats as token ids, --field messages=messages keeps it as JSON"
    assert words in said
    table = write_parquet(tmp_path / "sft.parquet", pa.table({"messages": [CHAT["messages"]]}))
    said = run("pack", table, tmp_path / "o.lmdb", *options, code=1)
    assert words in said


def test_rows_of_ids(tmp_path: Path) -> None:
    """Rows of token ids are described; one that does not say its dtype is refused by what to type."""
    np.arange(100, dtype=np.uint16).tofile(tmp_path / "train.bin")
    np.save(tmp_path / "train.npy", np.arange(100, dtype=np.uint16))
    write_megatron(tmp_path / "mega", documents_of((4, 5)))
    for command in (["info", tmp_path / "train.bin"], ["pack", tmp_path / "train.bin", tmp_path / "o.lmdb"]):
        said = run(*command, code=1)
        assert "does not say what its ids are: pass dtype='uint16' (--dtype uint16)" in said
        assert 1 == said.count("\n")
    for name in ("train.npy", "mega", "mega.idx", "mega.bin"):
        assert "a stream of token ids" in run("info", tmp_path / name)
    with pytest.raises(StoreError, match=r"is a stream of token ids .*Open it where it lies by fastio\.TokenStream"):
        FastDataset(tmp_path / "mega.bin")
    run("pack", tmp_path / "train.bin", tmp_path / "o.lmdb", "--dtype", "uint16")
    assert 100 == len(TokenStream(tmp_path / "o.lmdb"))


def test_a_dataset_of_energon(tmp_path: Path) -> None:
    """Its shards are tar files of webdataset: the answer names their folder, which opens as it is."""
    root = tmp_path / "set"
    (root / ".nv-meta").mkdir(parents=True)
    (root / ".nv-meta" / "split.yaml").write_text("split_parts:\n  train:\n  - parts/train_0.tar\n")
    (root / "parts").mkdir()
    foreign_tar(root / "parts" / "train_0.tar")
    (root / "parts" / "train_0.tar.idx").write_bytes(bytes(64))

    assert f"name their folder, {root / 'parts'}" in run("info", root, code=1)
    with pytest.raises(StoreError, match="is a dataset of Energon"):
        FastDataset(root)
    assert len(FastDataset(root / "parts"))


def test_a_dataset_opened_as_a_store(tmp_path: Path) -> None:
    """FastDataset of a folder of another library says what info says of it, not to pack it."""
    (tmp_path / "xsv").mkdir()
    (tmp_path / "xsv" / "index.json").write_bytes(OTHERS["xsv/index.json"][0])
    with pytest.raises(StoreError) as caught:
        FastDataset(tmp_path / "xsv")

    assert f"{tmp_path / 'xsv'}: is {described(tmp_path / 'xsv')['what']}" == str(caught.value)


def test_a_table_without_text(tmp_path: Path) -> None:
    """A table of numbers is described by its columns, and the command asks for them; it works."""
    path = write_parquet(tmp_path / "a.parquet", pa.table({"x": [[1.0, 2.0]], "n": [3]}))
    command = described(path)["command"]

    assert command.startswith(f"fastio pack {path} a")
    assert command.endswith(".lmdb --field x=x --field n=n")
    run(*shlex.split(command)[1:3], tmp_path / "a.lmdb", *shlex.split(command)[4:])
    assert 1 == described(tmp_path / "a.lmdb")["samples"]


def test_columns_without_numbers(tmp_path: Path) -> None:
    """Columns of no numbers a sample and of complex ones are described, in words and as JSON."""
    columns = {"nothing": np.zeros((3, 0)), "wave": np.array([3 + 4j, 1, 1])}
    np.savez(tmp_path / "a.npz", image=np.zeros((3, 5, 6, 3), np.uint8), label=columns["nothing"], wave=columns["wave"])
    first = {field["name"]: field["first"] for field in described(tmp_path / "a.npz")["fields"]}

    assert ({}, {"min": 1.0, "max": 5.0}) == (first["label"], first["wave"])
    assert "1.0 to 5.0" in run("info", tmp_path / "a.npz")


def test_an_arrow_file_without_a_batch(tmp_path: Path) -> None:
    """An Arrow file that holds columns but not a single batch of rows has no samples."""
    schema = pa.schema({"image": pa.binary(), "x": pa.int64()})
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file, pa.ipc.new_file(file, schema):
        pass

    assert 0 == described(tmp_path / "a.arrow")["samples"]


def test_problems_are_shown(tmp_path: Path) -> None:
    """What would stop packing is named, from the scan and from the first samples."""
    flat(tmp_path / "f", 3)
    (tmp_path / "f" / "empty.png").touch()
    (tmp_path / "f" / "bad.png").write_bytes(b"no picture")
    said = run("info", tmp_path / "f")

    assert "1 problem" in said
    assert "empty.png" in said
    assert "bad.png" in said


def test_addresses(tmp_path: Path) -> None:
    """A list of addresses is not ours: img2dataset loads them."""
    (tmp_path / "urls.txt").write_text("https://example.org/a.jpg\nhttps://example.org/b.jpg\n")

    assert "use img2dataset" in run("info", tmp_path / "urls.txt")


OTHERS = {
    "a.beton": (b"x", "a dataset of FFCV, .* its Loader"),
    "a.rec": (b"x", "a RecordIO file of MXNet"),
    "a.bin": (struct.pack("<I", 0xCED7230A) + bytes(20), "a RecordIO file of MXNet"),
    "a.mat": (b"x", r"a file of MATLAB, .* scipy\.io\.loadmat"),
    "b.bin": (b"MATLAB 5.0 MAT-file, Platform", "a file of MATLAB"),
    "a.array_record": (b"x", "an ArrayRecord file"),
    "a.pt": (b"PK", "a file of torch.save"),
    "a.orc": (b"ORC", "an ORC table"),
    "a.avro": (b"Obj\x01", "an Avro file"),
    "xsv/index.json": (b'{"version": 2, "shards": [{"format": "xsv"}]}', "a dataset of MosaicML streaming .xsv."),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_libraries(tmp_path: Path, name: str) -> None:
    """Formats that fastio does not read are named, with what reads them and what to do."""
    content, expected = OTHERS[name]
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(content)
    path = tmp_path / name.removesuffix("/index.json")
    report = described(path)

    assert "other" == report["is"]
    said = run("info", path, code=1)
    assert f"is {report['what']}" in said
    assert report["what"] in run("pack", path, tmp_path / "out.lmdb", code=1)
    assert "fastio.Writer" in said
    assert re.match(expected, report["what"])


@pytest.mark.parametrize("index", [b"", b"[]", b"{", b'{"shards": 3}', b'{"chunks": []}', b"\xff", b"[" * 10_000])
def test_an_index_of_nobody(tmp_path: Path, index: bytes) -> None:
    """A folder with an index.json that no library writes is just a folder."""
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "index.json").write_bytes(index)

    assert "fastio.Writer" not in CliRunner().invoke(cli, ["info", str(tmp_path / "f")]).output


def test_options_of_stores(tmp_path: Path) -> None:
    """What only stores have is not asked of sources; a path that is nothing is called so."""
    path = write_parquet(tmp_path / "a.parquet", picture_table(1))

    assert "is not packed yet" in run("info", path, "--skipped", code=2)
    assert "no file or folder of that name" in run("info", tmp_path / "gone", code=1)
    assert "gone.lmdb" in run("info", tmp_path / "gone.lmdb", code=1)


def test_a_pattern_is_read_in_place(tmp_path: Path) -> None:
    """What FastDataset takes is said to be read where it lies."""
    for name in "ab":
        write_parquet(tmp_path / f"{name}.parquet", picture_table(2), compression="none", use_dictionary=False)
    pattern = tmp_path / "*.parquet"

    assert "it can be read where it lies" in run("info", tmp_path / "a.parquet")
    assert "it can be read where it lies" in run("info", pattern)
    assert len(FastDataset(pattern)) == 4
