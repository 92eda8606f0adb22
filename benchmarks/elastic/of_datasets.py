"""Hugging Face datasets: an iterable dataset in ten shards, split by node, in torchdata's StatefulDataLoader."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from datasets import Dataset, load_from_disk
from datasets.distributed import split_dataset_by_node
from torchdata.stateful_dataloader import StatefulDataLoader

__all__ = ["OWN_STATES", "loader", "numbers", "pack"]

OWN_STATES = True
_SHARDS = 10
_BUFFER = 100


def pack(folder: Path, count: int) -> None:
    """One column."""
    Dataset.from_dict({"number": list(range(count))}).save_to_disk(folder / "numbers")


def loader(folder: Path, batch_size: int) -> Any:
    """Ranks come from torchrun's variables; each has shards of its own, where their number can be divided by ranks."""
    samples = load_from_disk(folder / "numbers").to_iterable_dataset(num_shards=_SHARDS)
    shuffled = samples.shuffle(seed=0, buffer_size=_BUFFER)
    own = split_dataset_by_node(shuffled, rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    return StatefulDataLoader(own, batch_size, num_workers=0)


def numbers(batch: Any) -> list[int]:
    """The numbers of a batch."""
    return batch["number"].tolist()
