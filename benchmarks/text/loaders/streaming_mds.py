"""MosaicML Streaming: MDS shards of arrays, its StreamingDataset in a torch DataLoader."""

from __future__ import annotations

import numpy as np
from torch.utils.data import DataLoader

from benchmarks.peers.streaming_library import MDSWriter, StreamingDataset
from benchmarks.text.loaders.padding import pad
from benchmarks.text.work import TRAININGS, Epochs, Work, read_texts

__all__ = ["LOADERS", "PACKS"]


def _pack(work: Work) -> None:
    """Shards of 64 MiB (the default)."""
    with MDSWriter(out=str(work.packed), columns={"ids": "ndarray:uint16"}) as out:
        for ids in read_texts(work.source / "sequences"):
            out.write({"ids": ids})


def _padded(work: Work) -> Epochs:
    size = TRAININGS["padded"].batch_size
    loader = DataLoader(
        StreamingDataset(local=str(work.packed), shuffle=True, batch_size=size),
        batch_size=size,
        num_workers=work.workers,
        persistent_workers=work.workers > 0,
        collate_fn=lambda rows: pad([row["ids"].astype(np.int64) for row in rows]),
    )
    return Epochs(lambda: loader)


LOADERS = {"Streaming": {"padded": _padded}}
PACKS = {"padded": _pack}
