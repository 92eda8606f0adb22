"""Files behind ``toy://`` that hold what is read ahead, as those of object stores do; it counts what is in memory."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.store.files import ByteSource, Kind
from fastio.types.spans import Spans
from tests.store.files.toy import SCHEME, Arrived, Bucket, ToySource


@dataclass(eq=False)
class Held:
    """The bytes of one call of ``read_ahead``, as (shard, start, bytes), while this lives."""

    ranges: list[tuple[int, int, NDArray[np.uint8]]]
    done: bool = True

    def wait(self, timeout_s: float = -1.0) -> bool:
        """At once."""
        return True

    def cancel(self) -> None:
        """Let go."""
        self.ranges = []

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(len(data) for _, _, data in self.ranges)


@dataclass
class HoldingBucket(Bucket):
    """Counts the spans that were fetched out of what was held, and those that were not; and the most that was held."""

    found: int = 0
    missed: int = 0
    most_held: int = 0
    held: weakref.WeakSet[Held] = field(default_factory=weakref.WeakSet)
    lock: threading.Lock = field(default_factory=threading.Lock)  # of ``held``: threads of loaders read ahead, too

    def kind(self) -> Kind:
        """An entry of KINDS that reads this bucket."""
        return Kind(
            "toy",
            lambda path: path.startswith(SCHEME),
            lambda path, _options: ToySource(self, path),
            lambda sources: HoldingFiles(self, sources),
        )


class HoldingFiles:
    """All objects of a store."""

    in_place = False
    threads = 1
    holds = True
    ahead_bytes = 20_000
    chunk_bytes = 10_000

    def __init__(self, bucket: HoldingBucket, sources: Sequence[ByteSource]) -> None:
        self._bucket = bucket
        self._sources = sources
        self.buffers = _native.Buffers([source.size for source in sources])

    def read_ahead(self, spans: Spans, *, pool: _native.ThreadPool | None = None, comes_again: bool = False) -> Held:
        """One read for each span."""
        ranges = []
        for shard, start, size in zip(spans.shard.tolist(), spans.starts.tolist(), spans.sizes.tolist(), strict=True):
            ranges.append((shard, start, self._sources[shard].read(start, start + size)))
        held = Held(ranges)
        with self._bucket.lock:
            self._bucket.held.add(held)
            self._bucket.most_held = max(self._bucket.most_held, sum(each.nbytes for each in self._bucket.held))
        return held

    def fetch(
        self,
        spans: Spans,
        *,
        pool: _native.ThreadPool | None = None,
        ring: _native.BufferRing | None = None,
        is_near: bool = False,
    ) -> Arrived:
        """Of what is held, or read at once."""
        places = zip(spans.shard.tolist(), spans.starts.tolist(), spans.sizes.tolist(), strict=True)
        values = [self._value(*place) for place in places]
        memory = np.concatenate([np.zeros(1, np.uint8), *values])
        starts = 1 + np.cumsum(spans.sizes) - spans.sizes
        none = np.zeros(len(spans), np.int32)
        return Arrived(Spans(_native.Buffers([memory]), none, starts, spans.sizes, spans.checksums, spans.intervals))

    def _value(self, shard: int, start: int, size: int) -> NDArray[np.uint8]:
        with self._bucket.lock:
            there = list(self._bucket.held)
        for held in there:
            for number, first, data in held.ranges:
                if number == shard and first <= start and start + size <= first + len(data):
                    self._bucket.found += 1
                    return data[start - first : start - first + size]
        self._bucket.missed += 1
        return self._sources[shard].read(start, start + size)

    def failure(self, spans: Spans) -> None:
        """Nothing fails."""

    def close(self) -> None:
        """Nothing is kept."""
