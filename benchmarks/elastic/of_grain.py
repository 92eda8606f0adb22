"""Grain: shuffled numbers, a mix and packed texts, sliced by rank as its guide shows, or by its ElasticIterator."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import grain
import numpy as np
from grain.experimental import ElasticIterator, FirstFitPackIterDataset

__all__ = ["OWN_STATES", "PROCESS_GROUP", "elastic", "elastic_mixture", "loader", "mixture", "numbers", "pack", "packs"]

OWN_STATES = True
PROCESS_GROUP = False  # Grain's environment has no torch
_COUNT = "count"
_SHORTEST, _LONGEST = 10, 40  # tokens of a text, as of_fastio has them
_BINS = 64  # open at a time


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


def _mixed(folder: Path) -> Any:
    """Two datasets in the proportion of their sizes, so that an epoch has each sample once."""
    count = int((folder / _COUNT).read_text())
    members = [
        grain.MapDataset.source(part).shuffle(seed=seed)
        for seed, part in enumerate(np.split(np.arange(count), [3 * count // 5]))
    ]
    return grain.MapDataset.mix(members, weights=[0.6, 0.4])


def _sliced(samples: Any) -> Any:
    """Every rank takes each so-manyeth sample of the common order."""
    return samples[int(os.environ["RANK"]) :: int(os.environ["WORLD_SIZE"])]


def _elastic(samples: Any, batch_size: int) -> Any:
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    ranks = grain.sharding.ShardOptions(rank, world_size)
    return _Loader(iter(ElasticIterator(samples, batch_size * world_size, ranks)))


def loader(folder: Path, batch_size: int) -> Any:
    """A slice of the shuffled numbers."""
    return _Loader(iter(_sliced(_shuffled(folder)).batch(batch_size).to_iter_dataset()))


def elastic(folder: Path, batch_size: int) -> Any:
    """The iterator for ranks whose number changes: it divides a global batch, and leaves out the last short one."""
    return _elastic(_shuffled(folder), batch_size)


def mixture(folder: Path, batch_size: int) -> Any:
    """A slice of the mix."""
    return _Loader(iter(_sliced(_mixed(folder)).batch(batch_size).to_iter_dataset()))


def elastic_mixture(folder: Path, batch_size: int) -> Any:
    """The mix by the iterator for ranks whose number changes, which takes no packs."""
    return _elastic(_mixed(folder), batch_size)


def packs(folder: Path, batch_size: int) -> Any:
    """A slice of the texts, packed first fit into rows, of which ``batch_size`` make a batch."""
    lengths = np.random.default_rng(0).integers(_SHORTEST, _LONGEST + 1, int((folder / _COUNT).read_text()))
    texts = _sliced(_shuffled(folder)).map(lambda number: {"ids": np.full(lengths[number], number + 1)})
    packed = FirstFitPackIterDataset(texts.to_iter_dataset(), length_struct={"ids": _LONGEST}, num_packing_bins=_BINS)
    return _Loader(iter(packed.batch(batch_size)))


def numbers(batch: Any) -> list[int]:
    """The numbers of a batch; of packs, each text is its number from 1 on, and 0 fills rows up."""
    if not isinstance(batch, dict):
        return batch.tolist()
    return (batch["ids"][(batch["ids_positions"] == 0) & (batch["ids"] > 0)] - 1).tolist()
