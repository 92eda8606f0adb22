"""Windows of token streams under FastLoader: native batches equal plain ones, by seed and epoch, on other ranks."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastio import FastLoader, LengthBucketSampler, Mixture, PackSampler, SampleError, SchemaError, TokenStream
from fastio.dataset.token_collate import PackCollate, PadCollate, WindowCollate
from fastio.dataset.window_store import Documents
from fastio.loader.options import CollateName
from fastio.store.files.byte_source import Read
from tests.dataset.streams import KINDS, documents_of, stream_of, write_bin, write_documents
from tests.forking import answer_of_fork
from tests.servers.fixtures import Served

LENGTHS = (5, 1, 30, 12, 64, 2, 17, 90)


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two batches have the same keys, dtypes and values."""
    assert sorted(one) == sorted(other)
    return all(
        one[name] == other[name] if name == "max_seqlen" else torch.equal(one[name], other[name]) for name in one
    ) and all(one[name].dtype == other[name].dtype for name in one if name != "max_seqlen")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verify", [True, False])
def test_native_batches_are_the_plain_ones(tmp_path: Path, kind: str, verify: bool) -> None:
    """Whatever the stream, its documents and the collate, native code makes what plain Python does."""
    stream = stream_of(tmp_path, documents_of(LENGTHS), kind)
    cases: list[tuple[Documents, Any]] = [
        ("cross", WindowCollate(12)),
        ("mask", WindowCollate(12, documents=True)),
        ("inside", PadCollate()),
        ("inside", PadCollate(3, "left", 8)),
        ("inside", PackCollate(60, rows=1)),
    ]
    for documents, collate in cases:
        windows = stream.windows(12, stride=7, documents=documents)
        loader = FastLoader(
            windows, 4, threads=1, verify=verify, collate=collate if documents == "inside" else None, shuffle=True
        )
        order = loader.sampler
        indices = list(order)
        batches = list(loader)
        assert len(windows) == len(indices)
        for number, batch in enumerate(batches):
            expected = collate([windows[index] for index in indices[4 * number : 4 * number + 4]])
            assert same(expected, batch), (documents, number)


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=15),
    size=st.integers(1, 70),
    stride=st.integers(1, 80),
    kind=st.sampled_from(("bin", "npy", "megatron", "folder", "h5", "lmdb")),
)
@settings(max_examples=40, deadline=None)
def test_native_windows_are_slices(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], size: int, stride: int, kind: str
) -> None:
    """Ids are slices of the stream; positions and numbers follow from where documents begin, by NumPy alone."""
    documents = documents_of(lengths)
    ids = np.concatenate(documents)
    if len(ids) < size:
        return
    first = np.cumsum(lengths) - lengths
    document = np.repeat(np.arange(len(lengths)), lengths)
    stream = stream_of(tmp_path_factory.mktemp("n"), documents, kind)
    begin = 0
    for batch in FastLoader(stream.windows(size, stride=stride, documents="mask"), 3, threads=1):
        number, cuts = -1, [0]
        for row in range(len(batch["input_ids"])):
            places = np.arange(begin, begin + size)
            own = document[places]
            assert np.array_equal(ids[places], batch["input_ids"][row])
            assert np.array_equal(places - np.maximum(first[own], begin), batch["position_ids"][row])
            assert np.array_equal(own - own[0] + number + 1, batch["document_ids"][row])
            number += int(own[-1] - own[0]) + 1
            cuts += [*(row * size + np.flatnonzero(np.diff(own)) + 1).tolist(), (row + 1) * size]
            begin += stride
        assert cuts == batch["cu_seqlens"].tolist()
        assert max(np.diff(cuts)) == batch["max_seqlen"]
    assert begin + size > len(ids)


