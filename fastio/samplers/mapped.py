"""Turns the batches of a sampler for a part of a store into indices of the store."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.samplers.batches import Batches, BatchSampler
from fastio.samplers.repeats import random_ids, repetitions, split_ids

__all__ = ["MappedSampler"]


class MappedSampler:
    """
    Plans ``table[position]`` for each position that ``positions`` plans; ``table`` is int64, one index per position.

    An index may occur in the table several times; each occurrence is a repetition of the sample. The state identifies
    the table by ``checksum_name``, or not at all if that is None.
    """

    def __init__(self, positions: BatchSampler, table: NDArray[np.int64], *, checksum_name: str | None) -> None:
        self.positions = positions
        self.rank, self.world_size = positions.rank, positions.world_size
        self._table = table
        self._repetitions = repetitions(table)
        self._checksum = {} if checksum_name is None else {checksum_name: _native.crc32(table)}

    def count(self, epoch: int) -> int:
        """Return the number of batches of one rank in an epoch."""
        return self.positions.count(epoch)

    def plan(self, epoch: int) -> Batches:
        """Return this rank's batches of an epoch."""
        planned = self.positions.plan(epoch)
        indices = self._table[planned.indices]
        ids = self._random_ids(planned, indices)
        windows = None if planned.windows is None else planned.windows.of(self._table)
        return Batches(indices, planned.cuts, planned.repeated, planned.dropped, windows, ids)

    def _random_ids(self, planned: Batches, indices: NDArray[np.int64]) -> NDArray[np.int64] | None:
        if self._repetitions is None and planned.random_ids is None:
            return None
        counts = np.zeros(len(indices), np.int64) if self._repetitions is None else self._repetitions[planned.indices]
        if planned.random_ids is not None:
            most = 1 if self._repetitions is None else int(self._repetitions.max()) + 1
            counts = counts + most * split_ids(planned.random_ids)[1]
        return random_ids(indices, counts)

    def configuration(self) -> dict[str, Any]:
        """Return the configuration of the positions, with a checksum of the table."""
        return {**self.positions.configuration(), **self._checksum}
