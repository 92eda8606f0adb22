"""All sources of text by their common contract."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from fastio.converters.text import Limits, TextSource, find_text, open_text
from fastio.errors import SourceError
from tests.converters.sources.text_conformance import MAKERS, TextSourceConformance
from tests.converters.trees import tree


class TestConformance(TextSourceConformance):
    """Run on every kind."""

    @pytest.fixture(params=MAKERS)
    def source(self, request: pytest.FixtureRequest, tmp_path: Path) -> TextSource:
        """A source of each kind."""
        return MAKERS[request.param](tmp_path)


@pytest.mark.parametrize("name", MAKERS)
def test_detected_by_its_name(tmp_path: Path, name: str) -> None:
    """Every kind is recognised."""
    source = MAKERS[name](tmp_path)

    assert name == source.kind == find_text(source.path)


def test_a_folder_of_tables(tmp_path: Path) -> None:
    """Files of one kind are one source, in the order of their names; other files are problems."""
    rows = {"b.jsonl": '{"text": "2"}\n', "a.jsonl": '{"text": "1"}\n'}
    source = open_text(tree(tmp_path, {**rows, "readme.md": "x", "empty.jsonl": ""}))

    assert ["a.jsonl:1", "b.jsonl:1"] == [key for part in source.read(Limits()) for key in part.keys]
    assert ["empty.jsonl", "readme.md"] == sorted(problem.key for problem in source.problems)


def test_a_table_that_is_there_twice(tmp_path: Path) -> None:
    """Of a file that is there plain and compressed one is taken, and the other named: keys would be the same."""
    rows = b'{"text": "1"}\n'
    source = open_text(tree(tmp_path, {"a.jsonl": rows, "a.jsonl.gz": gzip.compress(rows), "b.jsonl": rows}))

    assert ["a.jsonl:1", "b.jsonl:1"] == [key for part in source.read(Limits()) for key in part.keys]
    assert ["a.jsonl.gz"] == [problem.key for problem in source.problems]


def test_no_text_by_its_name(tmp_path: Path) -> None:
    """What does not look like text is refused, with what would."""
    with pytest.raises(SourceError, match=r"a\.doc: not text by its name; expected .*\.txt, \.jsonl"):
        open_text(tree(tmp_path, {"a.doc": "x"}) / "a.doc")
    with pytest.raises(SourceError, match=r"kind of text 'words': expected one of auto, .*text-folder"):
        open_text(tmp_path, kind="words")
