"""Iterates over a dataset from first to last, split over ranks and DataLoader workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from torch.utils.data import IterableDataset, get_worker_info

from fastio.samplers.share import Share

__all__ = ["SequentialDataset"]

# Samples per native call: enough to make the call cheap, few enough to keep memory small.
_CHUNK = 64


class BatchReadable(Protocol):
    """A map-style dataset that returns several samples per call."""

    def __len__(self) -> int: ...

    def __getitems__(self, indices: list[int]) -> list[Any]: ...


class SequentialDataset(IterableDataset[Any]):
    """
    Yields what ``dataset[i]`` returns, in storage order.

    Every rank, and every DataLoader worker within it, takes one contiguous piece; together they yield every sample
    exactly once. Pieces differ by one sample at most, so ranks may differ by a batch; training in step needs the
    equal batches of FastLoader. There is no ``len``: torch would compare it with the batches of all workers, each of
    which may end with a short one.
    """

    def __init__(self, dataset: BatchReadable, share: Share) -> None:
        super().__init__()
        self.dataset = dataset
        self._share = share
        self.rank, self.world_size = share.rank, share.world_size

    def __iter__(self) -> Iterator[Any]:
        self._check_share()
        worker = get_worker_info()
        workers, number = (worker.num_workers, worker.id) if worker is not None else (1, 0)
        piece, pieces = self.rank * workers + number, self.world_size * workers
        count = len(self.dataset)
        start, stop = count * piece // pieces, count * (piece + 1) // pieces
        for first in range(start, stop, _CHUNK):
            yield from self.dataset.__getitems__(list(range(first, min(first + _CHUNK, stop))))

    def __getstate__(self) -> dict[str, Any]:
        """Return everything, including the rank: a spawned worker could no longer detect it."""
        self._check_share()
        return self.__dict__

    def _check_share(self) -> None:
        self._share.check_ranks("this iterable()")
        self._share.check_shared_once(self, "make it by iterable(rank=0, world_size=1)")
