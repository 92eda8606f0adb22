"""A data set whose samples are their own index, so that a test sees which of them a batch has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fastio import FastDataset, FastLoader
from fastio.types.schema import RAW, Field
from tests.conftest import write_store

COUNT = 23


def write_numbers(path: Path, count: int = COUNT) -> FastDataset:
    """Samples of 4 bytes, with the index as label too."""
    values = [np.int32(index).tobytes() for index in range(count)]
    return FastDataset(write_store(path, values, np.arange(count), field=Field("number", RAW, "<i4", ())))


def loader_of(dataset: FastDataset, **options: Any) -> FastLoader:
    """Six batches an epoch, the last one short, in another order each time."""
    return FastLoader(dataset, **{"batch_size": 4, "shuffle": "full", "threads": 1, **options})


def taken(batches: Any) -> list[list[int]]:
    """The indices of each batch."""
    return [values.tolist() for values, _ in batches]
