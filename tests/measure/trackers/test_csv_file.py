"""CSV: rows of figures that survive restarts, new figures, killed writers and full disks."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from fastio.errors import FastioError
from fastio.measure.trackers import CSV, Figure
from tests.measure.trackers.numbers import CURVES, FullDisk, figures


def rows(path: Path) -> list[dict[str, str]]:
    """The table as a reader sees it."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_row_for_each_write(tmp_path: Path) -> None:
    """Time, step, gauges and rates; totals are left out."""
    tracker = CSV(tmp_path / "steps.csv")
    tracker.write(figures(50))
    tracker.write(figures(100, 0.5))
    tracker.close()
    tracker.close()
    first, second = rows(tmp_path / "steps.csv")

    assert {"time_s", "step", *CURVES} == set(first)
    assert ("50", "1700000050.5", "0.25") == (first["step"], first["time_s"], first["loading_median_s"])
    assert ("100", "0.5") == (second["step"], second["loading_median_s"])


def test_a_table_is_continued(tmp_path: Path) -> None:
    """A resumed training appends; what a killed one left unfinished goes, whole rows stay."""
    path = tmp_path / "new" / "steps.csv"
    for step in (50, 100):
        tracker = CSV(path)
        tracker.write(figures(step))
        tracker.close()
        with path.open("a") as file:
            file.write("1700000099,15")

    tracker = CSV(path)
    tracker.close()
    assert ["50", "100"] == [row["step"] for row in rows(path)]


def test_a_new_figure_is_a_new_column(tmp_path: Path) -> None:
    """Rows before it have an empty cell there."""
    tracker = CSV(tmp_path / "steps.csv")
    tracker.write(figures(1))
    tracker.write(figures(2, extra=(Figure("padding", 0.5, "ratio", "Without a token."),)))
    tracker.write(figures(3))
    tracker.close()

    assert ["", "0.5", ""] == [row["padding_share"] for row in rows(tmp_path / "steps.csv")]
    assert ["1", "2", "3"] == [row["step"] for row in rows(tmp_path / "steps.csv")]
    assert ["steps.csv"] == [file.name for file in tmp_path.iterdir()]


def test_a_full_disk_leaves_whole_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a row is taken back, so the next one is not added to it."""
    tracker = CSV(tmp_path / "steps.csv")
    tracker.write(figures(1))
    with monkeypatch.context() as patch:
        patch.setattr(tracker, "_file", FullDisk(tracker._file))
        with pytest.raises(OSError, match="No space left"):
            tracker.write(figures(2))
    tracker.write(figures(3))
    tracker.close()

    assert ["1", "3"] == [row["step"] for row in rows(tmp_path / "steps.csv")]


def test_another_table_is_left_alone(tmp_path: Path) -> None:
    """A file that holds something else is refused and stays as it is; so is what is no file, or no place for one."""
    (tmp_path / "labels.csv").write_text("name,label\na,1\n")
    with pytest.raises(FastioError, match=r"labels\.csv: is no table of figures"):
        CSV(tmp_path / "labels.csv")
    with pytest.raises(FastioError, match="is not a file"):
        CSV("/dev/full")
    with pytest.raises(FastioError, match=r"steps\.csv: cannot be written"):
        CSV(tmp_path / "labels.csv" / "steps.csv")

    assert "name,label\na,1\n" == (tmp_path / "labels.csv").read_text()


def test_each_rank_has_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two writers never share a table."""
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    tracker = CSV(tmp_path / "steps.csv")
    tracker.write(figures(1))
    tracker.close()

    assert ["steps.rank3.csv"] == [file.name for file in tmp_path.iterdir()]
