"""What every adapter is given: a function that makes a FastLoader once its rank and device are known."""

from __future__ import annotations

from typing import Protocol

import torch

from fastio.loader.fast_loader import FastLoader

__all__ = ["LoaderFactory", "check_ranks"]


class LoaderFactory(Protocol):
    """
    ``partial(FastLoader, "train.lmdb", 256, shuffle=True)``, or a function that makes the loader by itself.

    A trainer knows only when it runs which rank a process has, and on which device it trains (None: batches are to
    stay on the CPU). A factory is called then, once for each loader, and passes all three on to FastLoader.
    """

    def __call__(self, *, rank: int, world_size: int, device: torch.device | None) -> FastLoader: ...


def check_ranks(loader: FastLoader, *, rank: int, world_size: int) -> None:
    """ValueError where a factory kept the ranks to itself: samples would be lost, or come on several ranks."""
    if (loader.rank, loader.world_size) != (rank, world_size):
        raise ValueError(
            f"{loader.base.store.path}: the loader reads for rank {loader.rank} of {loader.world_size}, but this "
            f"process is rank {rank} of {world_size}; hand rank and world_size on to FastLoader and its batch_sampler"
        )
