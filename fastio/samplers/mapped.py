"""Turns the batches of a sampler for a part of a store into indices of the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.samplers.batches import Batches, ElasticSampler
from fastio.samplers.repeats import random_ids, repetitions, split_ids
from fastio.samplers.whole import WholeEpochs

__all__ = ["MappedSampler"]


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
        ids = self._random_ids(planned, indices)
        windows = None if planned.windows is None else planned.windows.of(self._table)
        return replace(planned, indices=indices, windows=windows, random_ids=ids)

    def _random_ids(self, planned: Batches, indices: NDArray[np.int64]) -> NDArray[np.int64] | None:
        if self._repetitions is None and planned.random_ids is None:
            return None
        counts = np.zeros(len(indices), np.int64) if self._repetitions is None else self._repetitions[planned.indices]
        if planned.random_ids is not None:
            most = 1 if self._repetitions is None else int(self._repetitions.max()) + 1
            counts = counts + most * split_ids(planned.random_ids)[1]
        return random_ids(indices, counts)

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
