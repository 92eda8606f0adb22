"""EpochLedger: sums up the samples that one iteration hands out, a few batches at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from fastio.errors import SampleError
from fastio.loader.producer import FinishedBatch
from fastio.loader.producer.checked import CheckedSamples, Proof
from fastio.types.receipt import MODULUS, ReceiptPart, sum_indices, sum_samples

__all__ = ["EpochLedger", "RankShare"]

# Batches summed up at once. Until then their indices and checksums are kept, 12 bytes a sample of their chunks.
_TOGETHER = 64

_Entry = tuple[Proof, Sequence[SampleError]]


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
        self._entries: deque[tuple[Proof | None, Sequence[SampleError]]] = deque()
        self._folded = 0  # batches
        self._position = 0  # samples of the share in them, bad ones included
        self._number = self._samples = self._repeated = self._skipped = 0
        self._is_verified = True

    def add(self, finished: FinishedBatch) -> None:
        """Note a batch that is about to be handed out."""
        self._entries.append((finished.proof, finished.errors))
        if len(self._entries) >= _TOGETHER:
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
        arrived = self._arrived()
        count = len(self._entries) if arrived is None else min(len(self._entries), arrived - self._folded)
        entries: list[_Entry] = []
        for proof, errors in (self._entries.popleft() for _ in range(count)):
            if proof is None:
                self.is_known = False
            else:
                entries.append((proof, errors))
        self._folded += count
        for (checked, part), errors in _runs(entries):
            self._count(checked, part, errors)

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


def _runs(entries: Sequence[_Entry]) -> Iterator[_Entry]:
    """Join neighbouring batches of one chunk, so that a call sums up all of them; those with bad samples stay alone."""
    if not entries:
        return
    (checked, part), errors = entries[0]
    for (next_checked, next_part), next_errors in islice(entries, 1, None):
        if next_checked is checked and next_part.start == part.stop and not errors and not next_errors:
            part = slice(part.start, next_part.stop)
            continue
        yield (checked, part), errors
        checked, part, errors = next_checked, next_part, next_errors
    yield (checked, part), errors
