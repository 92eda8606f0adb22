"""MemoryStore: decoded samples of another store, as raw arrays in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastio._native import Buffers
from fastio.schema import RAW, Field, Schema
from fastio.spans import Spans
from fastio.store.base import SampleStore

__all__ = ["MemoryStore"]


class MemoryStore:
    """
    A SampleStore whose field ``field`` is ``rows`` (len, ...), C-contiguous; all else is that of ``source``.

    It holds no file: ``source`` belongs to whoever opened it, and is asked for keys and columns.
    """

    def __init__(self, source: SampleStore, field: str, rows: NDArray[Any]) -> None:
        self._source = source
        self._field = Field(field, RAW, rows.dtype.str, rows.shape[1:])
        self._buffers = Buffers([rows.reshape(-1).view(np.uint8)])
        self._size = self._field.nbytes
        self.schema = Schema((self._field, *source.schema.columns))

    @property
    def path(self) -> str:
        """That of the source."""
        return self._source.path

    @property
    def format(self) -> str:
        """What it is, though no format of files."""
        return "memory"

    @property
    def metadata(self) -> Mapping[str, Any]:
        """That of the source."""
        return self._source.metadata

    @property
    def shard_paths(self) -> Sequence[str]:
        """One buffer: the source's path stands for it in messages."""
        return (self._source.path,)

    @property
    def identity(self) -> int:
        """That of the source: the same samples."""
        return self._source.identity

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
        sizes = np.full(len(chosen), self._size, np.int64)
        return Spans(self._buffers, np.zeros(len(chosen), np.int32), chosen * self._size, sizes)

    def column(self, field: str) -> NDArray[Any]:
        """As SampleStore.column."""
        return self._source.column(field)

    def shapes(self, field: str) -> NDArray[np.int32]:
        """As SampleStore.shapes, for a picture of one shape."""
        return np.broadcast_to(np.array(self._field.shape, np.int32), (len(self), len(self._field.shape)))

    def hold_index(self) -> None:
        """There is none."""

    def close(self) -> None:
        """Nothing is open here."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