@pytest.mark.parametrize("read", ["map", "pread"])
@pytest.mark.parametrize("kind", ["lmdb", "tar"])
def test_stores_read_by_pread_are_checked(tmp_path: Path, kind: str, read: Read) -> None:
    """Samples that windows lie in are compared with their checksums, however they are read."""
    path = write_documents(tmp_path / f"a.{kind}", documents_of(LENGTHS))
    windows = TokenStream(path, read=read).windows(20, documents="mask")
    expected = [torch.stack([window[name] for window in windows]) for name in ("input_ids", "position_ids")]
    (batch,) = FastLoader(windows, 100, threads=1)
    assert torch.equal(expected[0], batch["input_ids"])
    assert torch.equal(expected[1], batch["position_ids"])


def test_cross_batches_hold_ids_alone(tmp_path: Path) -> None:
    """A window is inputs and targets: nothing else is made."""
    windows = TokenStream(write_bin(tmp_path / "a.bin", range(1000)), dtype="uint16").windows(33, stride=32)
    (batch, *_) = FastLoader(windows, 8)
    assert ["input_ids"] == list(batch)
    assert torch.equal(torch.arange(8)[:, None] * 32 + torch.arange(33), batch["input_ids"])


def test_a_stream_has_no_samples_of_its_own(tmp_path: Path) -> None:
    """The message says what to pass instead."""
    stream = TokenStream(write_bin(tmp_path / "a.bin", range(1000)), dtype="uint16")
    with pytest.raises(TypeError, match=r"got TokenStream: pass windows of it, stream\.windows\(1025\)"):
        FastLoader(stream, 8)  # type: ignore[arg-type]


def test_mask_keeps_documents_apart(tmp_path: Path) -> None:
    """cu_seqlens cut the flat batch where documents and windows begin; a mask compares document_ids."""
    stream = stream_of(tmp_path, documents_of((4, 3, 9)), "megatron")
    (batch,) = FastLoader(stream.windows(8, documents="mask"), 2, threads=1)
    assert [0, 4, 7, 8, 16] == batch["cu_seqlens"].tolist()
    assert 8 == batch["max_seqlen"]
    assert [[0, 0, 0, 0, 1, 1, 1, 2], [3] * 8] == batch["document_ids"].tolist()
    assert [[0, 1, 2, 3, 0, 1, 2, 0], [*range(8)]] == batch["position_ids"].tolist()


def starts(loader: FastLoader) -> list[int]:
    """Where the windows of an epoch begin, in a stream whose ids are their places."""
    return [int(first) for batch in loader for first in batch["input_ids"][:, 0]]


def places(path: Path, count: int = 5000) -> TokenStream:
    """A stream whose ids are their own places."""
    return TokenStream(write_bin(path / "places.bin", np.arange(count), "uint32"), dtype="uint32")


def test_random_windows_are_drawn_by_seed_and_epoch(tmp_path: Path) -> None:
    """Epochs differ, the same seed gives the same windows, and each part of the stream gives one."""
    windows = places(tmp_path).windows(40, random=True)
    loader = FastLoader(windows, 8, shuffle=True, seed=3)
    first, second = starts(loader), starts(loader)
    assert first != second
    assert first == starts(FastLoader(windows, 8, shuffle=True, seed=3, threads=1))
    assert sorted(first) != sorted(starts(FastLoader(windows, 8, shuffle=True, seed=4)))
    assert 125 == len(first) == len(windows)
    low, high = np.arange(125) * 4961 // 125, np.arange(1, 126) * 4961 // 125
    assert ((np.sort(first) >= low) & (np.sort(first) < high)).all()
    batch = next(iter(loader))["input_ids"]
    assert (batch.diff() == 1).all()


def test_random_windows_do_not_depend_on_the_store(tmp_path: Path) -> None:
    """A sealed store and the file that it came from have the same windows in the same epoch."""
    documents = documents_of(LENGTHS)
    batches = []
    for kind in ("bin", "megatron", "lmdb"):
        (tmp_path / kind).mkdir()
        windows = stream_of(tmp_path / kind, documents, kind).windows(15, random=True, documents="mask")
        batches.append(list(FastLoader(windows, 4, shuffle="full", seed=1)))
    for one in batches[1:]:
        assert all(same(*pair) for pair in zip(batches[0], one, strict=True))


