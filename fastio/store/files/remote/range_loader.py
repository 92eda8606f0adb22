"""RangeLoader: brings one range of an object, whatever it takes: attempts, pauses, a second request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastio.errors import StoreNotFound
from fastio.store.files.remote.client import Answer, Precondition, RequestFailed
from fastio.store.files.remote.clients import client_of
from fastio.store.files.remote.download_thread import ByteRange
from fastio.store.files.remote.hedging import Hedging
from fastio.store.files.remote.in_flight import InFlight
from fastio.store.files.remote.remote_source import RemoteSource
from fastio.store.files.remote.request_plan import MOST_BYTES
from fastio.store.files.remote.retry import after_attempts, pause_s

__all__ = ["RangeLoader"]

Data = NDArray[np.uint8]

# Of a request for neighbouring windows: one window, or more where a connection would mostly wait for first bytes.
_FEWEST_BYTES = 4 << 20
_SMOOTHING = 0.1


class RangeLoader:
    """
    Brings ranges of the objects of a store.

    An attempt that fails for a reason that may pass is repeated ``download_retry`` times. A request that takes three
    times as long as 95 % of the others is sent once more, and the first answer counts. Used by one thread.
    """

    def __init__(self, sources: Sequence[RemoteSource], in_flight: InFlight) -> None:
        self._sources = sources
        self._in_flight = in_flight
        self.hedging = Hedging()
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
                return await self._hedged(source, wanted)
            except RequestFailed as exc:
                if number == source.options.download_retry:
                    raise after_attempts(source.path, exc, number + 1) from None
                wanted_s = None
                if exc.cause == "busy":
                    self._in_flight.throttled()
                    wanted_s = await asyncio.to_thread(exc.retry_after_s)
                await asyncio.sleep(pause_s(number, wanted_s))
        raise AssertionError

    async def _hedged(self, source: RemoteSource, wanted: ByteRange) -> Data:
        """Return the first answer of at most two requests."""
        began = time.monotonic()
        tasks = {asyncio.ensure_future(self._request(source, wanted))}
        try:
            done, pending = await asyncio.wait(tasks, timeout=self.hedging.patience_s(wanted.size))
            if not done and self.hedging.take(wanted.size):
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
