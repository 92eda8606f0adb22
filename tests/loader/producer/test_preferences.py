"""Prompts and answers in rows: native batches equal the plain function's, bad samples are named, runs go on."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from fastio import FastDataset, FastLoader, FieldCollate, PreferenceCollate, Writer
from fastio.converters.text import BytesTokenizer
from fastio.converters.text.encode import TextTokens
from fastio.errors import SampleError, SchemaError
from fastio.types.placement import Stage
from tests.loader.producer.test_tokens import same

COLLATES = [PreferenceCollate(), PreferenceCollate(9, 8), PreferenceCollate(9, 4, apart=True)]
Lengths = list[tuple[int, int, int]]


def write_pairs(path: Path, lengths: Lengths) -> Path:
    """Prompts from id 3 on, chosen answers from 300 and rejected ones from 400 on."""
    with Writer(path, {"prompt": "tokens16", "chosen": "tokens16", "rejected": "tokens16"}) as out:
        for each in lengths:
            starts = zip(("prompt", "chosen", "rejected"), (3, 300, 400), each, strict=True)
            out.write({name: np.arange(start, start + size, dtype=np.uint16) for name, start, size in starts})
    return path


def some_lengths(count: int) -> Lengths:
    """Of prompts and answers."""
    return [tuple(row) for row in np.random.default_rng(3).integers(0, 30, (count, 3)).tolist()]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(*[st.integers(0, 40)] * 3), min_size=1, max_size=20),
    st.integers(1, 9),
    st.sampled_from(COLLATES),
)
def test_native_rows_equal_the_plain_function(
    tmp_path_factory: pytest.TempPathFactory, lengths: Lengths, batch_size: int, collate: PreferenceCollate
) -> None:
    """FastLoader, a DataLoader with FieldCollate and one with the collate itself make the same batches."""
    dataset = FastDataset(write_pairs(tmp_path_factory.mktemp("pairs") / "a.h5", lengths))
    expected = list(DataLoader(dataset, batch_size, collate_fn=collate))
    with FastLoader(dataset, batch_size, collate=collate, threads=1) as loader:
        found = list(loader)

    assert len(expected) == len(found)
    assert all(map(same, expected, found))
    assert all(map(same, expected, DataLoader(dataset, batch_size, collate_fn=FieldCollate(dataset, collate))))


def test_rows_are_prompts_and_answers(tmp_path: Path) -> None:
    """Chosen answers come first, then the rejected ones, each behind its prompt; padding is behind both."""
    path = write_pairs(tmp_path / "a.h5", [(2, 1, 3), (1, 2, 0)])
    with FastLoader(path, 2, collate=PreferenceCollate(7), threads=1) as loader:
        (batch,) = loader
        tokens = loader.stats.padding

    assert [[3, 4, 300, 7, 7], [3, 300, 301, 7, 7], [3, 4, 400, 401, 402], [3, 7, 7, 7, 7]] == batch[
        "input_ids"
    ].tolist()
    assert (batch["input_ids"] != 7).tolist() == batch["attention_mask"].tolist()
    assert (batch["input_ids"] >= 300).tolist() == batch["completion_mask"].tolist()
    assert 1 - 12 / 20 == pytest.approx(tokens)


def test_prompts_apart_are_padded_on_the_left(tmp_path: Path) -> None:
    """Each part is a tensor of its own, with its mask."""
    path = write_pairs(tmp_path / "a.h5", [(2, 1, 3), (1, 2, 0)])
    with FastLoader(path, 2, collate=PreferenceCollate(7, apart=True), threads=1) as loader:
        (batch,) = loader

    parts = ("prompt", "chosen", "rejected")
    assert [f"{part}_{of}" for part in parts for of in ("input_ids", "attention_mask")] == list(batch)
    assert [[3, 4], [7, 3]] == batch["prompt_input_ids"].tolist()
    assert [[300, 7], [300, 301]] == batch["chosen_input_ids"].tolist()
    assert [[True, True, True], [False, False, False]] == batch["rejected_attention_mask"].tolist()


def test_completions_come_with_their_labels(tmp_path: Path) -> None:
    """One row for each, and the columns of the samples; the name of the collate takes the tokenizer's padding."""
    schema = {"prompt": "tokens16", "completion": "tokens16", "label": "bool"}
    with Writer(tmp_path / "a.h5", schema, tokenizer=TextTokens(BytesTokenizer())) as out:
        for number in range(3):
            out.write({"prompt": "abc"[: number + 1], "completion": "z", "label": number == 1})
    dataset = FastDataset(tmp_path / "a.h5")
    with FastLoader(dataset, 3, collate="preference", threads=1) as loader:
        (batch,) = loader

    assert [[97, 122, 258, 258], [97, 98, 122, 258], [97, 98, 99, 122]] == batch["input_ids"].tolist()
    assert [False, True, False] == batch["label"].bool().tolist()
    assert same(batch, next(iter(DataLoader(dataset, 3, collate_fn=FieldCollate(dataset, "preference")))))


