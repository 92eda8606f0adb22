"""A page becomes one file: escaped, complete in itself, and there only when it is whole."""

from __future__ import annotations

import hashlib
import json
import math
import re
from pathlib import Path

import pytest

from fastio import FastioError
from fastio.measure.report import html as write_module
from fastio.measure.report.html import html_of, write_page
from fastio.measure.report.page import (
    Bar,
    Bars,
    Code,
    Page,
    PageVerdict,
    Picture,
    PictureGrid,
    Plot,
    Prose,
    Section,
    Series,
    Table,
)

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>'\""
# Of npm's uplot 1.6.32: dist/uPlot.iife.min.js, dist/uPlot.min.css, LICENSE.
UPLOT = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}


def evil_page() -> Page:
    """A page whose every text wants out of its place."""
    parts = [
        Prose(EVIL),
        Code(EVIL),
        Table((EVIL,), ((EVIL,),), caption=EVIL),
        Bars(EVIL, (Bar(EVIL, 1.0, EVIL),)),
        PictureGrid((Picture(None, EVIL, EVIL), Picture(b"x", EVIL, EVIL)), 8),
        Plot(EVIL, EVIL, "s", (0.0, 1.0), "ms", (Series(EVIL, (math.nan, math.inf)),)),
    ]
    return Page(EVIL, EVIL, [Section(EVIL, parts)], PageVerdict(EVIL, EVIL, [EVIL], EVIL), [(EVIL, EVIL)])


def test_every_text_is_escaped() -> None:
    """No user's text becomes a tag, an attribute or a script."""
    html = html_of(evil_page(), {EVIL: [(EVIL, EVIL)]})

    assert "<script>alert" not in html
    assert "<img src=x" not in html
    assert 2 == html.count("<script>")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("loading would keep up", "Loading would keep up"),
        ("loop, 34 % slower", "Loop, 34 % slower"),
        ("`fastio verify` compared them", "<code>fastio verify</code> compared them"),
        ("fastio verify compared them", "fastio verify compared them"),
        ("train.py:31 waits", "train.py:31 waits"),
        ("io_bound", "io_bound"),
        ("73.0% of the step", "73.0% of the step"),
    ],
)
def test_sentences_begin_with_a_capital_and_commands_do_not(text: str, expected: str) -> None:
    """A reader can paste a command or a file's name as the page shows it; the styles change no letter either."""
    page = Page("t", "s", [Section("s", [Prose(text)])], PageVerdict("h", "n", [text]))
    html = html_of(page, {})

    assert f"<p>{expected}</p>" in html
    assert f"<li>{expected}</li>" in html
    assert "text-transform" not in html


def test_figures_are_json() -> None:
    """What a plot draws survives the way through the page, and NaN becomes null."""
    html = html_of(evil_page(), {})
    found = re.findall(r'<script type="application/json">(.*?)</script>', html, re.DOTALL)

    assert [[{"name": EVIL, "role": "plain", "values": [None, None]}]] == [json.loads(each)["series"] for each in found]


def test_a_page_asks_for_nothing() -> None:
    """No address, no link, no font from elsewhere; the policy forbids them too."""
    html = html_of(Page("t", "s", []), {})

    assert "default-src 'none'" in html
    assert [] == re.findall(r"""(?:src|href)\s*=\s*["']?(?!data:)|<link|@import|url\(|fetch\(""", html)


def test_the_library_is_as_it_was_published() -> None:
    """The files of uPlot have the checksums that npm's have."""
    folder = Path(write_module.__file__).parent / "uplot"

    assert UPLOT == {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    """One line says what to do, and nothing is made."""
    with pytest.raises(FastioError, match=r"missing does not exist: create it"):
        write_page(tmp_path / "missing" / "r.html", Page("t", "s", []), {})
    with pytest.raises(FastioError, match="is a folder"):
        write_page(tmp_path, Page("t", "s", []), {})


def test_a_failed_report_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error while writing leaves the file as it was and no other beside it."""
    target = tmp_path / "r.html"
    target.write_text("old")

    def full(self: Path, _: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(FastioError, match=r"r\.html: cannot be written \(No space left on device\)"):
        write_page(target, Page("t", "s", []), {})

    assert ("old", [target]) == (target.read_text(), list(tmp_path.iterdir()))


def test_a_report_replaces_an_older_one(tmp_path: Path) -> None:
    """The new page stands under the name, readable by everybody whom the umask lets."""
    target = tmp_path / "r.html"
    target.write_text("old")
    write_page(target, Page("a title", "s", []), {})

    assert "a title" in target.read_text()
    assert [target] == list(tmp_path.iterdir())
    (tmp_path / "other").touch()

    assert (tmp_path / "other").stat().st_mode == target.stat().st_mode
