"""MosaicML Streaming: MDS shards of arrays, its StreamingDataset in a torch DataLoader."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from benchmarks.peers.sequences import pad, sequences
from benchmarks.peers.streaming_library import MDSWriter, StreamingDataset
from benchmarks.peers.work import Work

__all__ = ["loader", "pack"]


def pack(work: Work) -> None:
    """Shards of 64 MiB (the default)."""
    with MDSWriter(out=str(work.packed), columns={"ids": "ndarray:uint16"}) as out:
        for ids in sequences(work):
            out.write({"ids": ids})


def loader(work: Work) -> Iterable[Any]:
    """Batches of (B, longest) int64 and lengths."""
    return DataLoader(
        StreamingDataset(local=str(work.packed), shuffle=True, batch_size=work.batch_size),
        batch_size=work.batch_size,
        num_workers=work.workers,
        persistent_workers=True,
        collate_fn=lambda rows: pad([row["ids"].astype(np.int64) for row in rows]),
    )
