"""Token ids as one flat array with offsets: what every format does with a field of them, and how others read it."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import h5py
import lmdb
import numpy as np
import pytest
import webdataset
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastio.errors import SchemaError, StoreCorrupt
from fastio.store import FORMATS, SampleBatch, create_store, open_store
from fastio.store.formats.format import PIECE_BYTES
from fastio.store.formats.tar import TarWriter, _header
from fastio.store.index import arrays
from fastio.store.index.numbered_keys import KeyRun, NumberedKeys
from fastio.store.index.verify import verify_store
from fastio.store.sets.merge import merge_stores
from fastio.types.schema import COLUMN, TEXT, TOKENS, Field, Schema
from tests.store.build import IMAGE_FIELD, make_spans, read_all

SUFFIXES = [each.suffixes[0] for each in FORMATS.values()]
DTYPES = ("<u2", "<u4")
LABEL = Field("label", COLUMN, "<i8", ())


def schema(dtype: str, *, is_per_sample: bool = False) -> Schema:
    """Tokens of this dtype, and a label."""
    return Schema((Field("tokens", TOKENS, dtype, (None,)), LABEL), is_per_sample=is_per_sample)


def sequences(lengths: Sequence[int], dtype: str = "<u2") -> list[NDArray[Any]]:
    """Random ids from a seed."""
    rng = np.random.default_rng(0)
    return [rng.integers(0, 1 << 16, length).astype(dtype) for length in lengths]


def write(
    path: Path,
    values: list[NDArray[Any]],
    *,
    batch_size: int = 100,
    dtype: str = "<u2",
    is_per_sample: bool = False,
    shard_bytes: int | None = None,
) -> Path:
    """A store of these samples; labels count from 0."""
    with create_store(path, schema(dtype, is_per_sample=is_per_sample), shard_bytes=shard_bytes) as writer:
        for at in range(0, len(values), batch_size):
            part = [value.tobytes() for value in values[at : at + batch_size]]
            keys = [f"a.txt:{at + i}" for i in range(len(part))]
            labels = np.arange(at, at + len(part))
            writer.append(SampleBatch(keys, {"tokens": make_spans(part)}, {"label": labels}))
    return path


LONG = (0, 1, PIECE_BYTES // 2 + 1, 3, 0, PIECE_BYTES // 4, PIECE_BYTES // 4, 7, 0)


@pytest.fixture(params=SUFFIXES)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where a store of each format may be written."""
    return tmp_path / f"tokens{request.param}"


@pytest.mark.parametrize("dtype", DTYPES)
def test_ids_come_back_aligned(path: Path, dtype: str) -> None:
    """Every sample's bytes are its ids, and lie where an array of them may be read in place."""
    values = sequences(LONG, dtype)
    with open_store(write(path, values, dtype=dtype)) as store:
        spans = store.spans("tokens", np.arange(len(store)))

        assert [value.tobytes() for value in values] == list(read_all(store, "tokens").values())
        assert [value.nbytes for value in values] == spans.sizes.tolist()
        assert not (spans.starts % np.dtype(dtype).itemsize).any()
        assert verify_store(store) == []


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 50), max_size=20), st.integers(1, 21), st.sampled_from(SUFFIXES))
def test_any_lengths_come_back(lengths: list[int], batch_size: int, suffix: str) -> None:
    """Whatever the lengths and however they came in batches; no samples at all, too."""
    values = sequences(lengths)
    with (
        TemporaryDirectory() as folder,
        open_store(write(Path(folder) / f"x{suffix}", values, batch_size=batch_size)) as store,
    ):
        assert [value.tobytes() for value in values] == list(read_all(store, "tokens").values())


def test_same_samples_same_bytes(path: Path, tmp_path: Path) -> None:
    """The file does not depend on how its samples came in batches."""
    (tmp_path / "other").mkdir()
    first = write(path, sequences(LONG * 3), batch_size=2)
    second = write(tmp_path / "other" / path.name, sequences(LONG * 3), batch_size=1000)

    assert first.read_bytes() == second.read_bytes()


def test_half_an_id_is_refused(path: Path) -> None:
    """A value that is no whole number of ids does not fit the schema."""
    with (
        create_store(path, schema("<u4")) as writer,
        pytest.raises(SchemaError, match=r"'b': expected whole ids of 4 bytes, got 6 bytes"),
    ):
        writer.append(SampleBatch(["a", "b"], {"tokens": make_spans([b"", b"123456"])}, {"label": np.arange(2)}))


