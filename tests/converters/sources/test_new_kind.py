"""A new kind of source is one file (book_source.py) and one entry of SOURCES: all else learns of it from there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fastio.converters import SOURCES, Source, open_source
from fastio.errors import SourceError
from fastio.store import FORMATS, open_store
from tests.commands import result_of, run
from tests.converters.sources import book_source
from tests.converters.sources.conformance import SourceConformance, read_all
from tests.converters.trees import picture


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one line."""
    monkeypatch.setitem(SOURCES, book_source.KIND.name, book_source.KIND)


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A book of seven pictures."""
    return write(tmp_path / "a.book", [picture(i) for i in range(7)])


def write(path: Path, pictures: list[bytes]) -> Path:
    """A book with labels 0, 1, 2, 0, ..."""
    head = json.dumps([[f"page {i}.png", len(data), i % 3] for i, data in enumerate(pictures)])
    path.write_bytes(head.encode() + b"\n" + b"".join(pictures))
    return path


class TestConformance(SourceConformance):
    """The contract of all sources."""

    @pytest.fixture
    def source(self, book: Path) -> Source:
        """A book."""
        return open_source(book)


@pytest.mark.parametrize("suffix", [each.suffixes[0] for each in FORMATS.values()])
def test_pack_verify_info(book: Path, tmp_path: Path, suffix: str) -> None:
    """The commands take it, in every format, shuffled and with its pictures written anew."""
    said = result_of("pack", book, tmp_path / f"b{suffix}", "--source-kind", "book", "--shuffle", 1).stderr
    assert f"{book}: a book of pictures, 7 samples, " in said
    assert "7 compared" in run("verify", tmp_path / f"b{suffix}", "--against", book, "--source-kind", "book")
    assert "packed from a.book (book)" in run("info", tmp_path / f"b{suffix}")
    with open_store(tmp_path / f"b{suffix}") as store:
        assert {f"page {i}.png" for i in range(7)} == set(store.keys(range(7)))
    run("pack", book, tmp_path / f"c{suffix}", "--raw")
    assert "all good" in run("verify", tmp_path / f"c{suffix}", "--against", book)


def test_problems(tmp_path: Path) -> None:
    """Pages that are cut off or no pictures are named; packed and skipped are all of them."""
    book = write(tmp_path / "a.book", [picture(0), b"no picture", picture(2), picture(3)])
    book.write_bytes(book.read_bytes()[:-1])
    assert "a.book/page 3.png: is cut off" in run("pack", book, tmp_path / "b.lmdb", code=1)
    said = result_of("pack", book, tmp_path / "b.lmdb", "--on-error", "skip").stdout

    assert "packed 2 of 4 found, 2 skipped (listed above" in said
    assert [("page 0.png", 0), ("page 2.png", 2)] == [
        (key, label) for key, _, label in read_all(open_source(tmp_path / "b.lmdb"), 100, 1)
    ]


def test_help_names_it() -> None:
    """Among the values of the option, to which the words about SRC lead."""
    assert "|book" in "".join(run("verify", "--help").split())
    said = " ".join(run("pack", "--help").split())
    assert "|book]" in said.replace(" ", "")
    assert "--source-kind lists all kinds" in said


def test_errors_name_it(book: Path, tmp_path: Path) -> None:
    """What is expected includes it; its labels are its own; a broken one says what it should be."""
    (tmp_path / "x.dat").write_bytes(b"x")
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "b.book").write_bytes(b"x")
    with pytest.raises(SourceError, match=r"nearest: a book of pictures, for 1 file: .* as b\.book"):
        open_source(tmp_path / "f")
    with pytest.raises(SourceError, match=r"expected one of auto, flat, .*book"):
        open_source(book, kind="novel")
    with pytest.raises(SourceError, match=r"a book has its own labels: drop --labels l\.csv"):
        open_source(book, labels="l.csv")
    with pytest.raises(SourceError, match="expected a book"):
        open_source(tmp_path / "x.dat", kind="book")
