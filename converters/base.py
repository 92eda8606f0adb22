"""The protocol of a source: an unpacked dataset that a packer reads in chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fastio.schema import Schema
from fastio.store.base import SampleBatch

__all__ = ["Chunk", "Problem", "Source"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Why one sample of a source is not packed: its key (path in the source) and one plain sentence."""

    key: str
    problem: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one read of a source gave: samples in order, and those that could not be had."""

    batch: SampleBatch
    problems: Sequence[Problem]


class Source(Protocol):
    """
    An unpacked dataset in an order that depends on names alone.

    Building one scans names (and sizes) only. ``len`` counts everything found, good or bad:
    packed + skipped equals it, always.
    """

    path: str
    layout: str  # the name in SOURCES
    schema: Schema
    metadata: Mapping[str, Any]  # JSON: "classes" (list of names, or None), "source" (layout, path's last part)
    problems: Sequence[Problem]  # found while scanning (not in any chunk)
    size_bytes: int
    disk_bytes: int  # what the source takes on disk, in blocks
    files_opened: int  # files that reading all of it opens

    def __len__(self) -> int: ...

    def chunks(self, max_bytes: int, max_samples: int) -> Sequence[range]:
        """The samples that are not already problems, cut into pieces of bounded size."""
        ...

    def read(self, chunk: range) -> Chunk:
        """Read one piece; safe to call from several threads at once. SourceError names the file."""
        ...
