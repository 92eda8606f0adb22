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
from hypothesis import given, settings
from hypothesis import strategies as st

from fastio import Writer
from fastio.converters.sources.column_kinds import COLUMN_KINDS
from fastio.store import open_store
from tests.commands import run
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


# Lists of such texts.

LISTS: list[list[bytes] | None] = [PICTURES[:1], [], PICTURES[1:3], None, PICTURES[3:] * 2]
OF_LISTS = ("a.jsonl", "a.json", "a.parquet", "a.arrow")


def in_lists(encode: Any, lists: list[Any]) -> list[dict[str, Any]]:
    """Rows of M3IT's layout: lists of pictures as text beside an instruction."""
    return [
        {"image_base64_str": None if each is None else list(map(encode, each)), "instruction": f"q{i}"}
        for i, each in enumerate(lists)
    ]


def lists_in(store: Path, field: str = "images") -> list[list[bytes]]:
    """What a store keeps of a field of lists."""
    with open_store(store) as opened:
        elements = opened.elements(field)
        views = iter(elements.spans(field, np.arange(len(elements))).views())
        return [[next(views).tobytes() for _ in range(count)] for count in elements.counts.tolist()]


@pytest.mark.parametrize("kind", ENCODE)
@pytest.mark.parametrize("name", OF_LISTS)
def test_lists_from_a_table_and_back(tmp_path: Path, name: str, kind: str) -> None:
    """One command packs lists of any length; null is an empty one; tables of JSON are written again with texts."""
    source, out = write(tmp_path / name, in_lists(ENCODE[kind], LISTS)), tmp_path / "o.lmdb"
    said = run("pack", source, out)
    assert f"decoded: {COLUMN_KINDS[kind].what}, as the field images" in said
    assert "images: 0 to 2 pictures a sample, 5 in all" in said
    assert [each or [] for each in LISTS] == lists_in(out)
    assert "all good" in run("verify", out, "--against", source, "--decode")
    run("unpack", out, tmp_path / "again")
    again = tmp_path / "again" / (name if "json" in name else "")
    run("pack", again, tmp_path / "p.lmdb")
    assert [each or [] for each in LISTS] == lists_in(tmp_path / "p.lmdb")

    run("pack", source, tmp_path / "t.lmdb", "--field", "texts=image_base64_str:text[*]")
    texts = [[each.decode() for each in row] for row in lists_in(tmp_path / "t.lmdb", "texts")]
    assert [list(map(ENCODE[kind], each or [])) for each in LISTS] == texts


@pytest.mark.parametrize("name", OF_LISTS)
def test_a_text_that_may_be_missing(tmp_path: Path, name: str) -> None:
    """``image?`` takes a column of texts with nulls."""
    table = rows(ENCODE["base64"])
    table[2]["img"] = None
    source = write(tmp_path / name, table)
    said = run("pack", source, tmp_path / "o.lmdb", "--field", "image=img:image?")

    assert "image: pictures in 3 of 4 samples" in said
    assert [PICTURES[:1], PICTURES[1:2], [], PICTURES[3:]] == lists_in(tmp_path / "o.lmdb", "image")


@settings(max_examples=20, deadline=None)
@given(
    lists=st.lists(st.none() | st.lists(st.sampled_from([*PICTURES, None, b"no picture"]), max_size=3), min_size=1),
    name=st.sampled_from(OF_LISTS),
)
def test_lists_are_those_of_the_writer(
    tmp_path_factory: pytest.TempPathFactory, lists: list[list[bytes | None] | None], name: str
) -> None:
    """None is shortened: a sample with a null or damaged text is a problem as a whole, as of ``Writer``."""
    good = [row or [] for row in lists if all(each in PICTURES for each in row or ())]
    if not any(good):
        return
    folder = tmp_path_factory.mktemp("lists")

    def encode(data: bytes | None) -> str | None:
        return None if data is None else ENCODE["base64"](data)

    source = write(folder / name, in_lists(encode, [good[-1] or PICTURES, *lists]))
    run("pack", source, folder / "o.lmdb", "--on-error", "skip", "--field", "images=image_base64_str:image[*]")
    with Writer(folder / "w.lmdb", {"images": "image[*]"}, on_error="skip") as out:
        for row in [good[-1] or PICTURES, *lists]:
            out.write({"images": row or []})

    assert [good[-1] or PICTURES, *good] == lists_in(folder / "o.lmdb") == lists_in(folder / "w.lmdb")


def test_a_bad_text_in_a_list(tmp_path: Path) -> None:
    """Its place is named, with file, row and column."""
    table = in_lists(ENCODE["base64"], [PICTURES[:2], PICTURES])
    table[1]["image_base64_str"][2] = "!" + table[1]["image_base64_str"][2]
    for name in OF_LISTS:
        said = run("pack", write(tmp_path / name, table), tmp_path / "o.lmdb", code=1)
        assert "has a bad element, 3 of 4: it has a value in the column 'image_base64_str' that is not base64" in said
        assert "a.jsonl:2" in said or "a/1" in said or "a.json:2" in said


def test_texts_that_are_no_pictures(tmp_path: Path) -> None:
    """--field NAME=COLUMN:image of texts that are none looks for files of these names, as before."""
    source = write(tmp_path / "a.csv", [{"img": "x" * 80, "label": 1}])

    assert "names files such as" in run("pack", source, tmp_path / "o.lmdb", "--field", "image=img:image", code=1)
