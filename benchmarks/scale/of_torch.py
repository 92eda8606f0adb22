"""torch: its RandomSampler over an array that is mapped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.scale.rows import BATCH, LENGTH, blocks

__all__ = ["batches", "opened", "pack", "rows"]


class _Rows(Dataset[torch.Tensor]):
    """Rows of a mapped ``.npy``, as people write it."""

    def __init__(self, path: Path) -> None:
        self._rows = np.load(path, mmap_mode="r")

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self._rows[index].astype(np.int64))


def pack(folder: Path, count: int) -> None:
    """One array of all rows."""
    array = np.lib.format.open_memmap(folder / "rows.npy", "w+", np.uint16, (count, LENGTH))
    start = 0
    for block in blocks(count):
        array[start : start + len(block)] = block
        start += len(block)
    array.flush()


def opened(folder: Path) -> Any:
    """Map the array."""
    return _Rows(folder / "rows.npy")


def batches(dataset: Any) -> Iterator[Any]:
    """DataLoader's ``shuffle=True`` is RandomSampler."""
    return iter(DataLoader(dataset, BATCH, shuffle=True))


def rows(batch: Any) -> Any:
    """A batch is its rows."""
    return batch
