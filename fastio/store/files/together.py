"""Brings the spans of several fields into memory with one fetch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.store.files.byte_source import Fetched, StoreFiles
from fastio.types.spans import Spans

__all__ = ["FetchedFields", "fetch_together", "joined_spans"]

Status = NDArray[np.int32] | None


@dataclass(slots=True)
class FetchedFields:
    """The spans of several fields on their way into memory. (Not frozen: that would take longer to make.)"""

    wanted: Mapping[str, Spans]
    fetched: Fetched | None  # None: there are no fields

    def wait(self) -> dict[str, tuple[Spans, Status]]:
        """Wait for the bytes. Returns, by field, what ``Fetched.wait`` returns."""
        if self.fetched is None:
            return {}
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
    if not wanted:
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
