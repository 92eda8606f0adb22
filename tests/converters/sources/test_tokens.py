"""Streams of token ids, sealed into stores and written again: nothing changes, and nothing is half-written."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastio import FastDataset, FastLoader, SampleError, SourceError, TokenStream
from fastio.converters import pack
from fastio.converters.inspect.token_files import unpack_tokens
from fastio.converters.sources.tokens import stream_source
from fastio.store import open_store
from tests.commands import run
from tests.conftest import SUFFIXES
from tests.dataset.streams import documents_of, stream_of, write_bin, write_documents, write_megatron
from tests.forking import fork

LENGTHS = (5, 9000, 1, 30, 4096, 4097, 12, 17)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("kind", ["bin", "megatron", "npy", "folder"])
def test_a_sealed_stream_is_the_same(tmp_path: Path, kind: str, suffix: str) -> None:
    """Ids, documents and every window of the store are those of the files; samples are small."""
    documents = documents_of(LENGTHS)
    stream = stream_of(tmp_path, documents, kind)
    pack(stream_source(stream, kind), tmp_path / f"out.{suffix}")
    sealed = TokenStream(tmp_path / f"out.{suffix}")
    assert np.array_equal(stream[:], sealed[:])
    assert stream.documents is not None
    assert sealed.documents is not None
    assert stream.documents.tolist() == sealed.documents.tolist()
    assert 8192 >= int(FastDataset(tmp_path / f"out.{suffix}", fields="tokens").lengths.max()) * sealed.dtype.itemsize
    windows = [each.windows(1000, random=True, documents="mask") for each in (stream, sealed)]
    for one, other in zip(*(FastLoader(each, 4, shuffle=True, seed=2) for each in windows), strict=True):
        assert torch.equal(one["input_ids"], other["input_ids"])
        assert torch.equal(one["cu_seqlens"], other["cu_seqlens"])


def test_commands_go_there_and_back(tmp_path: Path) -> None:
    """A train.bin that is packed and unpacked is the same file, byte for byte, and so are both of Megatron's."""
    ids = np.concatenate(documents_of(LENGTHS))
    path = write_bin(tmp_path / "train.bin", ids)
    said = run("pack", path, tmp_path / "a.lmdb", "--dtype", "uint16", "--eos-id", "0", "--vocab-size", "50304")
    assert "a stream of token ids" in said
    run("verify", tmp_path / "a.lmdb", "--against", path)
    run("unpack", tmp_path / "a.lmdb", tmp_path / "again.bin", "--as", "bin")
    assert path.read_bytes() == (tmp_path / "again.bin").read_bytes()
    prefix = write_megatron(tmp_path / "corpus", documents_of(LENGTHS), "int32")
    run("pack", prefix, tmp_path / "b.tar")
    run("unpack", tmp_path / "b.tar", tmp_path / "once-more", "--as", "megatron")
    for suffix in (".bin", ".idx"):
        assert Path(f"{prefix}{suffix}").read_bytes() == (tmp_path / f"once-more{suffix}").read_bytes()
    assert "holds a stream of token ids: add --as bin" in run("unpack", tmp_path / "b.tar", tmp_path / "files", code=1)
    assert "exists" in run("unpack", tmp_path / "b.tar", tmp_path / "once-more", "--as", "megatron", code=1)


def test_documents_of_any_store(tmp_path: Path) -> None:
    """A store of tokenized text is written for others, a document for each that was packed."""
    (tmp_path / "corpus.txt").write_text("one line\nand another, longer one\nthree\n")
    words = ["--tokenizer", "bytes", "--eos", "--max-length", "10", "--too-long", "split"]
    run("pack", tmp_path / "corpus.txt", tmp_path / "corpus.h5", *words)
    stream = TokenStream(tmp_path / "corpus.h5")
    assert stream.documents is not None
    assert [0, 9, 33] == stream.documents.tolist()
    run("unpack", tmp_path / "corpus.h5", tmp_path / "corpus", "--as", "megatron")
    written = TokenStream(tmp_path / "corpus")
    assert written.documents is not None
    assert np.array_equal(stream[:], written[:])
    assert [0, 9, 33] == written.documents.tolist()