def test_tokens_beside_another_field(path: Path) -> None:
    """Beside pictures, tokens are a field like others: a value a sample."""
    both = Schema((IMAGE_FIELD, Field("tokens", TOKENS, "<u2", (None,)), Field("text", TEXT, "|u1", (None,))))
    images, ids, texts = [b"x" * 3000, b"y"], [b"abcd", b""], [b"", "Käfer".encode()]
    with create_store(path, both) as writer:
        spans = {"image": make_spans(images), "tokens": make_spans(ids), "text": make_spans(texts)}
        writer.append(SampleBatch(["a.png", "b.png"], spans))
    with open_store(path) as store:
        assert ids == list(read_all(store, "tokens").values())
        assert texts == list(read_all(store, "text").values())


def test_plain_lmdb_sees_a_flat_array(tmp_path: Path) -> None:
    """The values of ``tokens/...`` are pieces of the flat array, keyed by their first sample; none is cut."""
    values = sequences(LONG)
    path = write(tmp_path / "a.lmdb", values)
    with lmdb.open(str(path), subdir=False, readonly=True, lock=False) as env, env.begin() as txn:
        pieces = {int(key[7:]): np.frombuffer(value, "<u2") for key, value in txn.cursor() if key[:7] == b"tokens/"}
        sizes = np.frombuffer(txn.get(b"_tokens_sizes"), "<i8")

    assert np.array_equal(np.concatenate(values), np.concatenate(list(pieces.values())))
    assert [len(value) for value in values] == sizes.tolist()
    assert [0, 2, 3, 6] == list(pieces)
    assert np.array_equal(values[3], pieces[3][:3])


@pytest.mark.parametrize("dtype", DTYPES)
def test_plain_h5py_sees_a_flat_array(tmp_path: Path, dtype: str) -> None:
    """``tokens`` is one dataset of ids, and offsets count ids."""
    values = sequences(LONG, dtype)
    with h5py.File(write(tmp_path / "a.h5", values, dtype=dtype)) as file:
        assert np.dtype(dtype) == file["tokens"].dtype
        assert np.array_equal(np.concatenate(values), file["tokens"][:])
        start, size = file["tokens_starts"][5], file["tokens_sizes"][5]
        assert np.array_equal(values[5], file["tokens"][start : start + size])


def test_plain_tarfile_sees_one_member_of_ids(tmp_path: Path) -> None:
    """A shard holds one npy file of all ids, and one of their numbers; the guide of formats reads them like this."""
    values = sequences(LONG)
    with tarfile.open(write(tmp_path / "a.tar", values, batch_size=4)) as tar:
        load = lambda name: np.load(io.BytesIO(tar.extractfile(name).read()))  # noqa: E731 - as in the guide
        names = [name for name in tar.getnames() if not name.startswith("__fastio__/")]
        ids, sizes = load("tokens.npy"), load("__fastio__/tokens_sizes.npy")

    samples = np.split(ids, np.cumsum(sizes)[:-1])
    assert ["tokens.npy"] == names
    assert all(map(np.array_equal, values, samples))
    assert np.uint16 == ids.dtype


