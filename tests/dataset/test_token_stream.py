"""Token streams opened in place: their ids, documents and windows are those of plain slices; what is wrong is named."""

from __future__ import annotations

import pickle
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from fastio import FastDataset, SampleError, SchemaError, StoreCorrupt, StoreError, StoreNotFound, TokenStream, Writer
from fastio.dataset.window_store import WindowRule
from fastio.store.token_files import ID_DTYPES
from tests.commands import run
from tests.dataset.streams import CODES, KINDS, documents_of, stream_of, write_bin, write_documents, write_megatron

LENGTHS = (5, 1, 30, 12, 64, 2, 17)


def starts_of(lengths: Any) -> list[int]:
    """Where each document begins."""
    return [sum(lengths[:number]) for number in range(len(lengths))]


def found(stream: TokenStream) -> list[int]:
    """Where the documents of a stream begin."""
    assert stream.documents is not None
    documents: list[int] = stream.documents.tolist()
    return documents


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_the_same_ids_and_documents(tmp_path: Path, kind: str) -> None:
    """Ids are those that were written, whole and in parts, and documents begin where they did."""
    documents = documents_of(LENGTHS)
    expected = np.concatenate(documents)
    with stream_of(tmp_path, documents, kind) as stream:
        assert len(expected) == len(stream)
        assert np.array_equal(expected, stream[:])
        assert np.array_equal(expected[3:70], stream[3:70])
        assert starts_of(LENGTHS) == found(stream)


@pytest.mark.parametrize("dtype", ID_DTYPES)
def test_every_dtype_has_windows(tmp_path: Path, dtype: str) -> None:
    """Ids of 1, 2, 4 and 8 bytes become int64."""
    ids = np.arange(100)
    stream = TokenStream(write_bin(tmp_path / "a.bin", ids, dtype), dtype=dtype)
    window = stream.windows(10)[3]
    assert torch.int64 == window.dtype
    assert list(range(30, 40)) == window.tolist()


@pytest.mark.parametrize("dtype", sorted(CODES))
def test_megatron_dtypes(tmp_path: Path, dtype: str) -> None:
    """The type of ids is the index's, and several sequences are one document."""
    documents = documents_of((4, 9, 6), highest=100)
    stream = TokenStream(write_megatron(tmp_path / "m", documents, dtype, per_document=2))
    assert np.dtype(dtype) == stream.dtype
    assert [0, 4, 13] == found(stream)
    for path in ("m.bin", "m.idx"):
        assert np.array_equal(stream[:], TokenStream(tmp_path / path)[:])


def test_header_of_llm_c(tmp_path: Path) -> None:
    """A header of 256 int32 is told apart from ids, and its count is compared with the file."""
    ids = np.arange(50, dtype=np.uint16)
    header = np.zeros(256, np.int32)
    header[:3] = 20240520, 1, len(ids)
    path = tmp_path / "fineweb_val_000000.bin"
    path.write_bytes(header.tobytes() + ids.tobytes())
    assert np.array_equal(ids, TokenStream(path)[:])
    path.write_bytes(header.tobytes() + ids[:-1].tobytes())
    with pytest.raises(StoreCorrupt, match="says 50 ids"):
        TokenStream(path)


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    size=st.integers(1, 50),
    stride=st.integers(1, 60),
    kind=st.sampled_from(("bin", "megatron", "folder", "h5", "lmdb")),
)
@settings(max_examples=60, deadline=None)
def test_windows_are_slices(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], size: int, stride: int, kind: str
) -> None:
    """Windows at a stride are slices of all ids; what is in none of them is counted."""
    documents = documents_of(lengths)
    ids = np.concatenate(documents)
    stream = stream_of(tmp_path_factory.mktemp("s"), documents, kind)
    if len(ids) >= size:
        windows = stream.windows(size, stride=stride)
        expected = [ids[start : start + size] for start in range(0, len(ids) - size + 1, stride)]
        assert len(expected) == len(windows)
        assert all(np.array_equal(*pair) for pair in zip(expected, windows, strict=True))
        is_used = np.zeros(len(ids), np.bool_)
        for start in range(0, len(ids) - size + 1, stride):
            is_used[start : start + size] = True
        assert windows.unused == int((~is_used).sum())
    inside = stream.windows(size, stride=stride, documents="inside")
    found = [window.tolist() for window in inside]
    assert inside.lengths.tolist() == [len(window) for window in found]
    if stride <= size:
        assert 0 == inside.unused
    at = 0
    for document in documents:
        expected = [document[first : first + size] for first in range(0, len(document), stride)]
        overlap = max(0, size - stride)
        kept = [part for number, part in enumerate(expected) if number == 0 or len(part) > overlap]
        assert [part.tolist() for part in kept] == found[at : at + len(kept)]
        at += len(kept)
    assert at == len(found)


