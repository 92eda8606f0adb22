"""The script with files and Pillow, with FastDataset in place of its files: one line is another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.utils.data import DataLoader

from benchmarks.peers.files_pil import random_floats
from benchmarks.peers.photos.fastio_store import dataset, pack
from benchmarks.peers.work import Work

__all__ = ["loader", "pack"]


def loader(work: Work) -> Iterable[Any]:
    """Batches of (B, 3, 224, 224) float32 and numbers."""
    return DataLoader(
        dataset(work, random_floats),
        work.batch_size,
        shuffle=True,
        num_workers=work.workers,
        persistent_workers=work.workers > 0,
    )
