"""CheckedSamples: the samples of some batches as they were looked up and compared, which a receipt sums over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fastio.types.spans import Spans

__all__ = ["CheckedSamples", "Proof"]


@dataclass(frozen=True, slots=True)
class CheckedSamples:
    """
    The ``indices`` of samples, int64, as a producer looked them up.

    ``checksums`` has for each payload field the CRC-32s ``(n,)``, uint32, that their bytes were compared with: those
    that came with the spans of these very bytes. None: they were not compared.
    """

    indices: NDArray[np.int64]
    checksums: Mapping[str, NDArray[np.uint32]] | None

    @classmethod
    def of(cls, indices: NDArray[np.int64], spans: Mapping[str, Spans], *, verify: bool) -> Self:
        """Return what is known of samples with these spans by field, if ``verify`` compares them."""
        known = {name: values.checksums for name, values in spans.items() if values.checksums is not None}
        return cls(indices, known if verify and len(known) == len(spans) else None)

    @classmethod
    def kept(cls, indices: NDArray[np.int64], compared: Mapping[str, NDArray[np.uint32]]) -> Self:
        """Return samples that were read before, and ``compared`` with checksums then (see Kept)."""
        return cls(indices, {name: sums[indices] for name, sums in compared.items()} if compared else None)

    @classmethod
    def bad(cls, index: int, fields: Iterable[str]) -> Self:
        """Return one sample that could not be read: receipts leave it out, by its error."""
        return cls(np.array([index], np.int64), {name: np.zeros(1, np.uint32) for name in fields})

    @classmethod
    def joined(cls, parts: Sequence[CheckedSamples]) -> Self:
        """Return the samples of several, of which each has the same fields; unverified if one is."""
        indices = np.concatenate([part.indices for part in parts])
        known = [part.checksums for part in parts if part.checksums is not None]
        if len(known) < len(parts):
            return cls(indices, None)
        return cls(indices, {name: np.concatenate([sums[name] for sums in known]) for name in known[0]})


# Batches of samples that were looked up together: number k has those from position cuts[k] up to cuts[k + 1].
Proof = tuple[CheckedSamples, Sequence[int] | NDArray[np.int64]]
