"""MemoryStore: decoded samples of another store, in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastio.store.files import StoreFiles
from fastio.store.files.mapped import InPlaceFiles
from fastio.store.sample_store import SampleStore
from fastio.types.schema import RAW, Field, Schema
from fastio.types.spans import Spans

__all__ = ["MemoryStore"]


class MemoryStore:
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
        self._source = source
        self._field = field
        self.files: StoreFiles = InPlaceFiles(buffers)
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
    def path(self) -> str:
        """That of the source."""
        return self._source.path

    @property
    def format(self) -> str:
        """Its name, though it is not a format of files."""
        return "memory"

    @property
    def metadata(self) -> Mapping[str, Any]:
        """That of the source."""
        return self._source.metadata

    @property
    def shard_paths(self) -> Sequence[str]:
        """The source's path, for each buffer: it appears in messages."""
        return (self._source.path,) * self._count

    @property
    def size_bytes(self) -> int:
        """Those of the source."""
        return self._source.size_bytes

    @property
    def identity(self) -> int:
        """That of the source, which has the same samples."""
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
        shard, starts, sizes = np.ascontiguousarray(self._places[chosen].T)
        if (shard < 0).any():
            raise IndexError(f"{self.path}: sample {chosen[int((shard < 0).argmax())]} is not kept in memory")
        return Spans(self.files.buffers, shard.astype(np.int32), starts, sizes)

    def column(self, field: str) -> NDArray[Any]:
        """As SampleStore.column."""
        return self._source.column(field)

    def shapes(self, field: str) -> NDArray[np.int32]:
        """As SampleStore.shapes."""
        return self._shapes

    def receipt(self, fields: Sequence[str] | None = None) -> int | None:
        """As SampleStore.receipt."""
        return self._source.receipt([self._field.name] if fields is None else fields)

    def close(self) -> None:
        """Do nothing: nothing is open here."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