@given(
    worlds=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(0, 6)), min_size=1, max_size=3),
    random=st.booleans(),
    seed=st.integers(0, 5),
)
@settings(max_examples=15, deadline=None)
def test_an_epoch_goes_on_with_other_ranks(
    tmp_path_factory: pytest.TempPathFactory, worlds: list[tuple[int, int, int]], random: bool, seed: int
) -> None:
    """However an epoch is divided, its windows are those of one rank, and receipts say that each came once."""
    windows = places(tmp_path_factory.mktemp("e"), 400).windows(10, random=random)
    expected = Counter(starts(FastLoader(windows, 4, shuffle=True, seed=seed, threads=1)))
    found: Counter[int] = Counter()
    states: list[Any] = []
    for number, (world, batch_size, steps) in enumerate([*worlds, (1, 3, None)]):
        loaders = [
            FastLoader(
                windows, batch_size, shuffle=True, seed=seed, threads=1, rank=rank, world_size=world, uneven="drop"
            )
            for rank in range(world)
        ]
        for loader in loaders:
            if states:
                loader.load_state_dict(states)
            for batch in islice(loader, steps):
                found.update(batch["input_ids"][:, 0].tolist())
        states = [json.loads(json.dumps(loader.state_dict())) for loader in loaders]
        if number == len(worlds) and loaders[0].receipt().parts:
            receipt = loaders[0].receipt(own=True)
            assert not receipt.is_verified
        if states[0]["epoch"] != 0:
            break
    # Dropped windows are those that do not divide.
    assert not found - expected
    assert sum((expected - found).values()) <= sum(world * batch for world, batch, _ in worlds)


def test_receipts_say_what_they_count(tmp_path: Path) -> None:
    """Each window came once: of random ones, that is one for each part of the stream, which may overlap."""
    stream = places(tmp_path)
    loader = FastLoader(stream.windows(40), 8, shuffle=True)
    list(loader)
    receipt = loader.receipt()
    assert (125, (1, 1)) == (receipt.samples, receipt.times)
    assert receipt.number == receipt.expected_indices
    assert not receipt.is_verified
    assert "no checksums of their own" in str(receipt.unverified)
    loader = FastLoader(stream.windows(40, random=True), 8, shuffle=True)
    list(loader)
    assert "may overlap" in str(loader.receipt().unverified)


def test_states_refuse_other_windows(tmp_path: Path) -> None:
    """A position among windows of one size is none among those of another."""
    stream = places(tmp_path)
    loader = FastLoader(stream.windows(40), 8, shuffle=True)
    next(iter(loader))
    for other in (stream.windows(41), stream.windows(40, stride=39), stream.windows(40, random=True)):
        with pytest.raises(ValueError, match="state"):
            FastLoader(other, 8, shuffle=True).load_state_dict(loader.state_dict())
    same_again = FastLoader(stream.windows(40), 8, shuffle=True)
    same_again.load_state_dict(loader.state_dict())
    assert starts(FastLoader(stream.windows(40), 8, shuffle=True))[8:] == starts(same_again)


def test_bad_windows_are_left_out_or_blank(tmp_path: Path) -> None:
    """An id above the vocabulary spoils its window alone, and is named with file and place."""
    path = write_bin(tmp_path / "b.bin", np.where(np.arange(80_000) == 40_055, 60_000, 1))
    stream = TokenStream(path, dtype="uint16", vocab_size=1000)
    windows = stream.windows(10)
    with pytest.raises(SampleError, match=r"b\.bin, token 40055: is 60000"):
        list(FastLoader(windows, 100))
    skipping = FastLoader(windows, 100, on_error="skip")
    assert 7999 == sum(len(batch["input_ids"]) for batch in skipping)
    assert [4005] == [error.index for error in skipping.skipped]
    blank = torch.cat([batch["input_ids"] for batch in FastLoader(windows, 100, on_error="zero")])
    assert [4005] == torch.nonzero((blank == 0).all(1)).view(-1).tolist()


