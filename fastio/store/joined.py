"""Joins several stores into one that uses their shards: only the index is copied."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fastio.errors import SchemaError
from fastio.store.index import SealedStore
from fastio.store.joined_metadata import common_metadata
from fastio.types.schema import COLUMN, Field, Schema

__all__ = ["join_stores"]


_LABEL = "label"


def join_stores(stores: Sequence[SealedStore], fields: Sequence[str], *, has_classes: bool = True) -> SealedStore:
    """
    Join the samples of ``stores``, one store after the other: these payload fields, and the columns that all have.

    Raises SchemaError if a field differs, if only some have labels or checksums, if the tokenizers differ, or if a
    label means different classes in two stores; ``has_classes=False`` drops class names instead of comparing them.
    The stores stay open and belong to whoever opened them.
    """
    schema = _common_schema(stores, fields)
    for field in fields:
        _check_checksums(stores, field)
    metadata = json.dumps(common_metadata(stores, has_classes=has_classes)).encode()
    shards = [replace(shard, schema=schema, metadata=metadata) for store in stores for shard in store.shards]
    path = " + ".join(store.path for store in stores)
    opener = _Opener(tuple(stores), tuple(fields), has_classes)
    return SealedStore(path, format_name="joined", shards=shards, opener=opener)


@dataclass(frozen=True)
class _Opener:
    """Joins the stores again in the process that unpickles them."""

    stores: tuple[SealedStore, ...]
    fields: tuple[str, ...]
    has_classes: bool

    def __call__(self, path: str) -> SealedStore:
        return join_stores(self.stores, self.fields, has_classes=self.has_classes)


def _common_schema(stores: Sequence[SealedStore], fields: Sequence[str]) -> Schema:
    first = stores[0]
    for store in stores[1:]:
        known = {field.name: field for field in store.schema.fields}
        for field in fields:
            other = known.get(field)
            if other != first.schema[field]:
                raise SchemaError(
                    f"{store.path}: field {field!r} is {other or 'not there'}, but in {first.path} it is "
                    f"{first.schema[field]}; stores of one loader must hold the same kind of samples: pack them the "
                    "same way"
                )
        if (_LABEL in store.schema) != (_LABEL in first.schema):
            without, with_ = (first, store) if _LABEL in store.schema else (store, first)
            raise SchemaError(
                f"{without.path}: has no labels, but {with_.path} has: pack it with labels, or load them one by one"
            )
    columns = [_common_column(stores, column.name) for column in first.schema.columns]
    kept = [column for column in columns if column is not None]
    if _LABEL in first.schema and _LABEL not in {column.name for column in kept}:
        kinds = ", ".join(f"{store.schema[_LABEL]} in {store.path}" for store in stores)
        raise SchemaError(
            f"column {_LABEL!r} is {kinds}: labels of different kinds cannot form a batch: pack them the same way"
        )
    return Schema((*(first.schema[field] for field in fields), *kept))


def _common_column(stores: Sequence[SealedStore], name: str) -> Field | None:
    """Return a column that all stores have in the same shape and kind; None otherwise."""
    columns = [store.schema[name] for store in stores if name in store.schema]
    if len(columns) < len(stores) or any(column.shape != columns[0].shape for column in columns):
        return None
    dtypes = [np.dtype(column.dtype) for column in columns]
    joined = np.result_type(*dtypes)
    if any((dtype.kind in "biu") != (joined.kind in "biu") for dtype in dtypes):
        return None
    return Field(name, COLUMN, joined.str, columns[0].shape)


def _check_checksums(stores: Sequence[SealedStore], field: str) -> None:
    has = [all(field in shard.checksums for shard in store.shards) for store in stores]
    if any(has) and not all(has):
        without, with_ = stores[has.index(False)].path, stores[has.index(True)].path
        raise SchemaError(
            f"{without}: has no checksums, but {with_} has, so damage would be noticed in only one of them: "
            f"pack it again (fastio pack {without} NAME.lmdb)"
        )
