"""One batch of a chunk, and the protocol of what is under way for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SampleError
from fastio.loader.producer.checked import CheckedSamples, Proof
from fastio.loader.producer.chunks import EncodedValues, SampleChunk
from fastio.loader.producer.decoding import RowChunk
from fastio.loader.producer.fields.options import FieldOptions
from fastio.loader.producer.producer import ProducerContext

__all__ = ["BatchPart", "PendingFields", "fields_of"]


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
