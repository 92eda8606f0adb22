"""Folders of .txt files: documents, classes, and what is named as a problem."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from fastio.converters.sources.documents import Limits
from fastio.converters.text import TextOptions, find_text, open_text
from fastio.errors import SourceError
from tests.converters.text.build import documents
from tests.converters.trees import tree


def test_files_are_documents(tmp_path: Path) -> None:
    """Every file as it is, in the order of the names."""
    folder = tree(tmp_path, {"b.txt": "bé\r\n", "a.txt": "a\n\n", "c.TXT": "c"})

    assert ({"a.txt": b"a\n\n", "b.txt": "bé\r\n".encode(), "c.TXT": b"c"}, {}) == documents(folder)
    assert not open_text(folder).has_labels


def test_class_folders_are_labels(tmp_path: Path) -> None:
    """The first folder level names the classes, sorted."""
    source = open_text(tree(tmp_path, {"neg/1.txt": "a", "neg/x/2.txt": "b", "pos/1.txt": "c"}))
    (part,) = source.read(Limits())

    assert ["neg/1.txt", "neg/x/2.txt", "pos/1.txt"] == part.keys
    assert part.labels is not None
    assert [0, 0, 1] == part.labels.tolist()
    assert ["neg", "pos"] == source.metadata["classes"]


def test_problems_are_named(tmp_path: Path) -> None:
    """Empty files, other files and files beside class folders are problems."""
    folder = tree(
        tmp_path, {"pos/1.txt": "a", "pos/2.txt": "", "pos/x.doc": "b", "readme.txt": "c", "neg/.hidden": "d"}
    )
    _, problems = documents(folder)

    assert {
        "neg/.hidden": "is not a text (has no extension; expected .txt, .txt.gz, .txt.zst)",
        "pos/2.txt": "is empty (0 bytes)",
        "pos/x.doc": "is not a text (has the extension '.doc'; expected .txt, .txt.gz, .txt.zst)",
        "readme.txt": "is beside the class folders, so it has no class: move it into one",
    } == problems


def test_compressed_files(tmp_path: Path) -> None:
    """Compressed files are documents under their plain names; damage is a problem of one document."""
    good = gzip.compress(b"one")
    folder = tree(tmp_path, {"a.txt.gz": good, "b.txt.gz": good[:-9], "c.txt": "three", "d.txt": "4", "d.txt.gz": good})
    found, problems = documents(folder)

    assert {"a.txt": b"one", "c.txt": b"three", "d.txt": b"4"} == found
    assert problems["b.txt"].startswith("the compressed data are damaged")
    assert "exists both plain and compressed, or compressed twice: remove one" == problems["d.txt.gz"]


def test_too_long(tmp_path: Path) -> None:
    """Files above the limit are problems, compressed ones by what is in them."""
    folder = tree(tmp_path, {"a.txt": "x" * 101, "b.txt.gz": gzip.compress(b"x" * 101), "c.txt": "x" * 100})
    found, problems = documents(folder, TextOptions(max_document_bytes=100))

    assert ["c.txt"] == list(found)
    assert ["a.txt", "b.txt"] == list(problems)


def test_pieces_are_bounded(tmp_path: Path) -> None:
    """No piece has more than was asked for, and together they are all."""
    folder = tree(tmp_path, {f"{i:02d}.txt": "x" * (i + 1) for i in range(20)})
    parts = list(open_text(folder).read(Limits(block_bytes=40, block_documents=5)))

    assert 20 == sum(len(part.keys) for part in parts)
    assert all(len(part.keys) == 1 or (part.sizes.sum() <= 40 and len(part.keys) <= 5) for part in parts)
    assert open_text(folder).size_bytes == sum(part.read_bytes for part in parts)


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"a.txt": "a"}, "text-folder"),
        ({"x/a.txt": "a"}, "text-folder"),
        ({"a.txt": "a", "a.png": "b"}, None),
        ({"readme.txt": "a", "x/a.png": "b"}, None),
        ({"readme.txt": "a", "x.tar": "b"}, None),
        ({"a.png": "a"}, None),
    ],
)
def test_detection(tmp_path: Path, files: dict[str, str], kind: str | None) -> None:
    """A folder is one of texts where there are texts, and no pictures and no shards."""
    assert kind == find_text(tree(tmp_path, files))


def test_split_is_for_one_file(tmp_path: Path) -> None:
    """To cut the files of a folder is not offered, and said."""
    with pytest.raises(SourceError, match=r"--document line has no effect, because only a single \.txt file is cut"):
        open_text(tree(tmp_path, {"a.txt": "a"}), options=TextOptions(split="line"))
