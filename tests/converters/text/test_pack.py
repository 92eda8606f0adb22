"""Text to stores: what becomes of documents, what is counted, and what stops a run."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastio.converters import pack
from fastio.converters.text import (
    BytesTokenizer,
    Documents,
    Encoder,
    Limits,
    Sequences,
    TextOptions,
    TextSamples,
    open_text,
)
from fastio.errors import SourceError
from fastio.store import open_store
from tests.converters.text.build import BYTES, SUFFIXES, ids, packed, values
from tests.converters.trees import tree

BOS, EOS = 256, 257
GOOD = {"pos/a.txt": "one\n", "pos/b.txt": "zwei ü", "neg/c.txt": "3"}


@pytest.fixture(params=SUFFIXES)
def out(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where a store of each format may be written."""
    return tmp_path / f"out{request.param}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files in two classes."""
    return tree(tmp_path / "texts", GOOD)


def test_text_is_kept(folder: Path, out: Path) -> None:
    """Without a tokenizer a sample is a file's bytes, with its class."""
    report = packed(folder, out)

    assert {"neg/c.txt": b"3", "pos/a.txt": b"one\n", "pos/b.txt": "zwei ü".encode()} == values(out)
    assert (3, 3, 3, 12) == (report.found, report.packed, report.samples, report.documents.text_bytes)
    with open_store(out) as store:
        assert [0, 1, 1] == store.column("label").tolist()
        assert ["neg", "pos"] == store.metadata["classes"]
        assert ("text", "|u1") == (store.schema["text"].codec, store.schema["text"].dtype)
        assert "tokenizer" not in store.metadata


def test_bytes_are_tokens(folder: Path, out: Path) -> None:
    """The tokenizer of bytes gives every byte its number; bos and eos where they were asked for."""
    report = packed(folder, out, tokenizer=BYTES, sequences=Sequences(bos=True, eos=True))

    assert [BOS, *b"one\n", EOS] == ids(out)["pos/a.txt"]
    assert [BOS, *"zwei ü".encode(), EOS] == ids(out)["pos/b.txt"]
    assert 12 + 2 * 3 == report.documents.tokens
    with open_store(out) as store:
        said = store.metadata["tokenizer"]
        assert ("<u2", "tokens") == (store.schema["tokens"].dtype, store.schema["tokens"].codec)
    assert ("bytes", 259, None) == (said["kind"], said["vocab_size"], said["json"])
    assert {"bos": 256, "eos": 257, "pad": 258, "unk": None} == said["special"]
    assert said["options"]["bos"]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("split", ["line", "paragraph"])
def test_a_file_comes_back(tmp_path: Path, suffix: str, split: str) -> None:
    """Lines and paragraphs of a file are its text, in order."""
    path = tree(tmp_path, {"a.txt": "one\ntwo\n\nthree\n"}) / "a.txt"
    packed(path, tmp_path / f"out{suffix}", tokenizer=BYTES, options=TextOptions(split=split))  # type: ignore[arg-type]
    expected = [b"one", b"two", b"three"] if split == "line" else [b"one\ntwo", b"three"]

    assert expected == [BYTES.decode(np.array(each)) for each in ids(tmp_path / f"out{suffix}").values()]


def test_long_documents_are_problems(tmp_path: Path, folder: Path) -> None:
    """What is longer than allowed is refused, by name, unless told what to do with it."""
    with pytest.raises(
        SourceError,
        match=r"pos/a\.txt: has 4 tokens, more than 3: --too-long truncate cuts .*, --too-long split makes",
    ):
        packed(folder, tmp_path / "out.h5", tokenizer=BYTES, sequences=Sequences(max_length=3))
    report = packed(folder, tmp_path / "out.h5", tokenizer=BYTES, sequences=Sequences(max_length=3), on_error="skip")

    assert (3, 1, ["pos/a.txt", "pos/b.txt"]) == (report.found, report.packed, [p.key for p in report.skipped])


