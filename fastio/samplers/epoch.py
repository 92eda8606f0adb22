"""A loader's order as torch's loops expect it: ``loader.sampler.set_epoch(epoch)`` and the indices of an epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NoReturn

from torch.utils.data import Dataset, DistributedSampler

from fastio.samplers.batches import Batches
from fastio.samplers.share import Share

__all__ = ["ClosedBatchSampler", "EpochSampler"]


class EpochSampler(DistributedSampler[int]):
    """
    The samples of one rank in the next epoch; ``set_epoch`` is the loader's own.

    A subclass of torch's ``DistributedSampler`` because Lightning looks for one, and would share out the samples of
    any other sampler again. Iterating over it does not advance the loader.
    """

    def __init__(
        self,
        dataset: Dataset[int],
        share: Share,
        plan: Callable[[], Batches],
        set_epoch: Callable[[int], None],
        *,
        count: int | None = None,
    ) -> None:
        super().__init__(dataset, num_replicas=share.world_size, rank=share.rank, shuffle=False)
        self._share = share
        self._plan = plan
        self._count = count  # the count of the rank's samples in an epoch; None if only a plan tells
        self._set_epoch = set_epoch

    def __len__(self) -> int:
        return len(self._plan().indices) if self._count is None else self._count

    def __iter__(self) -> Iterator[int]:
        self._share.check_shared_once(self, "take the loader from fastio.integrations.accelerate.prepare_loader")
        return iter(self._plan().indices.tolist())

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the loader's next iteration."""
        self._set_epoch(epoch)


class ClosedBatchSampler:
    """
    The ``batch_sampler`` that Lightning expects beside a ``sampler``; no other DataLoader may be built around it.

    accelerate's ``skip_first_batches`` would do that, and its batches would have no transforms.
    """

    def __init__(self, sampler: EpochSampler) -> None:
        self.sampler = sampler

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the loader's next iteration."""
        self.sampler.set_epoch(epoch)

    def __iter__(self) -> NoReturn:
        raise TypeError(
            "a FastLoader's batch_sampler cannot be iterated or put into another loader: to skip batches, use "
            "load_state_dict, or take the loader from fastio.integrations.accelerate.prepare_loader"
        )
