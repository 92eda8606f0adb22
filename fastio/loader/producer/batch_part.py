"""One batch of a chunk, the protocol of what is under way for it, and how values of different lengths are joined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from fastio.dataset.record_collate import ArraysName, Rows, collate_arrays, nest_rows, pad_array, split_rows
from fastio.errors import SampleError
from fastio.loader.output import Output
from fastio.loader.producer.chunks import CheckedSamples, EncodedValues, Proof, SampleChunk
from fastio.loader.producer.decoding import RowChunk
from fastio.types.schema import Field

__all__ = [
    "BatchPart",
    "ElementChunk",
    "PendingFields",
    "collate_lengths",
    "collate_shapes",
]


@dataclass(frozen=True, slots=True)
class ElementChunk:
    """
    The elements of a field of lists for a few batches, looked up at once: ``rows``, of which those of each sample begin
    at ``firsts``, ``(samples + 1,)``. They may follow those of a ``leader``, which lie at ``positions`` among its own.

    Samples that have another number of elements than the leader has none here; ``expected`` says how many these should
    have, ``(samples,)``, -1 for all others.
    """

    rows: RowChunk
    firsts: NDArray[np.int64]
    leader: str | None = None
    positions: NDArray[np.int64] | None = None
    expected: NDArray[np.int64] | None = None

    def part(self, samples: slice) -> tuple[slice, NDArray[np.int64]]:
        """Return which elements these samples have, and where those of each begin among them."""
        firsts = self.firsts[samples.start : samples.stop + 1]
        return slice(int(firsts[0]), int(firsts[-1])), firsts - firsts[0]


@dataclass(frozen=True, slots=True)
class BatchPart:
    """
    The samples of one batch, or of all batches of a chunk; ``rows`` has what is known of the fields that become rows,
    ``elements`` of those fields of lists whose elements do.

    ``is_proved``: the batches before it have said, for receipts, which samples all batches of the chunk have.
    """

    chunk: SampleChunk
    rows: Mapping[str, RowChunk]
    part: slice
    epoch: int
    checked: CheckedSamples
    is_proved: bool = False
    elements: Mapping[str, ElementChunk] = field(default_factory=dict)

    def at(self, part: slice, *, is_proved: bool = False) -> BatchPart:
        """Return another batch of the chunk."""
        return BatchPart(self.chunk, self.rows, part, self.epoch, self.checked, is_proved, self.elements)

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
        return self.checked, (self.part.stop,) if self.is_proved else (self.part.start, self.part.stop)

    @property
    def proof_of_all(self) -> Proof:
        """The samples of all batches of the chunk, for receipts."""
        return self.checked, self.chunk.batches.cuts

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


# Values of different lengths in one batch: a list of tensors, one padded tensor, or a nested one.


def collate_lengths(
    values: NDArray[Any], counts: NDArray[np.int64], how: Rows, output: Output, *, fill: int = 0
) -> Any:
    """
    Return what ``record_collate.collate_rows`` returns for ``values`` ``(N, ...)``, padded with ``fill``.

    Nothing here is computed by torch: see PlainProducer on forked children.
    """
    assert how not in ("flat", "stack"), "which are for elements of lists, and for arrays that differ in several sizes"
    if how == "pad":
        rows, mask = pad_array(values, counts, fill=fill)
        return output.of(rows), output.of(mask)
    if how == "list" and output is Output.ARRAYS:
        return np.split(output.of(values), counts.cumsum()[:-1])
    joined = output.of(values)
    return split_rows(joined, counts) if how == "list" else nest_rows(joined, counts)


def collate_shapes(
    arrays: Sequence[NDArray[Any]], field: Field, how: Rows, output: Output, *, key_of: Callable[[int], str]
) -> Any:
    """Return what ``record_collate.collate_arrays`` makes of these, in memory of their own."""
    name = cast("ArraysName", how)
    made = collate_arrays(arrays, field, name, key_of=key_of)
    if name == "stack":
        return output.of(made)
    return tuple(map(output.of, made)) if name == "pad" else [output.of(np.array(each)) for each in made]
