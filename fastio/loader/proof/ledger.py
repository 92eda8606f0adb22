"""EpochLedger: sums up the samples that one iteration hands out, a few batches at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastio.errors import SampleError
from fastio.loader.producer.checked import CheckedSamples, Proof
from fastio.types.receipt import MODULUS, ReceiptPart, sum_indices, sum_samples

__all__ = ["EpochLedger", "RankShare"]

_Run = tuple[CheckedSamples | None, slice, Sequence[SampleError]]


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
    Sums up the samples of the batches that reached their consumer: ``add`` notes the proof of a batch that is about to
    be handed out, and ``fold``, now and then, sums up.

    ``arrived`` returns how many of the batches added have reached it, or None once it has come to the end of the epoch:
    with copies to a device, the latest ones are still on their way.
    """

    def __init__(self, share: RankShare, arrived: Callable[[], int | None]) -> None:
        self.share = share
        self.is_known = True  # every batch says which samples it has
        self._arrived = arrived
        self._proofs: list[Proof | None] = []  # of the batches that have not been summed up
        self._errors: dict[int, Sequence[SampleError]] = {}  # by the number of the batch
        self.add = self._proofs.append  # no function of Python's: between two batches, its code is no longer in cache
        self._folded = 0  # batches
        self._position = 0  # samples of the share in them, bad ones included
        self._number = self._samples = self._repeated = self._skipped = 0
        self._is_verified = True

    def note_errors(self, errors: Sequence[SampleError]) -> None:
        """Note the bad samples of the batch added last."""
        self._errors[self._folded + len(self._proofs) - 1] = errors

    @property
    def has_ended(self) -> bool:
        """Whether the consumer has come to the end of the epoch."""
        return self._arrived() is None

    def part(self, stop: Any) -> ReceiptPart:
        """Return the sum over everything that has reached the consumer, which now stands at ``stop``."""
        self.fold()
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

    def fold(self) -> None:
        """Sum up the batches that have arrived; their indices and checksums are kept until then."""
        arrived = self._arrived()
        count = len(self._proofs) if arrived is None else min(len(self._proofs), arrived - self._folded)
        for checked, part, errors in self._runs(count):
            if checked is None:
                self.is_known = False
            else:
                self._count(checked, part, errors)
        del self._proofs[:count]
        self._folded += count

    def _runs(self, count: int) -> Iterator[_Run]:
        """Join neighbouring batches of one chunk; those with bad samples stay alone."""
        checked, start, stop = None, 0, 0
        for number, proof in enumerate(self._proofs[:count], self._folded):
            own, part = proof or _UNKNOWN
            errors = self._errors.pop(number, ()) if self._errors else ()
            if own is checked and part.start == stop and not errors:
                stop = part.stop
                continue
            if stop > start:
                yield checked, slice(start, stop), ()
            if own is None or errors:
                yield own, part, errors
                checked, start, stop = None, 0, 0
            else:
                checked, start, stop = own, part.start, part.stop
        if stop > start:
            yield checked, slice(start, stop), ()

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


_UNKNOWN: tuple[None, slice] = None, slice(-1, -1)  # what a batch without a proof brings
