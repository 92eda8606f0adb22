"""
Start points of a store behind a URL: they stay where they are, and are brought near with the samples that have them.

They are larger than the rest of an index together, and a crop needs them only to decode faster: opening a store does
not wait for them, and a sample whose start points are not there is decoded without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastio.store.files import Prefetch
from fastio.store.files.remote.remote_files import RemoteFiles
from fastio.store.files.remote.remote_source import RemoteSource
from fastio.store.index.sealed import FarIntervals
from fastio.types.spans import Spans

__all__ = ["FarPoints", "FarSpans"]


@dataclass(frozen=True, slots=True)
class FarSpans:
    """Where the start points of some values lie, empty for those without, and what brings them near."""

    points: FarPoints
    spans: Spans

    def read_ahead(self) -> Prefetch:
        """Begin to fetch them; they are near while what is returned is kept."""
        return self.points.files.hold(self.spans)


class FarPoints:
    """The start points of all fields of one store; safe to share between threads."""

    def __init__(self, source: RemoteSource, fields: Mapping[str, FarIntervals]) -> None:
        """``fields`` are those of pictures with start points; all of these lie in ``source``."""
        self.files = RemoteFiles([source])
        self._places: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
        for name, each in fields.items():
            sizes = 4 * each.counts.astype(np.int64)
            self._places[name] = each.start + np.cumsum(sizes) - sizes, sizes

    @classmethod
    def of(cls, fields: Mapping[str, FarIntervals]) -> FarPoints | None:
        """Return those of these fields, which lie in one file; None if they are of another kind than remote."""
        source = next(iter(fields.values())).file
        return cls(source, fields) if isinstance(source, RemoteSource) else None

    def lying(self, field: str, values: NDArray[np.int64]) -> FarSpans | None:
        """Return where the start points of these values lie; None for a field without any."""
        if field not in self._places:
            return None
        starts, sizes = (each[values] for each in self._places[field])
        return FarSpans(self, Spans(self.files.buffers, np.zeros(len(values), np.int32), starts, sizes))

    def near(self, field: str, values: NDArray[np.int64]) -> Spans | None:
        """Return the start points of these values over memory, empty for those that are not there; None: none are."""
        lying = self.lying(field, values)
        return None if lying is None else self.files.arrived(lying.spans)

    def close(self) -> None:
        """End the thread that brings them."""
        self.files.close()
