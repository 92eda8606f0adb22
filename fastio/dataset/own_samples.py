"""Finds the samples of the store that a list assigned by the user means, and their labels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio.errors import SchemaError
from fastio.store.sample_store import SampleStore
from fastio.store.selected import SelectedStore

__all__ = ["find_key", "select_samples"]


def select_samples(store: SampleStore, samples: Iterable[tuple[str, Any]]) -> SelectedStore:
    """
    Select the samples of ``store`` that ``samples`` lists as pairs of key and label (all labels may be None).

    Raises SchemaError if it is not such a list, or if the store lacks a key or has it twice.
    """
    pairs = [tuple(pair) for pair in samples]
    if any(len(pair) != 2 or not isinstance(pair[0], str) for pair in pairs):
        raise SchemaError(f"{store.path}: expected samples as pairs of key and label, like those of dataset.samples")
    indices = _places(store)
    try:
        chosen = np.array([indices[key] for key, _ in pairs], np.int64)
    except KeyError as exc:
        raise SchemaError(_unknown(store, exc.args[0])) from None
    return SelectedStore(store, chosen, _labels(store, [label for _, label in pairs]))


def find_key(store: SampleStore, key: str) -> int:
    """Return the index of the sample with this key. Raises SchemaError if there is none."""
    try:
        return _places(store)[key]
    except KeyError:
        raise SchemaError(_unknown(store, key)) from None


def _places(store: SampleStore) -> dict[str, int]:
    keys = store.keys(np.arange(len(store)))
    indices = {key: index for index, key in enumerate(keys)}
    if len(indices) < len(keys):
        raise SchemaError(f"{store.path}: several samples have the same key, so a key does not name a sample")
    return indices


def _labels(store: SampleStore, labels: list[Any]) -> NDArray[Any] | None:
    if not labels or all(label is None for label in labels):
        return None if labels or "label" not in store.schema else store.column("label")[:0]
    column = np.array([np.nan if label is None else label for label in labels])
    if column.dtype.kind not in "biuf" or any(label is None for label in labels):
        raise SchemaError(f"{store.path}: expected a number as the label of each sample, or None for all of them")
    return column


def _unknown(store: SampleStore, key: object) -> str:
    return f"{store.path}: no sample has the key {key!r}; dataset.keys lists them"
