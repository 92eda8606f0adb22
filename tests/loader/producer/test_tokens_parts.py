"""Samples that a PackSampler splits: batches of parts equal the plain function's of slices, and no token is lost."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from fastio import FastDataset, FastLoader, PackSampler, TokenStream
from fastio.dataset.token_collate import ChunkCollate, PackCollate, PadCollate, TokenCollate
from fastio.errors import SampleError
from fastio.types.runs import mask_of_runs, runs_of_mask
from fastio.types.split import Split
from tests.loader.producer.test_tokens import same
from tests.loader.producer.test_tokens_beside import write

BESIDE = {"tokens": "tokens16", "weights": "float32[*]", "twins": "tokens", "number": "int", "loss": "loss"}


def part_of(sample: dict[str, Any], first: int, tokens: int) -> dict[str, Any]:
    """Some tokens of a sample, and what lies beside them."""
    part: dict[str, Any] = {}
    for name, value in sample.items():
        if name == "loss":
            part[name] = runs_of_mask(mask_of_runs(value, len(sample["tokens"]))[first : first + tokens])
        else:
            part[name] = value[first : first + tokens] if np.ndim(value) else value
    return part


def plain(dataset: FastDataset, sampler: PackSampler, collate: TokenCollate, epoch: int) -> list[Any]:
    """The batches of an epoch, of slices of whole samples."""
    planned, split = sampler.plan(epoch), sampler.split
    parts = np.zeros_like(planned.indices) if planned.parts is None else planned.parts
    firsts, tokens = (split or Split(1 << 30)).bounds(dataset.lengths[planned.indices], parts)
    chosen = zip(planned.indices.tolist(), firsts.tolist(), tokens.tolist(), strict=True)
    samples = [part_of(dataset[index], first, count) for index, first, count in chosen]
    return [collate(samples[part]) for part in planned.slices()]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(0, 70), min_size=1, max_size=20),
    st.integers(1, 30),
    st.floats(0, 0.99),
    st.sampled_from([None, 1, 3]),
    st.integers(0, 3),
)
def test_parts_equal_slices(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[int],
    max_tokens: int,
    overlap: float,
    rows: int | None,
    epoch: int,
) -> None:
    """Ids, positions, labels and all that lies beside, in every layout; each token comes, some of them twice."""
    dataset = FastDataset(write(tmp_path_factory.mktemp("any") / "a.h5", lengths, BESIDE))
    sampler = PackSampler(
        dataset.lengths, max_tokens=max_tokens, rows=rows, too_long="split", overlap=int(overlap * max_tokens)
    )
    collates: list[TokenCollate] = [PackCollate(max_tokens, rows=rows), PadCollate(7, "left", 8), ChunkCollate(16)]
    for collate in collates:
        expected = plain(dataset, sampler, collate, epoch)
        with FastLoader(dataset, batch_sampler=sampler, collate=collate, threads=1) as loader:
            loader.set_epoch(epoch)
            found = list(loader)
            receipt, packing = loader.receipt(), loader.stats.packing

        assert len(expected) == len(found)
        assert all(map(same, expected, found))
        assert receipt.is_complete
    assert packing is not None
    assert [index for index, length in enumerate(lengths) if length > max_tokens] == packing.split.tolist()
    came = sum(int(batch["attention_mask"].sum()) for batch in found)
    assert (sum(lengths) + packing.repeated_tokens, 0) == (came, packing.lost_tokens)
    firsts = (batch["input_ids"][batch["attention_mask"]] for batch in found)
    assert set(range(3, 3 + max(lengths))) == {int(id_) for ids in firsts for id_ in ids}


def test_ids_alone_and_a_report(tmp_path: Path) -> None:
    """Without anything beside; the report counts parts, and says what comes twice."""
    dataset = FastDataset(write(tmp_path / "a.h5", [3, 20, 8], {"tokens": "tokens16"}))
    sampler = PackSampler(dataset.lengths, max_tokens=8, too_long="split", overlap=2, shuffle=False)
    with FastLoader(dataset, batch_sampler=sampler, collate="pack", threads=1) as loader:
        batches = list(loader)
    parts = sorted(tuple(batch["input_ids"][: int(batch["lengths"].sum())].tolist()) for batch in batches)
    whole = list(range(3, 23))
    assert sorted([tuple(whole[:8]), tuple(whole[6:14]), tuple(whole[12:20]), (3, 4, 5), tuple(whole[:8])]) == parts
    assert all((batch["position_ids"][0], batch["position_ids"][7]) in ((0, 7), (0, 0)) for batch in batches)
    assert str(sampler.report()).endswith("; 1 sample split: 4 tokens twice")


@pytest.mark.parametrize("on_error", ["raise", "skip", "zero"])
def test_a_damaged_sample(tmp_path: Path, on_error: Any) -> None:
    """Each of its parts is bad, and named; the others come."""
    path = write(tmp_path / "a.h5", [6, 20, 7], BESIDE)
    with FastDataset(path) as dataset:
        spans = dataset.store.spans("weights", np.array([1]))
    data = bytearray(path.read_bytes())
    data[int(spans.starts[0]) + 3] ^= 4
    path.write_bytes(data)
    dataset = FastDataset(path)
    sampler = PackSampler(dataset.lengths, max_tokens=8, rows=1, too_long="split", shuffle=False)
    with FastLoader(dataset, batch_sampler=sampler, collate="pack", threads=1, on_error=on_error) as loader:
        if on_error == "raise":
            with pytest.raises(SampleError, match=r"00000001.*weights"):
                list(loader)
            return
        batches = list(loader)
        assert [1] == [error.index for error in loader.skipped]
    came = sorted(int(batch["number"][0]) for batch in batches if batch["lengths"].sum())
    assert [0, 2] == came


def test_an_epoch_goes_on_by_other_ranks(tmp_path: Path) -> None:
    """All parts come once over two stages of an epoch; another size of parts is refused, by name."""
    dataset = FastDataset(write(tmp_path / "a.h5", [3, 70, 8, 41, 9], {"tokens": "tokens16"}))

    def loaders(ranks: int, **options: Any) -> list[FastLoader]:
        made = []
        for rank in range(ranks):
            rule = {"max_tokens": 8, "too_long": "split", "uneven": "drop", **options}
            sampler = PackSampler(dataset.lengths, rank=rank, world_size=ranks, **rule)
            made.append(FastLoader(dataset, batch_sampler=sampler, collate="pack", threads=1))
        return made

    def ids(batch: Any) -> list[int]:
        return list(batch["input_ids"][: int(batch["lengths"].sum())].tolist())

    (alone,) = loaders(1)
    begun = iter(alone)
    came = [id_ for _ in range(4) for id_ in ids(next(begun))]
    state = alone.state_dict()
    rest = loaders(2, uneven="pad")
    for loader in rest:
        loader.load_state_dict(state)
    came += [id_ for loader in rest for batch in loader for id_ in ids(batch)]
    expected = [id_ for length in [3, 70, 8, 41, 9] for id_ in range(3, 3 + length)]
    assert Counter(came) >= Counter(expected)
    assert len(came) - len(expected) <= 8  # what a rank repeats
    for other in ({"overlap": 1}, {"max_tokens": 9}):
        with pytest.raises(ValueError, match=r"split"):
            loaders(1, **other)[0].load_state_dict(state)
    for loader in [alone, *rest]:
        loader.close()


def test_where_parts_cannot_come(tmp_path: Path) -> None:
    """Never a whole sample in the place of a part: a DataLoader, other lengths, functions and windows are refused."""
    dataset = FastDataset(write(tmp_path / "a.h5", [3, 20], {"tokens": "tokens16"}))
    sampler = PackSampler(dataset.lengths, max_tokens=8, too_long="split")
    with pytest.raises(ValueError, match=r"a DataLoader takes whole samples: expected FastLoader"):
        next(iter(DataLoader(dataset, batch_sampler=sampler, collate_fn=PackCollate())))  # type: ignore[arg-type]
    wrong = PackSampler([3, 21], max_tokens=8, too_long="split")
    with pytest.raises(ValueError, match=r"sample 1 has 20 tokens, but the PackSampler was told 21"):
        FastLoader(dataset, batch_sampler=wrong, collate="pack")
    for collate in (None, PackCollate(longest=8)):
        with pytest.raises(ValueError, match=r"the PackSampler splits samples|too_long='split'"):
            FastLoader(
                FastDataset(dataset.store.path, torch.Tensor.float) if collate is None else dataset,
                batch_sampler=sampler,
                collate=collate,
            )
    np.arange(40, dtype=np.uint16).tofile(tmp_path / "train.bin")
    windows = TokenStream(tmp_path / "train.bin", dtype="uint16").windows(9)
    with pytest.raises(ValueError, match=r"windows of a stream are split by its windows"):
        FastLoader(windows, batch_sampler=PackSampler([9] * 4, max_tokens=8, too_long="split"), collate="pack")
    for options, words in (({"overlap": 8}, "overlap=8"), ({"overlap": 1, "too_long": "cut"}, "is for too_long")):
        with pytest.raises(ValueError, match=words):
            PackSampler([3], **{"max_tokens": 8, "too_long": "split", **options})
    short = PackSampler([3, 8], max_tokens=8, too_long="split")
    assert [[0], [1]] == sorted(short)
