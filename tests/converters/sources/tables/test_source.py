"""Tables as sources: metadata.csv and .jsonl beside pictures, and tables anywhere that name files or hold text."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fastio.cli import cli
from fastio.converters import open_source
from fastio.converters.inspect.unpack import unpack
from fastio.converters.inspect.verify import verify
from fastio.converters.sources.record import recorded_root
from fastio.errors import SourceError
from fastio.store import open_store
from fastio.store.protocol import read_values
from tests.converters.sources.tables.table_files import (
    OBJECTS,
    as_csv,
    dataset,
    jsonl,
    opened,
    packed,
    parsed,
    rows_of,
    types,
)
from tests.converters.sources.test_pairs import mask, npy, tree
from tests.converters.trees import files_below, picture

GUIDE = Path(__file__).parents[4] / "fastio/guide/packing.md"


def test_columns_become_fields_of_their_types(tmp_path: Path) -> None:
    """Files, text, numbers, booleans, JSON and classes are told apart by their values."""
    source = opened(dataset(tmp_path / "set", jsonl(rows_of())))

    assert types(source) == {
        "image": "image", "mask": "mask", "text": "text", "objects": "json",
        "score": "float", "count": "int", "is_day": "bool", "label": "int",
    }  # fmt: skip
    assert ("metadata", ["bee", "cat"]) == (source.kind, source.metadata["classes"])
    assert [f"images/{i}.png" for i in range(4)] == source.keys


@pytest.mark.parametrize("suffix", [".lmdb", ".h5", ".tar", ".zip"])
@pytest.mark.parametrize("name", ["metadata.jsonl", "metadata.csv"])
def test_tree_and_table_come_back(tmp_path: Path, suffix: str, name: str) -> None:
    """Unpacking gives the same files and the same table, byte by byte."""
    rows = rows_of()
    root = dataset(tmp_path / "set", jsonl(rows) if name.endswith("jsonl") else as_csv(rows), name)
    out = tmp_path / f"out{suffix}"
    assert 4 == packed(opened(root), out).packed
    with open_store(out) as store:
        assert () == tuple(unpack(store, tmp_path / "again").notes)
    assert files_below(root) == files_below(tmp_path / "again")


@pytest.mark.parametrize(
    "line",
    [
        b'{"file_name":"images/0.png","text":"caf\xc3\xa9","n":1.50}\n',
        b'{"file_name": "images/0.png", "text": "caf\\u00e9", "n": [1, 2.5, null, "x"]}\n',
        b'{"file_name": "images/0.png", "text": "", "n": 123456789012345678901234567890}\n',
        b'{"file_name": "images/0.png", "text": "line\\nend \\u0000", "n": -0.0, "m": 1e300}\n',
    ],
)
def test_json_lines_keep_their_values(tmp_path: Path, line: bytes) -> None:
    """Every value of a line is the same again."""
    root = tree(tmp_path / "set", {"images/0.png": picture(0), "metadata.jsonl": line})
    packed(opened(root), tmp_path / "out.lmdb")
    with open_store(tmp_path / "out.lmdb") as store:
        unpack(store, tmp_path / "again")

    assert json.loads(line) == json.loads((tmp_path / "again/metadata.jsonl").read_bytes())


@pytest.mark.parametrize(
    ("cells", "type_"),
    [
        (["1", "-2", "0"], "int"),
        (["1", "2.5", "-1e3"], "float"),
        (["true", "false", "true"], "bool"),
        (["True", "False", "True"], "bool"),
        (["007", "1", "2"], "text"),
        (["1", "", "2"], "json"),
        (["true", "", "false"], "json"),
        (["1.5", "", "2"], "json"),
        (["a", "", "c"], "text"),
        (["", "", ""], "text"),
        (["1", "true", "2"], "text"),
        (["9223372036854775808", "1", "2"], "text"),
        (["nan", "1.5", "2"], "text"),
        (["1e999", "1.5", "2"], "text"),
        (["True", "false", "True"], "text"),
        ([" 1", "2", "3"], "text"),
        (["[1, 2]", "[3]", "[]"], "text"),
        (["caf\u00e9", "\u2603", "x,y\nz\"q"], "text"),
    ],
)  # fmt: skip
def test_cells_have_the_narrowest_type_that_changes_none(tmp_path: Path, cells: list[str], type_: str) -> None:
    """Cells are numbers or booleans if all of them are; what could change is text, and what has gaps is JSON."""
    rows = [{"file_name": f"images/{i}.png", "x": cell} for i, cell in enumerate(cells)]
    root = dataset(tmp_path / "set", as_csv(rows), "metadata.csv", count=3)
    for i in range(3):
        (root / f"masks/{i}.png").unlink()
    source = opened(root)
    packed(source, tmp_path / "out.lmdb")
    with open_store(tmp_path / "out.lmdb") as store:
        unpack(store, tmp_path / "again")
    again = [row["x"] for row in parsed((tmp_path / "again/metadata.csv").read_bytes(), "metadata.csv")]

    assert type_ == types(source)["x"]
    assert again == cells or list(map(float, again)) == list(map(float, cells))


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([1, 2, 3], "int"),
        ([1, 2.5, 3], "float"),
        ([2**53 + 1, 0.5, 1], "json"),
        ([2**63, 1, 2], "json"),
        ([True, False, True], "bool"),
        ([True, 1, 2], "json"),
        (["a", None, "b"], "json"),
        ([None, None, None], "json"),
        ([[1], [], [2, 3]], "json"),
        ([{"a": 1}, {}, {"b": None}], "json"),
        (["a", 1, "b"], "json"),
    ],
)
def test_json_values_have_the_narrowest_type_that_changes_none(
    tmp_path: Path, values: list[object], type_: str
) -> None:
    """What no column can hold unchanged is JSON."""
    rows = [{"file_name": f"images/{i}.png", "x": value} for i, value in enumerate(values)]
    root = dataset(tmp_path / "set", jsonl(rows), count=3)
    for i in range(3):
        (root / f"masks/{i}.png").unlink()
    source = opened(root)
    packed(source, tmp_path / "out.lmdb")
    with open_store(tmp_path / "out.lmdb") as store:
        unpack(store, tmp_path / "again")

    assert type_ == types(source)["x"]
    assert rows == parsed((tmp_path / "again/metadata.jsonl").read_bytes(), "metadata.jsonl")


def test_what_is_missing_is_not_null(tmp_path: Path) -> None:
    """A column that some rows do not have is JSON, and those rows do not have it afterwards either."""
    rows = [{"file_name": "images/0.png", "x": 1}, {"file_name": "images/1.png"}]
    root = tree(
        tmp_path / "set", {"images/0.png": picture(0), "images/1.png": picture(1), "metadata.jsonl": jsonl(rows)}
    )
    packed(opened(root), tmp_path / "out.lmdb")
    with open_store(tmp_path / "out.lmdb") as store:
        unpack(store, tmp_path / "again")

    assert files_below(root) == files_below(tmp_path / "again")


def test_fields_are_renamed_typed_and_found_in_json(tmp_path: Path) -> None:
    """``--field`` names, types, and goes into JSON, which stays beside what was found in it."""
    root = dataset(tmp_path / "set", jsonl(rows_of()))
    source = opened(
        root,
        "caption=text",
        "weight=score:float32",
        "boxes=objects.bbox:xywh",
        "classes=objects.categories:int64[*] per boxes",
    )
    packed(source, tmp_path / "out.lmdb")

    assert {
        "caption": "text",
        "weight": "float32",
        "boxes": "xywh",
        "classes": "int64[*] per boxes",
        "objects": "json",
    }.items() <= types(source).items()
    with open_store(tmp_path / "out.lmdb") as store:
        boxes = read_values(store, "boxes", np.arange(4))
        assert [0, 32, 32, 32] == boxes.sizes.tolist()
        assert np.array_equal(OBJECTS["bbox"], boxes.view(2).view("<f4").reshape(-1, 4))
        unpack(store, tmp_path / "again")
    again = parsed((tmp_path / "again/metadata.jsonl").read_bytes(), "metadata.jsonl")
    assert [row["objects"] for row in rows_of()] == [row["objects"] for row in again]


@pytest.mark.parametrize("type_", ["", ":xywh"])
@pytest.mark.parametrize("name", ["metadata.jsonl", "metadata.csv"])
def test_misspelt_names_in_json(tmp_path: Path, name: str, type_: str) -> None:
    """A name that no row has is an error that lists the names there are; null in all rows would be silent."""
    root = dataset(tmp_path / "set", jsonl(rows_of()) if name.endswith("l") else as_csv(rows_of()), name)
    words = "--field boxes=objects.bboxx: there is no 'bboxx' in 'objects', only 'bbox', 'categories', in any row"
    with pytest.raises(SourceError, match=words):
        opened(root, f"boxes=objects.bboxx{type_}")


def test_fields_in_the_json_of_cells(tmp_path: Path) -> None:
    """A cell of a .csv may hold JSON, into which a field goes."""
    root = dataset(tmp_path / "set", as_csv(rows_of()), "metadata.csv")
    source = opened(root, "boxes=objects.bbox:xywh", ignore_columns=("objects",))
    packed(source, tmp_path / "out.lmdb")

    assert "objects" not in types(source)
    with open_store(tmp_path / "out.lmdb") as store:
        assert np.array_equal(
            OBJECTS["bbox"], read_values(store, "boxes", np.array([3])).view(0).view("<f4").reshape(-1, 4)
        )
        unpack(store, tmp_path / "again")
    again = parsed((tmp_path / "again/metadata.csv").read_bytes(), "metadata.csv")
    assert [OBJECTS["bbox"]] * 3 == [json.loads(row["objects"])["bbox"] for row in again[1:]]


def test_columns_that_are_left_out(tmp_path: Path) -> None:
    """``--without`` leaves columns out, ``*`` all that are not asked for; unpack says so."""
    root = dataset(tmp_path / "set", jsonl(rows_of()))
    assert {"image", "mask", "objects", "label", "count"} == set(
        types(opened(root, ignore_columns=("text", "score", "is_day")))
    )
    source = opened(root, "caption=text", ignore_columns=("*",))
    assert {"image", "mask", "caption", "label"} == set(types(source))
    packed(source, tmp_path / "out.lmdb")
    with open_store(tmp_path / "out.lmdb") as store:
        notes = unpack(store, tmp_path / "again").notes
    assert ["left out: columns score, count, is_day, objects"] == list(notes)


def test_filters_leave_rows_out(tmp_path: Path) -> None:
    """Rows of other values are left out by name, with their files; classes are those of all rows."""
    source = opened(dataset(tmp_path / "set", jsonl(rows_of())), filters=(("label", "cat"),))
    report = packed(source, tmp_path / "out.lmdb")

    assert (2, 2, []) == (report.packed, len(report.left_out), list(report.skipped))
    assert ["bee", "cat"] == source.metadata["classes"]
    assert ["images/0.png", "images/2.png"] == [each.key for each in report.left_out]


def test_parquet(tmp_path: Path) -> None:
    """A table of Parquet gives the same fields as one of JSON lines."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [{name: value for name, value in row.items() if name != "objects"} for row in rows_of()]
    root = dataset(tmp_path / "set", b"")
    (root / "metadata.jsonl").unlink()
    parquet.write_table(arrow.Table.from_pylist(rows), root / "metadata.parquet")
    source = opened(root)
    assert 4 == packed(source, tmp_path / "out.lmdb").packed
    with open_store(tmp_path / "out.lmdb") as store:
        unpack(store, tmp_path / "again")
    assert rows == parquet.read_table(tmp_path / "again/metadata.parquet").to_pylist()


