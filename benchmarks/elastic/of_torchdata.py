"""torchdata: numbers in a list, its StatefulDataLoader and StatefulDistributedSampler; its nodes for a mixture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.utils.data import default_collate
from torchdata.nodes import Batcher, Loader, Mapper, MultiNodeWeightedSampler, SamplerWrapper
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

__all__ = ["OWN_STATES", "loader", "mixture", "numbers", "pack"]

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


def mixture(folder: Path, batch_size: int) -> Any:
    """Two nodes, each to its end, drawn by weights that are in the proportion of their sizes."""
    count = int((folder / _COUNT).read_text())
    cut = 3 * count // 5
    nodes: dict[str, Any] = {
        name: Mapper(SamplerWrapper(StatefulDistributedSampler(samples)), samples.__getitem__)
        for name, samples in (("first", range(cut)), ("second", range(cut, count)))
    }
    mixed = MultiNodeWeightedSampler(nodes, {"first": 0.6, "second": 0.4}, stop_criteria="ALL_DATASETS_EXHAUSTED")
    return Loader(Mapper(Batcher(mixed, batch_size, drop_last=False), default_collate))


def numbers(batch: Any) -> list[int]:
    """The numbers of a batch."""
    return batch.tolist()
