"""The values of some samples in memory, for those who need all of them: converting, comparing, showing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastio._native import TRUNCATED
from fastio.errors import StoreError
from fastio.store.files import Fetched
from fastio.store.sample_store import SampleStore
from fastio.types.spans import Spans

__all__ = ["all_fetched", "read_values"]


def read_values(store: SampleStore, field: str, indices: NDArray[np.int64]) -> Spans:
    """
    The values of a payload field, as spans over memory: that of mapped files, or copies.

    Raises StoreError with the name of the first sample that cannot be read.
    """
    return all_fetched(store, field, indices, store.files.fetch(store.spans(field, indices)))


def all_fetched(store: SampleStore, field: str, indices: NDArray[np.int64], fetched: Fetched) -> Spans:
    """Wait for these values. Raises StoreError with the name of the first sample that cannot be read."""
    spans, status = fetched.wait()
    if status is None:
        return spans
    position = int(status.astype(bool).argmax())
    index = int(indices[position])
    stored = store.spans(field, np.array([index]))
    path, reason = store.shard_paths[int(stored.shard[0])], store.files.failure(stored)
    problem = "the file ends before it" if status[position] == TRUNCATED else "the disk or a server reports an error"
    remedy = "copy the file again" if reason is None else "try again"
    raise StoreError(
        f"{path}[{index}] ({store.keys([index])[0]!r}), field {field!r}: cannot be read: {reason or problem}; {remedy}"
    )
