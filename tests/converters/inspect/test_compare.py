"""A store of text compared with the source it was packed from."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastio.converters.inspect.compare import read_again
from fastio.converters.inspect.verify import VerifyReport, verify
from fastio.converters.text import Sequences, TextOptions, load_tokenizer
from fastio.errors import SourceError
from fastio.store import open_store
from tests.converters.text.bpe import saved, train
from tests.converters.text.build import BYTES, SUFFIXES, packed
from tests.converters.trees import tree

TEXT = "the cat\nsat\n\non the mat\n\nGrüße\n"
RULE = Sequences(bos=True, eos=True, max_length=4, over="split")


def compared(store: Path, source: Path) -> VerifyReport:
    """What verifying a store against a source finds."""
    with open_store(store) as opened:
        again = read_again(opened, source)
    return verify(store, against=again, jobs=2)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_nothing_differs(tmp_path: Path, suffix: str) -> None:
    """The store says how it was made: tokenizer, pieces and all."""
    source, store = tree(tmp_path, {"a.txt": TEXT}) / "a.txt", tmp_path / f"out{suffix}"
    tokenizer = load_tokenizer(str(saved(train(), tmp_path / "bpe.json")))
    report = packed(source, store, tokenizer=tokenizer, sequences=RULE, options=TextOptions(split="paragraph"))
    found = compared(store, source)

    assert [] == found.problems
    assert report.samples == found.compared


def test_differences_are_named(tmp_path: Path) -> None:
    """Another text, a document more and a document less; labels, too."""
    files = {"pos/a.txt": "one", "pos/b.txt": "two", "neg/c.txt": "three"}
    packed(tree(tmp_path / "texts", files), tmp_path / "out.h5", tokenizer=BYTES)
    (tmp_path / "texts/pos/b.txt").unlink()
    tree(tmp_path / "texts", {"pos/a.txt": "eno", "mid/d.txt": "new"})

    assert {
        "pos/a.txt": "has other bytes in the store than in the source (field 'tokens')",
        "mid/d.txt": "is in the source, but not in the store",
        "pos/b.txt": "is in the store, but not in the source",
    } == {problem.key: problem.problem for problem in compared(tmp_path / "out.h5", tmp_path / "texts").problems}


def test_skipped_documents_are_no_difference(tmp_path: Path) -> None:
    """What stands in the ledger need not be in the store."""
    folder = tree(tmp_path / "texts", {"a.txt": "good", "b.txt": b"\xff", "c.txt": ""})
    packed(folder, tmp_path / "out.h5", on_error="skip")

    assert [] == compared(tmp_path / "out.h5", folder).problems


def test_another_kind_of_source(tmp_path: Path) -> None:
    """A source that would give other fields cannot be compared, and is not said to be equal."""
    packed(tree(tmp_path / "texts", {"pos/a.txt": "one"}), tmp_path / "out.h5")
    with pytest.raises(SourceError, match="would be packed as"):
        compared(tmp_path / "out.h5", tree(tmp_path / "flat", {"a.txt": "one"}))
