"""One .txt file by lines and paragraphs: what a document is, where it stands, and what is between."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastio.converters.sources.documents import Limits
from fastio.converters.sources.streams import Stream
from fastio.converters.sources.text_lines import Separators
from fastio.converters.text import TextOptions, open_text
from fastio.errors import SourceError
from tests.converters.text.build import documents
from tests.converters.trees import tree

Split = Literal["line", "paragraph"]
TEXT = "\n\none\ntwo  \r\n\n \t\nthree\r\n\r\nfour\n   five\n\n\n"


def read(
    tmp_path: Path, text: bytes | str, split: Split = "line", **options: int
) -> tuple[dict[str, bytes], dict[str, str]]:
    """Documents and problems of a file ``a.txt`` with this content."""
    path = tree(tmp_path, {"a.txt": text}) / "a.txt"
    return documents(path, TextOptions(split=split, **options), Limits(block_bytes=7, block_documents=2))


def test_lines(tmp_path: Path) -> None:
    """A line without its end is a document, named by its number; blank lines are none."""
    assert read(tmp_path, TEXT) == (
        {"a.txt:3": b"one", "a.txt:4": b"two  ", "a.txt:7": b"three", "a.txt:9": b"four", "a.txt:10": b"   five"},
        {},
    )


def test_paragraphs(tmp_path: Path) -> None:
    """Lines up to a blank one are a document, named by the first of them."""
    assert read(tmp_path, TEXT, "paragraph") == (
        {"a.txt:3": b"one\ntwo  ", "a.txt:7": b"three", "a.txt:9": b"four\n   five"},
        {},
    )


@pytest.mark.parametrize("text", ["", "\n", " \r\n\n", "\ufeff"])
def test_nothing_in_it(tmp_path: Path, text: str) -> None:
    """A file without a letter has no documents."""
    assert read(tmp_path, text) == ({}, {})


def test_byte_order_mark(tmp_path: Path) -> None:
    """A byte order mark belongs to the file, not to its first document."""
    assert read(tmp_path, "\ufeffone\ntwo")[0] == {"a.txt:1": b"one", "a.txt:2": b"two"}


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(["a", "é", " ", "\t", "\r", "\n", "\r\n", "\n\n", "xyz"]), max_size=40).map("".join),
    st.sampled_from(["line", "paragraph"]),
    st.integers(1, 30),
)
def test_documents_and_what_is_between_make_the_file(text: str, split: Split, block_bytes: int) -> None:
    """Whatever the text and the blocks it is read in: the same documents, and the file comes back."""
    with TemporaryDirectory() as folder:
        path = tree(Path(folder), {"a.txt": text}) / "a.txt"
        source = open_text(path, options=TextOptions(split=split))
        parts = [
            part.data[start : start + size].tobytes()
            for part in source.read(Limits(block_bytes=block_bytes))
            for start, size in zip(part.starts.tolist(), part.sizes.tolist(), strict=True)
        ]
        whole = documents(path, TextOptions(split=split))[0]
        between = Separators.from_json(source.metadata["source"]["between"])

    assert list(whole.values()) == parts
    assert all(part.strip(b" \t\r\n") for part in parts)
    if parts:
        assert text.encode() == between.joined(parts)
    if split == "line":
        assert not any(b"\n" in part for part in parts)


@pytest.mark.parametrize("split", ["line", "paragraph"])
def test_too_long(tmp_path: Path, split: Split) -> None:
    """A document above the limit is named by its line, and the others are there."""
    text = b"one\n\n" + b"x" * 30_000 + b"\n\nthree\n\n" + b"y" * 101 + b"\n\n" + b"z" * 100
    found, problems = read(tmp_path, text, split, max_document_bytes=100)

    assert {"a.txt:1": b"one", "a.txt:5": b"three", "a.txt:9": b"z" * 100} == found
    assert ["a.txt:3", "a.txt:7"] == list(problems)
    assert "is longer than 100 bytes; --max-document raises that limit" == problems["a.txt:3"]


@pytest.mark.parametrize("end", ["", " " * 300, "\n" * 300, "\n" + " " * 300 + "\n\n"])
@pytest.mark.parametrize("split", ["line", "paragraph"])
def test_blanks_do_not_make_a_document_too_long(tmp_path: Path, split: Split, end: str) -> None:
    """Blanks behind a document belong to none: one that is too long is named before them, a short one is there."""
    for block_bytes in (7, 1 << 20):
        source = open_text(
            tree(tmp_path, {"a.txt": f"one\n\n{'x' * 101}{end}"}) / "a.txt",
            options=TextOptions(split=split, max_document_bytes=100),
        )
        parts = list(source.read(Limits(block_bytes)))

        assert ["a.txt:1"] == [key for part in parts for key in part.keys]
        assert ["a.txt:3"] == [problem.key for part in parts for problem in part.problems]
    found, problems = read(tmp_path, f"one{end}".encode(), split, max_document_bytes=400)
    assert (["a.txt:1"], []) == (list(found), list(problems))


def test_a_line_of_ten_megabytes(tmp_path: Path) -> None:
    """A long line is a document like others."""
    path = tree(tmp_path, {"a.txt": b"one\n" + b"x" * 10_000_000 + b"\nthree"}) / "a.txt"

    assert [3, 10_000_000, 5] == [len(text) for text in documents(path)[0].values()]


@pytest.mark.parametrize("suffix", [".txt", ".csv", ".jsonl"])
def test_a_long_line_is_looked_at_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    """What waits for its end grows by as much again, not by one block after the other."""
    text = "x" * 1_000_000
    content = {".txt": text, ".csv": f"text\n{text}\n", ".jsonl": json.dumps({"text": text})}[suffix]
    source = open_text(tree(tmp_path, {f"a{suffix}": content}) / f"a{suffix}")
    reads = 0
    plain = Stream.read

    def counted(stream: Stream, size: int) -> bytes:
        nonlocal reads
        reads += 1
        return plain(stream, size)

    monkeypatch.setattr(Stream, "read", counted)
    monkeypatch.setattr("fastio.converters.sources.tables.rows._BLOCK_BYTES", 1000)
    monkeypatch.setattr("fastio.converters.sources.streams._COPY_BYTES", 1000)

    assert [1_000_000] == [len(part.data) for part in source.read(Limits(1000)) if part.keys]
    assert reads < 20


def test_compressed(tmp_path: Path) -> None:
    """A .txt.gz is read as the file in it, in several members too."""
    path = tree(tmp_path, {"a.txt.gz": gzip.compress(b"one\ntw") + gzip.compress(b"o\n")}) / "a.txt.gz"

    assert ({"a.txt:1": b"one", "a.txt:2": b"two"}, {}) == documents(path)


WHOLE = gzip.compress(b"one\n" * 9999, mtime=0)


@pytest.mark.parametrize("data", [WHOLE[:-20], b"no gzip", WHOLE[:-8] + b"12345678"], ids=["cut", "none", "checksum"])
def test_damaged_compression(tmp_path: Path, data: bytes) -> None:
    """A compressed file that is cut off or damaged is an error that names it."""
    path = tree(tmp_path, {"a.txt.gz": data}) / "a.txt.gz"
    with pytest.raises(SourceError, match=r"a\.txt\.gz: the compressed data are damaged"):
        documents(path)


def test_no_file(tmp_path: Path) -> None:
    """What is not there is an error that names it."""
    with pytest.raises(SourceError, match=r"none\.txt: no file or folder of that name"):
        open_text(tmp_path / "none.txt")


@given(
    st.lists(st.sampled_from(["a", "é", " ", "\t", "\r", "\n", "\r\n", "\n\n", "\xff", "0123456789"]), max_size=40),
    st.integers(1, 30),
)
def test_every_line_is_counted(parts: list[str], block_bytes: int) -> None:
    """Lines of a file are documents, problems, or blank lines, if there is a document at all."""
    text = "".join(parts).encode("latin-1")
    with TemporaryDirectory() as folder:
        path = tree(Path(folder), {"a.txt": text}) / "a.txt"
        source = open_text(path, options=TextOptions(max_document_bytes=9))
        read = list(source.read(Limits(block_bytes=block_bytes)))
    documents, problems = sum(len(part.keys) for part in read), sum(len(part.problems) for part in read)
    lines = text.split(b"\n") if not text.endswith(b"\n") else text.split(b"\n")[:-1]

    blank = [number for number, line in enumerate(lines, 1) if not line.strip(b" \t\r")]

    assert len(lines) - len(blank) == documents + problems
    if documents + problems:
        assert blank == [number for part in read for number in np.asarray(part.blank_lines).tolist()]
        assert {"a.txt"} == {part.file for part in read}