def test_a_table_anywhere_with_a_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table names files below ``--root``; files that it does not name are not part of it; verify finds it again."""
    dataset(tmp_path / "set", b"")
    rows = [{"path": f"./images/{i}.png", "caption": f"bee {i}", "id": i} for i in (2, 0)]
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists/few.csv").write_bytes(as_csv(rows))
    monkeypatch.chdir(tmp_path)
    source = opened(Path("lists/few.csv"), root="set")
    packed(source, tmp_path / "out.lmdb")

    assert ["images/2.png", "images/0.png"] == source.keys
    assert {"image": "image", "caption": "text", "id": "int"} == types(source)
    with open_store(tmp_path / "out.lmdb") as store:
        record = store.metadata["source"]
    monkeypatch.chdir("/")
    path = str(tmp_path / "lists/few.csv")
    assert not verify(tmp_path / "out.lmdb", against=opened(Path(path), root=recorded_root(record, path))).problems


def test_samples_named_by_a_column(tmp_path: Path) -> None:
    """With ``--key-column`` several rows may name one file, which is written once when it is unpacked."""
    root = dataset(tmp_path / "set", b"")
    rows = [{"question_id": 10 + i, "image": f"images/{i // 2}.png", "answer": "yes"} for i in range(4)]
    (root / "questions.jsonl").write_bytes(jsonl(rows))
    source = opened(root / "questions.jsonl", key_column="question_id")
    packed(source, tmp_path / "out.tar")

    assert ["10", "11", "12", "13"] == source.keys
    with open_store(tmp_path / "out.tar") as store:
        unpack(store, tmp_path / "again")
    expected = {"images/0.png": picture(0), "images/1.png": picture(1), "questions.jsonl": jsonl(rows)}
    assert expected == files_below(tmp_path / "again")


@pytest.mark.parametrize("name", ["notes.csv", "notes.tsv", "notes.jsonl"])
def test_a_table_without_files(tmp_path: Path, name: str) -> None:
    """Text and numbers alone are samples named by their lines, and come back as the same table."""
    rows = [{"prompt": f"say {i}", "answer": "yes, or no", "score": i / 4} for i in range(3)]
    data = jsonl(rows) if name.endswith("jsonl") else as_csv(rows, "\t" if name.endswith("tsv") else ",")
    (tmp_path / name).write_bytes(data)
    source = opened(tmp_path / name)
    packed(source, tmp_path / "out.h5")

    assert {"prompt": "text", "answer": "text", "score": "float"} == types(source)
    with open_store(tmp_path / "out.h5") as store:
        unpack(store, tmp_path / "again")
    assert {name: data} == files_below(tmp_path / "again")


def test_a_single_text_column_comes_back_as_its_table(tmp_path: Path) -> None:
    """A store with text alone that came from a table is unpacked as that table."""
    (tmp_path / "t.csv").write_bytes(b'prompt\nsay\n"a, b"\n')
    packed(opened(tmp_path / "t.csv"), tmp_path / "out.lmdb")
    with open_store(tmp_path / "out.lmdb") as store:
        unpack(store, tmp_path / "again")
    assert {"t.csv": b'prompt\nsay\n"a, b"\n'} == files_below(tmp_path / "again")


def test_a_table_without_titles(tmp_path: Path) -> None:
    """Without a header, columns are called 1, 2, ... and need names."""
    root = dataset(tmp_path / "set", b"")
    (root / "list.csv").write_bytes(b"images/0.png,bee\nimages/1.png,cat\n")
    source = opened(root / "list.csv", "image=1", "caption=2", header=False)
    packed(source, tmp_path / "out.lmdb")
    with open_store(tmp_path / "out.lmdb") as store:
        unpack(store, tmp_path / "again")

    assert ["images/0.png", "images/1.png"] == source.keys
    assert (root / "list.csv").read_bytes() == (tmp_path / "again/list.csv").read_bytes()


def test_a_label_file_called_metadata_stays_one(tmp_path: Path) -> None:
    """With ``--labels``, a folder of pictures is read as before."""
    root = tree(tmp_path / "set", {"0.png": picture(0), "metadata.csv": b"file_name,label\n0.png,bee\n"})

    assert "flat" == open_source(root, labels=root / "metadata.csv").kind
    assert "metadata" == open_source(root).kind


def test_the_guides_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command of the guide's section packs something, unpacks, and verifies against its source."""
    section = GUIDE.read_text().partition("## Pictures with tables")[2].partition("\n## ")[0]
    commands = [shlex.split(line, comments=True)[3:] for line in section.splitlines() if line.startswith("$ ")]
    _make_guide_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    for words in commands:
        source, out = words[:2]
        for step in (["pack", *words], ["unpack", out, f"{out}.again"], ["verify", out, "--against", source]):
            result = CliRunner().invoke(cli, step, standalone_mode=False)
            assert result.exception is None, (step, result.output, result.exception)

    assert len(commands) == 9
    assert (tmp_path / "camvid/metadata.jsonl").read_bytes() == (
        tmp_path / "camvid.lmdb.again/metadata.jsonl"
    ).read_bytes()