@settings(max_examples=25, deadline=None)
@given(st.sets(st.integers(0, 11)), st.sampled_from(COLLATES[:2]), st.sampled_from(["skip", "zero"]), st.integers(0, 4))
def test_bad_parts_make_bad_samples(
    tmp_path_factory: pytest.TempPathFactory,
    bad: set[int],
    collate: PreferenceCollate,
    on_error: Literal["skip", "zero"],
    step: int,
) -> None:
    """A bad prompt or answer leaves out its sample, or its ids; a resume goes on behind the batches that came."""
    path = write_pairs(tmp_path_factory.mktemp("bad") / "a.lmdb", some_lengths(12))
    with FastDataset(path) as dataset:
        kept = {name: [sample[name] for sample in dataset] for name in ("prompt", "chosen", "rejected")}
        starts = {name: dataset.store.spans(name, np.arange(12)) for name in kept}
    data = bytearray(path.read_bytes())
    broken = set()
    for index in bad:
        spans = starts[("prompt", "chosen", "rejected")[index % 3]]
        if spans.sizes[index]:
            data[int(spans.starts[index])] ^= 1
            broken.add(index)
    path.write_bytes(bytes(data))
    expected = []
    for first in range(0, 12, 3):
        indices = [index for index in range(first, first + 3) if on_error == "zero" or index not in broken]
        empty = torch.zeros(0, dtype=torch.int64)
        if indices:
            samples = [{name: empty if i in broken else kept[name][i] for name in kept} for i in indices]
            expected.append(collate(samples))
    options: dict[str, Any] = {"collate": collate, "on_error": on_error, "threads": 1}
    with FastLoader(path, 3, **options) as loader, FastLoader(path, 3, **options) as resumed:
        batches = iter(loader)
        found = list(islice(batches, min(step, len(expected))))
        resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        rest = list(batches)
        assert len(expected) == len(found) + len(rest)
        assert all(map(same, [*found, *rest], expected))
        assert all(map(same, rest, resumed))
        assert sorted(broken) == sorted(error.index for error in loader.skipped)
    if broken:
        with FastLoader(path, 3, collate=collate, threads=1) as loader, pytest.raises(SampleError, match="checksum"):
            list(loader)


WRONG: dict[str, tuple[dict[str, str], dict[str, Any], str]] = {
    "no answers": ({"prompt": "tokens16", "text": "tokens16"}, {}, "samples have prompt .tokens16., text .tokens16."),
    "answers of text": (
        {"prompt": "tokens16", "chosen": "text", "rejected": "tokens16"},
        {},
        "is for token ids named 'prompt' with 'chosen' and 'rejected'",
    ),
    "two widths": (
        {"prompt": "tokens16", "completion": "tokens"},
        {},
        "they need ids of one type, but prompt is tokens16, completion is tokens",
    ),
    "a tuple": (
        {"prompt": "tokens16", "completion": "tokens16"},
        {"fields": ("prompt", "completion")},
        "samples are a tuple: leave out the dataset's fields=",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_samples_that_are_no_preferences(tmp_path: Path, name: str) -> None:
    """One line says what was expected, in FastLoader and in FieldCollate."""
    schema, how, words = WRONG[name]
    with Writer(tmp_path / "a.h5", schema) as out:
        out.write({field: "x" if of == "text" else np.arange(3, dtype=np.uint16) for field, of in schema.items()})
    dataset = FastDataset(tmp_path / "a.h5", **how)
    with pytest.raises(SchemaError, match=words):
        FastLoader(dataset, 1, collate="preference")
    with pytest.raises(SchemaError, match=words):
        FieldCollate(dataset, "preference")


def test_chats_are_no_preferences(tmp_path: Path) -> None:
    """Where fields share rows, too, one line says what preferences need."""
    with Writer(tmp_path / "a.h5", {"tokens": "tokens16", "loss": "loss"}) as out:
        out.write({"tokens": np.arange(3, dtype=np.uint16), "loss": [1, 2]})
    with pytest.raises(SchemaError, match=r"but samples have tokens \(tokens16\), loss \(loss\): fastio pack --chat"):
        FastLoader(tmp_path / "a.h5", 1, collate="preference")


@pytest.mark.parametrize(("collate", "step"), [(PreferenceCollate(7), "PreferenceCollate"), (COLLATES[2], "pad")])
def test_native_threads_make_the_rows(tmp_path: Path, collate: PreferenceCollate, step: str) -> None:
    """Where rows of prompts and answers are made is said by the name of the collate, without its options."""
    path = write_pairs(tmp_path / "a.h5", [(2, 1, 3), (1, 2, 0)])
    with FastLoader(path, 2, collate=collate, threads=1) as loader:
        made = loader.placement.fields["chosen"]

    assert [Stage("native threads", (step,))] == list(made)
