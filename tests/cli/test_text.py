"""The command line with text: what is printed, and what is refused in one line."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fastio import FastDataset, SchemaError, TokenStream
from fastio.cli import cli
from fastio.store import open_store
from fastio.store.write.locks import claimed
from tests.converters.text.bpe import saved, templated, train
from tests.converters.trees import tree
from tests.forking import fork, status_of
from tests.store.build import read_all

TEXT = "the cat sat\non the mat\n\nGrüße aus Köln\n"


def run(*arguments: object) -> Result:
    """Run one command."""
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def said(*arguments: object) -> Any:
    """The JSON that a command prints."""
    result = run(*arguments)
    assert 0 == result.exit_code, result.output
    return json.loads(result.stdout)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A text of two paragraphs, three lines."""
    return tree(tmp_path, {"corpus.txt": TEXT}) / "corpus.txt"


@pytest.fixture
def store(corpus: Path, tmp_path: Path) -> Path:
    """It, packed by bytes with an end."""
    result = run("pack", corpus, tmp_path / "c.lmdb", "--tokenizer", "bytes", "--eos")
    assert 0 == result.exit_code, result.output
    return tmp_path / "c.lmdb"


def test_labels_that_are_not_taken_are_hinted_at(tmp_path: Path) -> None:
    """A column of labels is not left behind without a word."""
    (tmp_path / "t.jsonl").write_text('{"text": "one", "label": 3}\n')
    hint = "no labels (--text-column text --label-column NAME takes them from a column)"

    assert hint in run("pack", tmp_path / "t.jsonl", tmp_path / "a.h5").stderr
    assert (
        hint
        not in run(
            "pack", tmp_path / "t.jsonl", tmp_path / "b.h5", "--text-column", "text", "--label-column", "label"
        ).stderr
    )


def test_pack_says_what_it_did(corpus: Path, tmp_path: Path) -> None:
    """What was found, how it is stored, tokens, pieces and costs."""
    options = ("--document", "paragraph", "--tokenizer", "bytes", "--max-length", 20, "--too-long", "split")
    result = run("pack", corpus, tmp_path / "c.tar", *options)

    assert 0 == result.exit_code, result.output
    assert (
        "one sample per paragraph, 42 B in 1 file, no labels; tokenizer bytes, 259 ids, stored as uint16"
        in result.stderr
    )
    assert "packed 2 of 2 documents" in result.stdout
    assert "tokens: 39 in 3 samples, 1.00 bytes of text per token" in result.stdout
    assert "split:  1 document into several samples" in result.stdout
    assert "before: 39 B of text" in result.stdout


def test_pieces_that_overlap(corpus: Path, tmp_path: Path) -> None:
    """A piece begins as the one before ends; the text comes back, verify compares them, and a stream refuses them."""
    options = ("--document", "paragraph", "--tokenizer", "bytes", "--max-length", 20, "--too-long", "split")
    result = run("pack", corpus, tmp_path / "c.h5", *options, "--overlap", 6)

    assert 0 == result.exit_code, result.output
    assert "(key#0, key#1, ...), each with the last 6 tokens of the one before" in result.stdout
    with FastDataset(tmp_path / "c.h5") as dataset:
        first, second = (dataset[i].tolist() for i in (0, 1))
    assert (20, first[-6:]) == (len(first), second[:6])
    assert 0 == run("verify", tmp_path / "c.h5", "--against", corpus).exit_code
    assert 0 == run("unpack", tmp_path / "c.h5", tmp_path / "again").exit_code
    assert corpus.read_bytes() == (tmp_path / "again" / corpus.name).read_bytes()
    with pytest.raises(SchemaError, match="split with an overlap: a stream would have these ids twice"):
        TokenStream(tmp_path / "c.h5")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--overlap", 2], "an overlap is of samples that a document is split into: add --too-long split"),
        (
            ["--max-length", 5, "--too-long", "split", "--overlap", 5],
            "an overlap of 5 ids, expected less than --max-length 5",
        ),
        (["--too-long", "split", "--overlap", 2], "to split needs a length: add --max-length N"),
        (["--concat", "--eos", "--overlap", 2], "--concat keeps documents of any length in one stream: drop --overlap"),
    ],
)
def test_overlaps_that_mean_nothing(corpus: Path, tmp_path: Path, options: list[Any], message: str) -> None:
    """They are refused in one line."""
    result = run("pack", corpus, tmp_path / "c.h5", "--tokenizer", "bytes", *options)

    assert 0 != result.exit_code
    assert message in result.stderr


