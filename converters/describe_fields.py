"""What ``fastio info`` says of a store of many fields: types, columns, class names, a sample, and how to read it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.converters.sample_words import type_words, value_words
from fastio.store import SampleStore

__all__ = ["describe_fields"]

_WIDTH = 100  # characters of a value in the example
_DISTINCT = 6  # texts of a column that are listed


def describe_fields(store: SampleStore) -> dict[str, Any]:
    """
    Return what there is to say beside the sizes of each payload field.

    * ``types``: each field's type in words
    * ``columns``: of each column ``min``, ``mean`` and ``max`` of its finite numbers, and how many are ``not_finite``;
      how many are ``true``; or how many texts are ``distinct`` and the most frequent ``texts``
    * ``field_classes``: class names by field
    * ``example``: the ``key`` of the first sample, and its ``values`` in words; None in an empty store
    * ``read_with_fastio``: Python that reads this store
    """
    fields = store.schema.fields
    example = None
    if len(store):
        example = {"key": store.keys([0])[0], "values": value_words(store, 0, fields, width=_WIDTH)}
    return {
        "types": {field.name: type_words(field) for field in fields},
        "columns": {field.name: _column(store.column(field.name)) for field in store.schema.columns},
        "field_classes": dict(store.metadata.get("field_classes") or {}),
        "example": example,
        "read_with_fastio": _reader(store),
    }


def _column(column: NDArray[Any]) -> dict[str, Any] | None:
    if column.size == 0:
        return None
    if column.dtype.kind == "b":
        return {"true": int(column.sum()), "of": int(column.size)}
    if column.dtype.kind in "SU":
        texts, counts = np.unique(column, return_counts=True)
        often = np.argsort(-counts, kind="stable")[:_DISTINCT]
        shown = [text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in texts[often].tolist()]
        return {"distinct": len(texts), "texts": shown}
    numbers = np.abs(column) if column.dtype.kind == "c" else column
    known = numbers[np.isfinite(numbers)]
    if known.size == 0:
        return {"min": None, "mean": None, "max": None, "not_finite": int(numbers.size)}
    mean = float(known.mean(dtype=np.float64))
    return {
        "min": known.min().item(),
        "mean": mean,
        "max": known.max().item(),
        "not_finite": int(numbers.size - known.size),
    }


def _reader(store: SampleStore) -> str:
    """Return Python that reads the store by fastio: its first picture, and what belongs beside it."""
    names = [field.name for field in store.schema.fields]
    chosen = tuple(names[:2])
    return (
        "from fastio import FastDataset, FastLoader\n"
        f"dataset = FastDataset({store.path!r})    # dataset[0] is a dict of {len(names)} fields\n"
        f"dataset = FastDataset({store.path!r}, fields={chosen!r})    # a tuple; other fields are not read\n"
        "loader = FastLoader(dataset, batch_size=32, shuffle=True)\n"
    )
