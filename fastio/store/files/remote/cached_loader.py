"""CachedLoader: brings ranges of objects from the cache directory, and from the object store what is not there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fastio.store.files.remote.download_thread import ByteRange
from fastio.store.files.remote.range_cache import Piece, RangeCache
from fastio.store.files.remote.remote_source import RemoteSource
from fastio.types.spans import Spans

__all__ = ["CachedLoader"]

Data = NDArray[np.uint8]


class CachedLoader:
    """
    ``load`` brings what ``fetch`` would, and keeps it where the range says so; without a cache directory it is
    ``fetch``.

    The disk is read and written by other threads than the one that loads.
    """

    def __init__(self, sources: Sequence[RemoteSource], fetch: Callable[[ByteRange], Awaitable[Data]]) -> None:
        self._sources = sources
        self._fetch = fetch
        self._caches = [RangeCache.of(source.options) for source in sources]

    async def load(self, wanted: ByteRange) -> Data:
        """Return the bytes, read-only. Raises what ``fetch`` raises."""
        cache, name = self._caches[wanted.shard], self._sources[wanted.shard].cache_name
        if cache is None:
            return await self._fetch(wanted)
        pieces: list[Piece] = [(wanted.start, wanted.stop, None)]
        if name is not None and not wanted.is_fresh:
            pieces = await asyncio.to_thread(cache.pieces, name, wanted.start, wanted.stop)
        gaps = [ByteRange(wanted.shard, start, stop) for start, stop, data in pieces if data is None]
        fetched = await asyncio.gather(*map(self._fetch, gaps))
        name = self._sources[wanted.shard].cache_name  # if not before, then by the first answer
        if name is not None and wanted.is_kept:
            for gap, data in zip(gaps, fetched, strict=True):
                await asyncio.to_thread(cache.keep, name, gap.start, gap.stop, data)
        return _joined(pieces, fetched)

    def drop(self, spans: Spans) -> None:
        """Forget the ranges around spans that do not match their checksum."""
        for shard, start, size in zip(spans.shard.tolist(), spans.starts.tolist(), spans.sizes.tolist(), strict=True):
            cache, name = self._caches[shard], self._sources[shard].cache_name
            if cache is not None and name is not None:
                cache.drop(name, start, start + size)


def _joined(pieces: Sequence[Piece], fetched: Sequence[Data]) -> Data:
    arrived = iter(fetched)
    parts = [next(arrived) if data is None else data for _, _, data in pieces]
    if len(parts) == 1:
        return parts[0]
    joined = np.concatenate(parts)
    joined.setflags(write=False)
    return joined
