"""MosaicML Streaming: MDS shards of encoded photos, its StreamingDataset, OpenCV as decoder, in a torch DataLoader."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils.data import DataLoader

from benchmarks.peers import opencv
from benchmarks.peers.collate import channels_first
from benchmarks.peers.streaming_library import MDSWriter, StreamingDataset
from benchmarks.peers.work import Work, names_and_numbers

__all__ = ["loader", "pack"]


def pack(work: Work) -> None:
    """Shards of 64 MiB (the default)."""
    with MDSWriter(out=str(work.packed), columns={"image": "bytes", "number": "int"}) as out:
        for name, number in names_and_numbers(work).items():
            out.write({"image": (work.source / name).read_bytes(), "number": number})


class _Photos(StreamingDataset):
    def __init__(self, work: Work) -> None:
        super().__init__(local=str(work.packed), shuffle=work.is_random, batch_size=work.batch_size)
        self.decode = opencv.transform(work.task)

    def __getitem__(self, index: Any) -> tuple[torch.Tensor, int]:
        sample = super().__getitem__(index)
        return torch.from_numpy(self.decode(sample["image"])), sample["number"]


def loader(work: Work) -> Iterable[Any]:
    """Batches of (B, 3, 224, 224) and numbers."""
    return DataLoader(
        _Photos(work),
        batch_size=work.batch_size,
        num_workers=work.workers,
        persistent_workers=True,
        collate_fn=channels_first,
    )
