"""EpochLedger: sums up the samples that one iteration hands out, a few batches at a time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SampleError
from fastio.loader.producer.chunks import CheckedSamples, Proof
from fastio.types.receipt import ReceiptPart
from fastio.types.receipt_sum import MODULUS, sum_indices, sum_samples

__all__ = ["EpochLedger", "RankShare"]

_Lost = tuple[Sequence[SampleError], NDArray[np.int64] | None]  # bad ones; the positions of all, if they are more
_NONE: _Lost = (), None
_Run = tuple[CheckedSamples, slice, _Lost]


@dataclass(frozen=True, slots=True)
class RankShare:
    """
    What a rank is about to be given of an epoch: everything after ``start`` (see ReceiptPart), which are ``samples``,
    of which those at the positions ``padding``, ascending, repeat others. All ranks together drop ``dropped`` samples.
    """

    rank: int
    world_size: int
    fields: tuple[str, ...]
    epoch: int
    start: Any
    samples: int
    padding: NDArray[np.int64]
    dropped: int


class EpochLedger:
    """
    Sums up the samples of the batches that reached their consumer: ``note`` takes the proof of batches that are about
    to be handed out, and ``fold``, now and then, sums up.

    Any thread may ask for its ``part``, also while another one folds.

    ``arrived`` returns how many of all batches have reached the consumer, or None once it has come to the end of the
    epoch: with copies to a device, the latest ones are still on their way.
    """

    def __init__(self, share: RankShare, arrived: Callable[[], int | None]) -> None:
        self.share = share
        self.is_known = True  # every batch says which samples it has
        self._arrived = arrived
        self._folding = threading.Lock()  # held while batches move from the proofs to the sums
        self._proofs: deque[Proof | None] = deque()  # of batches that have not all been summed up
        self._errors: dict[int, _Lost] = {}  # by the number of the batch
        self.note = self._proofs.append
        self._folded = 0  # batches
        self._begun = 0  # of these, those of the first proof
        self._position = 0  # samples of the share in them, bad ones included
        self._number = self._samples = self._repeated = self._skipped = 0
        self._is_verified = True

    def note_errors(self, number: int, errors: Sequence[SampleError], lost: NDArray[np.int64] | None = None) -> None:
        """
        Note the bad samples of the batch that is number ``number`` of this iteration, and the positions of all that are
        lost with them; None: of no others.
        """
        self._errors[number] = errors, lost

    @property
    def has_ended(self) -> bool:
        """Whether the consumer has come to the end of the epoch."""
        return self._arrived() is None

    def part(self, stop: Any) -> ReceiptPart:
        """Return the sum over everything that has reached the consumer, which now stands at ``stop``."""
        share = self.share
        with self._folding:
            self._fold()
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
        with self._folding:
            self._fold()

    def _fold(self) -> None:
        arrived = self._arrived()
        while self._proofs:
            proof = self._proofs[0]
            batches = 1 if proof is None else len(proof[1]) - 1
            left = batches - self._begun
            count = left if arrived is None else min(left, arrived - self._folded)
            if proof is None:
                self.is_known = self.is_known and count == 0
            elif count > 0:
                for checked, part, lost in self._runs(proof, count):
                    self._count(checked, part, lost)
            self._folded += count
            self._begun += count
            if self._begun < batches:
                return
            self._proofs.popleft()
            self._begun = 0

    def _runs(self, proof: Proof, count: int) -> Iterator[_Run]:
        """Yield the next batches of a proof as one run of samples; those with bad ones stay alone."""
        checked, cuts = proof
        first, last = self._begun, self._begun + count
        for batch in range(first, last) if self._errors else ():
            lost = self._errors.pop(self._folded + batch - self._begun, _NONE)
            if lost[0]:
                yield checked, slice(int(cuts[first]), int(cuts[batch])), _NONE
                yield checked, slice(int(cuts[batch]), int(cuts[batch + 1])), lost
                first = batch + 1
        yield checked, slice(int(cuts[first]), int(cuts[last])), _NONE

    def _count(self, checked: CheckedSamples, part: slice, lost: _Lost) -> None:
        """Add a run of neighbouring samples, without those that are padding or bad."""
        size, first = part.stop - part.start, self._position
        padding = self.share.padding
        if len(padding):
            padding = padding[slice(*padding.searchsorted((first, first + size)))] - first
        self._position += size
        self._repeated += len(padding)
        indices, checksums, errors = checked.indices[part], checked.checksums, lost[0]
        positions = np.arange(size)
        sums = None if checksums is None else [(name, values[part]) for name, values in checksums.items()]
        if len(padding):
            indices, positions = np.delete(indices, padding), np.delete(positions, padding)
            sums = None if sums is None else [(name, np.delete(values, padding)) for name, values in sums]
        if errors:
            is_lost = (
                np.isin(indices, [error.index for error in errors]) if lost[1] is None else np.isin(positions, lost[1])
            )
            good = ~is_lost
            self._skipped += len(good) - int(good.sum())
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
