"""Elements: the elements of a field of lists as a store of their own, which is read as any store is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastio._native import ThreadPool
from fastio.errors import SchemaError
from fastio.store.files import Prefetch
from fastio.store.index.derived import DerivedStore, Origin
from fastio.types.schema import Field, Schema
from fastio.types.spans import Spans, elements_of, firsts_of, sums_of

__all__ = ["Elements"]


class _Owner(Origin, Protocol):
    """The store whose lists these are the elements of."""

    def keys(self, indices: NDArray[np.int64] | Sequence[int]) -> list[str]: ...

    def elements(self, field: str) -> Elements: ...


class Elements(DerivedStore[_Owner]):
    """
    The elements of all lists of one field, in order: a SampleStore whose only field is that of an element.

    ``of`` finds those of samples. Keys are those of the samples that elements belong to. It is pickled with its store.
    """

    def __init__(
        self,
        store: _Owner,
        field: Field,
        firsts: NDArray[np.int64],
        spans: Callable[..., Spans],
        shapes: Callable[[str], NDArray[np.int32]],
        look_ahead: Callable[..., Prefetch | None],
    ) -> None:
        super().__init__(store)
        self._list = field
        self._firsts = firsts
        self._spans = spans
        self._shapes = shapes
        self._look_ahead = look_ahead
        self.schema = Schema((field.element,), is_per_sample=True)

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many elements each sample has, ``(samples,)``."""
        return np.diff(self._firsts)

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def of(self, samples: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the elements of these samples, sample by sample, and how many each has. Indices must be good."""
        return elements_of(self._firsts, samples)

    def grouped(self, values: Sequence[Any], counts: NDArray[np.int64]) -> list[Any]:
        """
        Return values of elements as samples have them: as lists of so many each; of values that may be missing, the
        value or None.
        """
        left = iter(values)
        lists = [list(islice(left, count)) for count in counts.tolist()]
        return [each[0] if each else None for each in lists] if self._list.is_optional else lists

    def owners(self, indices: NDArray[np.int64] | Sequence[int]) -> NDArray[np.int64]:
        """Return the sample that each of these elements belongs to."""
        return np.searchsorted(self._firsts, np.asarray(indices, np.int64), side="right") - 1

    def of_samples(
        self,
        store: _Owner,
        field: Field,
        samples: NDArray[np.int64] | None,
        placed: Callable[[Spans], Spans] | None = None,
    ) -> Elements:
        """
        Return the elements of the lists of these samples, None for all, as those of ``field`` of ``store``, which has
        the samples in this order. ``placed`` turns spans of these files into spans of the files of ``store``.
        """
        which, counts = (None, self.counts) if samples is None else self.of(samples)

        def spans(elements: NDArray[np.int64], *, checksums: bool) -> Spans:
            found = self._spans(elements if which is None else which[elements], checksums=checksums)
            return found if placed is None else placed(found)

        def look_ahead(elements: NDArray[np.int64], pool: ThreadPool, *, checksums: bool) -> Prefetch | None:
            return self._look_ahead(elements if which is None else which[elements], pool, checksums=checksums)

        def shapes(_field: str) -> NDArray[np.int32]:
            known = self._shapes(self._list.name)
            if which is not None:
                known = known[which]
                known.flags.writeable = False
            return known

        return Elements(store, field, firsts_of(counts), spans, shapes, look_ahead)

    def place(self, index: int) -> tuple[int, str]:
        """Return the sample of an element, and which of its elements it is, in words: " 2 of 3"."""
        owner = int(self.owners([index])[0])
        first, stop = self._firsts[owner : owner + 2].tolist()
        return owner, f" {index - first + 1} of {stop - first}"

    def sums(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return for each sample the sum over its elements of one whole number per element, ``(samples,)``."""
        return sums_of(self._firsts, values)

    def keys(self, indices: NDArray[np.int64] | Sequence[int]) -> list[str]:
        """Return the keys of the samples that these elements belong to."""
        return self._source.keys(self.owners(indices))

    def spans(self, field: str, indices: NDArray[np.int64], *, checksums: bool = True) -> Spans:
        """As SampleStore.spans, of elements."""
        chosen = np.asarray(indices, np.int64)
        outside = (chosen < 0) | (chosen >= len(self))
        if field != self._list.name or outside.any():
            what = f"element {chosen[outside][0]} of {len(self)}" if outside.any() else f"no field {field!r}"
            raise IndexError(f"{self.path}: {what}")
        return self._spans(chosen, checksums=checksums)

    def look_ahead(
        self, field: str, indices: NDArray[np.int64], pool: ThreadPool, *, checksums: bool = True
    ) -> Prefetch | None:
        """As SampleStore.look_ahead, of elements."""
        return self._look_ahead(indices, pool, checksums=checksums)

    def value_bytes(self, field: str) -> NDArray[np.int64]:
        """As SampleStore.value_bytes, of elements."""
        return self.spans(field, np.arange(len(self), dtype=np.int64), checksums=False).sizes

    def total_bytes(self, field: str) -> int:
        """As SampleStore.total_bytes, of elements."""
        return int(self.value_bytes(field).sum())

    def elements(self, field: str) -> Elements:
        """Raise SchemaError: elements are no lists."""
        raise SchemaError(f"{self.path}: field {field!r} holds {self.schema[field]}, no lists")

    def column(self, field: str) -> NDArray[Any]:
        """Raise SchemaError: columns are those of samples."""
        raise SchemaError(f"{self.path}: no column {field!r} beside the elements of {self._list.name!r}")

    def shapes(self, field: str) -> NDArray[np.int32]:
        """As SampleStore.shapes, of elements."""
        return self._shapes(field)

    def receipt(self, fields: Sequence[str] | None = None) -> int | None:
        """Return None: receipts are of samples."""
        return None

    def __reduce__(self) -> tuple[object, ...]:
        return _elements_of, (self._source, self._list.name)


def _elements_of(store: _Owner, field: str) -> Elements:
    return store.elements(field)
