"""SelectedStore: some samples of another store, in an order and with labels chosen by the user."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastio.store.files import StoreFiles
from fastio.store.receipt import number_of_all
from fastio.store.sample_store import SampleStore
from fastio.types.schema import COLUMN, Field, Schema
from fastio.types.spans import Spans

__all__ = ["SelectedStore"]

_LABEL = "label"


class SelectedStore:
    """
    The samples ``source[chosen[0]], source[chosen[1]], ...``, with labels of their own ``(len(chosen), ...)``.

    ``labels=None`` means no labels. ``chosen`` is int64, and may name a sample twice. The source belongs to whoever
    opened it, but ``close`` closes it.
    """

    def __init__(self, source: SampleStore, chosen: NDArray[np.int64], labels: NDArray[Any] | None) -> None:
        self._source = source
        self._chosen = chosen
        self._labels = labels
        fields = tuple(field for field in source.schema.fields if field.name != _LABEL)
        if labels is not None:
            fields = (*fields, Field(_LABEL, COLUMN, labels.dtype.str, labels.shape[1:]))
        self.schema = Schema(fields)

    @property
    def path(self) -> str:
        """That of the source."""
        return self._source.path

    @property
    def format(self) -> str:
        """That of the source."""
        return self._source.format

    @property
    def metadata(self) -> Mapping[str, Any]:
        """That of the source."""
        return self._source.metadata

    @property
    def shard_paths(self) -> Sequence[str]:
        """Those of the source."""
        return self._source.shard_paths

    @property
    def size_bytes(self) -> int:
        """Those of the source."""
        return self._source.size_bytes

    @property
    def identity(self) -> int:
        """
        A number from the source, the choice and the labels: a state saved with other samples belongs to another
        store.
        """
        content = zlib.crc32(self._chosen.tobytes(), self._source.identity & 0xFFFFFFFF)
        return content if self._labels is None else zlib.crc32(np.ascontiguousarray(self._labels).tobytes(), content)

    @property
    def files(self) -> StoreFiles:
        """Those of the source."""
        return self._source.files

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

    def column(self, field: str) -> NDArray[Any]:
        """As SampleStore.column."""
        if field == _LABEL and self._labels is not None:
            return _read_only(self._labels)
        return _read_only(self._source.column(field)[self._chosen])

    def shapes(self, field: str) -> NDArray[np.int32]:
        """As SampleStore.shapes."""
        return _read_only(self._source.shapes(field)[self._chosen])

    def receipt(self, fields: Sequence[str] | None = None) -> int | None:
        """As SampleStore.receipt."""
        return number_of_all(self, fields)

    def close(self) -> None:
        """Close the source."""
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _read_only(values: NDArray[Any]) -> NDArray[Any]:
    values.flags.writeable = False
    return values
