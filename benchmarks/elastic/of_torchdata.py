"""torchdata: numbers in a list, its StatefulDataLoader and StatefulDistributedSampler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

__all__ = ["OWN_STATES", "loader", "numbers", "pack"]

OWN_STATES = True
_COUNT = "count"


def pack(folder: Path, count: int) -> None:
    """Nothing is packed: how many numbers there are."""
    (folder / _COUNT).write_text(str(count))


def loader(folder: Path, batch_size: int) -> Any:
    """Ranks come from the process group."""
    samples = list(range(int((folder / _COUNT).read_text())))
    sampler = StatefulDistributedSampler(samples)
    return StatefulDataLoader(samples, batch_size, sampler=sampler, num_workers=0)


def numbers(batch: Any) -> list[int]:
    """The numbers of a batch."""
    return batch.tolist()
