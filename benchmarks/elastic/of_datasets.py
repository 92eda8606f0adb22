"""Hugging Face datasets: an iterable dataset in ten shards, split by node, in torchdata's StatefulDataLoader."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from datasets import Dataset, interleave_datasets, load_from_disk
from datasets.distributed import split_dataset_by_node
from torchdata.stateful_dataloader import StatefulDataLoader

__all__ = ["OWN_STATES", "loader", "mixture", "numbers", "pack"]

OWN_STATES = True
_SHARDS = 10
_BUFFER = 100


def pack(folder: Path, count: int) -> None:
    """One column: of all numbers, and again of three and two fifths of them."""
    cut = 3 * count // 5
    for name, start, stop in (("numbers", 0, count), ("first", 0, cut), ("second", cut, count)):
        Dataset.from_dict({"number": list(range(start, stop))}).save_to_disk(folder / name)


def loader(folder: Path, batch_size: int) -> Any:
    """Ranks come from torchrun's variables; each has shards of its own, where their number can be divided by ranks."""
    return _loader(_shuffled(folder / "numbers"), batch_size)


def mixture(folder: Path, batch_size: int) -> Any:
    """Two datasets, each to its end, drawn by probabilities that are in the proportion of their sizes."""
    members = [_shuffled(folder / name) for name in ("first", "second")]
    ends = "all_exhausted_without_replacement"
    return _loader(interleave_datasets(members, probabilities=[0.6, 0.4], seed=0, stopping_strategy=ends), batch_size)


def _shuffled(path: Path) -> Any:
    samples = load_from_disk(path).to_iterable_dataset(num_shards=_SHARDS)
    return samples.shuffle(seed=0, buffer_size=_BUFFER)


def _loader(shuffled: Any, batch_size: int) -> Any:
    own = split_dataset_by_node(shuffled, rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    return StatefulDataLoader(own, batch_size, num_workers=0)


def numbers(batch: Any) -> list[int]:
    """The numbers of a batch."""
    return batch["number"].tolist()