def test_truncation_counts_what_it_cuts(tmp_path: Path, folder: Path) -> None:
    """Truncating keeps bos, the beginning and eos, and says how much was lost."""
    rule = Sequences(bos=True, eos=True, max_length=5, over="truncate")
    report = packed(folder, tmp_path / "out.h5", tokenizer=BYTES, sequences=rule)

    assert [[BOS, *b"3", EOS], [BOS, *b"one", EOS], [BOS, *b"zwe", EOS]] == list(ids(tmp_path / "out.h5").values())
    assert (2, 1 + 4) == (report.documents.cut_documents, report.documents.cut_tokens)
    with open_store(tmp_path / "out.h5") as store:
        assert {"documents": 2, "tokens": 5} == store.metadata["tokenizer"]["options"]["cut"]


def test_splitting_keeps_everything(tmp_path: Path, folder: Path) -> None:
    """Splitting makes samples of at most so many ids, named by their number; together they are the document."""
    rule = Sequences(bos=True, eos=True, max_length=3, over="split")
    report = packed(folder, tmp_path / "out.h5", tokenizer=BYTES, sequences=rule)
    found = ids(tmp_path / "out.h5")

    assert ["neg/c.txt", "pos/a.txt#0", "pos/a.txt#1", "pos/b.txt#0", "pos/b.txt#1", "pos/b.txt#2"] == list(found)
    assert [BOS, *b"one\n", EOS] == found["pos/a.txt#0"] + found["pos/a.txt#1"]
    counts = report.documents
    assert counts is not None
    assert (3, 6, 2, 0) == (report.packed, report.samples, counts.split_documents, counts.cut_tokens)
    with open_store(tmp_path / "out.h5") as store:
        assert [0, 1, 1, 1, 1, 1] == store.column("label").tolist()


TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1), max_size=6)


@settings(max_examples=100, deadline=None)
@given(
    TEXTS,
    st.booleans(),
    st.booleans(),
    st.integers(3, 9),
    st.sampled_from(["refuse", "truncate", "split"]),
    st.integers(0, 8),
)
def test_sequences_by_the_plain_rule(
    texts: list[str], bos: bool, eos: bool, limit: int, over: str, overlap: int
) -> None:
    """The fast path over a whole piece gives what the rule says for each document by itself."""
    overlap = min(overlap, limit - 1) if over == "split" else 0
    data = [text.encode() for text in texts]
    sizes = np.array([len(each) for each in data], np.int64)
    # One byte between documents, as in a file.
    joined = np.frombuffer(b"\n".join([*data, b""]), np.uint8)
    starts = np.cumsum(sizes + 1) - sizes - 1
    keys = [f"{i}" for i in range(len(data))]
    rule = Sequences(bos, eos, limit, over, overlap)  # type: ignore[arg-type]
    encoded = Encoder(BytesTokenizer(), rule)(Documents(keys, joined, starts, sizes, None, (), 0))
    expected: dict[str, list[int]] = {}
    lost = 0
    for key, each in zip(keys, data, strict=True):
        kept = list(each)
        if over == "truncate":
            kept = kept[: limit - bos - eos]
            lost += len(each) - len(kept)
        sequence = [BOS] * bos + kept + [EOS] * eos
        if over == "split" and len(sequence) > limit:
            ends = range(limit, len(sequence) + limit - overlap, limit - overlap)
            pieces = [sequence[end - limit : end] for end in ends]
            expected |= {f"{key}#{i}": piece for i, piece in enumerate(pieces)}
        elif len(sequence) <= limit:
            expected[key] = sequence
    batch = encoded.batch
    found = {
        key: view.view("<u2").tolist() for key, view in zip(batch.keys, batch.spans["tokens"].views(), strict=True)
    }

    assert expected == found
    assert encoded.documents is not None
    assert lost == encoded.documents.cut_tokens
    assert len(texts) == encoded.documents.documents + len(encoded.problems)


BAD = {
    "a.txt": b"good",
    "latin.txt": b"gr\xfcn",
    "nul.txt": b"a\0b",
    "utf16.txt": "text".encode("utf-16"),
    "cut.txt": "ü".encode()[:1],
    "z.txt": "gü".encode(),
}


def test_what_is_no_text(tmp_path: Path) -> None:
    """Bytes that are no UTF-8, and NUL, are named by file and place; what is good is packed."""
    report = packed(tree(tmp_path / "bad", BAD), tmp_path / "out.h5", on_error="skip")

    assert {"a.txt": b"good", "z.txt": "gü".encode()} == values(tmp_path / "out.h5")
    assert {
        "cut.txt": "is not UTF-8: byte 0 is 0xc3 (unexpected end of data); convert it",
        "latin.txt": "is not UTF-8: byte 2 is 0xfc (invalid start byte); convert it",
        "nul.txt": "holds a NUL (byte 1): is it text?",
        "utf16.txt": "is not UTF-8: it begins like UTF-16; convert it",
    } == {problem.key: problem.problem for problem in report.skipped}
    assert (6, 2) == (report.found, report.packed)


