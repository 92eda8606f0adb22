"""Hugging Face datasets: a table of Arrow, shuffled by a mapping of indices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset, load_from_disk

from benchmarks.scale.rows import BATCH, LENGTH, blocks

__all__ = ["batches", "opened", "pack", "rows"]


def pack(folder: Path, count: int) -> None:
    """One column of lists, written by ``save_to_disk``."""
    parts = [
        pa.ListArray.from_arrays(np.arange(len(block) + 1, dtype=np.int32) * LENGTH, block.ravel())
        for block in blocks(count)
    ]
    Dataset(pa.table({"ids": pa.chunked_array(parts)})).save_to_disk(folder / "table")


def opened(folder: Path) -> Any:
    """Map the table."""
    return load_from_disk(folder / "table").with_format("numpy")


def batches(dataset: Any) -> Iterator[Any]:
    """A shuffle of its own, not the one that the last process left on disk."""
    return iter(dataset.shuffle(seed=1, load_from_cache_file=False).iter(BATCH))


def rows(batch: Any) -> Any:
    """The only column."""
    return np.stack(list(batch["ids"]))