def _make_guide_files(root: Path) -> None:
    """What the guide's commands speak of."""
    rows = [{name: value for name, value in row.items() if name != "label"} for row in rows_of(3)]
    dataset(root / "camvid", jsonl(rows), count=3)
    depth = npy(np.zeros((5, 6), np.float32))
    objects = [{"id": i, "image_id": i, "category_id": 1, "bbox": [0, 0, 2, 2]} for i in range(3)]
    images = [{"id": i, "file_name": f"images/{i}.png"} for i in range(3)]
    coco = {"images": images, "annotations": objects, "categories": [{"id": 1, "name": "bee"}]}
    files = {f"scans/depth/{i}.npy": depth for i in range(3)} | {"camvid/coco.json": json.dumps(coco).encode()}
    files |= {f"scans/images/{i}.png": picture(i) for i in range(3)} | {
        f"scans/masks/{i}.png": mask(i) for i in range(3)
    }
    files |= {f"beside/{i}{end}": data for i in range(2) for end, data in ((".png", picture(i)), (".txt", b"a bee"))}
    files |= {f"beside/{i}_mask.png": mask(i) for i in range(2)}
    files["list.csv"] = b"file_name,split\nimages/0.png,val\nimages/1.png,train\n"
    answers = [{"question_id": i, "image": "images/0.png", "question": f"how many? {i}"} for i in range(2)]
    files["answers.jsonl"] = jsonl(answers)
    tree(root, files)
