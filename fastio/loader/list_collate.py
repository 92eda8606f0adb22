"""ListCollate: fields of lists as collate= asks for them, made of flat elements when all else is done to a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.dataset.form import Form
from fastio.dataset.record_collate import ListsName, collate_elements, list_entries
from fastio.errors import SchemaError
from fastio.lazy import torch
from fastio.loader.output import Output
from fastio.store.index.seal import counts_name

__all__ = ["ListCollate", "ListWish"]


@dataclass(frozen=True, slots=True)
class ListWish:
    """How a batch has a field of lists: by name, and whether its values may be missing."""

    how: ListsName
    is_optional: bool


@dataclass(frozen=True, slots=True)
class ListCollate:
    """
    Makes of batches with flat elements, ``(N, ...)`` and counts ``(B,)``, those that ``wishes`` name for fields of
    lists. Batches are in the ``form`` of a dataset's samples; perhaps with more values at the end. Of views, there is a
    list of such elements with one array of counts, and each is made the same of.

    It comes last, on the device: transforms of batches see all pictures as one tensor, and padding stays 0.
    """

    form: Form
    wishes: Mapping[str, ListWish]
    output: Output

    def counts(self, batch: Any) -> dict[str, NDArray[np.int64]]:
        """Return how many elements each sample of a batch on the host has, by field: asking a device would wait."""
        return {name: np.asarray(self._flat(batch, name)[1]) for name in self.wishes}

    def run(self, batch: Any, counts: Mapping[str, NDArray[np.int64]]) -> Any:
        """Return the batch with its lists as asked for. Raises SchemaError if a function has put them elsewhere."""
        made = {name: self._made(name, self._flat(batch, name)[0], counts[name]) for name in self.wishes}
        if self.form.kind == "dict":
            counted, entries = {counts_name(name) for name in self.wishes}, dict[str, Any]()
            for name, value in batch.items():
                if name in made:
                    entries |= list_entries(name, self.wishes[name].how, made[name])
                elif name not in counted:
                    entries[name] = value
            return entries
        if self.form.kind == "value":
            return made[self.form.names[0]]
        return tuple(made.get(name, value) for name, value in zip(self._names(batch), batch, strict=True))

    def _names(self, batch: Any) -> tuple[str, ...]:
        """Return the names of a tuple's values; "" for what transforms add."""
        names = self.form.names
        return (*names, *[""] * (len(batch) - len(names)))

    def _flat(self, batch: Any, name: str) -> tuple[Any, Any]:
        """Return the elements of a field, and their counts."""
        try:
            if self.form.kind == "dict":
                return batch[name], batch[counts_name(name)]
            rows, counts = batch if self.form.kind == "value" else batch[self.form.names.index(name)]
        except (KeyError, IndexError, TypeError, ValueError) as exc:
            raise SchemaError(
                f"a function of batches returned {type(batch).__name__} without {name!r} where it was: collate= needs "
                "the elements of lists and their counts in their places"
            ) from exc
        return rows, counts

    def _made(self, name: str, rows: Any, counts: NDArray[np.int64]) -> Any:
        """Return what is made of the elements of a field, or of each of their views; these have one mask."""
        wish = self.wishes[name]
        if isinstance(rows, list):
            views = [self._made(name, view, counts) for view in rows]
            return ([padded for padded, _ in views], views[0][1]) if wish.how == "pad" else views
        if wish.how != "pad" or isinstance(rows, np.ndarray) or rows.device.type != "cpu":
            return collate_elements(rows, counts, wish.how, is_optional=wish.is_optional)
        # On the host without torch's threads: see PlainProducer on forked children.
        is_unknown = rows.dtype == torch.bfloat16  # to NumPy
        array = (rows.view(torch.int16) if is_unknown else rows).numpy()
        padded, mask = map(self.output.of, collate_elements(array, counts, "pad", is_optional=wish.is_optional))
        return padded.view(torch.bfloat16) if is_unknown else padded, mask
