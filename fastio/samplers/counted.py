"""CountedSampler: a BatchSampler whose epochs only ranks and batches as they were can continue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.samplers.batches import Batches, BatchSampler, ElasticSampler
from fastio.samplers.position import whole_consumed
from fastio.samplers.whole import WholeEpochs

__all__ = ["CountedSampler", "as_elastic"]


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
        return planned.part(consumed, len(planned)) if consumed else planned

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
