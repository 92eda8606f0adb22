"""Tables beside a store: their rows are found by a column of keys, and packed once for each version of the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fastio import FastDataset, FastLoader, Writer, add_field, beside
from fastio.cli import cli
from fastio.converters.write import table
from fastio.errors import FastioError, SchemaError
from tests.servers.fixtures import Served

ROWS = [{"file_name": f"a/{number}.png", "Caption": f"caption {number}", "score": number / 2} for number in range(6)]


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Numbers in the place of photos; the cache is a folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with Writer(tmp_path / "photos.lmdb", {"photo": "float32[2]"}) as writer:
        for number in range(6):
            writer.write({"photo": [number, 0]}, key=f"a/{number}.png")
    return str(tmp_path / "photos.lmdb")


def written(path: Path, rows: list[dict[str, Any]]) -> str:
    """A table of these rows."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    else:
        arrow = pytest.importorskip("pyarrow")
        whole = arrow.Table.from_pylist(rows)
        if path.suffix == ".parquet":
            pytest.importorskip("pyarrow.parquet").write_table(whole, path)
        else:
            pytest.importorskip("pyarrow.feather").write_feather(whole, str(path))
    return str(path)


@pytest.mark.parametrize("suffix", ["jsonl", "json", "parquet", "feather"])
def test_rows_are_found_by_their_keys(photos: str, tmp_path: Path, suffix: str) -> None:
    """In any order; titles become names of fields; a loader and a command read them."""
    other = written(tmp_path / f"captions.{suffix}", ROWS[::-1])
    with beside(photos, other, on="file_name") as both:
        assert ["photo", "caption", "score"] == [field.name for field in both.schema.fields]
        assert [row["Caption"] for row in ROWS] == [sample["caption"] for sample in FastDataset(both)]
        assert 6 == sum(len(batch["caption"]) for batch in FastLoader(both, 4, shuffle=True))
    result = CliRunner().invoke(cli, ["ls", photos, "--beside", other, "--on", "file_name", "--limit", "1"])
    assert "caption: 'caption 0'  score: 0" in result.output


def test_fields_are_called_as_packing_a_dataset_calls_them(photos: str, tmp_path: Path) -> None:
    """Titles that no field may have get the same names whether rows are packed or read beside."""
    rows = [{"key": f"a/{number}.png", "2nd": number, "A  B": "x"} for number in range(6)]
    with beside(photos, written(tmp_path / "captions.jsonl", rows)) as both:
        assert ["photo", "column_2nd", "a_b"] == [field.name for field in both.schema.fields]


