"""LitData: chunks of encoded photos, its StreamingDataset and StreamingDataLoader, OpenCV as decoder."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import litdata
import torch

from benchmarks.peers import opencv
from benchmarks.peers.collate import channels_first
from benchmarks.peers.litdata_caches import own_caches
from benchmarks.peers.work import Work, names_and_numbers

__all__ = ["loader", "pack"]


def pack(work: Work) -> None:
    """Chunks of 64 MB."""
    own_caches(work.packed)
    names = list(names_and_numbers(work))
    litdata.optimize(
        fn=partial(_sample, work.source, names),
        inputs=list(range(len(names))),
        output_dir=str(work.packed),
        chunk_bytes="64MB",
        num_workers=1,
        keep_data_ordered=True,
        verbose=False,
    )


def _sample(folder: Path, names: list[str], number: int) -> dict[str, Any]:
    return {"image": (folder / names[number]).read_bytes(), "number": number}


class _Photos(litdata.StreamingDataset):
    def __init__(self, work: Work) -> None:
        super().__init__(str(work.packed), shuffle=work.is_random, drop_last=False)
        self.decode = opencv.transform(work.task)

    def __getitem__(self, index: Any) -> tuple[torch.Tensor, int]:
        sample = super().__getitem__(index)
        return torch.from_numpy(self.decode(sample["image"])), sample["number"]


def loader(work: Work) -> Iterable[Any]:
    """Batches of (B, 3, 224, 224) and numbers."""
    return litdata.StreamingDataLoader(
        _Photos(work),
        batch_size=work.batch_size,
        num_workers=work.workers,
        persistent_workers=True,
        drop_last=False,
        collate_fn=channels_first,
    )
