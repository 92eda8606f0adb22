"""Text out of stores: the file, the tree or the table again, and a word on what is not as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastio.converters import open_source, pack
from fastio.converters.inspect.unpack import UnpackReport, unpack
from fastio.converters.text import Sequences, TextOptions, load_tokenizer
from fastio.converters.text.tokenizer import Tokenizer
from fastio.errors import SourceError, StoreCorrupt, StoreError
from fastio.store import SampleBatch, create_store, open_store
from fastio.types.schema import TOKENS, Field, Schema
from tests.converters.text.bpe import lower, saved, train
from tests.converters.text.build import BYTES, SUFFIXES, packed
from tests.converters.trees import tree
from tests.store.build import make_spans

TEXT = "\ufeff\n\nthe cat\nsat  \r\n \t\n\n\non the mat\n\nGrüße,\tCat\n\n\n"
FILES = {"pos/a.txt": "one\r\n", "pos/x/b.txt": "zwei ü\n\n", "neg/c.txt": "3"}
SPLIT = Sequences(bos=True, eos=True, max_length=3, over="split")
OVERLAP = Sequences(bos=True, eos=True, max_length=5, over="split", overlap=2)


def again(store: Path, out: Path, **options: Any) -> UnpackReport:
    """Unpack a store."""
    with open_store(store) as opened:
        return unpack(opened, out, **options)


def files(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(params=["text", "bytes", "bpe"])
def tokenizer(request: pytest.FixtureRequest, tmp_path: Path) -> Tokenizer | None:
    """None, the tokenizer of bytes, and a BPE."""
    if request.param == "text":
        return None
    return BYTES if request.param == "bytes" else load_tokenizer(str(saved(train(), tmp_path / "bpe.json")))


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("split", ["line", "paragraph"])
@pytest.mark.parametrize("rule", [Sequences(), SPLIT, OVERLAP], ids=["whole", "split", "overlap"])
def test_a_file_byte_by_byte(
    tmp_path: Path, tokenizer: Tokenizer | None, suffix: str, split: str, rule: Sequences
) -> None:
    """A .txt comes back as it was: blank lines, CR LF, byte order mark, and documents that were split."""
    rule = rule if tokenizer is not None else Sequences()
    source, store = tree(tmp_path, {"a.txt": TEXT}) / "a.txt", tmp_path / f"out{suffix}"
    packed(source, store, tokenizer=tokenizer, sequences=rule, options=TextOptions(split=split))  # type: ignore[arg-type]
    report = again(store, tmp_path / "again")

    assert {"a.txt": TEXT.encode()} == files(tmp_path / "again")
    assert (1, len(TEXT.encode()), []) == (report.files, report.size_bytes, list(report.notes))


def test_a_tree_byte_by_byte(tmp_path: Path, tokenizer: Tokenizer | None) -> None:
    """A folder of texts comes back, in its class folders."""
    packed(tree(tmp_path / "texts", FILES), tmp_path / "out.h5", tokenizer=tokenizer)
    again(tmp_path / "out.h5", tmp_path / "again")

    assert {name: text.encode() for name, text in FILES.items()} == files(tmp_path / "again")


def test_a_table(tmp_path: Path) -> None:
    """Rows come back as .jsonl, with their keys and classes."""
    rows = [{"text": "ü\n", "label": "b"}, {"text": "two", "label": "a"}]
    path = tree(tmp_path, {"t.jsonl": "\n".join(map(json.dumps, rows))}) / "t.jsonl"
    packed(path, tmp_path / "out.tar", tokenizer=BYTES, sequences=SPLIT, options=TextOptions(label_field="label"))
    report = again(tmp_path / "out.tar", tmp_path / "again")
    found = [json.loads(line) for line in (tmp_path / "again" / "t.jsonl").read_text().splitlines()]

    assert [{"key": f"t.jsonl:{i + 1}", **row} for i, row in enumerate(rows)] == found
    assert ["texts and labels of a table, not the table itself"] == list(report.notes)


def test_ids_that_nobody_can_read(tmp_path: Path) -> None:
    """Ready ids without a tokenizer come back as numbers."""
    pq.write_table(pa.table({"ids": [[1, 2], [3]]}), tmp_path / "a.parquet")
    packed(tmp_path / "a.parquet", tmp_path / "out.h5", options=TextOptions(text_field="ids"))
    again(tmp_path / "out.h5", tmp_path / "again")
    found = [json.loads(line)["tokens"] for line in (tmp_path / "again" / "a.jsonl").read_text().splitlines()]

    assert [[1, 2], [3]] == found


def test_what_cannot_come_back_is_told(tmp_path: Path) -> None:
    """A tokenizer that changes text, truncation, and documents that were skipped: a note each."""
    tokenizer = load_tokenizer(str(saved(lower(train()), tmp_path / "lower.json")))
    source = tree(tmp_path, {"a.txt": b"The cat sat on the mat\nthe\n\xff\n"}) / "a.txt"
    rule = Sequences(max_length=3, over="truncate")
    packed(source, tmp_path / "out.h5", tokenizer=tokenizer, sequences=rule, on_error="skip")
    notes = again(tmp_path / "out.h5", tmp_path / "again").notes

    words = "of the 2 documents, 1 decoded to the same bytes"
    assert f"the tokenizer changes text: when it was packed, {words}" == notes[0]
    assert notes[1].startswith("1 documents were truncated when they were packed: ")
    assert "1 documents were skipped when it was packed: `fastio info --skipped`" == notes[2]


def test_too_long_documents_leave_a_gap(tmp_path: Path) -> None:
    """Where a document was too long to be read, its separators are unknown, and that is said."""
    source = tree(tmp_path, {"a.txt": "one\n\n\n" + "x" * 200 + "\ntwo\n"}) / "a.txt"
    packed(source, tmp_path / "out.h5", options=TextOptions(max_document_bytes=100), on_error="skip")
    report = again(tmp_path / "out.h5", tmp_path / "again")

    assert any("what was between documents is not known everywhere" in note for note in report.notes)
    assert b"one" in files(tmp_path / "again")["a.txt"]


def test_text_that_went_through_shards(tmp_path: Path, tokenizer: Tokenizer | None) -> None:
    """Shards packed again into another format keep tokenizer and origin."""
    source = tree(tmp_path, {"a.txt": TEXT}) / "a.txt"
    packed(source, tmp_path / "a-%06d.tar", tokenizer=tokenizer, shard_bytes=4000)
    pack(open_source(str(tmp_path / "a-*.tar")), tmp_path / "out.lmdb")
    again(tmp_path / "out.lmdb", tmp_path / "again")

    assert {"a.txt": TEXT.encode()} == files(tmp_path / "again")


def test_damage_is_not_unpacked(tmp_path: Path) -> None:
    """Ids that differ from their checksum are an error, and nothing is written."""
    packed(tree(tmp_path, {"a.txt": "the cat"}) / "a.txt", tmp_path / "out.h5", tokenizer=BYTES)
    data = bytearray((tmp_path / "out.h5").read_bytes())
    data[data.index(b"t\0h\0e\0")] ^= 1
    (tmp_path / "out.h5").write_bytes(data)
    with pytest.raises(StoreCorrupt, match=r"'a\.txt:1', field 'tokens': bytes differ from their checksum"):
        again(tmp_path / "out.h5", tmp_path / "again")

    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("sequences", [Sequences(), SPLIT], ids=["whole", "split"])
def test_what_is_left_of_damaged_text(tmp_path: Path, sequences: Sequences) -> None:
    """The other documents come back, each followed by what stood behind it; no piece of a damaged one does."""
    source = tree(tmp_path, {"a.txt": "first\r\n\nsecond\n\n\nthird\nfourth"}) / "a.txt"
    packed(source, tmp_path / "out.h5", tokenizer=BYTES, sequences=sequences)
    data = bytearray((tmp_path / "out.h5").read_bytes())
    data[data.index(b"o\0n\0" if sequences is not SPLIT else b"o\0n\0d\0")] ^= 1
    (tmp_path / "out.h5").write_bytes(data)
    report = again(tmp_path / "out.h5", tmp_path / "again", on_error="skip")

    assert {"a.txt": b"first\r\n\nthird\nfourth"} == files(tmp_path / "again")
    assert {"a.txt:3"} == {problem.key.partition("#")[0] for problem in report.skipped}
    assert "bytes differ from their checksum" in " ".join(problem.problem for problem in report.skipped)


def test_keys_that_lead_out(tmp_path: Path) -> None:
    """A store that names files outside the folder is refused."""
    schema = Schema((Field("tokens", TOKENS, "<u2", (None,)),))
    with create_store(tmp_path / "evil.h5", schema) as writer:
        writer.append(SampleBatch(["../evil.txt"], {"tokens": make_spans([b"a\0"])}))
        said = {"kind": "bytes", "special": {}, "options": {}}
        writer.close({"source": {"layout": "text-folder", "name": "x"}, "tokenizer": said})
    with pytest.raises(StoreError, match="expected a plain path below a folder"):
        again(tmp_path / "evil.h5", tmp_path / "again")

    assert not (tmp_path / "evil.txt").exists()


def test_a_broken_tokenizer_in_a_store(tmp_path: Path) -> None:
    """A store whose tokenizer is no tokenizer is an error by name, not a traceback."""
    schema = Schema((Field("tokens", TOKENS, "<u2", (None,)),))
    with create_store(tmp_path / "odd.h5", schema) as writer:
        writer.append(SampleBatch(["a"], {"tokens": make_spans([b"a\0"])}))
        writer.close({"tokenizer": {"kind": "huggingface", "name": "x", "special": {}, "json": "{}"}})
    with pytest.raises(SourceError, match="tokenizer 'x' of the store"):
        again(tmp_path / "odd.h5", tmp_path / "again")
