"""CopiedLoader: brings ranges of objects from copies on this machine, and what is not there from elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fastio.store.files.remote.download_thread import ByteRange
from fastio.store.files.remote.remote_source import RemoteSource
from fastio.types.spans import Spans

__all__ = ["CopiedLoader"]

Data = NDArray[np.uint8]


class CopiedLoader:
    """
    ``load`` brings what ``fetch`` would, and offers it to the copy; of objects without a copy it is ``fetch``.

    The disk is read and written by other threads than the one that loads.
    """

    def __init__(self, sources: Sequence[RemoteSource], fetch: Callable[[ByteRange], Awaitable[Data]]) -> None:
        self._sources = sources
        self._fetch = fetch

    async def load(self, wanted: ByteRange) -> Data:
        """Return the bytes, read-only. Raises what ``fetch`` raises."""
        copy = self._sources[wanted.shard].local_copy
        if copy is None:
            return await self._fetch(wanted)
        data = None if wanted.is_fresh else await asyncio.to_thread(copy.read, wanted.start, wanted.stop)
        if data is None:
            data = await self._fetch(wanted)
            await asyncio.to_thread(copy.offer, wanted.start, data)
        return data

    def drop(self, spans: Spans) -> None:
        """Trust the copies no more where spans do not match their checksum."""
        for shard, start, size in zip(spans.shard.tolist(), spans.starts.tolist(), spans.sizes.tolist(), strict=True):
            copy = self._sources[shard].local_copy
            if copy is not None:
                copy.distrust(start, start + size)

    def mend(self, spans: Spans, values: Sequence[Data]) -> None:
        """Put right values where spans of the copies did not match their checksum."""
        for shard, start, value in zip(spans.shard.tolist(), spans.starts.tolist(), values, strict=True):
            copy = self._sources[shard].local_copy
            if copy is not None:
                copy.mend(start, value)
