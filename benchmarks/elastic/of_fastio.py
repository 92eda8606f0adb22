"""fastio: a store of numbers, FastLoader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import fastio

__all__ = ["loader", "numbers", "pack"]


def pack(folder: Path, count: int) -> None:
    """One store; each sample is a number of 4 bytes."""
    with fastio.Writer(folder / "numbers.h5", fields={"number": ("int32", (1,))}) as out:
        for number in range(count):
            out.write({"number": np.array([number], np.int32)})


def loader(folder: Path, batch_size: int) -> Any:
    """Ranks come from the process group."""
    return fastio.FastLoader(folder / "numbers.h5", batch_size, shuffle=True, threads=1)


def numbers(batch: Any) -> list[int]:
    """The numbers of a batch."""
    return batch.flatten().tolist()
