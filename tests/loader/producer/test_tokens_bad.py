"""Batches of token ids with bad samples in them: what is left equals the plain function's, resumed at every batch."""

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

from fastio import FastDataset, FastLoader
from fastio.dataset.token_collate import ChunkCollate, PackCollate, PadCollate, TokenCollate
from fastio.types.schema import TOKENS, Field
from tests.conftest import write_store
from tests.loader.producer.test_tokens import COLLATES, VOCABULARY, same

COUNT = 14


def store_of(path: Path, samples: list[Any]) -> Path:
    """Ids of a vocabulary that does not have all of them, labels, and padding by 9 for the names of collates."""
    said = {"tokenizer": {"vocab_size": VOCABULARY, "special": {"pad": 9}}}
    values = [np.array(ids).astype("<u2").tobytes() for ids in samples]
    field = Field("tokens", TOKENS, "<u2", (None,))
    return write_store(path, values, np.arange(len(values)), field=field, metadata=said)


def expected_of(
    samples: list[Any], bad: set[int], batch_size: int, *, collate: TokenCollate, on_error: str
) -> list[Any]:
    """What the collate makes of the samples that are left, or of no tokens in the place of the bad ones."""
    batches = []
    for first in range(0, COUNT, batch_size):
        indices = range(first, min(first + batch_size, COUNT))
        kept = [index for index in indices if on_error == "zero" or index not in bad]
        ids = [torch.tensor([] if index in bad else samples[index], dtype=torch.int64) for index in kept]
        if kept:
            batches.append(collate(list(zip(ids, kept, strict=True))))
    return batches


@settings(max_examples=40, deadline=None)
@given(
    st.sets(st.integers(0, COUNT - 1)),
    st.integers(1, 5),
    st.sampled_from(COLLATES),
    st.sampled_from(["skip", "zero"]),
    st.integers(0, COUNT),
)
@example(set(range(COUNT)), 3, PackCollate(600), "zero", 1)
@example(set(range(COUNT)), 3, ChunkCollate(16), "skip", 0)
@example({3, 4, 5}, 3, PadCollate(side="left"), "skip", 1)
def test_bad_samples_and_the_plain_function(
    tmp_path_factory: pytest.TempPathFactory,
    bad: set[int],
    batch_size: int,
    collate: TokenCollate,
    on_error: Literal["skip", "zero"],
    step: int,
) -> None:
    """Whatever is bad, batches hold what is left, their statistics too, and a resume goes on with the next one."""
    random = np.random.default_rng(len(bad))
    samples = [random.integers(0, VOCABULARY, length).tolist() for length in random.integers(1, 30, COUNT)]
    stored = [[*ids, VOCABULARY] if index in bad else ids for index, ids in enumerate(samples)]
    path = store_of(tmp_path_factory.mktemp("bad") / "a.h5", stored)
    expected = expected_of(samples, bad, batch_size, collate=collate, on_error=on_error)
    options: dict[str, Any] = {"collate": collate, "on_error": on_error, "threads": 1}

    with FastLoader(path, batch_size, **options) as loader, FastLoader(path, batch_size, **options) as resumed:
        batches = iter(loader)
        found = list(islice(batches, min(step, len(expected))))
        resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        rest = list(batches)
        assert len(expected) == len(found) + len(rest)
        assert all(map(same, [*found, *rest], expected))
        again = list(resumed)
        assert len(rest) == len(again)
        assert all(map(same, rest, again))
        assert sorted(bad) == [error.index for error in loader.skipped]
        assert loader.stats.slots == sum(batch["input_ids"].numel() for batch in expected)
        assert loader.stats.tokens == sum(len(ids) for index, ids in enumerate(samples) if index not in bad)


@pytest.mark.parametrize("read", ["map", "pread"])
def test_bad_checksums_are_left_out(tmp_path: Path, read: Any) -> None:
    """A sample whose bytes have changed is left out like another bad one."""
    path = store_of(tmp_path / "a.h5", [[7, 8, number] for number in range(COUNT)])
    data = bytearray(path.read_bytes())
    data[data.index(np.array([7, 8, 5], "<u2").tobytes())] ^= 1
    path.write_bytes(data)
    with FastLoader(FastDataset(path, read=read), 4, on_error="skip", threads=2) as loader:
        found = [label for batch in loader for label in batch["labels"].tolist()]

    assert [number for number in range(COUNT) if number != 5] == found
    assert ["checksum" in str(error) for error in loader.skipped] == [True]