@pytest.mark.parametrize("batch_size", [1, 2, 9])
def test_shards_of_ids(tmp_path: Path, batch_size: int) -> None:
    """Shards are cut by the bytes of ids, also where a batch ends, and hold one member each."""
    values = sequences([30, 20, 50, 100, 10, 0, 90, 120, 0])
    path = tmp_path / "a-%d.tar"
    write(path, values, batch_size=batch_size, shard_bytes=200)

    with open_store(path) as store:
        assert [100, 100, 100, 120, 0] == [int(shard.sizes["tokens"].sum()) // 2 for shard in store.shards]
        assert [value.tobytes() for value in values] == list(read_all(store, "tokens").values())


def test_a_damaged_head_is_refused(tmp_path: Path) -> None:
    """What plain readers begin with is compared when a shard is opened."""
    path = write(tmp_path / "a.tar", sequences([3, 4]))
    data = bytearray(path.read_bytes())
    data[1024 + 130] ^= 1  # in the header of tokens.npy
    path.write_bytes(data)

    with pytest.raises(StoreCorrupt, match="first 1664 bytes"):
        open_store(path)


def test_ids_of_more_than_8_gib(tmp_path: Path) -> None:
    """The header of a long member is as long as that of a short one, and tarfile reads it."""
    headers = [_header("tokens.npy", size) for size in (5, 9 << 30)]

    assert [512, 512] == list(map(len, headers))
    assert 9 << 30 == tarfile.TarInfo.frombuf(headers[1], "utf-8", "strict").size


def test_stores_of_earlier_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tar shards that hold a member for each sequence, and count ids all the same, are read."""
    values = sequences([3, 0, 500])
    monkeypatch.setitem(FORMATS, "tar", replace(FORMATS["tar"], writer=TarWriter))
    path = write(tmp_path / "a.tar", values)
    monkeypatch.undo()

    with open_store(path) as store:
        assert [value.tobytes() for value in values] == list(read_all(store, "tokens").values())
        assert [] == verify_store(store)
    with tarfile.open(path) as tar:
        assert "a%2Etxt:2.tokens.npy" in tar.getnames()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_ids_per_sample(tmp_path: Path, suffix: str) -> None:
    """If asked for, each format keeps the ids of a sample as a value of its own."""
    values = sequences([3, 0, 500])
    path = write(tmp_path / f"a{suffix}", values, is_per_sample=True)

    with open_store(path) as store:
        assert store.schema.flat is None
        assert [value.tobytes() for value in values] == list(read_all(store, "tokens").values())
        assert [] == verify_store(store)


# webdataset leaves its files to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_webdataset_reads_a_member_a_sample(tmp_path: Path) -> None:
    """Of a store of ids per sample, each sample is an npy file."""
    values = sequences([3, 0, 500])
    path = write(tmp_path / "a.tar", values, is_per_sample=True)
    dataset = webdataset.WebDataset(str(path), shardshuffle=False)
    found = [np.load(io.BytesIO(sample["tokens.npy"])) for sample in dataset]

    assert [value.tolist() for value in values] == [value.tolist() for value in found]
    assert found[0].dtype == np.uint16


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_webdataset_reads_a_flat_shard_as_one_sample(tmp_path: Path) -> None:
    """Without that, webdataset makes one sample of all ids of a shard."""
    values = sequences([3, 0, 500])
    samples = list(webdataset.WebDataset(str(write(tmp_path / "a.tar", values)), shardshuffle=False))

    assert ["tokens"] == [sample["__key__"] for sample in samples]
    assert np.concatenate(values).tolist() == np.load(io.BytesIO(samples[0]["npy"])).tolist()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_keys_that_count_up_are_a_rule(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large index keeps them as one in every format, and in the set that is made of shards and of sets."""
    monkeypatch.setattr(arrays, "LARGE_FROM", 0)
    values = sequences([3, 0, 2] * 40)
    path = write(tmp_path / f"out{suffix}", values, batch_size=len(values))
    with open_store(path) as store:
        (shard,) = store.shards
        assert isinstance(shard.keys, NumberedKeys)
        assert shard.keys.runs == [KeyRun(len(values), b"a.txt:", 0, 1, b"")]
        assert store.keys(np.arange(len(store))) == [f"a.txt:{i}" for i in range(len(values))]
        store.check_index()


def test_rules_of_merged_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Shards with rules, with keys as text and sets of either are merged: what goes on is one rule. A key that two have is
    named, whichever way they keep it.
    """
    counts = (100, 70, 130, 50)
    parts, first = [], 0
    for number, count in enumerate(counts):
        monkeypatch.setattr(arrays, "LARGE_FROM", 1 << 30 if number == 1 else 0)
        parts.append(str(tmp_path / f"{number}.tar"))
        write_numbered(parts[-1], first, count)
        first += count
    merge_stores(parts[:2], str(tmp_path / "a.fastio-set"))
    merge_stores([str(tmp_path / "a.fastio-set"), *parts[2:]], str(tmp_path / "all.fastio-set"))
    with open_store(tmp_path / "all.fastio-set") as store:
        runs = [shard.keys.runs for shard in store.shards if isinstance(shard.keys, NumberedKeys)]
        assert runs == [[KeyRun(n, b"t", sum(counts[:i]), 6, b"")] for i, n in enumerate(counts)]
        assert store.keys(np.arange(len(store))) == [f"t{i:06d}" for i in range(sum(counts))]
    assert json.dumps([[350, "t", 0, 6, ""]], separators=(",", ":")).encode() in Path(store.path).read_bytes()
    for part, names in ((60, r"0\.tar"), (160, r"1\.tar")):
        other = str(tmp_path / f"other{part}.tar")
        write_numbered(other, part, 40)
        with pytest.raises(SchemaError, match=rf"key 't{part:06d}' is in .*{names} and in .*other{part}\.tar"):
            merge_stores([str(tmp_path / "all.fastio-set"), other], str(tmp_path / "more.fastio-set"))


def write_numbered(path: str, first: int, count: int) -> None:
    """A store of one id a sample, with keys that count up from ``first``."""
    with create_store(path, Schema((Field("tokens", TOKENS, "<u2", (None,)),))) as writer:
        keys = [f"t{i:06d}" for i in range(first, first + count)]
        writer.append(SampleBatch(keys, {"tokens": make_spans([b"ab"] * count)}))
        writer.close({})


def test_flat_and_per_sample_are_not_merged(tmp_path: Path) -> None:
    """The message says what differs: the fields are the same."""
    flat = write(tmp_path / "flat.tar", sequences([3, 5]))
    other = write(tmp_path / "other.tar", sequences([4]), is_per_sample=True)
    with pytest.raises(SchemaError, match=r"other\.tar: holds .* \(--per-sample: a value for each sequence\)"):
        merge_stores([str(flat), str(other)], str(tmp_path / "all.fastio-set"))
