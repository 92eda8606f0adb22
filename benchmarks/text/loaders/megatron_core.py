"""Megatron-core's GPTDataset over ``.bin`` and ``.idx``, in a torch DataLoader: windows of shuffled documents."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder
from megatron.core.datasets.utils import Split
from torch.utils.data import DataLoader, default_collate

from benchmarks.text.work import EOS, TRAININGS, WINDOW, Batch, Epochs, Work, read_texts

__all__ = ["LOADERS", "PACKS"]

logging.getLogger("megatron").setLevel(logging.ERROR)


def _pack(work: Work) -> None:
    """Its own builder, a document at a time."""
    builder = IndexedDatasetBuilder(str(work.packed / "train.bin"), dtype=np.uint16)
    for ids in read_texts(work.source / "stream"):
        builder.add_document(torch.from_numpy(ids.astype(np.int32)), [len(ids)])
    builder.finalize(str(work.packed / "train.idx"))


def _windows(work: Work) -> Epochs:
    """Masks and positions are those of plain windows, which it makes once: no attention mask, none of them reset."""
    prefix = str(work.packed / "train")
    config = GPTDatasetConfig(
        random_seed=1,
        sequence_length=WINDOW,
        blend=([prefix], None),
        split="1,0,0",
        tokenizer=SimpleNamespace(eod=EOS, pad=-1, vocab_size=EOS + 1, unique_identifiers={"class": "ids"}),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
    )
    documents = IndexedDataset(prefix, mmap=True)
    indices = np.arange(len(documents), dtype=np.int32)
    windows: Any = GPTDataset(documents, prefix, indices, None, Split.train, config)

    def collate(samples: Any) -> Batch:
        batch = default_collate(samples)
        return {"inputs": batch["tokens"], "targets": batch["labels"]}, len(samples)

    loader = DataLoader(
        windows,
        TRAININGS["windows"].batch_size,
        num_workers=work.workers,
        persistent_workers=work.workers > 0,
        collate_fn=collate,
    )
    return Epochs(lambda: loader)


LOADERS = {"Megatron": {"windows": _windows}}
PACKS = {"windows": _pack}