def test_characters_across_documents(tmp_path: Path) -> None:
    """Two halves of a character in two files are two problems, though they would make one together."""
    halves = {"a.txt": "aü".encode()[:2], "b.txt": "üb".encode()[1:], "c.txt": b"c"}
    report = packed(tree(tmp_path / "bad", halves), tmp_path / "out.h5", on_error="skip")

    assert ["a.txt", "b.txt"] == [problem.key for problem in report.skipped]


@pytest.mark.parametrize("name", ["latin.txt", "nul.txt"])
def test_the_first_problem_stops(tmp_path: Path, name: str) -> None:
    """By default a bad document is an error, and no store is left."""
    folder = tree(tmp_path / "bad", {"a.txt": b"good", name: BAD[name]})
    with pytest.raises(SourceError, match=rf"bad/{name}: .*--on-error skip"):
        packed(folder, tmp_path / "out.lmdb")

    assert ["bad"] == [path.name for path in tmp_path.iterdir()]


def test_the_ledger_is_in_the_store(tmp_path: Path) -> None:
    """What was left out stands in the metadata, problems of the scan too, sorted as it was found."""
    folder = tree(tmp_path / "bad", {"a.txt": "a", "b.txt": "", "c.txt": b"\xff", "d.doc": "x"})
    report = packed(folder, tmp_path / "out.h5", on_error="skip")
    with open_store(tmp_path / "out.h5") as store:
        ledger = store.metadata["skipped"]

    assert [{"key": p.key, "problem": p.problem} for p in report.skipped] == ledger
    assert ["b.txt", "c.txt", "d.doc"] == sorted(entry["key"] for entry in ledger)
    assert (4, 1) == (report.found, report.packed)


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_nothing_to_pack(tmp_path: Path, content: str) -> None:
    """An empty file is an error, not an empty store."""
    path = tree(tmp_path, {"a.txt": content}) / "a.txt"
    with pytest.raises(SourceError, match=r"a\.txt: nothing to pack"):
        packed(path, tmp_path / "out.lmdb")


def test_the_store_does_not_depend_on_jobs(tmp_path: Path) -> None:
    """One thread or three: the same bytes."""
    text = "\n".join(f"line {i} " + "x" * (i % 50) for i in range(30_000))
    path = tree(tmp_path, {"a.txt": text}) / "a.txt"
    for jobs in (1, 3):
        packed(path, tmp_path / f"{jobs}.lmdb", tokenizer=BYTES, jobs=jobs)

    assert (tmp_path / "1.lmdb").read_bytes() == (tmp_path / "3.lmdb").read_bytes()


def test_memory_is_bounded(tmp_path: Path) -> None:
    """However large the source, only a few pieces of it are held at once."""
    path = tree(tmp_path, {"a.txt": (b"x" * 999 + b"\n") * 30_000}) / "a.txt"
    source = open_text(path)
    alive: set[int] = set()
    most = pieces = 0

    class Watched:
        """The source, with an eye on what is still in use of what it gave."""

        def __getattr__(self, name: str) -> object:
            return getattr(source, name)

        def read(self, limits: Limits, pool: object = None) -> Iterator[Documents]:
            nonlocal most, pieces
            for part in source.read(limits):
                pieces += 1
                alive.add(pieces)
                weakref.finalize(part.data, alive.discard, pieces)
                most = max(most, len(alive))
                yield part
                del part

    encoder = Encoder(None, Sequences())
    pack(TextSamples(Watched(), encoder), tmp_path / "out.lmdb", jobs=2)  # type: ignore[arg-type] # by __getattr__

    assert pieces > 20
    assert most <= 6


def test_lengths_that_leave_no_room() -> None:
    """A length that bos and eos fill is refused."""
    with pytest.raises(SourceError, match="leaves no room for text"):
        Sequences(bos=True, eos=True, max_length=2)
    with pytest.raises(SourceError, match="--max-length N"):
        Sequences(over="split")
