"""ExpectedNumber: what the receipt of an epoch should be, from the store's index and the sampler's order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastio.loader.selection import Chosen
from fastio.samplers.whole import WholeEpochs
from fastio.store.receipt import number_of
from fastio.types.receipt_sum import sum_indices

__all__ = ["Expected", "ExpectedNumber"]


@dataclass(frozen=True, slots=True)
class Expected:
    """
    The numbers that an epoch should have, with checksums (None: there are none to compare) and of its indices alone,
    and its number of samples: ``distinct`` different ones, each ``times`` times, at least and at most.
    ``is_whole_store``: each sample of the store once.
    """

    number: int | None
    indices: int | None
    samples: int | None
    distinct: int | None
    times: tuple[int, int] | None
    is_whole_store: bool


class ExpectedNumber:
    """Works out what the receipts of a loader should be; the last answer is kept."""

    def __init__(self, selection: Chosen, fields: tuple[str, ...]) -> None:
        self._selection = selection
        self._fields = fields
        self._latest: tuple[tuple[int, int], Expected] | None = None

    def of(self, epoch: int, dropped: int) -> Expected:
        """Return what an epoch should give of which the last ``dropped`` samples are left out."""
        latest = self._latest  # once: another thread may ask for another epoch
        if latest is None or latest[0] != (epoch, dropped):
            latest = self._latest = (epoch, dropped), self._worked_out(epoch, dropped)
        return latest[1]

    def _worked_out(self, epoch: int, dropped: int) -> Expected:
        sampler, base = self._selection.sampler, self._selection.base
        indices = sampler.whole(epoch, dropped) if isinstance(sampler, WholeEpochs) else None
        if indices is None:
            return Expected(None, None, None, None, None, is_whole_store=False)
        number = None
        if not base.makes_samples:
            number = number_of(base.store, self._fields, indices)
        counts = np.bincount(indices)
        counts = counts[counts > 0]
        times = (int(counts.min()), int(counts.max())) if len(counts) else None
        is_whole = not base.makes_samples and times in (None, (1, 1)) and len(counts) == len(base.store)
        return Expected(number, sum_indices(indices), len(indices), len(counts), times, is_whole)
