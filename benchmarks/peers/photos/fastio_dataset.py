"""The script with files and Pillow, with FastDataset in place of its files: one line is another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.utils.data import DataLoader

from benchmarks.peers.files_pil import random_floats
from benchmarks.peers.photos.fastio_store import pack
from benchmarks.peers.work import Work
from fastio import FastDataset

__all__ = ["loader", "pack"]


def loader(work: Work) -> Iterable[Any]:
    """Batches of (B, 3, 224, 224) float32 and numbers."""
    return DataLoader(
        FastDataset(work.packed / "train.lmdb", random_floats),
        work.batch_size,
        shuffle=True,
        num_workers=work.workers,
        persistent_workers=work.workers > 0,
    )