def test_truncation_is_told(corpus: Path, tmp_path: Path) -> None:
    """Tokens that were cut off are counted, when packing and in the store."""
    result = run(
        "pack", corpus, tmp_path / "c.h5", "--tokenizer", "bytes", "--max-length", 12, "--too-long", "truncate"
    )

    assert "CUT:    5 tokens at the ends of 1 document" in result.stdout
    assert "5 tokens CUT from 1 document" in run("info", tmp_path / "c.h5").stdout


def test_a_template_is_told(corpus: Path, tmp_path: Path) -> None:
    """Whoever relies on the tokenizer's template hears that it is not applied."""
    path = saved(templated(train()), tmp_path / "bpe.json")
    result = run("pack", corpus, tmp_path / "c.h5", "--tokenizer", path)

    assert "template would add <s> </s>, but fastio adds only what --bos and --eos ask for" in result.stderr


def test_skipped_documents_are_listed(tmp_path: Path) -> None:
    """Every document that was left out is printed with its reason, and kept in the store."""
    path = tree(tmp_path, {"c.jsonl": '{"text": "a"}\n{"other": 1}\n'}) / "c.jsonl"
    result = run("pack", path, tmp_path / "c.h5", "--on-error", "skip")

    assert "packed 1 of 2 documents, 1 skipped (listed above and in the store)" in result.stdout
    assert "c.jsonl:2" in result.stdout
    assert "has no field 'text', only 'other'" in run("info", tmp_path / "c.h5", "--skipped").stdout


@pytest.mark.parametrize(
    ("name", "text", "blank"),
    [
        ("a.txt", "\none\n\ntwo words\n\xff\n\n \t", "1, 3, 6-7"),
        ("a.jsonl", '\n{"text": "one"}\n\n{"text": "two words"}\n{"text": 5}\n\n \t', "1, 3, 6-7"),
        ("a.csv", 'text\none\n\n\ntwo words\n"\xff"\n\n\n', "3-4, 7-8"),
    ],
)
def test_what_is_not_packed_is_counted_and_named(tmp_path: Path, name: str, text: str, blank: str) -> None:
    """Documents that are found are packed, skipped or left out: pack, the store and info say which, and why."""
    path = tree(tmp_path, {name: text.encode("latin-1")}) / name
    printed = run("pack", path, tmp_path / "a.lmdb", "--tokenizer", "bytes", "--max-length", 3, "--on-error", "skip")
    with open_store(tmp_path / "a.lmdb") as store:
        documents = store.metadata["document_counts"]
    wrong = {"a.jsonl": "has a number in the field 'text'", "a.csv": "is not UTF-8 in the field 'text'"}

    assert 0 == printed.exit_code, printed.output
    assert (
        "packed 1 of 7 documents, 2 skipped (listed above and in the store), 4 blank lines left out "
        "(fastio info --skipped names them)" in printed.output
    )
    assert [{"key": name, "problem": f"blank lines: {blank}"}] == said(
        "info", tmp_path / "a.lmdb", "--skipped", "--json"
    )["blank_lines"]
    skipped = {wrong.get(name, "is not UTF-8"): 1, "has N tokens": 1}
    assert {"found": 7, "packed": 1, "skipped": skipped, "left_out": {"blank lines": 4}} == documents
    assert documents == said("info", tmp_path / "a.lmdb", "--json")["document_counts"]
    assert "documents: 7 found; 1 packed; 2 skipped: " in run("info", tmp_path / "a.lmdb").output
    assert "; 4 left out: blank lines (4)" in run("info", tmp_path / "a.lmdb").output


