"""The plain HDF5 script (one array of bytes, offsets beside it) with OpenCV as its decoder, in a torch DataLoader."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import h5py
import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.peers import opencv, plain_h5py
from benchmarks.peers.collate import channels_first
from benchmarks.peers.work import Work

__all__ = ["loader", "pack"]


class _Photos(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, path: Path, task: str) -> None:
        self.path = path
        self.decode = opencv.transform(task)
        self.file: h5py.File | None = None  # opened in the worker
        with h5py.File(path) as file:
            self.offsets, self.numbers = file["offsets"][:], file["label"][:]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.file is None:
            self.file = h5py.File(self.path)
            self.data = self.file["data"]
        encoded = self.data[self.offsets[index] : self.offsets[index + 1]]
        return torch.from_numpy(self.decode(encoded)), int(self.numbers[index])


def pack(work: Work) -> None:
    """One file."""
    plain_h5py.pack(work.source, work.labels, work.packed / "train.h5")


def loader(work: Work) -> Iterable[Any]:
    """Batches of (B, 3, 224, 224) and numbers."""
    return DataLoader(
        _Photos(work.packed / "train.h5", work.task),
        work.batch_size,
        shuffle=work.is_random,
        num_workers=work.workers,
        persistent_workers=True,
        collate_fn=channels_first,
    )
