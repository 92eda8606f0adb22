"""One description of a result: what a terminal shows of a page."""

from __future__ import annotations

import pytest

from fastio.cli.result import print_page
from fastio.measure.report.page import (
    Bar,
    Bars,
    Cell,
    Code,
    HeatMap,
    Page,
    PageVerdict,
    Part,
    Plot,
    Portion,
    Prose,
    ReferenceLine,
    Section,
    Series,
    Shares,
    Table,
)

PARTS: dict[str, tuple[Part, str]] = {
    "prose": (Prose("a line"), "a line\n"),
    "code": (Code("x = 1\n\ny = 2\n"), "    x = 1\n\n    y = 2\n"),
    "table": (Table(("name", "n"), [("a", "1,000")], (1,), "All"), "All\nname      n\na     1,000\n"),
    "no titles": (Table((), [("a", "b")]), "a  b\n"),
    "first rows": (Table(("name",), [("a",), ("b",), ("c",)], shown=1), "name\na\n... 3 in all\n"),
    "long names": (Table(("name",), [("abcdefgh",)], longest=6), "name\nabc...\n"),
    "bars": (
        Bars("rates", [Bar("one", 1.0, "1 /s"), Bar("none", 0.0, "0 /s")], ReferenceLine("wanted", 1.0, "1 /s")),
        f"rates\none   1 /s  {'█' * 49}\nnone  0 /s\nwanted: 1 /s\n",
    ),
    "shares": (
        Shares("parts", "ms", [Portion("one", 3.0, "3.0"), Portion("rest", 1.0, "1.0")]),
        "parts\npart   ms  share\none   3.0  75.0%\nrest  1.0  25.0%\n",
    ),
    "plot": (Plot("Loss", "from 2 to 1.", "step", [0, 1], "", [Series("loss", [2, 1])]), "Loss: from 2 to 1.\n"),
}
UNSEEN: dict[str, Part] = {
    "a table has it": Bars("rates", [Bar("one", 1.0, "1 /s")], tabled=True),
    "heat": HeatMap("times", "workers", ["1"], [("a", [Cell(1.0, "1.0")])]),
    "kept for the page": Table(("key",), [("a",)], shown=0),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Below the title of their section, with the figures that HTML shows."""
    part, expected = PARTS[name]
    print_page(Page("A page", "s.lmdb", [Section("Part", [part])]))

    assert f"A page: s.lmdb\n\nPart\n{expected}" == capsys.readouterr().out


@pytest.mark.parametrize("name", UNSEEN)
def test_what_only_html_shows(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Not even the title of its section is printed."""
    print_page(Page("A page", "s.lmdb", [Section("Part", [UNSEEN[name]])]))

    assert capsys.readouterr().out == "A page: s.lmdb\n"


def test_the_verdict_comes_last(capsys: pytest.CaptureFixture[str]) -> None:
    """Figures, sections, then the answer; text that moves the cursor is escaped."""
    verdict = PageVerdict("Training waits", "io_bound", ["12 % waits\x1b[A"], "pack the files")
    said = [Section("Said", [Prose("on stderr")], said=True)]
    print_page(
        Page("A page", "s.lmdb", [Section("Part", [Prose("a"), Prose("b")]), *said], verdict, [("rate", "1 /s")])
    )

    expected = "A page: s.lmdb\n\nrate  1 /s\n\nPart\na\nb\n\nio_bound\n  12 % waits\\x1b[A\nnext: pack the files\n"
    assert expected == capsys.readouterr().out
