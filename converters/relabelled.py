"""Relabelled: a source whose labels are numbers of another list of classes, told by their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastio._native import ThreadPool
from fastio.converters.derived_source import DerivedSource
from fastio.converters.source import Chunk, Scanned, Source
from fastio.types.schema import Schema

__all__ = ["Relabelled", "new_names", "relabelled"]

_LABEL = "label"


def relabelled(source: Source, classes: Sequence[str] | None) -> Source:
    """
    Return the source with labels that count the classes of a set: its names have the set's numbers, and names that the
    set lacks come behind them. The source itself if it has these numbers already, or if one of them has no names.
    """
    own = source.metadata.get("classes")
    if own is None or classes is None or _LABEL not in source.schema or list(own) == list(classes):
        return source
    new = new_names(own, classes)
    names = [*classes, *new]
    numbers = {name: number for number, name in enumerate(names)}
    return Relabelled(source, names, np.array([numbers[name] for name in own], np.int64))


def new_names(names: Sequence[str], classes: Sequence[str]) -> list[str]:
    """Return the names that are not among the classes, in their order."""
    known = set(classes)
    return [name for name in names if name not in known]


@dataclass(frozen=True)
class Relabelled(DerivedSource):
    """
    The samples of ``source``, with ``classes`` as the names of labels. Satisfies ``Source``.

    ``numbers`` (int64) holds the label here for each label there.
    """

    source: Source
    classes: Sequence[str]
    numbers: NDArray[np.int64]

    @property
    def schema(self) -> Schema:
        """The source's fields."""
        return self.source.schema

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The source's, with these classes."""
        return {**self.source.metadata, "classes": list(self.classes)}

    def scanned(self, chunk: range) -> Scanned:
        """Return keys, sizes and columns, with the labels of these classes."""
        scanned = self.source.scanned(chunk)
        return replace(scanned, columns=self._renumbered(scanned.columns))

    def shuffled(self, seed: int) -> Relabelled:
        """Return the same samples in an order drawn from their names and the seed."""
        return replace(self, source=self.source.shuffled(seed))

    def begin(self, chunk: range, pool: ThreadPool | None = None) -> Callable[[], Chunk]:
        """Begin to read one piece; the result waits for it and gives it the labels of these classes."""
        finish = self.source.begin(chunk, pool)

        def finished() -> Chunk:
            read = finish()
            return replace(read, batch=replace(read.batch, columns=self._renumbered(read.batch.columns)))

        return finished

    def _renumbered(self, columns: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        if _LABEL not in columns:
            return columns
        labels = columns[_LABEL]
        return {**columns, _LABEL: self.numbers[labels].astype(labels.dtype)}
