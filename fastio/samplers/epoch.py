"""A loader's order as torch's loops know it: ``loader.sampler.set_epoch(epoch)``, and the indices of an epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NoReturn

from torch.utils.data import Dataset, DistributedSampler

from fastio.samplers.batches import Batches
from fastio.samplers.share import Share

__all__ = ["ClosedBatchSampler", "EpochSampler"]


class EpochSampler(DistributedSampler[int]):
    """
    The samples of the epoch that comes next, of one rank; ``set_epoch`` is the loader's own.

    A subclass of torch's ``DistributedSampler``: Lightning looks for one, and shares out again what any other sampler
    gives. Iterating it moves nothing on.
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
        self._count = count  # of the rank's samples in an epoch; None where only a plan tells
        self._set_epoch = set_epoch

    def __len__(self) -> int:
        return len(self._plan().indices) if self._count is None else self._count

    def __iter__(self) -> Iterator[int]:
        self._share.check_shared_once(self, "take the loader from fastio.integrations.accelerate.prepare_loader")
        return iter(self._plan().indices.tolist())

    def set_epoch(self, epoch: int) -> None:
        """Let the loader's next iteration be this epoch."""
        self._set_epoch(epoch)


class ClosedBatchSampler:
    """
    What Lightning wants to see beside a ``sampler``, and nobody may build another DataLoader around.

    accelerate's ``skip_first_batches`` does that: its batches would have no transforms.
    """

    def __init__(self, sampler: EpochSampler) -> None:
        self.sampler = sampler

    def set_epoch(self, epoch: int) -> None:
        """Let the loader's next iteration be this epoch."""
        self.sampler.set_epoch(epoch)

    def __iter__(self) -> NoReturn:
        raise TypeError(
            "a FastLoader's batch_sampler cannot be iterated, and no other loader be built around it; to skip batches "
            "use load_state_dict, or take the loader from fastio.integrations.accelerate.prepare_loader"
        )
