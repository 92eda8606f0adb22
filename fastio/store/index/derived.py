"""A store made of another one: what it has of the other, unless a subclass says otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastio._native import ThreadPool
from fastio.store.files import Prefetch, StoreFiles

if TYPE_CHECKING:
    from fastio.store.index.far_points import FarSpans

__all__ = ["DerivedStore", "Origin"]


class Origin(Protocol):
    """What other stores have of a SampleStore unchanged; SampleStore says what each is."""

    @property
    def path(self) -> str: ...

    @property
    def format(self) -> str: ...

    @property
    def metadata(self) -> Mapping[str, Any]: ...

    @property
    def shard_paths(self) -> Sequence[str]: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def identity(self) -> int: ...

    @property
    def files(self) -> StoreFiles: ...

    def check_index(self) -> None: ...


_Source = TypeVar("_Source", bound=Origin)


class DerivedStore(Generic[_Source]):
    """
    The part of a SampleStore that is the same as that of ``source``. It holds no file: ``source`` belongs to whoever
    opened it.
    """

    def __init__(self, source: _Source) -> None:
        self._source = source

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
        """That of the source."""
        return self._source.identity

    @property
    def files(self) -> StoreFiles:
        """Those of the source."""
        return self._source.files

    def look_ahead(
        self, field: str, indices: NDArray[np.int64], pool: ThreadPool, *, checksums: bool = True
    ) -> Prefetch | None:
        """Return None: see SampleStore."""
        return None

    def far_points(self, field: str, indices: NDArray[np.int64]) -> FarSpans | None:
        """Return None: see SampleStore."""
        return None

    def check_index(self) -> None:
        """As SampleStore.check_index, of the source."""
        self._source.check_index()

    def close(self) -> None:
        """Do nothing: nothing is open here."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
