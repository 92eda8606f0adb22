"""LitData: chunks of tensors, its StreamingDataset and StreamingDataLoader."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import litdata
import numpy as np
import torch

from benchmarks.peers.litdata_caches import own_caches
from benchmarks.peers.sequences import pad
from benchmarks.peers.work import Work

__all__ = ["loader", "pack"]


class _Sequences:
    """Opens the arrays once in the process that packs."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.tokens: Any = None

    def __call__(self, number: int) -> Any:
        if self.tokens is None:
            self.tokens, self.offsets = np.load(self.source / "tokens.npy"), np.load(self.source / "offsets.npy")
        return torch.from_numpy(self.tokens[self.offsets[number] : self.offsets[number + 1]].astype(np.int64))


def pack(work: Work) -> None:
    """Chunks of 64 MB."""
    own_caches(work)
    litdata.optimize(
        fn=_Sequences(work.source),
        inputs=list(range(len(np.load(work.source / "offsets.npy")) - 1)),
        output_dir=str(work.packed),
        chunk_bytes="64MB",
        num_workers=1,
        verbose=False,
    )


def loader(work: Work) -> Iterable[Any]:
    """Batches of (B, longest) int64 and lengths."""
    return litdata.StreamingDataLoader(
        litdata.StreamingDataset(str(work.packed), shuffle=True, drop_last=False),
        batch_size=work.batch_size,
        num_workers=work.workers,
        persistent_workers=True,
        drop_last=False,
        collate_fn=pad,
    )
