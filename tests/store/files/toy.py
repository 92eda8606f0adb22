"""A third kind of files, as a remote one would be: objects behind ``toy://`` names; it counts what is read."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.errors import StoreError, StoreNotFound
from fastio.store.files import ByteSource, Kind
from fastio.types.spans import Spans

SCHEME = "toy://"


@dataclass
class Bucket:
    """Objects by name, each with the number of its version, and the ranges that were read of them."""

    objects: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    reads: list[tuple[str, int, int]] = field(default_factory=list)
    versions: itertools.count[int] = field(default_factory=itertools.count)

    def put(self, path: str, data: bytes) -> None:
        """Store an object, or a new version of it."""
        self.objects[path] = data, next(self.versions)

    def get(self, path: str, start: int, stop: int, *, version: int) -> bytes:
        """A range of an object. Raises StoreError if it has another version, or none."""
        self.check(path, version)
        self.reads.append((path, start, stop))
        return self.objects[path][0][start:stop]

    def check(self, path: str, version: int) -> None:
        """Raise StoreError if an object has another version, or none."""
        if path not in self.objects:
            raise StoreError(f"{path}: can no longer be read: open the store again")
        if self.objects[path][1] != version:
            raise StoreError(f"{path}: was replaced or changed since it was opened: open the store again")

    def kind(self) -> Kind:
        """An entry of KINDS that reads this bucket."""
        return Kind(
            "toy",
            lambda path: path.startswith(SCHEME),
            lambda path, _options: self._open(path),
            lambda sources: ToyFiles(self, sources),
        )

    def _open(self, path: str) -> ToySource:
        if path not in self.objects:
            raise StoreNotFound(f"{path}: no such object")
        return ToySource(self, path)


class ToySource:
    """One version of one object."""

    kind = "toy"
    memory = None

    def __init__(self, bucket: Bucket, path: str) -> None:
        self._bucket = bucket
        self.path = path
        data, self._version = bucket.objects[path]
        self.size = len(data)
        self.identity: Mapping[str, int | str] = {"size": self.size, "etag": f"version {self._version}"}

    def read(self, start: int, stop: int) -> NDArray[np.uint8]:
        """A copy."""
        if not 0 <= start <= stop <= self.size:
            raise ValueError(f"{self.path}: bytes {start} to {stop} of {self.size}")
        return np.frombuffer(self._bucket.get(self.path, start, stop, version=self._version), np.uint8)

    def check(self) -> None:
        """Raise StoreError for another version."""
        self._bucket.check(self.path, self._version)

    def release(self) -> None:
        """Nothing is kept."""


class ToyFiles:
    """All objects of a store; fetches one span after the other."""

    in_place = False
    threads = 2
    holds = False
    ahead_bytes = 48 << 20
    chunk_bytes = 16 << 20

    def __init__(self, bucket: Bucket, sources: Sequence[ByteSource]) -> None:
        self._bucket = bucket
        self._sources = sources
        self.buffers = _native.Buffers([source.size for source in sources])

    def fetch(
        self,
        spans: Spans,
        *,
        pool: _native.ThreadPool | None = None,
        ring: _native.BufferRing | None = None,
        is_near: bool = False,
    ) -> Arrived:
        """Read at once."""
        total = max(1, int(spans.sizes.sum()))
        out = np.empty(total, np.uint8) if ring is None else ring.acquire(total)
        places = np.cumsum(spans.sizes) - spans.sizes
        wanted = zip(spans.shard.tolist(), spans.starts.tolist(), spans.sizes.tolist(), places.tolist(), strict=True)
        for shard, start, size, place in wanted:
            if not 0 <= shard < len(self._sources) or not 0 <= start <= start + size <= self._sources[shard].size:
                raise IndexError(f"{size} bytes from {start} of file {shard}")
            out[place : place + size] = self._sources[shard].read(start, start + size)
        memory = _native.Buffers([out] * len(self._sources))
        return Arrived(Spans(memory, spans.shard, places, spans.sizes, spans.checksums, spans.intervals))

    def read_ahead(
        self, spans: Spans, *, pool: _native.ThreadPool | None = None, comes_again: bool = False
    ) -> _native.Job:
        """Nothing comes nearer: a job of no work."""
        none = np.empty(0, np.int64)
        return _native.read_ahead(Spans.of(np.empty(0, np.uint8), none, none))

    def failure(self, spans: Spans) -> None:
        """Nothing fails."""

    def close(self) -> None:
        """Nothing is kept."""


@dataclass(frozen=True)
class Arrived:
    """Spans in memory."""

    spans: Spans

    def wait(self) -> tuple[Spans, None]:
        """The spans."""
        return self.spans, None
