"""Tables: numbers are never broken, whatever the terminal's width."""

from __future__ import annotations

import importlib.metadata
import io
import os
import shutil
import sys

import click
import hypothesis.strategies as st
import pytest
from hypothesis import given
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fastio.cli.screen import column_widths, meter, table, text_grid

TITLES = ("decoder", "images/CPU-s", "loading\nms/step")
ROWS = [("Pillow 13.0.0 with a long name", "113,654", "0.25"), ("q" * 40, "9", "1,000.25")]


def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int) -> list[str]:
    """The table's lines on a terminal of so many columns."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_: os.terminal_size((columns, 24)))
    table(TITLES, ROWS, right=(1, 2))
    return click.unstyle(capsys.readouterr().out).splitlines()


@pytest.mark.parametrize("columns", [20, 40, 60, 100, 200])
def test_numbers_and_words_of_titles_stay_whole(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only text is folded; what does not fit then makes longer lines."""
    lines = shown(monkeypatch, capsys, columns)
    text = "\n".join(lines)

    for word in ("113,654", "1,000.25", "decoder", "images/CPU-s", "ms/step"):
        assert word in text
    assert text.count("q") == 40  # folded, not cut
    assert columns < 40 or max(map(len, lines)) <= columns


def test_lines_have_no_blanks_at_their_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is copied from a file of results is what can be seen."""
    assert all(line == line.rstrip() for line in shown(monkeypatch, capsys, 200))


def test_a_table_without_rows(capsys: pytest.CaptureFixture[str]) -> None:
    """Titles alone."""
    table(("sample", "problem"), [])

    assert capsys.readouterr().out == "sample  problem\n"


class Clock:
    """A clock that the test puts forward."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def perf_counter(self) -> float:
        """Return the time, like ``time.perf_counter``."""
        return self.now_s


def test_samples_that_were_there_have_no_rate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 12,000 samples 5,000 are kept after 4 s of looking; then 100 a second leave 60 s for the rest."""
    clock = Clock()
    monkeypatch.setattr("fastio.cli.screen.time", clock)
    with meter("packing", 12_000) as progress:
        clock.now_s = 4
        progress(5000, 0)
        clock.now_s = 14
        progress(1000, 10_000_000)
    lines = capsys.readouterr().err.splitlines()

    assert lines[-1] == "packing: 6,000 of 12,000, 100 samples/s, 1.0 MB/s, 60 s left"
    assert "samples/s" not in "".join(lines[:-1])


# The lines of a table are those that rich lays out, which takes longer to import than a store to describe.

WORDS = st.lists(st.sampled_from(["a", "cat", "1,024", "images/CPU-s", "日本語", "e\u0301", "", " lead"]), max_size=4)
# Behind a folded word that ends with a line, rich would begin the next one with a blank: long words come last.
CELLS = st.tuples(WORDS, st.sampled_from(["", "x" * 30, "q" * 70])).map(lambda parts: " ".join([*parts[0], parts[1]]))
RICH = tuple(map(int, importlib.metadata.version("rich").split(".")[:2]))
GRID_TITLES = st.sampled_from(["sample", "loading\nms/step", "bytes a sample", ""])
NUMBERS = st.sampled_from(["9", "1,000.25"])


def laid_out_by_rich(titles: list[str], rows: list[list[str]], right: list[int], available: int) -> list[str]:
    """The lines of a grid of columns of the same widths."""
    widths, gap = column_widths(titles, rows, right, available)
    grid = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0))
    for i, title in enumerate(titles):
        grid.add_column(Text(title), justify="right" if i in right else "left", overflow="fold", width=widths[i])
    for row in rows:
        grid.add_row(*map(Text, row))
    file = io.StringIO()
    Console(file=file, width=sum(widths) + gap * len(widths), color_system=None, highlight=False).print(grid)
    return [line.rstrip() for line in file.getvalue().splitlines()]


@pytest.mark.skipif(RICH < (14, 3), reason="rich makes a last column of numbers wider than asked")
@given(data=st.data(), columns=st.integers(1, 4), available=st.sampled_from([20, 60, 160]))
def test_lines_are_those_of_rich(data: st.DataObject, columns: int, available: int) -> None:
    """Words wrap, longer words fold, wide letters take two places, titles stand at the bottom."""
    right = [i for i in range(columns) if data.draw(st.booleans())]
    row = st.tuples(*(NUMBERS if i in right else CELLS for i in range(columns))).map(list)
    titles, rows = (
        data.draw(st.lists(GRID_TITLES, min_size=columns, max_size=columns)),
        data.draw(st.lists(row, max_size=3)),
    )

    heading, lines = text_grid(titles, rows, right=right, available=available)

    assert laid_out_by_rich(titles, rows, right, available) == [*heading, *lines]
