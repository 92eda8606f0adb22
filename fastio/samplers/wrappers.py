"""Samplers around others: ``loader.sampler``, a part of a store, and BatchSamplers without a state of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.lazy import Dataset, DistributedSampler
from fastio.samplers.batches import (
    Batches,
    BatchSampler,
    ElasticSampler,
    WholeEpochs,
    random_ids,
    repetitions,
    split_ids,
)
from fastio.samplers.position import whole_consumed
from fastio.samplers.share import Share

__all__ = [
    "ClosedBatchSampler",
    "EpochSampler",
    "MappedSampler",
    "as_elastic",
]


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
        return self._plan().count if self._count is None else self._count

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


# Turns the batches of a sampler for a part of a store into indices of the store.


class MappedSampler:
    """
    Plans ``table[position]`` for each position that ``positions`` plans; ``table`` is int64, one index per position.

    An index may occur in the table several times; each occurrence is a repetition of the sample. The state identifies
    the table by ``checksum_name``, or not at all if that is None.
    """

    def __init__(self, positions: ElasticSampler, table: NDArray[np.int64], *, checksum_name: str | None) -> None:
        self.positions = positions
        self.rank, self.world_size = positions.rank, positions.world_size
        self._table = table
        self._repetitions = repetitions(table)
        self._checksum = {} if checksum_name is None else {checksum_name: _native.crc32(table)}

    def count(self, epoch: int, consumed: Any = None) -> int:
        """Return the number of batches that one rank still gets in an epoch."""
        return self.positions.count(epoch, consumed)

    def advanced(self, epoch: int, consumed: Any, batches: int) -> Any:
        """Return what has been consumed of the positions after so many more batches."""
        return self.positions.advanced(epoch, consumed, batches)

    def checked(self, epoch: int, consumed: Any) -> Any:
        """Return the ``consumed`` of a state. Raises ValueError if it is none for this epoch."""
        return self.positions.checked(epoch, consumed)

    def from_batches(self, state: Mapping[str, Any], epoch: int, batches: int) -> Any:
        """Return what was consumed after so many batches of a state's options."""
        return self.positions.from_batches(state, epoch, batches)

    def plan(self, epoch: int, consumed: Any = None) -> Batches:
        """Return what is left of this rank's batches of an epoch."""
        planned = self.positions.plan(epoch, consumed)
        indices = self._table[planned.indices]
        ids = self._random_ids(planned)
        windows = None if planned.windows is None else planned.windows.of(self._table)
        return replace(planned, order=indices, windows=windows, random_ids=ids)

    def _random_ids(self, planned: Batches) -> NDArray[np.int64] | None:
        if self._repetitions is None and planned.random_ids is None:
            return None
        positions, times = split_ids(planned.ids)  # frames of a clip have the id of the first one
        counts = np.zeros_like(positions) if self._repetitions is None else self._repetitions[positions]
        most = 1 if self._repetitions is None else int(self._repetitions.max()) + 1
        return random_ids(self._table[positions], counts + most * times)

    def whole(self, epoch: int, dropped: int = 0) -> NDArray[np.int64] | None:
        """Return all samples of an epoch: see WholeEpochs; None if the positions do not tell them."""
        positions = self.positions.whole(epoch, dropped) if isinstance(self.positions, WholeEpochs) else None
        return None if positions is None else self._table[positions]

    def configuration(self) -> dict[str, Any]:
        """Return the configuration of the positions, with a checksum of the table."""
        return {**self.positions.configuration(), **self._checksum}

    def division_options(self) -> dict[str, Any]:
        """Return how the positions are divided among ranks and batches."""
        return self.positions.division_options()


# CountedSampler: a BatchSampler whose epochs only ranks and batches as they were can continue.


class CountedSampler:
    """
    Counts the batches of one rank that ``sampler`` has given.

    ``consumed`` is that number; it means the same samples only where the whole configuration is the same, the number
    of ranks and the size of batches included.
    """

    def __init__(self, sampler: BatchSampler) -> None:
        self.sampler = sampler
        self.rank, self.world_size = sampler.rank, sampler.world_size

    def count(self, epoch: int, consumed: int | None = None) -> int:
        """Return the number of batches that one rank still gets in an epoch."""
        return self.sampler.count(epoch) - (consumed or 0)

    def plan(self, epoch: int, consumed: int | None = None) -> Batches:
        """Return what is left of this rank's batches of an epoch."""
        planned = self.sampler.plan(epoch)
        return planned.rest(consumed) if consumed else planned

    def advanced(self, epoch: int, consumed: int | None, batches: int) -> int:
        """Return the number of batches of one rank after so many more."""
        return (consumed or 0) + batches

    def checked(self, epoch: int, consumed: Any) -> int:
        """Return the number of batches of a state. Raises ValueError if the epoch has fewer."""
        count = self.sampler.count(epoch)
        return whole_consumed(consumed, count)

    def from_batches(self, state: Mapping[str, Any], epoch: int, batches: int) -> int:
        """Return the number of batches."""
        return self.checked(epoch, batches)

    def whole(self, epoch: int, dropped: int = 0) -> NDArray[np.int64] | None:
        """Return all samples of an epoch if the sampler tells them: see WholeEpochs."""
        return self.sampler.whole(epoch, dropped) if isinstance(self.sampler, WholeEpochs) else None

    def configuration(self) -> dict[str, Any]:
        """Return the configuration of the sampler, which includes what others may change."""
        return self.sampler.configuration()

    def division_options(self) -> dict[str, Any]:
        """Return nothing: all options belong to the configuration."""
        return {}


def as_elastic(sampler: BatchSampler) -> ElasticSampler:
    """Return the sampler, or one that counts its batches if it cannot continue an epoch in another division."""
    return sampler if isinstance(sampler, ElasticSampler) else CountedSampler(sampler)
