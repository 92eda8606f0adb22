"""The number of samples of a store, from its index: what the receipt of an epoch should be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fastio.types.receipt_sum import MODULUS, sum_indices, sum_samples
from fastio.types.schema import Schema
from fastio.types.spans import Spans

__all__ = ["number_of", "number_of_all"]

_TOGETHER = 1 << 20  # samples looked up at a time


class _Indexed(Protocol):
    """A store, of which only the index is needed."""

    @property
    def schema(self) -> Schema: ...

    def __len__(self) -> int: ...

    def spans(self, field: str, indices: NDArray[np.int64], *, checksums: bool = True) -> Spans: ...


def number_of(store: _Indexed, fields: Sequence[str], indices: NDArray[np.int64]) -> int | None:
    """
    Return the sum over these samples and payload fields (see Receipt); None if the store has no checksums.

    An index that comes several times counts as often. Without fields, it is the sum over the indices.
    """
    if not fields:
        return sum_indices(indices)
    total = 0
    for field in fields:
        for start in range(0, len(indices), _TOGETHER):
            chosen = np.ascontiguousarray(indices[start : start + _TOGETHER])
            checksums = store.spans(field, chosen).checksums
            if checksums is None:
                return None
            total += sum_samples(field, chosen, checksums)
    return total % MODULUS


def number_of_all(store: _Indexed, fields: Sequence[str] | None = None) -> int | None:
    """Return the sum over all samples of a store, in all payload fields or in these."""
    names = [field.name for field in store.schema.payload] if fields is None else fields
    return number_of(store, names, np.arange(len(store), dtype=np.int64))