@given(length=st.integers(1, 500), size=st.integers(1, 60), seed=st.integers(0, 9))
@settings(max_examples=100, deadline=None)
def test_every_start_is_possible(length: int, size: int, seed: int) -> None:
    """Random windows lie inside their stretch, and their parts of it cover every start once."""
    rule = WindowRule(size, 0, "inside")
    lengths = np.array([length])
    counts = rule.counts(lengths)
    count = int(counts[0])
    numbers = np.arange(count)
    low = rule.offsets(lengths, counts, numbers, np.zeros(count))
    high = rule.offsets(lengths, counts, numbers, np.full(count, 1 - 2**-53))
    assert max(1, length // size) == count
    assert 0 == low[0]
    assert max(0, length - size) == high[-1]
    assert (low[1:] == high[:-1] + 1).all()
    drawn = rule.offsets(lengths, counts, numbers, np.random.default_rng(seed).random(count))
    assert ((drawn >= low) & (drawn <= high)).all()


def test_positions_begin_anew(tmp_path: Path) -> None:
    """A document that begins before its window counts from the window's first id."""
    documents = documents_of((4, 3, 9))
    windows = stream_of(tmp_path, documents, "megatron").windows(6, documents="mask")
    assert [0, 1, 2, 3, 0, 1] == windows[0]["position_ids"].tolist()
    assert [0, 0, 1, 2, 3, 4] == windows[1]["position_ids"].tolist()


def test_data_loader_takes_windows(tmp_path: Path) -> None:
    """torch's DataLoader makes (B, size), and workers that are spawned open the stream again."""
    windows = TokenStream(write_bin(tmp_path / "a.bin", range(100)), dtype="uint16").windows(8, stride=8)
    batches = list(DataLoader(windows, batch_size=4))
    assert (4, 8) == tuple(batches[0].shape)
    assert np.array_equal(np.arange(96), torch.cat(batches).view(-1))
    again = pickle.loads(pickle.dumps(windows))
    assert torch.equal(windows[5], again[5])
    write_bin(tmp_path / "a.bin", range(99, -1, -1))
    with pytest.raises(StoreError, match="was replaced"):
        pickle.loads(pickle.dumps(windows))


def test_random_windows_are_for_fast_loader(tmp_path: Path) -> None:
    """A dataset knows no epoch, so it has no random window by number; nor has it samples to assign."""
    windows = TokenStream(write_bin(tmp_path / "a.bin", range(100)), dtype="uint16").windows(8, random=True)
    with pytest.raises(TypeError, match="FastLoader"):
        windows[0]
    with pytest.raises(TypeError, match="no samples to assign"):
        windows.samples = [("tokens 0-7", 0)]


def cut_of(path: Path, by: int = 1) -> Path:
    """The file without its last bytes."""
    path.write_bytes(path.read_bytes()[:-by])
    return path


def test_files_cut_short_are_named(tmp_path: Path) -> None:
    """What misses an end is noticed when it is opened."""
    documents = documents_of((4, 9, 6))
    with pytest.raises(StoreCorrupt, match=r"a\.bin: 5 bytes are no whole ids of uint16"):
        TokenStream(cut_of(write_bin(tmp_path / "a.bin", [1, 2, 3])), dtype="uint16")
    np.save(tmp_path / "a.npy", np.arange(9))
    with pytest.raises(StoreCorrupt, match=r"a\.npy: its header says 9 ids of int64"):
        TokenStream(cut_of(tmp_path / "a.npy", 8))
    write_megatron(tmp_path / "m", documents)
    cut_of(tmp_path / "m.bin", 2)
    with pytest.raises(StoreCorrupt, match=r"m\.bin: is cut short: has 36 bytes, but m\.idx says 38, of 3 sequences"):
        TokenStream(tmp_path / "m")
    write_megatron(tmp_path / "m", documents)
    cut_of(tmp_path / "m.idx", 8)
    with pytest.raises(StoreCorrupt, match=r"m\.idx: says 3 sequences and 4 borders"):
        TokenStream(tmp_path / "m")
    (tmp_path / "none.bin").touch()
    with pytest.raises(StoreCorrupt, match=r"none\.bin: has no ids"):
        TokenStream(tmp_path / "none.bin", dtype="uint16")


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, b"X", "is no index of Megatron's"),
        (9, struct.pack("<Q", 2), "version 2"),
        (17, b"\x07", "its values are float32"),
        (17, b"\x63", r"an unknown type \(99\)"),
        (34, struct.pack("<i", -3), "sequence 0 has -3 ids"),
        (34, struct.pack("<i", 5), "sequence 1 has 9 ids from byte 8 on: expected 0 or more from byte 10"),
        (34 + 3 * 12, struct.pack("<q", 1), "do not begin with sequence 0"),
        (34 + 3 * 12 + 8, struct.pack("<q", 3), "ascend"),
    ],
)
def test_wrong_indices_are_named(tmp_path: Path, at: int, value: bytes, message: str) -> None:
    """An index that contradicts itself or its ids is refused, by what is wrong with it."""
    write_megatron(tmp_path / "m", documents_of((4, 9, 6)))
    index = bytearray((tmp_path / "m.idx").read_bytes())
    index[at : at + len(value)] = value
    (tmp_path / "m.idx").write_bytes(index)
    with pytest.raises((StoreError, SchemaError), match=message):
        TokenStream(tmp_path / "m")


