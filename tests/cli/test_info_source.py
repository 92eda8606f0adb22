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

from fastio.cli import cli
from fastio.converters import SOURCES
from fastio.converters.text import TEXT_SOURCES
from tests.converters.conformance import MAKERS
from tests.converters.picture_tables import picture_table, write_parquet
from tests.converters.text.conformance import MAKERS as TEXT_MAKERS
from tests.converters.trees import flat


def run(*arguments: object, code: int = 0) -> str:
    """Run a command in this process; its exit code is as expected."""
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert code == result.exit_code, result.output
    return result.output


def described(path: object) -> dict[str, Any]:
    """What ``info --json`` says."""
    report: dict[str, Any] = json.loads(run("info", path, "--json"))
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


@pytest.mark.parametrize("kind", [name for name, each in SOURCES.items() if not each.needs_fields and name != "store"])
def test_every_source(tmp_path: Path, kind: str) -> None:
    """Whatever can be packed is described, with the kind that packs it and all its samples."""
    source = MAKERS[kind](tmp_path)
    report = described(source.path)

    assert kind == report["kind"]
    assert len(source) == report["samples"]
    assert report["command"].startswith("fastio pack ")
    assert {"image"} <= {each["name"] for each in report["fields"]}


@pytest.mark.parametrize("kind", TEXT_SOURCES)
def test_every_kind_of_text(tmp_path: Path, kind: str) -> None:
    """Text is named, with the kind that packs it."""
    report = described(TEXT_MAKERS[kind](tmp_path).path)

    assert ("text", kind) == (report["is"], report["kind"])
    assert "pack it: fastio pack " in run("info", report["path"])


def test_a_table_without_text(tmp_path: Path) -> None:
    """A table of numbers is described by its columns, and the command asks for them; it works."""
    path = write_parquet(tmp_path / "a.parquet", pa.table({"x": [[1.0, 2.0]], "n": [3]}))
    command = described(path)["command"]

    assert f"fastio pack {path} a.lmdb --field x=x --field n=n" == command
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
    "shard.00000.mds": (b"x", "a shard of MosaicML streaming"),
    "a.mat": (b"x", r"a file of MATLAB, .* scipy\.io\.loadmat"),
    "b.bin": (b"MATLAB 5.0 MAT-file, Platform", "a file of MATLAB"),
    "a.array_record": (b"x", "an ArrayRecord file"),
    "a.pt": (b"PK", "a file of torch.save"),
    "a.orc": (b"ORC", "an ORC table"),
    "a.avro": (b"Obj\x01", "an Avro file"),
    "mds/index.json": (b'{"version": 2, "shards": [{"format": "mds"}]}', "a dataset of MosaicML streaming"),
    "lit/index.json": (b'{"chunks": [], "config": {"data_format": ["jpeg"]}}', "a dataset of LitData"),
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