@given(lengths=st.lists(st.integers(1, 9000), min_size=1, max_size=6), knows=st.booleans())
@settings(max_examples=15, deadline=None)
def test_round_trips(tmp_path_factory: pytest.TempPathFactory, lengths: list[int], knows: bool) -> None:
    """Whatever the documents, the files come back."""
    folder = tmp_path_factory.mktemp("t")
    documents = documents_of(lengths)
    stream = (
        stream_of(folder, documents, "megatron")
        if knows
        else TokenStream(write_bin(folder / "train.bin", np.concatenate(documents)), dtype="uint16")
    )
    pack(stream_source(stream, "train"), folder / "out.h5")
    with open_store(folder / "out.h5") as store:
        unpack_tokens(store, folder / "again", form="megatron" if knows else "bin")
    for path in stream.paths:
        assert Path(path).read_bytes() == (folder / "again.bin").read_bytes()
    if knows:
        assert (folder / "train.idx").read_bytes() == (folder / "again.idx").read_bytes()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_flip_is_found(tmp_path: Path, suffix: str) -> None:
    """A flipped bit among the ids of a sealed stream never becomes a token."""
    ids = np.random.default_rng(0).integers(0, 60_000, 30_000)
    stream = TokenStream(write_bin(tmp_path / "train.bin", ids), dtype="uint16")
    path = tmp_path / f"out.{suffix}"
    pack(stream_source(stream, "train"), path)
    whole = path.read_bytes()
    random = np.random.default_rng(1)
    for place in random.integers(0, 30_000, 12).tolist():
        piece = ids[place : place + 8].astype("<u2").tobytes()
        if len(piece) < 16 or whole.count(piece) != 1:
            continue
        data = bytearray(whole)
        data[whole.index(piece)] ^= 1 << int(random.integers(0, 8))
        path.write_bytes(data)
        loader = FastLoader(TokenStream(path).windows(100, stride=100), 16, on_error="skip", threads=1)
        given_ids = {int(batch["input_ids"][row, 0]) for batch in loader for row in range(len(batch["input_ids"]))}
        assert loader.skipped
        assert place // 100 in [error.index for error in loader.skipped]
        assert given_ids <= set(ids.tolist())
        with open_store(path) as store, pytest.raises(Exception, match="differ from their checksum"):
            unpack_tokens(store, tmp_path / "again", form="bin")
        assert not (tmp_path / "again.bin").exists()


def test_a_killed_unpack_leaves_nothing(tmp_path: Path) -> None:
    """A process that is killed while it writes leaves no file under the final names; the next run removes the rest."""
    path = write_documents(tmp_path / "a.h5", documents_of(LENGTHS))
    for overwrite in (False, True):
        before = {each.name: each.read_bytes() for each in tmp_path.glob("out.*")}

        def kill(*_: Any) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        def write() -> None:
            with open_store(path) as store:
                unpack_tokens(store, tmp_path / "out", form="megatron", overwrite=overwrite, progress=kill)  # noqa: B023

        _, status = os.waitpid(fork(write), 0)
        assert signal.SIGKILL == os.WTERMSIG(status)
        assert before == {each.name: each.read_bytes() for each in tmp_path.glob("out.*")}
        with open_store(path) as store:
            unpack_tokens(store, tmp_path / "out", form="megatron", overwrite=overwrite)
        assert ["a.h5", "out.bin", "out.idx"] == sorted(each.name for each in tmp_path.iterdir())