def test_documents_that_are_cut_are_named(tmp_path: Path) -> None:
    """What loses its end stands in the ledger: rows by file and number, files by name."""
    rows = "".join(f'{{"text": "{"x" * size}"}}\n' for size in (3, 9, 8, 2, 7))
    folder = tree(tmp_path / "texts", {"long.txt": "x" * 9, "short.txt": "x"})
    cut = ("--tokenizer", "bytes", "--max-length", 5, "--too-long", "truncate")
    printed = run("pack", tree(tmp_path, {"a.jsonl": rows}) / "a.jsonl", tmp_path / "a.h5", *cut)
    assert 0 == run("pack", folder, tmp_path / "b.h5", *cut).exit_code
    ledgers = [said("info", tmp_path / name, "--skipped", "--json")["cut"] for name in ("a.h5", "b.h5")]

    assert "CUT:    9 tokens at the ends of 3 documents (fastio info --skipped names them)" in printed.output
    assert [{"key": "a.jsonl", "problem": "cut after --max-length tokens: 2-3, 5"}] == ledgers[0]
    assert [{"key": "long.txt", "problem": "cut after --max-length tokens"}] == ledgers[1]


def test_counts_of_merged_texts(tmp_path: Path) -> None:
    """A merged set says of its documents what its parts say together."""
    for name in "ab":
        path = tree(tmp_path, {f"{name}.txt": f"\n{name}\n\xff\n".encode("latin-1")}) / f"{name}.txt"
        assert 0 == run("pack", path, tmp_path / f"{name}-%06d.tar", "--on-error", "skip").exit_code
    sets = [tmp_path / f"{name}.fastio-set" for name in "ab"]
    merged = run("merge", *sets, "--out", tmp_path / "m.fastio-set")

    assert 0 == merged.exit_code, merged.output
    said_of_all = said("info", tmp_path / "m.fastio-set", "--json")
    expected = {"found": 6, "packed": 2, "skipped": {"is not UTF-8": 2}, "left_out": {"blank lines": 2}}
    assert expected == said_of_all["document_counts"]
    assert ["a.txt", "b.txt"] == [entry["key"] for entry in said_of_all["ledger"]["blank_lines"]]


def test_info_says_that_some_documents_were_decoded(tmp_path: Path) -> None:
    """Of many documents, a sample is decoded again when packing: the line names both numbers."""
    corpus = tree(tmp_path, {"many.txt": "line\n" * 40}) / "many.txt"
    run("pack", corpus, tmp_path / "many.h5", "--tokenizer", "bytes")

    expected = r"when packed, a sample of \d+ of the 40 documents decoded to the same bytes"
    assert re.search(expected, run("info", tmp_path / "many.h5").stdout)


def test_info(store: Path) -> None:
    """Lengths as a histogram, the tokenizer, and lines to read the store without fastio."""
    result = run("info", store)

    assert "How many samples have how many tokens" in result.stdout
    assert re.search(r"^8 to 15 +2 \(66.7%\)  █", result.stdout, re.MULTILINE)
    assert "tokenizer bytes: 259 ids (bos 256, eos 257, pad 258)" in result.stdout
    assert "eos added; when packed, all 3 documents decoded to the same bytes" in result.stdout
    assert """np.split(flat, np.cumsum(index("tokens_sizes"))[:-1])""" in result.stdout
    about = said("info", store, "--json")
    assert [{"from": 8, "to": 15, "samples": 2}, {"from": 16, "to": 31, "samples": 1}] == (
        about["fields"]["tokens"]["histogram"]
    )
    assert {"layout": "lines", "name": "corpus.txt"}.items() <= about["source"].items()


def test_a_second_packer_hears_of_the_first(tmp_path: Path) -> None:
    """While a set is being packed, its first shards are not those of a pack that was interrupted."""
    source, out = tree(tmp_path / "src", {f"{i}.txt": "a text" * 99 for i in range(9)}), tmp_path / "t" / "t-%06d.tar"
    out.parent.mkdir()
    assert 0 == run("pack", source, out, "--shard-size", 1500).exit_code
    (out.parent / "t.fastio-set").unlink()
    ready, done = os.pipe(), os.pipe()

    def hold() -> None:
        with claimed(str(out.parent / "t.fastio-set")):
            os.write(ready[1], b"x")
            os.read(done[0], 1)

    child = fork(hold)
    try:
        os.read(ready[0], 1)
        said = run("pack", source, out, "--shard-size", 1500).output
    finally:
        os.write(done[1], b"x")
        status_of(child)

    assert f"another process is packing this set (process {child} of " in said
    assert "a pack that was interrupted" in run("pack", source, out, "--shard-size", 1500).output


