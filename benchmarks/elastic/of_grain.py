"""Grain: shuffled numbers, sliced by rank as its guide shows, or by its experimental ElasticIterator."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import grain
import numpy as np
from grain.experimental import ElasticIterator

__all__ = ["OWN_STATES", "PROCESS_GROUP", "elastic", "loader", "numbers", "pack"]

OWN_STATES = True
PROCESS_GROUP = False  # Grain's environment has no torch
_COUNT = "count"


class _Loader:
    """An iterator of Grain in the words of the others."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator

    def __iter__(self) -> Any:
        return self._iterator

    def state_dict(self) -> dict[str, Any]:
        return self._iterator.get_state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._iterator.set_state(state)


def pack(folder: Path, count: int) -> None:
    """Nothing is packed: how many numbers there are."""
    (folder / _COUNT).write_text(str(count))


def _shuffled(folder: Path) -> Any:
    return grain.MapDataset.source(np.arange(int((folder / _COUNT).read_text()))).shuffle(seed=0)


def loader(folder: Path, batch_size: int) -> Any:
    """Every rank takes each so-manyeth sample of the common order."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    own = _shuffled(folder)[rank::world_size].batch(batch_size)
    return _Loader(iter(own.to_iter_dataset()))


def elastic(folder: Path, batch_size: int) -> Any:
    """The iterator for ranks whose number changes: it divides a global batch, and leaves out the last short one."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    ranks = grain.sharding.ShardOptions(rank, world_size)
    return _Loader(iter(ElasticIterator(_shuffled(folder), batch_size * world_size, ranks)))


def numbers(batch: Any) -> list[int]:
    """The numbers of a batch."""
    return batch.tolist()
