"""fastio: texts that ``fastio pack`` turns into token ids, shuffled by FastLoader, or by torch's DataLoader."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from benchmarks.scale.rows import BATCH, blocks
from fastio import FastDataset, FastLoader

__all__ = ["batches", "data_loader", "full", "opened", "opened_lmdb", "pack", "rows"]


def pack(folder: Path, count: int) -> None:
    """An HDF5 and an LMDB store of lines, each byte of which is a token."""
    lines = folder / "lines.txt"
    with lines.open("wb") as file:
        for block in blocks(count):
            file.writelines(row.tobytes() + b"\n" for row in block.astype("u1"))
    for name in ("store.h5", "store.lmdb"):
        command = [sys.executable, "-m", "fastio", "pack", lines, folder / name, "--tokenizer", "bytes"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    lines.unlink()


def opened(folder: Path) -> Any:
    """The HDF5 store."""
    return FastDataset(folder / "store.h5")


def opened_lmdb(folder: Path) -> Any:
    """The LMDB store."""
    return FastDataset(folder / "store.lmdb")


def batches(dataset: Any) -> Iterator[Any]:
    """The default order: of these small stores a full shuffle, too, since memory holds them."""
    return iter(FastLoader(dataset, BATCH, shuffle=True, seed=1, collate="pad"))


def full(dataset: Any) -> Iterator[Any]:
    """Every sample anywhere, also where memory would not hold the store."""
    return iter(FastLoader(dataset, BATCH, shuffle="full", seed=1, collate="pad"))


def data_loader(dataset: Any) -> Iterator[Any]:
    """The same store by torch's DataLoader and sampler, one sample at a time."""
    return iter(DataLoader(dataset, BATCH, shuffle=True, collate_fn=list))


def rows(batch: Any) -> Any:
    """The ids of a batch of either loader."""
    if isinstance(batch, dict):
        return batch["input_ids"]
    return np.stack([np.asarray(sample[0] if isinstance(sample, tuple) else sample) for sample in batch])