def test_unpack_of_a_pattern(tmp_path: Path) -> None:
    """The table that is written has no wildcard in its name."""
    tree(tmp_path, {"part-0.jsonl": '{"text": "a"}\n', "part-1.jsonl": '{"text": "b"}\n'})
    run("pack", tmp_path / "part-*.jsonl", tmp_path / "t.lmdb")
    run("unpack", tmp_path / "t.lmdb", tmp_path / "again")

    assert ["part.jsonl"] == [path.name for path in (tmp_path / "again").iterdir()]


def test_ls_shows_the_text(store: Path) -> None:
    """Samples are decoded."""
    assert "corpus.txt:1  the cat sat" in run("ls", store).stdout
    row = json.loads(run("ls", store, "*:4", "--json").stdout)
    assert ("corpus.txt:4", "Grüße aus Köln") == (row["key"], row["text"])


def test_unpack_and_verify(store: Path, corpus: Path, tmp_path: Path) -> None:
    """The file comes back, and nothing differs from it."""
    assert "again: 1 file, 42 B" in run("unpack", store, tmp_path / "again").stdout
    assert TEXT == (tmp_path / "again" / "corpus.txt").read_text()
    result = run("verify", store, "--against", corpus)
    assert (0, True) == (result.exit_code, "all good" in result.stdout)
    tree(tmp_path, {"corpus.txt": TEXT.replace("cat", "dog")})
    result = run("verify", store, "--against", corpus)
    assert 1 == result.exit_code
    assert "corpus.txt:1" in result.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--bos"], "--bos needs a tokenizer: add --tokenizer bytes"),
        (["--max-length", "5"], "--max-length needs a tokenizer"),
        (["--tokenizer", "bytes", "--too-long", "split"], "to split needs a length: add --max-length N"),
        (["--tokenizer", "none.json"], "none.json: the tokenizer cannot be read"),
        (["--tokenizer", "bytes", "--special", "bos=x"], "drop --special"),
        (["--tokenizer", "bytes", "--special", "x"], "--special x: expected bos=TOKEN"),
        (["--text-column", "x"], "--text-column x has no effect, because only tables have fields"),
        (["--vocab-size", "5"], "--vocab-size is for columns of token ids, without --tokenizer"),
        (["--labels", "x.csv"], "--labels is for pictures"),
        (["--per-sample"], "--per-sample is for token ids"),
    ],
)
def test_what_is_refused(corpus: Path, tmp_path: Path, options: list[str], message: str) -> None:
    """Options that do not fit are named, and nothing is written."""
    result = run("pack", corpus, tmp_path / "c.h5", *options)

    assert 0 != result.exit_code
    assert message in result.output
    assert not (tmp_path / "c.h5").exists()


def test_text_options_are_not_for_pictures(tmp_path: Path) -> None:
    """A folder of pictures takes no options about text."""
    result = run("pack", tree(tmp_path / "p", {"a.png": b"x"}), tmp_path / "c.h5", "--tokenizer", "bytes")

    assert 0 != result.exit_code
    assert "--tokenizer is for text" in result.output


@pytest.mark.parametrize("suffix", [".tar", ".lmdb"])
def test_ids_per_sample(corpus: Path, tmp_path: Path, suffix: str) -> None:
    """``--per-sample`` keeps the ids of each sample by themselves; what is packed is the same."""
    stores = [tmp_path / f"{name}{suffix}" for name in ("flat", "per-sample")]
    for path, options in zip(stores, ([], ["--per-sample"]), strict=True):
        for command in (
            ("pack", corpus, path, "--tokenizer", "bytes", *options),
            ("verify", path, "--against", corpus),
            ("unpack", path, path.with_suffix("")),
        ):
            result = run(*command)
            assert 0 == result.exit_code, result.output

    with open_store(stores[0]) as flat, open_store(stores[1]) as other:
        assert read_all(flat, "tokens") == read_all(other, "tokens")
        assert [False, True] == [flat.schema.is_per_sample, other.schema.is_per_sample]
    assert TEXT == (tmp_path / "per-sample" / "corpus.txt").read_text()
