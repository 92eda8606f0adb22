"""Stores made of others: some samples of one, several as one, decoded samples in memory."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from fastio._native import ThreadPool
from fastio.errors import SchemaError
from fastio.store.files import Prefetch, StoreFiles
from fastio.store.files.mapped import InPlaceFiles
from fastio.store.index.derived import DerivedStore
from fastio.store.index.elements import Elements
from fastio.store.index.metadata import common_metadata
from fastio.store.index.store import SealedStore, number_of_all
from fastio.store.protocol import SampleStore
from fastio.types.schema import COLUMN, RAW, Field, Schema
from fastio.types.spans import Spans

if TYPE_CHECKING:
    from fastio.store.index.far_points import FarSpans

__all__ = [
    "MemoryStore",
    "SelectedStore",
    "join_stores",
    "read_only",
]


_LABEL = "label"


class SelectedStore(DerivedStore[SampleStore]):
    """
    The samples ``source[chosen[0]], source[chosen[1]], ...``, with labels of their own ``(len(chosen), ...)``.

    ``labels=None`` means no labels. ``chosen`` is int64, and may name a sample twice. The source belongs to whoever
    opened it, but ``close`` closes it.
    """

    def __init__(self, source: SampleStore, chosen: NDArray[np.int64], labels: NDArray[Any] | None) -> None:
        super().__init__(source)
        self._chosen = chosen
        self._labels = labels
        fields = tuple(field for field in source.schema.fields if field.name != _LABEL)
        if labels is not None:
            fields = (*fields, Field(_LABEL, COLUMN, labels.dtype.str, labels.shape[1:]))
        self.schema = Schema(fields)

    @property
    def identity(self) -> int:
        """
        A number from the source, the choice and the labels: a state saved with other samples belongs to another
        store.
        """
        content = zlib.crc32(self._chosen.tobytes(), self._source.identity & 0xFFFFFFFF)
        return content if self._labels is None else zlib.crc32(np.ascontiguousarray(self._labels).tobytes(), content)

    def __len__(self) -> int:
        return len(self._chosen)

    def keys(self, indices: NDArray[np.int64] | Sequence[int]) -> list[str]:
        """As SampleStore.keys."""
        return self._source.keys(self._chosen[np.asarray(indices, np.int64)])

    def spans(self, field: str, indices: NDArray[np.int64], *, checksums: bool = True) -> Spans:
        """As SampleStore.spans."""
        places = np.asarray(indices, np.int64)
        outside = (places < 0) | (places >= len(self))
        if outside.any():
            raise IndexError(f"{self.path}: index {places[outside][0]} of {len(self)} samples")
        return self._source.spans(field, self._chosen[places], checksums=checksums)

    def look_ahead(
        self, field: str, indices: NDArray[np.int64], pool: ThreadPool, *, checksums: bool = True
    ) -> Prefetch | None:
        """As SampleStore.look_ahead."""
        return self._source.look_ahead(field, self._chosen[indices], pool, checksums=checksums)

    def far_points(self, field: str, indices: NDArray[np.int64]) -> FarSpans | None:
        """As SampleStore.far_points."""
        return self._source.far_points(field, self._chosen[np.asarray(indices, np.int64)])

    def value_bytes(self, field: str) -> NDArray[np.int64]:
        """As SampleStore.value_bytes."""
        return read_only(self._source.value_bytes(field)[self._chosen])

    def total_bytes(self, field: str) -> int:
        """As SampleStore.total_bytes."""
        return int(self.value_bytes(field).sum())

    def elements(self, field: str) -> Elements:
        """As SampleStore.elements."""
        return self._source.elements(field).of_samples(self, self.schema[field], self._chosen)

    def column(self, field: str) -> NDArray[Any]:
        """As SampleStore.column."""
        if field == _LABEL and self._labels is not None:
            return read_only(self._labels)
        return read_only(self._source.column(field)[self._chosen])

    def shapes(self, field: str) -> NDArray[np.int32]:
        """As SampleStore.shapes."""
        return read_only(self._source.shapes(field)[self._chosen])

    def receipt(self, fields: Sequence[str] | None = None) -> int | None:
        """As SampleStore.receipt."""
        return number_of_all(self, fields)

    def close(self) -> None:
        """Close the source."""
        self._source.close()


def read_only(values: NDArray[Any]) -> NDArray[Any]:
    """Return these values, which nobody may write to from now on."""
    values.flags.writeable = False
    return values


# Joins several stores into one that uses their shards: only the index is copied.


def join_stores(
    stores: Sequence[SealedStore],
    fields: Sequence[str],
    *,
    has_classes: bool = True,
    columns: Sequence[str] | None = None,
) -> SealedStore:
    """
    Join the samples of ``stores``, one store after the other: these payload fields, and the columns that all have, or
    of these the ones in ``columns``.

    Raises SchemaError if a field differs, if only some have labels or checksums, if the tokenizers differ, or if a
    label means different classes in two stores; ``has_classes=False`` drops class names instead of comparing them.
    The stores stay open and belong to whoever opened them.
    """
    schema = _common_schema(stores, fields, columns)
    for field in fields:
        _check_checksums(stores, field)
    metadata = json.dumps(common_metadata(stores, has_classes=has_classes)).encode()
    shards = [replace(shard, schema=schema, metadata=metadata) for store in stores for shard in store.shards]
    path = " + ".join(store.path for store in stores)
    opener = _Opener(tuple(stores), tuple(fields), has_classes, columns)
    return SealedStore(path, format_name="joined", shards=shards, opener=opener)


@dataclass(frozen=True)
class _Opener:
    """Joins the stores again in the process that unpickles them."""

    stores: tuple[SealedStore, ...]
    fields: tuple[str, ...]
    has_classes: bool
    columns: Sequence[str] | None

    def __call__(self, path: str) -> SealedStore:
        return join_stores(self.stores, self.fields, has_classes=self.has_classes, columns=self.columns)


def _common_schema(stores: Sequence[SealedStore], fields: Sequence[str], columns: Sequence[str] | None) -> Schema:
    first = stores[0]
    has_label = columns is None or _LABEL in columns
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
        if has_label and (_LABEL in store.schema) != (_LABEL in first.schema):
            without, with_ = (first, store) if _LABEL in store.schema else (store, first)
            raise SchemaError(
                f"{without.path}: has no labels, but {with_.path} has: pack it with labels, or load them one by one"
            )
    wanted = [column.name for column in first.schema.columns if columns is None or column.name in columns]
    kept = [column for column in (_common_column(stores, name) for name in wanted) if column is not None]
    if has_label and _LABEL in first.schema and _LABEL not in {column.name for column in kept}:
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


# MemoryStore: decoded samples of another store, in memory.


class MemoryStore(DerivedStore[SampleStore]):
    """
    A SampleStore whose field ``field`` lies in ``buffers``, each uint8; everything else is that of ``source``.

    ``places`` (len(source), 3) int64 holds the buffer, start and size of each sample; a buffer of -1 means that the
    sample is not kept. ``shapes`` (len(source), n) int32 are those of the decoded values. It holds no file:
    ``source`` belongs to whoever opened it, and provides keys and columns.
    """

    def __init__(
        self,
        source: SampleStore,
        field: Field,
        buffers: Sequence[NDArray[np.uint8]],
        *,
        places: NDArray[np.int64],
        shapes: NDArray[np.int32],
    ) -> None:
        super().__init__(source)
        self._field = field
        self._files: StoreFiles = InPlaceFiles(buffers)
        self._count = len(buffers)
        self._places = places
        self._shapes = shapes
        self.schema = Schema((field, *source.schema.columns))

    @classmethod
    def of_rows(cls, source: SampleStore, name: str, rows: NDArray[Any], indices: NDArray[np.int64]) -> Self:
        """
        Make a store whose samples at ``indices`` are ``rows`` (n, ...), C-contiguous, as raw arrays; others are not
        kept.
        """
        field = Field(name, RAW, rows.dtype.str, rows.shape[1:])
        places = np.full((len(source), 3), -1, np.int64)
        places[indices, 0] = 0
        places[indices, 1] = np.arange(len(indices)) * field.nbytes
        places[:, 2] = field.nbytes
        shapes = np.broadcast_to(np.array(rows.shape[1:], np.int32), (len(source), rows.ndim - 1))
        return cls(source, field, [rows.reshape(-1).view(np.uint8)], places=places, shapes=shapes)

    @property
    def format(self) -> str:
        """Its name, though it is not a format of files."""
        return "memory"

    @property
    def shard_paths(self) -> Sequence[str]:
        """The source's path, for each buffer: it appears in messages."""
        return (self._source.path,) * self._count

    @property
    def files(self) -> StoreFiles:
        """The buffers."""
        return self._files

    def __len__(self) -> int:
        return len(self._source)

    def keys(self, indices: NDArray[np.int64] | Sequence[int]) -> list[str]:
        """As SampleStore.keys."""
        return self._source.keys(indices)

    def spans(self, field: str, indices: NDArray[np.int64], *, checksums: bool = True) -> Spans:
        """As SampleStore.spans."""
        chosen = np.asarray(indices, np.int64)
        outside = (chosen < 0) | (chosen >= len(self))
        if field != self._field.name or outside.any():
            what = f"index {chosen[outside][0]} of {len(self)} samples" if outside.any() else f"no field {field!r}"
            raise IndexError(f"{self.path}: {what}")
        shard, starts, sizes = np.ascontiguousarray(self._places[chosen].T)
        if (shard < 0).any():
            raise IndexError(f"{self.path}: sample {chosen[int((shard < 0).argmax())]} is not kept in memory")
        return Spans(self._files.buffers, shard.astype(np.int32), starts, sizes)

    def value_bytes(self, field: str) -> NDArray[np.int64]:
        """As SampleStore.value_bytes."""
        return read_only(self._places[:, 2])

    def total_bytes(self, field: str) -> int:
        """As SampleStore.total_bytes."""
        return int(self.value_bytes(field).sum())

    def elements(self, field: str) -> Elements:
        """Raise SchemaError: what is decoded in memory are no lists."""
        raise SchemaError(f"{self.path}: no lists are kept in memory, got {field!r}")

    def column(self, field: str) -> NDArray[Any]:
        """As SampleStore.column."""
        return self._source.column(field)

    def shapes(self, field: str) -> NDArray[np.int32]:
        """As SampleStore.shapes."""
        return self._shapes

    def receipt(self, fields: Sequence[str] | None = None) -> int | None:
        """As SampleStore.receipt."""
        return self._source.receipt([self._field.name] if fields is None else fields)
