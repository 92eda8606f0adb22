"""How many bytes of a store an order in lanes may hold, for files that no page cache keeps: those behind URLs."""

from __future__ import annotations

import os
from collections.abc import Mapping

from fastio.samplers.page_cache import VARIABLE, PageCache, page_cache

__all__ = ["WHOLE_BYTES", "held_memory"]

WHOLE_BYTES = 64 << 20  # stores up to this size are held as a whole, by each rank

# Half of it is for the windows of a rank: 64 lanes of two blocks of 2 MiB. Larger blocks cost fewer requests, but an
# epoch's first batch waits for a block of nearly every lane.
_RANK_BYTES = 512 << 20
_GOOD_BLOCK_BYTES = 2 << 20


def held_memory(processes: int, *, environ: Mapping[str, str] = os.environ) -> PageCache:
    """
    Return the memory of a loader with this many ranks, the same on every machine, or that of FASTIO_SHUFFLE_MEMORY.

    Raises ValueError if the variable is not a size.
    """
    if environ.get(VARIABLE) is not None:
        return page_cache(processes, environ=environ)
    return PageCache(_RANK_BYTES * processes, whole_bytes=WHOLE_BYTES, good_block_bytes=_GOOD_BLOCK_BYTES)
