"""A field of token ids beside others: widened by one native job, into padded rows or one sample after the other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.dataset.record_collate import Rows as Collate
from fastio.dataset.token_collate import PadCollate
from fastio.dataset.token_reader import TokenReader
from fastio.errors import SampleError
from fastio.loader.producer.fields.part import BatchPart, collate_lengths
from fastio.loader.producer.tokens import Located, TokenFiller
from fastio.samplers.batches import Batches
from fastio.types.spans import Spans

__all__ = ["JoinedTokens", "PaddedTokens", "TokenField"]


@dataclass(frozen=True, slots=True)
class TokenField:
    """Makes a field of token ids in the memory and on the threads of one process; ``filler`` is for padded rows."""

    tokens: TokenReader
    collate: Collate
    pool: _native.ThreadPool
    filler: TokenFiller | None
    verify: bool
    is_pinned: bool

    def begin(self, part: BatchPart) -> PaddedTokens | JoinedTokens:
        """Start the ids of a batch."""
        return JoinedTokens(self, part) if self.filler is None else PaddedTokens(self.filler, part, verify=self.verify)


class PaddedTokens:
    """Token ids on their way into rows of one length; see PendingFields."""

    def __init__(self, filler: TokenFiller, part: BatchPart, *, verify: bool) -> None:
        self._filler = filler
        self._indices = part.indices
        self._encoded = part.encoded(filler.tokens.field.name)
        self._status = np.empty(0, np.int32)
        self._filling = self._fill(self._encoded.spans, verify=verify)
        self.counts = 0, 0  # tokens of the batch, and its slots for them

    def _fill(self, spans: Spans, *, verify: bool) -> _native.TokenBatches:
        one = Batches(np.zeros(len(spans), np.int64), np.array([0, len(spans)]))
        filling = self._filler.batches(Located(one, spans), verify=verify)
        filling.begin(0)
        return filling

    def errors(self) -> dict[int, SampleError]:
        """See PendingFields."""
        self._status = _status(self._filling.status(0), self._encoded.unread)
        return self._filler.tokens.errors(self._indices, self._encoded.spans, self._status)

    def values(self, kept: NDArray[np.int64] | None) -> dict[str, Any]:
        """See PendingFields."""
        if kept is not None or self._status.any():
            self._filling = self._fill(_good(self._encoded.spans, self._status, kept), verify=False)
            self._filling.status(0)
        batch, _, _, tokens, slots = self._filling.take(0)
        self.counts = tokens, slots
        return {self._filler.tokens.field.name: (batch["input_ids"], batch["attention_mask"])}

    def cancel(self) -> None:
        """See PendingFields."""
        self._filling.cancel()


class JoinedTokens:
    """Token ids on their way into one array, one sample after the other; see PendingFields."""

    def __init__(self, field: TokenField, part: BatchPart) -> None:
        self._field = field
        self._indices = part.indices
        self._encoded = part.encoded(field.tokens.field.name)
        self._status = np.empty(len(part), np.int32)
        self._lengths = field.tokens.lengths(self._encoded.spans)
        self._ids, self._job = self._fill(self._encoded.spans, self._status, verify=field.verify)

    def _fill(self, spans: Spans, status: NDArray[np.int32], *, verify: bool) -> tuple[NDArray[np.int64], _native.Job]:
        tokens = self._field.tokens
        slots = np.zeros(len(spans) + 1, np.int64)
        np.cumsum(tokens.lengths(spans), out=slots[1:])
        ids = np.empty(int(slots[-1]), np.int64)
        job = _native.fill_tokens(
            spans,
            slots,
            ids,
            status,
            self._field.pool,
            verify=verify,
            item_bytes=tokens.item_bytes,
            vocabulary=tokens.vocabulary,
        )
        return ids, job

    def errors(self) -> dict[int, SampleError]:
        """See PendingFields."""
        self._job.wait()
        self._status = _status(self._status, self._encoded.unread)
        return self._field.tokens.errors(self._indices, self._encoded.spans, self._status)

    def values(self, kept: NDArray[np.int64] | None) -> dict[str, Any]:
        """See PendingFields."""
        field = self._field
        if kept is not None or self._status.any():
            spans = _good(self._encoded.spans, self._status, kept)
            self._lengths = field.tokens.lengths(spans)
            self._ids, job = self._fill(spans, np.empty(len(spans), np.int32), verify=False)
            job.wait()
        assert not isinstance(field.collate, PadCollate)
        batch = collate_lengths(self._ids, self._lengths, field.collate, is_pinned=field.is_pinned)
        return {field.tokens.field.name: batch}

    @property
    def counts(self) -> tuple[int, int]:
        """The tokens of the batch; none of its slots is empty."""
        total = int(self._lengths.sum())
        return total, total

    def cancel(self) -> None:
        """See PendingFields."""
        self._job.cancel()


def _status(status: NDArray[np.int32], unread: NDArray[np.int32] | None) -> NDArray[np.int32]:
    """Return the status of each value, also of those that could not be read."""
    return status if unread is None else np.where(unread == _native.OK, status, unread)


def _good(spans: Spans, status: NDArray[np.int32], kept: NDArray[np.int64] | None) -> Spans:
    """Return the spans at these positions, or all (None), of which the bad ones are empty."""
    if kept is not None:
        return spans.at(kept)
    return replace(spans, sizes=np.where(status == _native.OK, spans.sizes, 0))
