"""Pictures that a column keeps as text: base64, and a kind that is one file (hex_pictures.py) and one entry."""

from __future__ import annotations

import base64
import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from fastio.cli import cli
from fastio.converters.sources.column_kinds import COLUMN_KINDS
from fastio.store import open_store
from tests.converters.sources import hex_pictures
from tests.converters.sources.text_conformance import write_stream
from tests.converters.trees import picture

PICTURES = [picture(i) for i in range(4)]
NAMES = ("a.csv", "a.tsv", "a.jsonl", "a.json", "a.parquet", "a.arrow")
ENCODE = {
    "base64": lambda data: base64.b64encode(data).decode(),
    "hex": lambda data: hex_pictures.KIND.encode(data),
}


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one line."""
    monkeypatch.setitem(COLUMN_KINDS, hex_pictures.KIND.name, hex_pictures.KIND)


def run(*arguments: object, code: int = 0) -> str:
    """Run a command in this process; its exit code is as expected."""
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert code == result.exit_code, result.output
    return result.output


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """A table in the format of its name."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".arrow":
        write_stream(path, pa.Table.from_pylist(rows))
    elif path.suffix in (".csv", ".tsv"):
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0], delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    else:
        lines = list(map(json.dumps, rows))
        path.write_text("[" + ",\n".join(lines) + "]" if path.suffix == ".json" else "\n".join(lines))
    return path


def rows(encode: Any) -> list[dict[str, Any]]:
    """Pictures as text, their labels and captions."""
    return [{"img": encode(data), "label": i % 2, "caption": f"c{i}"} for i, data in enumerate(PICTURES)]


def pictures(store: Path, field: str = "image") -> list[bytes]:
    """What a store keeps."""
    with open_store(store) as opened:
        return [view.tobytes() for view in opened.spans(field, np.arange(len(opened))).views()]


@pytest.mark.parametrize("kind", ENCODE)
@pytest.mark.parametrize("name", NAMES)
def test_from_a_table_and_back(tmp_path: Path, name: str, kind: str) -> None:
    """Recognised by content, packed as pictures, named in the reports, compared, and written again."""
    source, out = write(tmp_path / name, rows(ENCODE[kind])), tmp_path / "o.lmdb"
    what = COLUMN_KINDS[kind].what

    assert "image" in run("info", source)
    assert f"decoded: {what}, as the field image" in run("pack", source, out)
    assert PICTURES == pictures(out)
    assert f"decoded: {what}, as the field image" in run("info", out)
    assert "all good" in run("verify", out, "--against", source, "--decode")
    run("unpack", out, tmp_path / "again")
    if name in ("a.parquet", "a.arrow"):
        assert PICTURES == [path.read_bytes() for path in sorted((tmp_path / "again").rglob("*.png"))]
    else:
        assert source.read_text().split() == (tmp_path / "again" / name).read_text().split()


@pytest.mark.parametrize("kind", ENCODE)
@pytest.mark.parametrize("name", NAMES)
def test_damaged_values(tmp_path: Path, name: str, kind: str) -> None:
    """They stop the run, or are skipped, by file, row and column: no such text, no picture, and half of one."""
    table = rows(ENCODE[kind])
    table[1]["img"] = table[1]["img"][:40] + "!" + table[1]["img"][41:]
    table.append({"img": ENCODE[kind](b"no picture at all, but long enough"), "label": 0, "caption": "x"})
    table.append({"img": ENCODE[kind](PICTURES[0][:60]), "label": 0, "caption": "y"})
    table.append({"img": "", "label": 0, "caption": "z"})
    source = write(tmp_path / name, table)
    said = run("pack", source, tmp_path / "o.lmdb", code=1)
    assert "'img'" in said
    assert not (tmp_path / "o.lmdb").exists()

    run("pack", source, tmp_path / "o.lmdb", "--on-error", "skip")
    assert [PICTURES[0], *PICTURES[2:]] == pictures(tmp_path / "o.lmdb")
    with open_store(tmp_path / "o.lmdb") as store:
        skipped = [f"{each['key']} {each['problem']}" for each in store.metadata["skipped"]]
    assert 4 == len(skipped)
    assert all("'img'" in each and ("a." in each or "a/" in each) for each in skipped), skipped


