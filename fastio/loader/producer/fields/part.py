"""One batch of a chunk, and the protocol of what is under way for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from fastio.dataset.record_collate import RowsName, nest_rows, split_rows
from fastio.errors import SampleError
from fastio.loader.producer.chunks import CheckedSamples, EncodedValues, Proof, SampleChunk
from fastio.loader.producer.decoding import RowChunk
from fastio.loader.producer.fields.options import FieldOptions
from fastio.loader.producer.producer import ProducerContext

__all__ = [
    "BatchPart",
    "PendingFields",
    "collate_lengths",
    "fields_of",
]


@dataclass(frozen=True, slots=True)
class BatchPart:
    """The samples of one batch; ``rows`` has what is known of the fields that become rows of arrays."""

    chunk: SampleChunk
    rows: Mapping[str, RowChunk]
    part: slice
    epoch: int
    checked: CheckedSamples

    def __len__(self) -> int:
        return int(self.part.stop - self.part.start)

    @property
    def indices(self) -> NDArray[np.int64]:
        """The index of each sample."""
        return self.chunk.batches.indices[self.part]

    @property
    def is_last(self) -> bool:
        """Whether the epoch ends with this batch."""
        return self.chunk.is_last and self.part.stop == len(self.chunk.batches.indices)

    @property
    def proof(self) -> Proof:
        """The samples of the batch, for receipts."""
        return self.checked, (self.part.start, self.part.stop)

    def encoded(self, name: str) -> EncodedValues:
        """Return the encoded values of a field."""
        return self.chunk.values[name].at(self.part)


class PendingFields(Protocol):
    """One field of a batch in progress, or several that need each other."""

    def errors(self) -> Mapping[int, SampleError]:
        """Wait for the values; return the bad samples by position."""
        ...

    def values(self, kept: NDArray[np.int64] | None) -> dict[str, Any]:
        """
        Return what the batch holds of each field: of the samples at these positions, or of all (None), the bad ones
        as blanks.
        """
        ...

    def cancel(self) -> None:
        """Cancel the batch: samples not yet begun are skipped."""
        ...


def fields_of(context: ProducerContext) -> FieldOptions:
    """Return what is done with the fields, of a context that says so."""
    assert context.fields is not None
    return context.fields


# Values of different lengths in one batch: a list of tensors, one padded tensor, or a nested one.


def collate_lengths(values: NDArray[Any], counts: NDArray[np.int64], how: RowsName, *, is_pinned: bool) -> Any:
    """
    Return what ``record_collate.collate_rows`` returns for ``values`` ``(N, ...)``, padded with zeros.

    Nothing here is computed by torch: see PlainProducer on forked children.
    """
    if how == "pad":
        rows, mask = map(torch.from_numpy, _padded(values, counts))
        return (rows.pin_memory(), mask.pin_memory()) if is_pinned else (rows, mask)
    joined = torch.from_numpy(values)
    joined = joined.pin_memory() if is_pinned else joined
    return split_rows(joined, counts) if how == "list" else nest_rows(joined, counts)


def _padded(values: NDArray[Any], counts: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    longest = int(counts.max(initial=0))
    mask = np.arange(longest) < counts[:, None]
    rows = np.zeros((len(counts), longest, *values.shape[1:]), values.dtype)
    rows[mask] = values
    return rows, mask