@pytest.mark.parametrize("on_error", ["skip", "zero"])
def test_flips_in_stores_spoil_their_windows_alone(tmp_path: Path, on_error: Any) -> None:
    """A sample with a wrong checksum spoils the windows that touch it, in batches with documents too."""
    path = write_documents(tmp_path / "a.h5", documents_of((40, 40, 40)))
    data = bytearray(path.read_bytes())
    data[data.index(documents_of((40, 40, 40))[1][:20].astype("<u2").tobytes())] ^= 1
    path.write_bytes(data)
    windows = TokenStream(path).windows(16, documents="mask")
    loader = FastLoader(windows, 7, on_error=on_error, threads=1)
    (batch,) = loader
    assert [2, 3, 4] == [error.index for error in loader.skipped]
    kept = [0, 1, 5, 6]
    expected = WindowCollate(16, documents=True)([windows[index] for index in kept])
    if on_error == "skip":
        assert same(expected, batch)
    else:
        assert torch.equal(expected["input_ids"], batch["input_ids"][kept])
        assert (batch["input_ids"][2:5] == 0).all()
        assert (batch["document_ids"][2:5] == -1).all()
        assert 7 * 16 == batch["cu_seqlens"][-1]


def test_buckets_and_packs_take_documents(tmp_path: Path) -> None:
    """Windows inside of documents have lengths, so what plans by lengths takes them."""
    stream = stream_of(tmp_path, documents_of(LENGTHS), "megatron")
    windows = stream.windows(32, documents="inside")
    total = sum(LENGTHS)
    cases: list[tuple[Any, CollateName]] = [
        (LengthBucketSampler(windows.lengths, batch_size=3), "pad"),
        (PackSampler(windows.lengths, max_tokens=64, rows=2), "pack"),
    ]
    for sampler, collate in cases:
        loader = FastLoader(windows, batch_sampler=sampler, collate=collate)
        assert total == sum(int(batch["lengths"].sum()) for batch in loader)


def test_mixtures_of_streams(tmp_path: Path) -> None:
    """Streams with weights: each gives its share of windows, drawn or not, and an epoch can be resumed."""
    (tmp_path / "web").mkdir()
    (tmp_path / "code").mkdir()
    web = TokenStream(write_bin(tmp_path / "web" / "a.bin", np.arange(4000)), dtype="uint16")
    code = TokenStream(write_bin(tmp_path / "code" / "a.bin", np.arange(10_000, 12_000)), dtype="uint16")
    members = {"web": web.windows(20, random=True), "code": code.windows(20, stride=5)}
    mixture = Mixture(members, {"web": 1, "code": 3}, batching="stratified")
    loader = FastLoader(mixture, 8, shuffle=True, samples_per_epoch=80, seed=1)
    batches = [batch["input_ids"] for batch in loader]
    assert all(2 == int((batch[:, 0] < 10_000).sum()) for batch in batches)
    assert all((batch.diff() == 1).all() for batch in batches)
    assert any(int((batch[:, 0] % 5).sum()) for batch in batches)
    again = FastLoader(mixture, 8, shuffle=True, samples_per_epoch=80, seed=1)
    list(islice(again, 4))
    resumed = FastLoader(mixture, 8, shuffle=True, samples_per_epoch=80, seed=1)
    resumed.load_state_dict(again.state_dict())
    assert all(torch.equal(*pair) for pair in zip(batches[4:], [each["input_ids"] for each in resumed], strict=True))


