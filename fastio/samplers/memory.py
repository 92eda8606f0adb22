"""
How many bytes of a store stay in memory while it is read: a number on which all ranks agree.

The order of ``shuffle=True`` depends on it: ranks with different orders would read some samples twice and others
never. So it is half of the memory that this process may use, whether free or not: the same again in the next run.
With ``torch.distributed``, the first rank that asks decides for all, through the key-value store that every process
group has, and nobody waits. Without it, several ranks use a fixed number.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastio.machine import process_group_ranks, usable_memory

__all__ = [
    "PageCache",
    "held_bytes",
    "held_memory",
    "page_cache",
]


VARIABLE = "FASTIO_SHUFFLE_MEMORY"

_UNKNOWN_MACHINES = 1 << 30  # bytes, if ranks cannot ask each other
_KEY = "fastio/shuffle_memory"
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}


@dataclass(frozen=True, slots=True)
class PageCache:
    """
    ``nbytes`` of a store stay in memory. ``is_final`` means that all ranks use this number from now on.

    Stores up to ``whole_bytes`` (None: ``nbytes``) are shuffled fully, and lanes should have blocks of at least
    ``good_block_bytes``.
    """

    nbytes: int
    is_final: bool = True
    whole_bytes: int | None = None
    good_block_bytes: int = 1 << 20

    @property
    def largest_whole(self) -> int:
        """Bytes of the largest store that memory holds as a whole."""
        return self.nbytes if self.whole_bytes is None else min(self.nbytes, self.whole_bytes)


def page_cache(world_size: int, *, environ: Mapping[str, str] = os.environ) -> PageCache:
    """
    Return the page cache of a loader with this many ranks: FASTIO_SHUFFLE_MEMORY ("2GB", "512MiB", bytes), or half of
    the memory.

    Raises ValueError if the variable is not a size.
    """
    setting = environ.get(VARIABLE)
    own = usable_memory() // 2 if setting is None else _size(setting)
    if process_group_ranks() is not None:
        return PageCache(_agreed(own))
    if setting is None and world_size > 1:
        return PageCache(_UNKNOWN_MACHINES, is_final=False)
    return PageCache(own)


def _agreed(own: int) -> int:
    """Return the number of the rank that asked first."""
    # Not imported here: a program with a process group has imported torch, and one without does not need it.
    store: Any = sys.modules["torch.distributed.distributed_c10d"]._get_default_store()
    return int(store.compare_set(_KEY, "", str(own)))


def _size(text: str) -> int:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"environment {VARIABLE}={text!r}: expected a size such as 2GB, 512MiB or 1000000000")
    return int(float(match[1]) * _UNITS[match[2]])


# How many bytes of a store an order in lanes may hold, for files that no page cache keeps: those behind URLs.

_WHOLE_BYTES = 64 << 20  # stores up to this size are shuffled fully, and held as a whole by each rank,
_WHOLE_TOGETHER = 512 << 20  # where all ranks together do not read more than this for it

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
    whole = min(_WHOLE_BYTES, _WHOLE_TOGETHER // processes)
    return PageCache(_RANK_BYTES * processes, whole_bytes=whole, good_block_bytes=_GOOD_BLOCK_BYTES)


def held_bytes(*, environ: Mapping[str, str] = os.environ) -> int:
    """
    Return how many bytes a rank may hold of samples that come in no lanes: FASTIO_SHUFFLE_MEMORY, or 512 MiB, for which
    lanes are planned, too. No order depends on it.

    Raises ValueError if the variable is not a size.
    """
    setting = environ.get(VARIABLE)
    return _RANK_BYTES if setting is None else _size(setting)
