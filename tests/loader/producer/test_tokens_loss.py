"""Token ids with what of them counts in the loss: native labels equal the plain function's, damage is named."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from fastio import FastDataset, FastLoader, LengthBucketSampler, PackSampler, Writer
from fastio.dataset.token_collate import ChunkCollate, PackCollate, PadCollate, TokenCollate
from fastio.errors import SampleError, SchemaError
from fastio.types.runs import mask_of_runs, runs_of_mask
from tests.conftest import SUFFIXES
from tests.loader.producer.test_tokens import same

COLLATES: list[TokenCollate] = [
    PadCollate(7, "left", 8),
    PadCollate(),
    PackCollate(pad_id=5),
    PackCollate(600, pad_id=5),
    PackCollate(80, pad_id=5, rows=9),
    ChunkCollate(16, pad_id=2),
    PackCollate(80, pad_id=5, rows=9, longest=30),
    ChunkCollate(16, pad_id=2, longest=21),
]


def write_chats(path: Path, masks: Sequence[Sequence[bool]]) -> Path:
    """A sample of ids from 3 on for each mask."""
    with Writer(path, {"tokens": "tokens16", "loss": "loss"}) as out:
        for mask in masks:
            out.write({"tokens": np.arange(3, 3 + len(mask), dtype=np.uint16), "loss": runs_of_mask(mask)})
    return path


def some_masks(count: int = 40) -> list[list[bool]]:
    """Masks of 0 to 60 tokens."""
    draw = np.random.default_rng(1)
    return [(draw.random(length) < draw.random()).tolist() for length in draw.integers(0, 61, count)]


@pytest.fixture(scope="module", params=SUFFIXES)
def chats(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> FastDataset:
    """Such samples in each format."""
    return FastDataset(write_chats(tmp_path_factory.mktemp("chats") / f"a.{request.param}", some_masks()))


@given(st.lists(st.booleans(), max_size=40))
@example([])
@example([True])
def test_runs_give_back_the_mask(mask: list[bool]) -> None:
    """Runs begin outside of the loss, and none within is empty."""
    runs = runs_of_mask(mask)
    assert runs.dtype == np.int32
    assert mask_of_runs(runs, len(mask)).tolist() == mask
    assert all(runs[1:] > 0)


@pytest.mark.parametrize("runs", [[3], [1, -1, 2], [1, 2]])
def test_runs_of_another_length_are_refused(runs: list[int]) -> None:
    """Runs that are negative, or more or fewer tokens than there are."""
    with pytest.raises(ValueError, match="for a sample of 2"):
        mask_of_runs(runs, 2)


@pytest.mark.parametrize("read", ["map", "pread"])
@pytest.mark.parametrize("collate", COLLATES, ids=repr)
def test_native_labels_equal_the_plain_function(chats: FastDataset, collate: TokenCollate, read: Any) -> None:
    """What native threads fill is what the collate makes of the samples in a DataLoader, however they are read."""
    chats = FastDataset(chats.store.path, read=read)
    sampler = LengthBucketSampler(chats.lengths, max_tokens=300, window=30)
    expected = list(DataLoader(chats, batch_sampler=sampler, collate_fn=collate))
    with FastLoader(chats, batch_sampler=sampler, collate=collate, threads=2) as loader:
        found = list(loader)

    assert len(found) == len(expected)
    assert all(map(same, found, expected))
    assert all(batch["labels"].shape == batch["input_ids"].shape for batch in found)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.booleans(), max_size=70), min_size=1, max_size=20),
    st.integers(1, 9),
    st.sampled_from(COLLATES),
)
def test_any_masks_equal_the_plain_function(
    tmp_path_factory: pytest.TempPathFactory, masks: list[list[bool]], batch_size: int, collate: TokenCollate
) -> None:
    """Fast path and plain path agree for any masks."""
    path = write_chats(tmp_path_factory.mktemp("any") / "a.h5", masks)
    with FastDataset(path) as dataset, FastLoader(dataset, batch_size, collate=collate, threads=1) as loader:
        for first, batch in zip(range(0, len(masks), batch_size), loader, strict=True):
            indices = range(first, min(first + batch_size, len(masks)))
            assert same(batch, collate([dataset[index] for index in indices]))


def test_labels_are_ids_that_count(chats: FastDataset) -> None:
    """In packed rows, by the mask of each sample; -100 elsewhere, also in the padding."""
    sampler = PackSampler(chats.lengths, max_tokens=128, rows=3)
    masks = some_masks()
    with FastLoader(chats, batch_sampler=sampler, collate="pack", threads=1) as loader:
        batches = list(loader)
    plan = sampler.plan(0)
    for batch, place in zip(batches, plan.slices(), strict=True):
        documents, ids, labels = batch["document_ids"], batch["input_ids"], batch["labels"]
        for number, index in enumerate(plan.indices[place].tolist()):
            expected = torch.where(torch.tensor(masks[index], dtype=torch.bool), ids[documents == number], -100)
            expected[:1] = -100  # nothing foretells the first id
            assert labels[documents == number].tolist() == expected.tolist()
        assert (labels[documents == -1] == -100).all()


def test_the_default_pads(chats: FastDataset) -> None:
    """Without a collate, batches are padded, as those of ids alone."""
    with FastLoader(chats, 4, threads=1) as loader:
        assert list(next(iter(loader))) == ["input_ids", "attention_mask", "lengths", "labels"]
    ids, loss = chats[1]["tokens"], chats[1]["loss"]
    assert mask_of_runs(loss, len(ids)).tolist() == some_masks()[1]


@pytest.mark.parametrize("on_error", ["raise", "skip", "zero"])
@pytest.mark.parametrize("is_flipped", [False, True])
def test_a_bad_loss_is_a_bad_sample(
    tmp_path: Path, on_error: Any, is_flipped: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Runs that changed after packing, or that never were as many as the ids, are named; others go on."""
    masks = some_masks(6)
    path = tmp_path / "a.lmdb"
    with Writer(path, {"tokens": "tokens16", "loss": "loss"}) as out:
        for number, mask in enumerate(masks):
            runs = np.array([len(mask) + 1]) if number == 2 and not is_flipped else runs_of_mask(mask)
            out.write({"tokens": np.arange(3, 3 + len(mask), dtype=np.uint16), "loss": runs.astype(np.int32)})
    dataset = FastDataset(path)
    if is_flipped:
        start = int(dataset.store.spans("loss", np.array([2])).starts[0])
        data = bytearray(path.read_bytes())
        data[start] ^= 1
        path.write_bytes(bytes(data))
        dataset = FastDataset(path)
    words = "'loss'.*checksum" if is_flipped else f"'loss'.*runs of {len(masks[2]) + 1} tokens, for a sample of"
    with FastLoader(dataset, 3, on_error=on_error, threads=1) as loader:
        if on_error == "raise":
            with pytest.raises(SampleError, match=words):
                list(loader)
            return
        first, second = list(loader)
    assert len(second["lengths"]) == 3
    assert re.search(words, caplog.text)
    assert first["lengths"].tolist() == [len(mask) for mask in masks[:2]] + ([0] if on_error == "zero" else [])


def test_a_loss_that_is_no_runs(tmp_path: Path) -> None:
    """The type takes no sizes; a Field of this role has one dimension of int32."""
    with pytest.raises(SchemaError, match=r"loss takes no \[3\]: it is as many runs as a sample has already"):
        Writer(tmp_path / "a.lmdb", {"tokens": "tokens16", "loss": "loss[3]"})
    with pytest.raises(SchemaError, match=r"loss does not fit <i8 \(None,\)"):
        Writer(tmp_path / "a.lmdb", {"tokens": "tokens16", "loss": ("int64", (None,), "loss")})
