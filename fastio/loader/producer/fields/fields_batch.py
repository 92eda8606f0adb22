"""A batch of many fields in progress: waits for all of them, deals with bad samples, and puts them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastio.dataset.record_collate import is_padded, mask_name
from fastio.errors import SampleError
from fastio.loader.device.nested import tensors
from fastio.loader.producer.bad_samples import kept_positions
from fastio.loader.producer.fields.part import BatchPart, PendingFields, fields_of
from fastio.loader.producer.fields.tokens import JoinedTokens, PaddedTokens
from fastio.loader.producer.labels import collate_labels
from fastio.loader.producer.producer import FinishedBatch, ProducerContext
from fastio.transforms.joint import GEOMETRY

__all__ = ["FieldsBatch"]


class FieldsBatch:
    """The fields of one batch in progress, and the ``columns`` from which those of its samples are picked."""

    __slots__ = ("_collates", "_columns", "_context", "_part", "_pending")

    def __init__(
        self,
        context: ProducerContext,
        part: BatchPart,
        pending: Sequence[PendingFields],
        columns: Mapping[str, NDArray[Any]],
    ) -> None:
        self._context = context
        self._collates = fields_of(context).collates
        self._part = part
        self._pending = pending
        self._columns = columns

    def cancel(self) -> None:
        """Cancel the batch: samples not yet begun are skipped."""
        for pending in self._pending:
            pending.cancel()

    def result(self) -> FinishedBatch:
        """The batch, when all its fields are there."""
        options, indices = self._context.options, self._part.indices
        errors = self._errors()
        kept = kept_positions(errors, len(indices), on_error=options.on_error) if errors else None
        indices = indices if kept is None else indices[kept]
        if len(indices) == 0:
            return FinishedBatch(None, 0, 0, list(errors.values()), proof=self._part.proof)
        values: dict[str, Any] = {}
        for pending in self._pending:
            values |= pending.values(kept)
        for name, column in self._columns.items():
            values[name] = self._column(column, indices)
        batch = self._assembled(values)
        tokens, slots = self._token_counts()
        nbytes, proof = _nbytes(batch), self._part.proof
        return FinishedBatch(batch, len(indices), nbytes, list(errors.values()), tokens, slots, proof=proof)

    def _errors(self) -> dict[int, SampleError]:
        """Wait for all fields, and return one error of each bad sample, by position, ascending."""
        errors: dict[int, SampleError] = {}
        for pending in self._pending:
            for position, error in pending.errors().items():
                errors.setdefault(position, error)
        return dict(sorted(errors.items())) if errors else errors

    def _column(self, column: NDArray[Any], indices: NDArray[np.int64]) -> Any:
        """Return a column of these samples as torch's default collate joins them: a tensor, or a list of text."""
        dataset, chosen = self._context.dataset, column[indices]
        if chosen.dtype.kind in "SU":
            return chosen.tolist()
        collated = collate_labels(dataset, chosen)  # only a pair, whose one column is the label, has a target_transform
        is_ours = self._context.options.pin_memory and dataset.target_transform is None
        return collated.pin_memory() if is_ours else collated

    def _assembled(self, values: Mapping[str, Any]) -> Any:
        """Return what the training loop gets; padded values come with their mask."""
        form, collates = self._context.dataset.form, self._collates
        if form.kind == "pair":
            return list(form.assemble(values))  # like torch's default collate
        if form.kind != "dict":
            parts = form.assemble(values)
            return (*parts, values[GEOMETRY]) if fields_of(self._context).keeps_geometry else parts
        batch: dict[str, Any] = {}
        for name in form.names:
            if is_padded(collates.get(name)):
                batch[name], batch[mask_name(name)] = values[name]
            else:
                batch[name] = values[name]
        if fields_of(self._context).keeps_geometry:
            batch[GEOMETRY] = values[GEOMETRY]
        return batch

    def _token_counts(self) -> tuple[int, int]:
        """Return the tokens in all fields of the batch, and the slots for them."""
        counts = [pending.counts for pending in self._pending if isinstance(pending, (PaddedTokens, JoinedTokens))]
        return sum(tokens for tokens, _ in counts), sum(slots for _, slots in counts)


def _nbytes(batch: Any) -> int:
    """Return the bytes of a batch's tensors."""
    return sum(tensor.nbytes for tensor in tensors(batch) if isinstance(tensor, torch.Tensor))
