"""What brings ranges of objects: the object store, the cache directory, or copies on this machine."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fastio.errors import StoreNotFound
from fastio.store.files.remote.client import Answer, Precondition, RequestFailed, after_attempts, pause_s
from fastio.store.files.remote.clients import client_of
from fastio.store.files.remote.disk import POLL_S, Claim, LocalBytes, Piece, gaps_of
from fastio.store.files.remote.remote_source import RemoteSource
from fastio.store.files.remote.request_threads import ByteRange, InFlight
from fastio.types.metrics import Requests
from fastio.types.spans import Spans

__all__ = [
    "DiskLoader",
    "Hedging",
    "RangeLoader",
    "joined_ranges",
]


Data = NDArray[np.uint8]

# Of a request for neighbouring windows: one window, or more where a connection would mostly wait for first bytes.
_FEWEST_BYTES = 4 << 20
_SMOOTHING = 0.1


class RangeLoader:
    """
    Brings ranges of the objects of a store.

    An attempt that fails for a reason that may pass is repeated ``download_retry`` times, all of an epoch together
    ``epoch_retry`` times; ``requests`` counts them. A request that takes three
    times as long as 95 % of the others is sent once more, and the first answer counts. Used by one thread.
    """

    def __init__(self, sources: Sequence[RemoteSource], in_flight: InFlight) -> None:
        self._sources = sources
        self._in_flight = in_flight
        self.hedging = Hedging()
        self.requests = Requests(sources[0].options.epoch_retry if sources else None)
        self._latency_s = 0.0
        self._bytes_per_s = 0.0

    @property
    def request_bytes(self) -> int:
        """How many bytes neighbouring windows should ask for together: twice latency x bandwidth, 4 to 16 MiB."""
        return int(min(MOST_BYTES, max(_FEWEST_BYTES, 2 * self._latency_s * self._bytes_per_s)))

    async def load(self, wanted: ByteRange) -> Data:
        """
        Return the bytes, read-only.

        Raises RequestFailed when the last attempt failed, and StoreError at once for an object that was replaced or
        may not be read.
        """
        source = self._sources[wanted.shard]
        for number in range(source.options.download_retry + 1):
            try:
                data = await self._hedged(source, wanted)
            except RequestFailed as exc:
                is_last = number == source.options.download_retry
                if is_last or not self.requests.may_repeat():
                    self.requests.failed += 1
                    raise after_attempts(
                        source.path, exc, number + 1, spent=None if is_last else self.requests.most
                    ) from None
                if exc.cause == "busy":
                    self._in_flight.throttled()
                await asyncio.sleep(pause_s(number))
            else:
                self.requests.answered += 1
                return data
        raise AssertionError

    async def _hedged(self, source: RemoteSource, wanted: ByteRange) -> Data:
        """Return the first answer of at most two requests."""
        began = time.monotonic()
        tasks = {asyncio.ensure_future(self._request(source, wanted))}
        try:
            done, pending = await asyncio.wait(tasks, timeout=self.hedging.patience_s(wanted.size))
            if not done and self.hedging.take(wanted.size):
                self.requests.hedged += 1
                tasks.add(asyncio.ensure_future(self._request(source, wanted)))
            while True:
                done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                good = [task for task in done if task.exception() is None]
                if good or not pending:
                    break
                tasks = pending
            data = (good or list(done))[0].result()
            self.hedging.arrived(wanted.size, time.monotonic() - began)
            return data
        finally:
            for task in tasks:
                task.cancel()

    async def _request(self, source: RemoteSource, wanted: ByteRange) -> Data:
        client, key = client_of(source.path, source.options)
        began = time.monotonic()
        try:
            answer: Answer = await client.fetch(key, wanted.start, wanted.stop, etag=source.etag)
        except Precondition:
            raise source.replaced() from None
        except StoreNotFound as exc:
            raise source.gone() from exc
        data = source.accepted(answer, wanted.start, wanted.stop)
        data.setflags(write=False)
        self._measure(answer.latency_s, wanted.size / max(1e-9, time.monotonic() - began - answer.latency_s))
        return data

    def _measure(self, latency_s: float, bytes_per_s: float) -> None:
        share = _SMOOTHING if self._bytes_per_s else 1.0
        self._latency_s += share * (latency_s - self._latency_s)
        self._bytes_per_s += share * (bytes_per_s - self._bytes_per_s)


# DiskLoader: brings ranges of objects from a disk of this machine, and from elsewhere what is not there.

_Pieces = tuple[list[Piece], Claim | None]


class DiskLoader:
    """
    ``load`` brings what ``fetch`` would, and keeps it where the range says so; of objects of which ``bytes_of`` knows
    nothing on this machine it is ``fetch``.

    What another one fetches for the same disk is waited for, as long as a request may take, or ``most_wait_s``. The
    disk is read and written by other threads than the one that loads.
    """

    def __init__(
        self,
        sources: Sequence[RemoteSource],
        fetch: Callable[[ByteRange], Awaitable[Data]],
        bytes_of: Callable[[RemoteSource], LocalBytes | None],
        *,
        most_wait_s: float = math.inf,
    ) -> None:
        self._sources = sources
        self._fetch = fetch
        self._bytes_of = bytes_of
        self._waits = True
        self._most_wait_s = most_wait_s

    async def load(self, wanted: ByteRange) -> Data:
        """Return the bytes, read-only. Raises what ``fetch`` raises."""
        source = self._sources[wanted.shard]
        local = self._bytes_of(source)
        if local is None or wanted.is_fresh:
            data = await self._fetch(wanted)
            local = self._bytes_of(source)  # if not before, then by the first answer
            if local is not None and wanted.is_kept:
                await asyncio.to_thread(local.keep, wanted.start, data)
            return data
        pieces, claim = await self._claimed(local, wanted, source.options.download_timeout)
        try:
            gaps = [ByteRange(wanted.shard, start, stop) for start, stop in gaps_of(pieces)]
            fetched = await asyncio.gather(*map(self._fetch, gaps))
            if wanted.is_kept:
                for gap, data in zip(gaps, fetched, strict=True):
                    await asyncio.to_thread(local.keep, gap.start, data)
        finally:
            if claim is not None:
                claim.release()
        return _joined(pieces, fetched)

    async def _claimed(self, local: LocalBytes, wanted: ByteRange, wait_s: float) -> _Pieces:
        """Return the range in pieces, of which nobody else fetches what is missing, or has done so for too long."""
        deadline = time.monotonic() + min(wait_s, self._most_wait_s)
        while True:
            pieces, claim = await asyncio.to_thread(_pieces_and_claim, local, wanted)
            if claim is not None or not gaps_of(pieces) or not (wanted.is_kept and self._waits):
                return pieces, claim
            if time.monotonic() > deadline:
                self._waits = False
            await asyncio.sleep(POLL_S)

    def drop(self, spans: Spans) -> None:
        """Forget the ranges around spans that do not match their checksum."""
        for shard, start, size in zip(spans.shard.tolist(), spans.starts.tolist(), spans.sizes.tolist(), strict=True):
            local = self._bytes_of(self._sources[shard])
            if local is not None:
                local.drop(start, start + size)


def _pieces_and_claim(local: LocalBytes, wanted: ByteRange) -> _Pieces:
    pieces = local.pieces(wanted.start, wanted.stop)
    gaps = gaps_of(pieces)
    if not (gaps and wanted.is_kept):
        return pieces, None
    start, stop = gaps[0][0], gaps[-1][1]
    claim = local.claim(start, stop)
    if claim is None:
        return pieces, None
    before, after = [p for p in pieces if p[1] <= start], [p for p in pieces if p[0] >= stop]
    return [*before, *local.pieces(start, stop), *after], claim  # somebody may have brought it meanwhile


def _joined(pieces: Sequence[Piece], fetched: Sequence[Data]) -> Data:
    arrived = iter(fetched)
    parts = [next(arrived) if data is None else data for _, _, data in pieces]
    if len(parts) == 1:
        return parts[0]
    joined = np.concatenate([np.empty(0, np.uint8), *parts])
    joined.setflags(write=False)
    return joined


# Hedging: when a request that takes unusually long is sent a second time.

_KNOWN = 256  # requests whose times are remembered
_FEWEST = 20  # before which nothing is known of what is usual
_TIMES = 3.0  # the time that 95 % of the requests stay below
_SHARE = 0.05  # of all bytes that may be asked for twice
_SMALLEST = 1 << 20  # below it, requests take about the same time


class Hedging:
    """
    Says after how many seconds a request is sent a second time, at most 5 % of all bytes twice.

    Times are compared per byte, of requests below 1 MiB as if they had that size. Used by one thread.
    """

    def __init__(self) -> None:
        self.bytes_arrived = 0
        self.bytes_hedged = 0
        self._times: deque[float] = deque(maxlen=_KNOWN)  # seconds per byte

    def arrived(self, size: int, seconds: float) -> None:
        """Count a request that took so long."""
        self.bytes_arrived += size
        self._times.append(seconds / max(size, _SMALLEST))

    def patience_s(self, size: int) -> float | None:
        """Return the seconds after which a request of this size is unusually slow; None if that is not known yet."""
        if len(self._times) < _FEWEST:
            return None
        ordered = sorted(self._times)
        return _TIMES * ordered[int(0.95 * (len(ordered) - 1))] * max(size, _SMALLEST)

    def take(self, size: int) -> bool:
        """Return whether a request of this size may be sent again, and count it as sent."""
        if self.bytes_hedged + size > _SHARE * self.bytes_arrived:
            return False
        self.bytes_hedged += size
        return True


# Which spans share a request.

# Between neighbours that share a request: less than a connection brings while another request waits for its answer.
GAP_BYTES = 64 << 10
MOST_BYTES = 16 << 20  # of a request for several spans; a larger span has its own


def joined_ranges(spans: Spans, *, most_bytes: int = MOST_BYTES) -> tuple[list[ByteRange], NDArray[np.int64]]:
    """
    Return the ranges to ask for, those of the first spans first, and of each span the number of its range.

    Spans of one object share a range if at most 64 KiB lie between them, up to ``most_bytes``. Empty spans are not
    allowed.
    """
    order = np.lexsort((spans.starts, spans.shard))
    shard, starts = spans.shard[order].tolist(), spans.starts[order].tolist()
    stops = (spans.starts + spans.sizes)[order].tolist()
    ranges: list[ByteRange] = []
    numbers = []
    for at, start, stop in zip(shard, starts, stops, strict=True):
        last = ranges[-1] if ranges else None
        if (
            last is not None
            and last.shard == at
            and start - last.stop <= GAP_BYTES
            and (stop <= last.stop or stop - last.start <= most_bytes)
        ):
            ranges[-1] = ByteRange(at, last.start, max(stop, last.stop))
        else:
            ranges.append(ByteRange(at, start, stop))
        numbers.append(len(ranges) - 1)
    of_range = np.empty(len(spans), np.int64)
    of_range[order] = numbers
    return _by_need(ranges, of_range)


def _by_need(ranges: list[ByteRange], of_range: NDArray[np.int64]) -> tuple[list[ByteRange], NDArray[np.int64]]:
    """Return the ranges in the order in which spans need them, and the new number of each span's range."""
    _, firsts = np.unique(of_range, return_index=True)
    order = np.argsort(firsts, kind="stable")
    new = np.empty(len(ranges), np.int64)
    new[order] = np.arange(len(ranges))
    return [ranges[number] for number in order.tolist()], new[of_range] if len(of_range) else of_range