def test_mixtures_that_fit_no_batch_are_refused(tmp_path: Path) -> None:
    """Windows of one batch have one size and one dtype."""
    (tmp_path / "wide").mkdir()
    one = TokenStream(write_bin(tmp_path / "a.bin", range(100)), dtype="uint16")
    wide = TokenStream(write_bin(tmp_path / "wide" / "a.bin", range(100), "uint32"), dtype="uint32")
    store = write_documents(tmp_path / "a.h5", documents_of(LENGTHS))
    for other, message in (
        (one.windows(9), "windows of 9 ids"),
        (wide.windows(8), "uint32 of an unknown"),
        (store, "cannot be in one batch"),
    ):
        with pytest.raises(SchemaError, match=message):
            FastLoader(Mixture({"a": one.windows(8), "b": other}, {"a": 1, "b": 1}), 4)


def test_a_forked_child_goes_on(tmp_path: Path) -> None:
    """Windows that a parent has under way are made again in its child."""
    windows = places(tmp_path).windows(40, random=True)
    expected = starts(FastLoader(windows, 8, shuffle=True))
    iterator = iter(FastLoader(windows, 8, shuffle=True))
    first = next(iterator)["input_ids"][:, 0].tolist()
    rest = answer_of_fork(lambda: [int(value) for batch in iterator for value in batch["input_ids"][:, 0]])
    assert expected == [*first, *rest]


def test_a_window_that_repeats_is_drawn_anew(tmp_path: Path) -> None:
    """A part of the windows may name one several times: each begins elsewhere in the same stretch."""
    windows = places(tmp_path).windows(40, random=True)
    loader = FastLoader(windows, 4, indices=[5] * 12 + [6], shuffle=True)
    found = starts(loader)
    low, high = 5 * 4961 // 125, 6 * 4961 // 125
    assert 12 == sum(low <= start < high for start in found)
    assert len(set(found)) > 4


@pytest.mark.parametrize("read", ["map", "pread"])
def test_arrays_instead_of_tensors(tmp_path: Path, read: Read) -> None:
    """JAX and Keras get arrays, also of files that are read piece by piece."""
    path = write_bin(tmp_path / "a.bin", np.arange(100))
    windows = TokenStream(path, dtype="uint16", read=read).windows(9, random=True)
    expected = [batch["input_ids"].numpy() for batch in FastLoader(windows, 4, shuffle=True)]
    batches = list(FastLoader(windows, 4, shuffle=True, output="numpy"))
    assert all(np.array_equal(one, other["input_ids"]) for one, other in zip(expected, batches, strict=True))
    assert all(isinstance(batch["input_ids"], np.ndarray) for batch in batches)


def test_options_that_mean_nothing_for_windows(tmp_path: Path) -> None:
    """Windows have nothing to keep decoded; a function of the user's sees those at a stride, one by one."""
    stream = places(tmp_path, 100)
    with pytest.raises(ValueError, match="cache= is for pictures"):
        FastLoader(stream.windows(10), 4, cache="ram")
    windows = stream.windows(10)
    windows.transform = lambda ids: ids * 2
    (batch, *_) = FastLoader(windows, 4)
    assert [0, 20, 40, 60] == batch[:, 0].tolist()


@pytest.mark.parametrize("random", [False, True])
def test_a_stream_behind_a_url(served: Served, tmp_path: Path, random: bool) -> None:
    """A file on a server gives the windows of the same file here."""
    ids = np.random.default_rng(0).integers(0, 60_000, 50_000)
    here, there = (write_bin(folder / "a.bin", ids) for folder in (tmp_path, served.root))
    assert there.exists()
    batches = [
        [batch["input_ids"] for batch in FastLoader(stream.windows(100, random=random), 16, shuffle=True)]
        for stream in (TokenStream(path, dtype="uint16") for path in (here, f"{served.url}/a.bin"))
    ]
    assert all(torch.equal(*pair) for pair in zip(*batches, strict=True))
