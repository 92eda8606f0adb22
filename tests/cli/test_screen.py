"""Tables: numbers are never broken, whatever the terminal's width."""

from __future__ import annotations

import os
import shutil
import sys

import click
import pytest

from fastio.cli.screen import meter, table

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