def test_ids_that_are_none_are_refused(tmp_path: Path) -> None:
    """An id above the vocabulary stops packing, with file and place; int64 that fits becomes smaller."""
    ids = np.arange(100_000) % 400
    path = write_bin(tmp_path / "train.bin", ids, "int64")
    source = stream_source(TokenStream(path, dtype="int64", vocab_size=400), "train")
    assert "<u2" == source.schema["tokens"].dtype
    assert "<u4" == stream_source(TokenStream(path, dtype="int64"), "train").schema["tokens"].dtype
    ids[50_000] = -1
    write_bin(tmp_path / "bad.bin", ids, "int64")
    with pytest.raises((SourceError, SampleError), match=r"has an id -1 .*bad\.bin, token 50000"):
        pack(stream_source(TokenStream(tmp_path / "bad.bin", dtype="int64"), "bad"), tmp_path / "bad.h5")
    assert not (tmp_path / "bad.h5").exists()


def test_options_of_ids_are_for_ids(tmp_path: Path) -> None:
    """What the options mean nothing for is refused; a stream is not shuffled."""
    path = write_bin(tmp_path / "train.bin", range(100))
    (tmp_path / "a.txt").write_text("one\n")
    assert "--dtype is for files of token ids" in run(
        "pack", tmp_path / "a.txt", tmp_path / "o.h5", "--dtype", "int32", code=2
    )
    assert "a stream of tokens has an order" in run(
        "pack", path, tmp_path / "o.h5", "--dtype", "uint16", "--shuffle", "1", code=2
    )
    assert "are uint16, not int32" in run(
        "pack", write_megatron(tmp_path / "m", documents_of((4, 5))), tmp_path / "o.h5", "--dtype", "int32", code=1
    )
    assert not (tmp_path / "o.h5").exists()


def test_a_set_grows_by_files(tmp_path: Path) -> None:
    """Another file is appended to a set of shards as more of the stream; the same one is refused."""
    one, two = documents_of((4000, 9000)), documents_of((300, 20), seed=1)
    paths = [write_bin(tmp_path / f"{name}.bin", np.concatenate(each)) for name, each in (("a", one), ("b", two))]
    options = ("--dtype", "uint16", "--eos-id", "0", "--shard-size", "10KB")
    run("pack", paths[0], tmp_path / "s-%06d.tar", *options)
    run("pack", paths[1], tmp_path / "s-%06d.tar", *options, "--append")
    stream = TokenStream(tmp_path / "s-%06d.tar")
    assert np.array_equal(np.concatenate([*one, *two]), stream[:])
    assert stream.documents is not None
    assert [0, 4000, 13_000, 13_300] == stream.documents.tolist()
    assert "was appended already" in run("pack", paths[1], tmp_path / "s-%06d.tar", *options, "--append", code=1)


def test_info_of_a_row_of_ids(tmp_path: Path) -> None:
    """A .bin is described with the options of packing it, which the command repeats."""
    path = write_bin(tmp_path / "train.bin", range(100))
    said = json.loads(run("info", path, "--dtype", "uint16", "--eos-id", "0", "--json"))
    assert ("tokens", 2) == (said["kind"], said["samples"])
    assert said["command"].endswith(".lmdb --dtype uint16 --eos-id 0")


def test_the_record_of_a_stream(tmp_path: Path) -> None:
    """A store says what it was made of, and by which options."""
    path = write_bin(tmp_path / "train.bin", range(100))
    run("pack", path, tmp_path / "o.h5", "--dtype", "uint16", "--vocab-size", "200")
    said = json.loads(run("info", tmp_path / "o.h5", "--json"))
    assert "tokens" == said["source"]["kind"]
    with open_store(tmp_path / "o.h5") as store:
        assert {"dtype": "uint16", "documents": False} == store.metadata["stream"]
        assert ["train.bin:0000000000000"] == store.keys([0])
        assert {"dtype": "uint16", "vocab_size": 200} == store.metadata["source"]["ids"]
    stream = TokenStream(tmp_path / "o.h5")
    assert (None, 200) == (stream.documents, stream.vocab_size)
