"""Fields with one value for each token id: native batches equal the plain function's, and damage is named."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from fastio import FastDataset, FastLoader, PackSampler, Writer
from fastio.dataset.token_collate import ChunkCollate, PackCollate, PadCollate, TokenCollate
from fastio.errors import SampleError, SchemaError
from fastio.types.runs import runs_of_mask
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
SCHEMA = {
    "tokens": "tokens16",
    "kinds": "uint8[*]",
    "weights": "float32[*]",
    "halves": "float16[*]",
    "twins": "tokens",
    "places": "int64[*]",
    "labels": "int64[*]",
    "is_odd": "bool[*]",
    "number": "int",
    "score": "float",
}


def fields_of(length: int, number: int) -> dict[str, Any]:
    """A sample of as many ids."""
    ids = np.arange(3, 3 + length)
    return {
        "tokens": ids.astype(np.uint16),
        "kinds": (ids % 5).astype(np.uint8),
        "weights": (ids / 8).astype(np.float32),
        "halves": (ids / 4).astype(np.float16),
        "twins": (ids + 70_000).astype(np.uint32),
        "places": -ids,
        "labels": ids + 1,
        "is_odd": ids % 2 == 1,
        "number": number,
        "score": number / 2,
    }


def write(path: Path, lengths: list[int], schema: dict[str, str]) -> Path:
    """Samples of these fields, and perhaps of what counts in the loss."""
    with Writer(path, schema) as out:
        for number, length in enumerate(lengths):
            sample = fields_of(length, number) | {"loss": runs_of_mask(np.arange(length) % 3 == 1)}
            out.write({name: sample[name] for name in schema})
    return path


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(0, 70), min_size=1, max_size=20),
    st.integers(1, 9),
    st.sampled_from(COLLATES),
    st.sets(st.sampled_from([name for name in SCHEMA if name != "tokens"]), min_size=1),
    st.booleans(),
)
@example([0, 0], 1, COLLATES[3], {"weights"}, False)
def test_native_fields_equal_the_plain_function(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[int],
    batch_size: int,
    collate: TokenCollate,
    names: set[str],
    has_loss: bool,
) -> None:
    """Whatever lies beside the ids, of any type, and the columns: what threads fill is what the collate makes."""
    schema = {name: SCHEMA[name] for name in SCHEMA if name == "tokens" or name in names}
    if has_loss:
        schema = {name: of for name, of in schema.items() if name != "labels"} | {"loss": "loss"}
    if len([name for name in schema if name not in ("number", "score")]) == 1:
        schema["kinds"] = SCHEMA["kinds"]
    if all(of.startswith("tokens") for name, of in schema.items() if name not in ("number", "score")):
        schema["kinds"] = SCHEMA["kinds"]  # a PadCollate pads fields of token ids each by itself
    dataset = FastDataset(write(tmp_path_factory.mktemp("any") / "a.h5", lengths, schema))
    expected = list(DataLoader(dataset, batch_size, collate_fn=collate))
    with FastLoader(dataset, batch_size, collate=collate, threads=1) as loader:
        found = list(loader)

    assert len(expected) == len(found)
    assert all(map(same, expected, found))
    flat = [name for name in schema if name not in ("tokens", "loss", "number", "score")]
    assert all(batch[name].shape == batch["input_ids"].shape for batch in found for name in flat)


def test_rows_of_several_fields(tmp_path: Path) -> None:
    """One plan lays out all fields: labels are -100 in padding, other fields 0."""
    schema = {name: SCHEMA[name] for name in ("tokens", "weights", "labels")}
    dataset = FastDataset(write(tmp_path / "a.h5", [3, 5, 2, 4], schema))
    sampler = PackSampler(dataset.lengths, max_tokens=8, rows=2)
    with FastLoader(dataset, batch_sampler=sampler, collate="pack", threads=1) as loader:
        (batch,) = loader

    assert (2, 8) == tuple(batch["weights"].shape)
    is_token = batch["document_ids"] >= 0
    assert ((batch["input_ids"] / 8) * is_token).tolist() == batch["weights"].tolist()
    assert torch.where(is_token, batch["input_ids"] + 1, -100).tolist() == batch["labels"].tolist()


def test_samples_that_are_too_long(tmp_path: Path) -> None:
    """Dropped ones do not come, cut ones have their first tokens in all fields; stats name both."""
    schema = {name: SCHEMA[name] for name in ("tokens", "weights")} | {"loss": "loss"}
    dataset = FastDataset(write(tmp_path / "a.h5", [3, 12, 2, 9, 8], schema))
    for fate in ("drop", "cut"):
        sampler = PackSampler(dataset.lengths, max_tokens=8, rows=2, too_long=fate)  # type: ignore[arg-type]
        with FastLoader(dataset, batch_sampler=sampler, collate="pack", threads=1) as loader:
            batches = list(loader)
            lengths = sorted(int(length) for batch in batches for length in batch["lengths"])
            receipt, packing = loader.receipt(), loader.stats.packing
        assert packing is not None
        assert ([2, 3, 8] if fate == "drop" else [2, 3, 8, 8, 8]) == lengths
        assert [1, 3] == (packing.dropped if fate == "drop" else packing.cut).tolist()
        assert (21 if fate == "drop" else 5) == packing.lost_tokens
        assert receipt.is_complete
        for batch in batches:
            is_token = batch["document_ids"] >= 0
            assert ((batch["input_ids"] / 8) * is_token).tolist() == batch["weights"].tolist()
    plain = FastLoader(dataset, 2)
    assert plain.stats.packing is None
    with pytest.raises(
        ValueError, match=r"too_long='cut'\): expected collate='pack', or a PackCollate or ChunkCollate"
    ):
        FastLoader(dataset, batch_sampler=sampler, collate=PackCollate(8, rows=2))


@settings(max_examples=20, deadline=None)
@given(st.sets(st.integers(0, 11)), st.sampled_from(COLLATES), st.sampled_from(["skip", "zero"]), st.integers(0, 4))
def test_bad_values_make_bad_samples(
    tmp_path_factory: pytest.TempPathFactory,
    bad: set[int],
    collate: TokenCollate,
    on_error: Literal["skip", "zero"],
    step: int,
) -> None:
    """A damaged value, or one of another length, leaves out its sample in all fields; a resume goes on behind."""
    path = tmp_path_factory.mktemp("bad") / "a.lmdb"
    schema = {name: SCHEMA[name] for name in ("tokens", "kinds", "weights")}
    with Writer(path, schema) as out:
        for number in range(12):
            sample = fields_of(1 + 5 * number, number)
            if number in bad and number % 2:
                sample["weights"] = sample["weights"][:-1]
            out.write({name: sample[name] for name in schema})
    with FastDataset(path) as dataset:
        starts = dataset.store.spans("kinds", np.arange(12)).starts
    data = bytearray(path.read_bytes())
    for number in bad:
        if number % 2 == 0:
            data[int(starts[number])] ^= 1
    path.write_bytes(bytes(data))
    expected = []
    for first in range(0, 12, 3):
        kept = [number for number in range(first, first + 3) if on_error == "zero" or number not in bad]
        every = [fields_of(0 if number in bad else 1 + 5 * number, number) for number in kept]
        samples = [{name: each[name] for name in schema} for each in every]
        if kept:
            expected.append(collate([{**each, "tokens": each["tokens"].astype(np.int64)} for each in samples]))
    options: dict[str, Any] = {"collate": collate, "on_error": on_error, "threads": 1}
    with FastLoader(path, 3, **options) as loader, FastLoader(path, 3, **options) as resumed:
        batches = iter(loader)
        found = list(islice(batches, min(step, len(expected))))
        resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        rest = list(batches)
        assert len(expected) == len(found) + len(rest)
        assert all(map(same, [*found, *rest], expected))
        assert all(map(same, rest, resumed))
        assert sorted(bad) == sorted(error.index for error in loader.skipped)
    if bad:
        words = "checksum" if min(bad) % 2 == 0 else "'weights'.*values, for a sample of .* ids: pack again"
        with FastLoader(path, 3, collate=collate, threads=1) as loader, pytest.raises(SampleError, match=words):
            list(loader)


def test_fields_that_cannot_share_rows(tmp_path: Path) -> None:
    """Those of other lengths, and those whose names a batch has already, are refused with what to do."""
    with Writer(tmp_path / "a.h5", {"tokens": "tokens16", "other": "tokens16"}) as out:
        for number in range(4):
            out.write({"tokens": np.arange(3, dtype=np.uint16), "other": np.arange(4 + number, dtype=np.uint16)})
    with pytest.raises(SchemaError, match=r"more or fewer values in 'other' than ids in 'tokens'.*them by field"):
        FastLoader(tmp_path / "a.h5", 2, collate="pack")
    with Writer(tmp_path / "c.h5", {"tokens": "tokens16", "position_ids": "int64[*]"}) as out:
        out.write({"tokens": np.arange(3, dtype=np.uint16), "position_ids": np.arange(3)})
    with pytest.raises(SchemaError, match="an entry 'position_ids' already"):
        FastLoader(tmp_path / "c.h5", 2, collate="pack")


def test_samples_without_ids_are_refused() -> None:
    """The plain function names what a dict has, and values of another length."""
    with pytest.raises(ValueError, match="samples with weights: expected token ids, an int64 sequence"):
        PackCollate()([{"weights": torch.ones(3)}])
    with pytest.raises(ValueError, match="'weights' has 2 values, for a sample of 3 ids in 'tokens'"):
        PackCollate()([{"tokens": torch.arange(3), "weights": torch.ones(2)}])
