"""Packed batches in the forms that attention kernels and trainers take, without a copy, on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from fastio import FastDataset, FastLoader, PackSampler, Writer
from fastio.types.runs import runs_of_mask

LENGTHS = [5, 9, 3, 12, 7, 2, 16, 4]


@pytest.fixture
def chats(tmp_path: Path) -> FastDataset:
    """Samples of ids in which every token counts."""
    with Writer(tmp_path / "a.h5", {"tokens": "tokens16", "loss": "loss"}) as out:
        for length in LENGTHS:
            ids = np.arange(1, 1 + length, dtype=np.uint16)
            out.write({"tokens": ids, "loss": runs_of_mask(np.ones(length, np.bool_))})
    return FastDataset(tmp_path / "a.h5")


def packed(chats: FastDataset, **how: Any) -> list[dict[str, Any]]:
    """The batches of one epoch."""
    sampler = PackSampler(chats.lengths, shuffle=False, **how)
    with FastLoader(chats, batch_sampler=sampler, collate="pack", threads=1) as loader:
        return list(loader)


def heads_of(ids: torch.Tensor) -> torch.Tensor:
    """Two heads of numbers that differ from token to token, (B, 2, L, 4)."""
    numbers = torch.arange(ids.numel() * 8, dtype=torch.float64).reshape(*ids.shape, 2, 4)
    return torch.sin(numbers * 1.3).transpose(-3, -2)


def alone(heads: torch.Tensor, starts: list[int], stops: list[int]) -> torch.Tensor:
    """Causal attention of each sequence by itself, over the flat (2, T, 4)."""
    out = torch.zeros_like(heads)
    for start, stop in zip(starts, stops, strict=True):
        part = heads[:, start:stop]
        out[:, start:stop] = scaled_dot_product_attention(part, part, part, is_causal=True)
    return out


def test_document_ids_are_a_mask_of_flex_attention(chats: FastDataset) -> None:
    """FlexAttention with the usual document mask attends within samples alone."""
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    (batch,) = packed(chats, max_tokens=32, rows=2)
    documents, heads = batch["document_ids"], heads_of(batch["input_ids"])

    def same_document(b: Any, _: Any, q: Any, k: Any) -> Any:
        return (q >= k) & (documents[b, q] == documents[b, k])

    mask = flex.create_mask(same_document, 2, 1, 32, 32, device="cpu")
    found = scaled_dot_product_attention(heads, heads, heads, attn_mask=mask)
    cuts = batch["cu_seqlens"].tolist()
    flat = heads.transpose(0, 1).reshape(2, 64, 4)
    expected = alone(flat, cuts[:-1], cuts[1:]).reshape(2, 2, 32, 4).transpose(0, 1)
    is_token = (documents >= 0)[:, None, :, None]

    assert torch.allclose(expected * is_token, found * is_token)
    block = flex.create_block_mask(same_document, 2, None, 32, 32, device="cpu", BLOCK_SIZE=16)
    assert (2, 1, 32, 32) == tuple(block.shape)


def test_cu_seqlens_are_those_of_variable_length_attention(chats: FastDataset) -> None:
    """Over the flat rows they begin at 0, ascend, end at the number of slots, and ``max_seqlen`` is the longest."""
    (batch,) = packed(chats, max_tokens=32, rows=2)
    cuts = batch["cu_seqlens"]

    assert (torch.int32, True, 0, 64) == (cuts.dtype, cuts.is_contiguous(), int(cuts[0]), int(cuts[-1]))
    assert batch["max_seqlen"] == int(cuts.diff().max())
    assert batch["input_ids"].view(-1).data_ptr() == batch["input_ids"].data_ptr()
    starts = torch.zeros(64, dtype=torch.bool)
    starts[cuts[:-1].long()] = True
    positions, documents = batch["position_ids"].view(-1), batch["document_ids"].view(-1)
    assert (positions[starts] == 0).all()
    assert (positions[(documents >= 0) & ~starts] > 0).all()


def test_batches_are_those_of_a_padding_free_collator(chats: FastDataset) -> None:
    """Without rows, ids, labels and positions are those that transformers' DataCollatorWithFlattening makes."""
    transformers = pytest.importorskip("transformers")
    collator = transformers.DataCollatorWithFlattening(return_flash_attn_kwargs=True)
    for batch in packed(chats, max_tokens=32):
        samples = [chats[index]["tokens"].tolist() for index in _order(batch)]
        expected = collator([{"input_ids": ids, "labels": ids} for ids in samples])
        length = int(batch["lengths"].sum())
        for name in ("input_ids", "labels", "position_ids"):
            assert expected[name][0].tolist() == batch[name][:length].tolist()
        assert expected["cu_seq_lens_q"].tolist() == batch["cu_seqlens"].tolist()
        assert int(expected["max_length_q"]) == batch["max_seqlen"]


def _order(batch: dict[str, Any]) -> list[int]:
    """The samples of a batch: each has another length."""
    return [LENGTHS.index(length) for length in batch["lengths"].tolist()]