def test_other_dtypes_are_noticed(tmp_path: Path) -> None:
    """Ids above the vocabulary say that the dtype is another; file and place are named."""
    path = write_bin(tmp_path / "a.bin", np.arange(100), "uint16")
    with pytest.raises(SchemaError, match=r"a\.bin: token 0 is 65536, read as uint32, but vocab_size=200"):
        TokenStream(path, dtype="uint32", vocab_size=200)
    with pytest.raises(SchemaError, match="pass dtype='uint16'"):
        TokenStream(path)
    with pytest.raises(ValueError, match="expected one of 'uint8'"):
        TokenStream(path, dtype="float32")
    write_megatron(tmp_path / "m", documents_of((4, 9)))
    with pytest.raises(SchemaError, match=r"m\.bin: its ids are uint16, not int32"):
        TokenStream(tmp_path / "m", dtype="int32")


def test_ids_above_the_vocabulary_are_bad_samples(tmp_path: Path) -> None:
    """An id that opening has not looked at is named when its window is read, and so is a negative one."""
    ids = np.zeros(200_000, np.int64)
    ids[100_001] = 512
    stream = TokenStream(write_bin(tmp_path / "a.bin", ids), dtype="uint16", vocab_size=512)
    with pytest.raises(
        SampleError, match=r"a\.bin, token 100001: is 512, but the vocabulary has ids 0 to 511"
    ) as caught:
        stream.windows(1000)[100]
    assert (100, "tokens 100000-100999") == (caught.value.index, caught.value.key)
    stream = TokenStream(write_bin(tmp_path / "b.bin", [1, -2, 3], "int32"), dtype="int32")
    with pytest.raises(SampleError, match="token 1: is -2"):
        stream.windows(3)[0]


def test_flipped_bits_of_a_store_are_named(tmp_path: Path) -> None:
    """A store's checksums are compared, also of what lies outside of a window in the same sample."""
    path = write_documents(tmp_path / "a.h5", documents_of((40, 40)))
    data = bytearray(path.read_bytes())
    place = data.index(documents_of((40, 40))[1][:20].astype("<u2").tobytes())
    data[place] ^= 1
    path.write_bytes(data)
    windows = TokenStream(path).windows(10)
    assert 10 == len(windows[0])
    with pytest.raises(SampleError, match=r"a\.h5, token 70"):
        windows[7]