def test_packed_once_for_each_version(photos: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second opening reads no row; a changed table is packed anew."""
    other = written(tmp_path / "captions.jsonl", ROWS)
    beside(photos, other, on="file_name").close()
    with monkeypatch.context() as patch:
        patch.setattr(table, "Writer", None)
        beside(photos, other, on="file_name").close()
    written(tmp_path / "captions.jsonl", [{**row, "Caption": "another"} for row in ROWS])
    with beside(photos, other, on="file_name") as both:
        assert "another" == FastDataset(both)[3]["caption"]


def test_a_damaged_packed_table_is_packed_again(photos: str, tmp_path: Path) -> None:
    """Whoever cuts the file in the cache loses nothing."""
    other = written(tmp_path / "captions.jsonl", ROWS)
    beside(photos, other, on="file_name").close()
    (kept,) = (tmp_path / "cache" / "fastio").glob("*.h5")
    kept.write_bytes(kept.read_bytes()[:-100])
    with beside(photos, other, on="file_name") as both:
        assert "caption 3" == FastDataset(both)[3]["caption"]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (
            [{"id": 1, "caption": "a"}],
            r"captions\.jsonl: has no column 'key'; on=COLUMN \(--on COLUMN\) .* id, caption",
        ),
        ([{"key": 1.5, "caption": "a"}], r"captions\.jsonl:1: has 1\.5 in the column 'key', expected a key"),
        (
            [{"key": "a", "b": "a"}, {"key": "b", "c": 1}],
            r"captions\.jsonl:2: has a column 'c', which the first row lacks",
        ),
        ([{"key": "a", "b": "a", "B": "c"}], "several columns would be the field 'b'"),
        ([{"key": "a"}], "has no column but 'key'"),
        ([], "has no row that can be read"),
        ([{"key": "a", "b": "a"}, {"key": "b", "b": 1}], "field 'b'"),
    ],
)
def test_tables_that_do_not_fit(photos: str, tmp_path: Path, rows: list[dict[str, Any]], words: str) -> None:
    """One line that names the table, or the row; nothing is kept."""
    other = written(tmp_path / "captions.jsonl", rows)
    with pytest.raises(FastioError, match=words):
        beside(photos, other)
    assert [] == list(tmp_path.glob("cache/fastio/*.h5"))


def test_keys_that_do_not_match_and_cells_without_types(photos: str, tmp_path: Path) -> None:
    """Refused as those of stores are; a .csv is packed first."""
    other = written(tmp_path / "captions.jsonl", ROWS[:4])
    with pytest.raises(SchemaError, match="has 2 keys"):
        beside(photos, other, on="file_name")
    (tmp_path / "captions.csv").write_text("key,caption\na/0.png,x\n")
    with pytest.raises(FastioError, match=r"captions\.csv: the cells of a \.csv have no types: pack it"):
        beside(photos, tmp_path / "captions.csv")


def test_a_table_behind_a_url(photos: str, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is brought once for each version; one without types, or that is not there, is refused in a line."""
    written(served.root / "captions.parquet", ROWS[::-1])
    url = f"{served.url}/captions.parquet"
    with beside(photos, url, on="file_name") as both:
        assert [row["Caption"] for row in ROWS] == [sample["caption"] for sample in FastDataset(both)]
    with monkeypatch.context() as patched:
        patched.setattr(table, "RemoteCopy", None)  # none is needed
        beside(photos, url, on="file_name").close()
    written(served.root / "captions.parquet", [{**row, "Caption": "new"} for row in ROWS])
    result = CliRunner().invoke(cli, ["ls", photos, "--beside", url, "--on", "file_name", "--limit", "1"])
    assert "caption: 'new'" in result.output
    (served.root / "t.csv").write_text("file_name,caption\na,b\n")
    for name, words in (("t.csv", "the cells of a .csv have no types"), ("none.parquet", "none.parquet")):
        result = CliRunner().invoke(cli, ["ls", photos, "--beside", f"{served.url}/{name}", "--on", "file_name"])
        assert (1, True) == (result.exit_code, f"{served.url}/{name}: " in result.output)
        assert words in result.output


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_several_rows_of_one_photo(photos: str, tmp_path: Path, suffix: str) -> None:
    """COCO has five captions a photo: refused by row, or the first row of each; later without asking for more."""
    rows = [{**row, "Caption": f"{row['Caption']} {number}"} for number in range(2) for row in ROWS]
    other = written(tmp_path / f"captions.{suffix}", rows)
    for _ in range(2):
        with pytest.raises(
            SchemaError, match=r":\d+: has 'a/0.png' in the column 'file_name', as row \d+ has: .*--allow dou"
        ):
            beside(photos, other, on="file_name")
        with beside(photos, other, on="file_name", allow="double") as both:
            assert [f"{row['Caption']} 0" for row in ROWS] == [sample["caption"] for sample in FastDataset(both)]
    add_field(photos, "caption", other, on="file_name", allow="double")
    assert "caption 5 0" == FastDataset(photos)[5]["caption"]
    with pytest.raises(SchemaError, match=r"has 'a/0.png' in the column 'file_name', as row"):
        add_field(photos, "score", other, on="file_name")
