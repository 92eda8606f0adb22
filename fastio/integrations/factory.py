"""LoaderFactory: a function that makes a FastLoader once its rank and device are known."""

from __future__ import annotations

from typing import Protocol

from fastio.lazy import torch
from fastio.loader.fast_loader import FastLoader

__all__ = ["LoaderFactory", "check_ranks"]


class LoaderFactory(Protocol):
    """
    A function that makes a loader, such as ``partial(FastLoader, "train.lmdb", 256, shuffle=True)``.

    A trainer learns only when it runs which rank a process has and on which device it trains (None: leave batches on
    the CPU). It then calls the factory once per loader; the factory passes all three to FastLoader.
    """

    def __call__(self, *, rank: int, world_size: int, device: torch.device | None) -> FastLoader: ...


def check_ranks(loader: FastLoader, *, rank: int, world_size: int) -> None:
    """Raise ValueError if a factory ignored the ranks: samples would be lost, or several ranks would read the same."""
    if (loader.rank, loader.world_size) != (rank, world_size):
        raise ValueError(
            f"{loader.base.store.path}: the loader reads for rank {loader.rank} of {loader.world_size}, but "
            f"this process is rank {rank} of {world_size}; pass rank and world_size to FastLoader and its "
            "batch_sampler"
        )