@pytest.mark.parametrize("prefix", ["data:image/png;base64,", "data:image/png;charset=utf-8;base64,"])
def test_data_urls(tmp_path: Path, prefix: str) -> None:
    """What browsers write before the text does not matter."""
    source = write(tmp_path / "a.jsonl", rows(lambda data: prefix + ENCODE["base64"](data)))
    run("pack", source, tmp_path / "o.lmdb")

    assert PICTURES == pictures(tmp_path / "o.lmdb")


@pytest.mark.parametrize(
    "write_text",
    [
        lambda data: base64.encodebytes(data).decode(),
        lambda data: base64.urlsafe_b64encode(data).decode().rstrip("="),
    ],
    ids=["lines", "for URLs"],
)
def test_other_base64(tmp_path: Path, write_text: Any) -> None:
    """Line ends, the alphabet for URLs and missing padding are base64, too."""
    run("pack", write(tmp_path / "a.csv", rows(write_text)), tmp_path / "o.lmdb")

    assert PICTURES == pictures(tmp_path / "o.lmdb")


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_several_columns(tmp_path: Path, name: str) -> None:
    """Masks are masks by the names of their columns; two pictures keep the names of theirs."""
    table = [
        {
            "left": ENCODE["base64"](data),
            "right": ENCODE["base64"](data),
            "mask": ENCODE["base64"](picture(i, mode="L")),
        }
        for i, data in enumerate(PICTURES)
    ]
    run("pack", write(tmp_path / name, table), tmp_path / "o.lmdb")
    with open_store(tmp_path / "o.lmdb") as store:
        traits = {field.name: field.traits.is_mask for field in store.schema.payload}

    assert {"left": False, "right": False, "mask": True} == traits


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_names_beside_pictures(tmp_path: Path, name: str) -> None:
    """A column with the names of pictures that are in the table itself gives the keys, and no file is looked for."""
    table = [{"filename": f"p/{i}.png", **row} for i, row in enumerate(rows(ENCODE["base64"]))]
    run("pack", write(tmp_path / name, table), tmp_path / "o.lmdb")
    with open_store(tmp_path / "o.lmdb") as store:
        assert [f"p/{i}.png" for i in range(4)] == list(store.keys(np.arange(4)))
        assert ["image", "caption", "label"] == [field.name for field in store.schema.fields]


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_within_objects(tmp_path: Path, name: str) -> None:
    """A path leads to pictures within objects."""
    table = [{"turn": {"img": ENCODE["base64"](data)}, "n": i} for i, data in enumerate(PICTURES)]
    source = write(tmp_path / name, table)
    run("pack", source, tmp_path / "o.lmdb", "--field", "image=turn.img:image")

    assert PICTURES == pictures(tmp_path / "o.lmdb")


@pytest.mark.parametrize("name", NAMES)
def test_a_table_of_texts_and_pictures(tmp_path: Path, name: str) -> None:
    """It is no text alone; --field NAME=COLUMN:text keeps the text of the pictures, where that is meant."""
    source = write(
        tmp_path / name, [{"text": f"t{i}", "shot": ENCODE["base64"](each)} for i, each in enumerate(PICTURES)]
    )
    run("pack", source, tmp_path / "o.lmdb")
    assert PICTURES == pictures(tmp_path / "o.lmdb")

    run("pack", source, tmp_path / "t.lmdb", "--field", "shot=shot:text")
    assert [ENCODE["base64"](each).encode() for each in PICTURES] == pictures(tmp_path / "t.lmdb", "shot")


def test_texts_that_are_no_pictures(tmp_path: Path) -> None:
    """--field NAME=COLUMN:image of texts that are none looks for files of these names, as before."""
    source = write(tmp_path / "a.csv", [{"img": "x" * 80, "label": 1}])

    assert "names files such as" in run("pack", source, tmp_path / "o.lmdb", "--field", "image=img:image", code=1)
