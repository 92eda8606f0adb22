"""LitData: chunks of tensors, its StreamingDataset and StreamingDataLoader; of a stream, its TokensLoader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import litdata
import numpy as np
import torch
from litdata.streaming.item_loader import TokensLoader

from benchmarks.peers.litdata_caches import own_caches
from benchmarks.text.loaders.padding import pad
from benchmarks.text.work import TRAININGS, WINDOW, Batch, Epochs, Work, read_texts

__all__ = ["LOADERS", "PACKS"]


class _Texts:
    """Opens the arrays once in the process that packs."""

    def __init__(self, folder: Path, dtype: Any) -> None:
        self.folder, self.dtype = folder, dtype
        self.texts: Any = None

    def __call__(self, number: int) -> Any:
        if self.texts is None:
            self.texts = read_texts(self.folder)
        start, stop = self.texts.offsets[number : number + 2]
        return torch.from_numpy(self.texts.ids[start:stop].astype(self.dtype))


def _optimize(work: Work, folder: Path, dtype: Any, **options: Any) -> None:
    own_caches(work.packed)
    litdata.optimize(
        fn=_Texts(folder, dtype),
        inputs=list(range(len(read_texts(folder)))),
        output_dir=str(work.packed),
        chunk_bytes="64MB",
        num_workers=1,
        verbose=False,
        **options,
    )


def _pack_sequences(work: Work) -> None:
    """Chunks of 64 MB."""
    _optimize(work, work.source / "sequences", np.int64)


def _pack_stream(work: Work) -> None:
    """Chunks of the ids of all documents, for blocks of a window and its last target."""
    _optimize(work, work.source / "stream", np.uint16, item_loader=TokensLoader(block_size=WINDOW + 1))


def _loader(work: Work, training: str, *, collate: Callable[[Any], Batch], **options: Any) -> Epochs:
    loader = litdata.StreamingDataLoader(
        litdata.StreamingDataset(str(work.packed), shuffle=True, drop_last=False, **options),
        batch_size=TRAININGS[training].batch_size,
        num_workers=work.workers,
        persistent_workers=work.workers > 0,
        drop_last=False,
        collate_fn=collate,
    )
    return Epochs(lambda: loader)


def _padded(work: Work) -> Epochs:
    return _loader(work, "padded", collate=pad)


def _windows(work: Work) -> Epochs:
    def collate(samples: Any) -> Batch:
        ids = torch.stack(samples).to(torch.int64)
        return {"inputs": ids[:, :-1], "targets": ids[:, 1:]}, len(ids)

    return _loader(work, "windows", collate=collate, item_loader=TokensLoader(block_size=WINDOW + 1))


LOADERS = {"LitData": {"padded": _padded, "windows": _windows}}
PACKS = {"padded": _pack_sequences, "windows": _pack_stream}
