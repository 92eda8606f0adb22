"""Spans brought into memory: those of several fields at once, or piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.store.files.byte_source import Fetched, StoreFiles
from fastio.store.files.mapped import InPlaceFiles
from fastio.types.spans import Spans

__all__ = [
    "FetchedFields",
    "fetch_pieces",
    "fetch_together",
    "joined_spans",
]


Status = NDArray[np.int32] | None


@dataclass(slots=True)
class FetchedFields:
    """The spans of several fields on their way into memory. (Not frozen: that would take longer to make.)"""

    wanted: Mapping[str, Spans]
    fetched: Fetched | None  # None: they are there

    def wait(self) -> dict[str, tuple[Spans, Status]]:
        """Wait for the bytes. Returns, by field, what ``Fetched.wait`` returns."""
        if self.fetched is None:
            return {name: (spans, None) for name, spans in self.wanted.items()}
        spans, status = self.fetched.wait()
        if len(self.wanted) == 1:
            return dict.fromkeys(self.wanted, (spans, status))
        arrived, start = {}, 0
        for name, asked in self.wanted.items():
            stop = start + len(asked)
            own = None if status is None or not status[start:stop].any() else status[start:stop]
            part = replace(spans.part(start, stop), checksums=asked.checksums, intervals=asked.intervals)
            arrived[name] = part, own
            start = stop
        return arrived


def fetch_together(
    files: StoreFiles,
    wanted: Mapping[str, Spans],
    *,
    pool: _native.ThreadPool | None = None,
    ring: _native.BufferRing | None = None,
    is_near: bool = False,
) -> FetchedFields:
    """
    Begin to bring the spans of each field into memory, as ``StoreFiles.fetch`` does for one.

    Values that lie side by side in a file, such as the members of one sample in a tar, are read by one call.
    """
    is_there = isinstance(files, InPlaceFiles) and (
        pool is None or is_near
    )  # files of others are compared with the index
    if not wanted or is_there:
        return FetchedFields(wanted, None)
    together = joined_spans(list(wanted.values()))
    return FetchedFields(wanted, files.fetch(together, pool=pool, ring=ring, is_near=is_near))


def joined_spans(every: Sequence[Spans]) -> Spans:
    """Return the spans of several fields of one store, one field after the other; of one field as they are."""
    if len(every) == 1:
        return every[0]
    checksums = [spans.checksums for spans in every if spans.checksums is not None]
    return Spans(
        every[0].buffers,
        np.concatenate([spans.shard for spans in every]),
        np.concatenate([spans.starts for spans in every]),
        np.concatenate([spans.sizes for spans in every]),
        np.concatenate(checksums) if len(checksums) == len(every) else None,
    )


# Spans brought into memory piece by piece, for those who pass over many of them.

_PIECE_BYTES = 64 << 20


def fetch_pieces(
    files: StoreFiles, spans: Spans, *, piece_bytes: int = _PIECE_BYTES
) -> Iterator[tuple[slice, Spans, NDArray[np.int32] | None]]:
    """
    All spans in order, at most ``piece_bytes`` at a time (or one larger span), where the files have to be copied.

    Yields the positions of each piece, its spans over memory and their status, as ``Fetched.wait`` returns them.
    """
    pieces = np.zeros(1, np.int64) if files.in_place else np.cumsum(spans.sizes) // piece_bytes
    cuts = [0, *(np.flatnonzero(np.diff(pieces)) + 1).tolist(), len(spans)]
    for start, stop in pairwise(cuts):
        yield slice(start, stop), *files.fetch(spans.part(start, stop)).wait()