def test_what_is_no_stream_is_refused(tmp_path: Path) -> None:
    """One line says what was found and what to do."""
    write_bin(tmp_path / "a.bin", [1, 2])
    np.save(tmp_path / "b.npy", np.zeros((2, 3), np.uint16))
    with pytest.raises(SchemaError, match=r"shape \(2, 3\): expected one axis"):
        TokenStream(tmp_path / "b.npy")
    with pytest.raises(SchemaError, match=r"\.bin without \.idx \(a\.bin\) and \.npy \(b\.npy\)"):
        TokenStream(tmp_path, dtype="uint16")
    (tmp_path / "none").mkdir()
    with pytest.raises(StoreNotFound, match="no tokens there"):
        TokenStream(tmp_path / "none")
    with pytest.raises(StoreNotFound):
        TokenStream(tmp_path / "missing.bin", dtype="uint16")
    with pytest.raises(TypeError, match=re.escape("expected the path of a .bin")):
        TokenStream(None)  # type: ignore[arg-type]
    for schema, words in (
        ({"text": "text"}, r"has no token ids, but text \(text\): .* fastio pack SRC OUT --tokenizer"),
        ({"a": "tokens", "b": "tokens16"}, r"has 2 fields of token ids \(a, b\), but a stream is one of them"),
    ):
        with Writer(tmp_path / "c.h5", schema, overwrite=True) as out:
            out.write({name: "x" if of == "text" else np.arange(3, dtype=np.uint16) for name, of in schema.items()})
        with pytest.raises(SchemaError, match=words):
            TokenStream(tmp_path / "c.h5")


@pytest.mark.parametrize("name", ["x.txt", "x.jsonl", "texts"])
def test_text_is_packed_as_a_stream(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that a stream of text proposes makes a stream."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / name
    if name == "texts":
        path.mkdir()
    (path / "a.txt" if name == "texts" else path).write_text('{"text": "one"}\n')
    with pytest.raises(StoreError) as caught:
        TokenStream(path)
    stem = name.partition(".")[0]
    command = f"fastio pack {path} {stem}.lmdb --tokenizer tokenizer.json --concat --eos"
    assert str(caught.value).endswith(f"and not packed yet. Pack it: {command}")
    run(*command.replace("tokenizer.json", "bytes").split()[1:])
    assert len(TokenStream(f"{stem}.lmdb")) >= len("one")


def test_windows_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    """Options are checked before anything is read."""
    stream = TokenStream(write_bin(tmp_path / "a.bin", range(9)), dtype="uint16")
    for options, message in (
        ({"size": 0}, "size=0"),
        ({"size": 4, "stride": 0}, "stride=0"),
        ({"size": 4, "stride": 2, "random": True}, "one of the two"),
        ({"size": 10}, "has 9 tokens, fewer"),
        ({"size": 4, "documents": "apart"}, "expected one of 'cross'"),
    ):
        with pytest.raises(ValueError, match=message):
            stream.windows(**options)
    with pytest.raises(SchemaError, match="pass eos="):
        stream.windows(4, documents="mask")
    with pytest.raises(ValueError, match="leave eos= out"):
        TokenStream(write_megatron(tmp_path / "m", documents_of((4, 9))), eos=0)
    with pytest.raises(SchemaError, match=r"a\.bin: eos=65535: none of its [\d,]+ ids is that"):
        TokenStream(tmp_path / "a.bin", dtype="uint16", eos=65535)
    with pytest.raises(ValueError, match="eos=65536: its ids are uint16, which has no such number"):
        TokenStream(tmp_path / "a.bin", dtype="uint16", eos=1 << 16)


def test_a_store_is_still_a_dataset(tmp_path: Path) -> None:
    """Opening a store as a stream changes nothing of it."""
    path = write_documents(tmp_path / "a.lmdb", documents_of(LENGTHS))
    assert len(LENGTHS) == len(FastDataset(path))
    assert sum(LENGTHS) == len(TokenStream(path))
