"""RemoteFiles: the objects of a store, fetched by ranges into memory."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastio import _native
from fastio.errors import StoreError
from fastio.store.files.remote.clients import client_of
from fastio.store.files.remote.remote_source import RemoteSource
from fastio.types.spans import Spans

__all__ = ["RemoteFiles"]

_IN_FLIGHT = 16


class RemoteFiles:
    """The objects of a store; see StoreFiles."""

    in_place = False
    threads = 1

    def __init__(self, sources: Sequence[RemoteSource]) -> None:
        self._sources = sources
        self._requests: ThreadPoolExecutor | None = None
        self.buffers = _native.Buffers([source.size for source in sources])

    def fetch(
        self,
        spans: Spans,
        *,
        pool: _native.ThreadPool | None = None,
        ring: _native.BufferRing | None = None,
        is_near: bool = False,
    ) -> _Arriving:
        """Begin to fetch the spans; those that lie side by side by one request."""
        total = max(1, int(spans.sizes.sum()))
        out = np.empty(total, np.uint8) if ring is None else ring.acquire(total)
        if self._requests is None:
            self._requests = ThreadPoolExecutor(_IN_FLIGHT, thread_name_prefix="fastio-remote")
        runs, at, waits = spans.runs(), 0, []
        for shard, start, size in zip(runs.shard.tolist(), runs.starts.tolist(), runs.sizes.tolist(), strict=True):
            waits.append(self._requests.submit(self._copy, shard, start, out[at : at + size]))
            at += size
        memory = _native.Buffers([out] * len(self._sources))
        starts = np.cumsum(spans.sizes) - spans.sizes
        arrived = Spans(memory, spans.shard, starts, spans.sizes, spans.checksums, spans.intervals)
        return _Arriving(arrived, waits, np.repeat(np.arange(len(runs)), _lengths(spans, runs)))

    def read_ahead(self, spans: Spans, *, pool: _native.ThreadPool | None = None) -> _native.Job:
        """Nothing comes nearer yet: a job of no work."""
        none = np.empty(0, np.int64)
        return _native.read_ahead(Spans.of(np.empty(0, np.uint8), none, none))

    def _copy(self, shard: int, start: int, out: NDArray[np.uint8]) -> None:
        if len(out) == 0:
            return
        source = self._sources[shard]
        client, key = client_of(source.path, source.options)
        out[:] = np.frombuffer(source.fetched(client, key, start, start + len(out)).data, np.uint8)


def _lengths(spans: Spans, runs: Spans) -> NDArray[np.int64]:
    """How many spans each run has."""
    ends = np.cumsum(spans.sizes)
    firsts = np.searchsorted(ends - spans.sizes, np.cumsum(runs.sizes) - runs.sizes, side="left")
    return np.diff(np.append(firsts, len(spans)))


@dataclass(frozen=True, slots=True)
class _Arriving:
    """Spans on their way; see Fetched."""

    spans: Spans
    waits: Sequence[Future[None]]
    run: NDArray[np.int64]  # the request of each span

    def wait(self) -> tuple[Spans, NDArray[np.int32] | None]:
        """See Fetched."""
        bad = []
        for number, wait in enumerate(self.waits):
            try:
                wait.result()
            except StoreError:
                bad.append(number)
        if not bad:
            return self.spans, None
        is_bad = np.isin(self.run, bad)
        spans = self.spans
        sizes = np.where(is_bad, 0, spans.sizes)
        status = np.where(is_bad, _native.IO_ERROR, _native.OK).astype(np.int32)
        return Spans(spans.buffers, spans.shard, spans.starts, sizes, spans.checksums, spans.intervals), status
