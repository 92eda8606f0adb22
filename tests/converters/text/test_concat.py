"""Text as a stream of token ids: documents of any length, one after the other, in files and in shards."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastio import FastLoader, TokenStream
from fastio.converters import Part, pack
from fastio.converters.text import Encoder, Sequences, TextSamples, load_tokenizer, open_text
from fastio.errors import SourceError
from fastio.store import open_store
from fastio.store.token_files import RUN_BYTES
from tests.commands import outcome
from tests.converters.text.bpe import saved, train
from tests.converters.text.build import SUFFIXES
from tests.converters.trees import tree

PATTERN = "stream-%06d.tar"


@pytest.fixture
def texts() -> list[str]:
    """Documents of very different lengths; some take several samples."""
    draw = random.Random(5)
    sizes = [1, 60, 9000, 2, 400, 30_000, 8192, 8191, *(draw.randint(1, 300) for _ in range(80))]
    return ["".join(draw.choices("the cat on mat ü", k=size)).strip() or "x" for size in sizes]


@pytest.fixture
def source(tmp_path: Path, texts: list[str]) -> Path:
    """They, a line each, with a blank one."""
    return tree(tmp_path, {"corpus.txt": "\n".join(["", *texts])}) / "corpus.txt"


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """A BPE with an end."""
    return saved(train(["the cat sat on the mat", "ü"], special=("</s>",)), tmp_path / "bpe.json")


def packed(source: Path, tokenizer: Path | str, out: Path, **how: Any) -> Path:
    """The stream of a text."""
    encoder = Encoder(load_tokenizer(str(tokenizer)), Sequences(eos=True, over="concat"))
    pack(TextSamples(open_text(source), encoder), out, **how)
    return out


def expected(texts: list[str], tokenizer: Path) -> list[list[int]]:
    """The ids of each document, as the library makes them, and the end behind each."""
    from tokenizers import Tokenizer

    library = Tokenizer.from_file(str(tokenizer))
    return [[*library.encode(text).ids, library.token_to_id("</s>")] for text in texts]


@pytest.mark.parametrize("suffix", [*SUFFIXES, "set", "parts"])
def test_a_stream_is_all_ids_in_order(
    tmp_path: Path, source: Path, texts: list[str], tokenizer: Path, suffix: str
) -> None:
    """TokenStream has the library's ids with an end behind each document, and knows where each begins."""
    if suffix in ("set", "parts"):
        out = tmp_path / PATTERN
        for part in [Part(0, 2), Part(1, 2)] if suffix == "parts" else [None]:
            packed(source, tokenizer, out, shard_bytes=9000, part=part)
    else:
        out = packed(source, tokenizer, tmp_path / f"stream{suffix}")
    documents = expected(texts, tokenizer)
    with TokenStream(out) as stream, open_store(out) as store:
        assert [id_ for ids in documents for id_ in ids] == stream[:].tolist()
        begins = np.cumsum([0, *map(len, documents[:-1])])
        assert stream.documents is not None
        assert begins.tolist() == stream.documents.tolist()
        assert RUN_BYTES == store.spans("tokens", np.arange(len(store))).sizes.max()
        assert (suffix == "set") == (len(store.shard_paths) > 2)


def test_windows_keep_documents_apart(tmp_path: Path, source: Path, tokenizer: Path) -> None:
    """Windows are those of the same ids in a .bin whose documents are found by their end."""
    own = TokenStream(packed(source, tokenizer, tmp_path / "stream.h5"))
    own[:].astype(np.uint16).tofile(tmp_path / "train.bin")
    eos = load_tokenizer(str(tokenizer)).special["eos"]
    other = TokenStream(tmp_path / "train.bin", dtype="uint16", eos=eos, vocab_size=own.vocab_size)
    for documents in ("mask", "inside"):
        loaders = [FastLoader(each.windows(65, documents=documents), 16) for each in (own, other)]
        for first, second in zip(*loaders, strict=True):
            assert first.keys() == second.keys()
            assert all(np.array_equal(first[name], second[name]) for name in first)


def test_the_way_back(tmp_path: Path, source: Path) -> None:
    """The text comes back byte by byte, the ids as a .bin; the store equals its source, and info says what it is."""
    out = tmp_path / "stream.lmdb"
    code, said = outcome("pack", source, out, "--tokenizer", "bytes", "--concat", "--eos")
    assert 0 == code, said
    assert " in a stream, " in said
    assert f"stream: TokenStream({str(out)!r}).windows(1025) reads it" in said
    assert 0 == outcome("verify", out, "--against", source)[0]
    about = outcome("info", out)[1]
    assert "one stream of ids, for TokenStream" in about
    assert f"stream = TokenStream({str(out)!r})" in about
    for form, target in (((), "back"), (("--as", "bin"), "train.bin")):
        code, said = outcome("unpack", out, tmp_path / target, *form)
        assert 0 == code, said

    assert source.read_bytes() == (tmp_path / "back" / "corpus.txt").read_bytes()
    assert TokenStream(out)[:].tolist() == np.fromfile(tmp_path / "train.bin", np.uint16).tolist()


WRONG = {
    "no tokenizer": ([], "--concat is for token ids: add --tokenizer bytes or --tokenizer FILE"),
    "no end": (["--tokenizer", "bytes"], "between which a model sees no border: add --eos (or --bos)"),
    "a length": (["--tokenizer", "bytes", "--eos", "--max-length", 9], "in one stream: drop --max-length"),
    "too long": (["--tokenizer", "bytes", "--eos", "--too-long", "split"], "in one stream: drop --too-long"),
    "per sample": (["--tokenizer", "bytes", "--eos", "--per-sample"], "in one stream: drop --per-sample"),
}


@pytest.mark.parametrize("name", WRONG)
def test_options_that_make_no_stream(tmp_path: Path, source: Path, name: str) -> None:
    """One line says what to type."""
    options, words = WRONG[name]
    code, said = outcome("pack", source, tmp_path / "a.h5", "--concat", *options)

    assert (2, True) == (code, words in said), said
    assert not (tmp_path / "a.h5").exists()


def test_a_stream_takes_no_length() -> None:
    """Sequences says so, too."""
    with pytest.raises(SourceError, match="a stream has documents of any length"):
        Sequences(over="concat", max_length=9)
