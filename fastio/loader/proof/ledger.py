"""EpochLedger: sums up the samples that one iteration hands out, a few batches at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastio.errors import SampleError
from fastio.loader.producer import FinishedBatch
from fastio.loader.producer.checked import CheckedSamples
from fastio.types.receipt import MODULUS, ReceiptPart, sum_indices, sum_samples

__all__ = ["EpochLedger", "RankShare"]

# Samples summed up at once. Until then their indices and checksums are kept: 12 bytes a sample of their chunks.
_TOGETHER = 1 << 14


@dataclass(slots=True)
class _Run:
    """
    Neighbouring samples of one chunk, from ``start`` on, batch after batch: each ends at one of ``stops``.

    A batch with bad samples is a run of its own. ``checked`` is None for batches that say nothing about their samples.
    """

    checked: CheckedSamples | None
    start: int
    stops: list[int]
    errors: Sequence[SampleError]


@dataclass(frozen=True, slots=True)
class RankShare:
    """
    What a rank is about to be given of an epoch: everything after ``start`` (see ReceiptPart), of which the last
    ``padding`` samples of ``samples`` repeat others. All ranks together drop ``dropped`` samples.
    """

    rank: int
    world_size: int
    fields: tuple[str, ...]
    epoch: int
    start: Any
    samples: int
    padding: int
    dropped: int


class EpochLedger:
    """
    Sums up the samples of the batches that reached their consumer.

    ``arrived`` returns how many of the batches added have reached it, or None once it has come to the end of the epoch:
    with copies to a device, the latest ones are still on their way.
    """

    def __init__(self, share: RankShare, arrived: Callable[[], int | None]) -> None:
        self.share = share
        self.is_known = True  # every batch says which samples it has
        self._arrived = arrived
        self._runs: deque[_Run] = deque()
        self._latest = _NOTHING
        self._waiting = 0  # samples in runs
        self._folded = 0  # batches
        self._position = 0  # samples of the share in them, bad ones included
        self._number = self._samples = self._repeated = self._skipped = 0
        self._is_verified = True

    def add(self, finished: FinishedBatch) -> None:
        """Note a batch that is about to be handed out."""
        checked, part = finished.proof or _UNKNOWN
        latest = self._latest
        if checked is latest.checked and part.start == latest.stops[-1] and not finished.errors and not latest.errors:
            latest.stops.append(part.stop)
        else:
            self._latest = _Run(checked, part.start, [part.stop], finished.errors)
            self._runs.append(self._latest)
        self._waiting += part.stop - part.start
        if self._waiting >= _TOGETHER:
            self._fold()

    @property
    def has_ended(self) -> bool:
        """Whether the consumer has come to the end of the epoch."""
        return self._arrived() is None

    def part(self, stop: Any) -> ReceiptPart:
        """Return the sum over everything that has reached the consumer, which now stands at ``stop``."""
        self._fold()
        share = self.share
        return ReceiptPart(
            share.rank,
            share.world_size,
            share.start,
            stop,
            self._number,
            self._samples,
            self._repeated,
            self._skipped,
            self._is_verified,
            share.fields,
        )

    def _fold(self) -> None:
        """Sum up the batches that have arrived; others wait."""
        arrived = self._arrived()
        while self._runs and (arrived is None or self._folded < arrived):
            run = self._runs[0]
            count = len(run.stops) if arrived is None else min(len(run.stops), arrived - self._folded)
            stop, self._folded = run.stops[count - 1], self._folded + count
            self._waiting -= stop - run.start
            if run.checked is None:
                self.is_known = False
            else:
                self._count(run.checked, slice(run.start, stop), run.errors)
            if count == len(run.stops):
                self._runs.popleft()
            else:
                run.start, run.stops = stop, run.stops[count:]
        if not self._runs:
            self._latest = _NOTHING

    def _count(self, checked: CheckedSamples, part: slice, errors: Sequence[SampleError]) -> None:
        """Add a run of neighbouring samples, without those that are padding or bad."""
        size = part.stop - part.start
        kept = min(size, max(0, self.share.samples - self.share.padding - self._position))
        self._position += size
        self._repeated += size - kept
        part = slice(part.start, part.start + kept)
        indices, checksums = checked.indices[part], checked.checksums
        sums = None if checksums is None else [(name, values[part]) for name, values in checksums.items()]
        if errors:
            good = ~np.isin(indices, [error.index for error in errors])
            self._skipped += kept - int(good.sum())
            indices = indices[good]
            sums = None if sums is None else [(name, values[good]) for name, values in sums]
        self._samples += len(indices)
        if sums is None:
            self._is_verified = False
            self._number += sum_indices(indices)
        elif sums:
            self._number += sum(sum_samples(name, indices, values) for name, values in sums)
        else:
            self._number += sum_indices(indices)
        self._number %= MODULUS


_NOTHING = _Run(None, 0, [-1], ())  # which no batch continues
# What a batch without a proof brings.
_UNKNOWN: tuple[None, slice] = None, slice(0, 0)
