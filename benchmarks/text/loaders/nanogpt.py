"""nanoGPT's way to read ``train.bin``: a mapping of the file, random places, a stack of slices for each batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from benchmarks.text.work import TRAININGS, WINDOW, Batch, Epochs, Work, window_count

__all__ = ["LOADERS"]


def _batch(work: Work, size: int) -> tuple[Any, Any]:
    """Map the file anew, as it is done there to give back the memory of pages that were read."""
    ids = np.memmap(work.source / "stream" / "train.bin", dtype=np.uint16, mode="r")
    places = torch.randint(len(ids) - WINDOW, (size,)).tolist()
    inputs = torch.stack([torch.from_numpy(ids[at : at + WINDOW].astype(np.int64)) for at in places])
    targets = torch.stack([torch.from_numpy(ids[at + 1 : at + 1 + WINDOW].astype(np.int64)) for at in places])
    return inputs, targets


def _windows(work: Work) -> Epochs:
    size = TRAININGS["windows"].batch_size

    def batches() -> Iterator[Batch]:
        for _ in range(window_count(work) // size):
            inputs, targets = _batch(work, size)
            yield {"inputs": inputs, "targets": targets}, size

    return Epochs(batches)


LOADERS = {"nanoGPT": {"windows": _windows}}
