"""The lines of a table are those that rich lays out, which takes longer to import than a store to describe."""

from __future__ import annotations

import importlib.metadata
import io

import hypothesis.strategies as st
import pytest
from hypothesis import given
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fastio.cli.text_grid import column_widths, text_grid

WORDS = st.lists(st.sampled_from(["a", "cat", "1,024", "images/CPU-s", "日本語", "e\u0301", "", " lead"]), max_size=4)
# Behind a folded word that ends with a line, rich would begin the next one with a blank: long words come last.
CELLS = st.tuples(WORDS, st.sampled_from(["", "x" * 30, "q" * 70])).map(lambda parts: " ".join([*parts[0], parts[1]]))
RICH = tuple(map(int, importlib.metadata.version("rich").split(".")[:2]))
TITLES = st.sampled_from(["sample", "loading\nms/step", "bytes a sample", ""])
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
    titles, rows = data.draw(st.lists(TITLES, min_size=columns, max_size=columns)), data.draw(st.lists(row, max_size=3))

    heading, lines = text_grid(titles, rows, right=right, available=available)

    assert laid_out_by_rich(titles, rows, right, available) == [*heading, *lines]
