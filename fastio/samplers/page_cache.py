"""How many bytes of a store stay in memory while it is read, as a number on which all ranks agree.

The order of ``shuffle=True`` depends on it, and ranks with different orders would read some samples twice and others
never. So it is half of the memory that this process may use, free or not: the same again in the next run. With
``torch.distributed`` the first rank that asks decides for all, through the key-value store that every process group
has, and nobody waits. Without it, several ranks take a fixed number.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastio.machine import process_group_ranks, usable_memory

__all__ = ["VARIABLE", "PageCache", "page_cache"]

VARIABLE = "FASTIO_SHUFFLE_MEMORY"

_UNKNOWN_MACHINES = 1 << 30  # bytes, where ranks cannot ask each other
_KEY = "fastio/shuffle_memory"
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}


@dataclass(frozen=True, slots=True)
class PageCache:
    """``nbytes`` of a store stay in memory. ``is_final``: all ranks take this number, now and later."""

    nbytes: int
    is_final: bool = True


def page_cache(world_size: int, *, environ: Mapping[str, str] = os.environ) -> PageCache:
    """
    For a loader of so many ranks: what FASTIO_SHUFFLE_MEMORY says ("2GB", "512MiB", bytes), or half of the memory.

    ValueError where the variable is no size.
    """
    said = environ.get(VARIABLE)
    own = usable_memory() // 2 if said is None else _size(said)
    if process_group_ranks() is not None:
        return PageCache(_agreed(own))
    if said is None and world_size > 1:
        return PageCache(_UNKNOWN_MACHINES, is_final=False)
    return PageCache(own)


def _agreed(own: int) -> int:
    """The number of the rank that has come first."""
    # Not imported: a program with a process group has it, and one without does not need torch here.
    store: Any = sys.modules["torch.distributed.distributed_c10d"]._get_default_store()
    return int(store.compare_set(_KEY, "", str(own)))


def _size(text: str) -> int:
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    if found is None or found[2] not in _UNITS:
        raise ValueError(f"environment {VARIABLE}={text!r}: expected a size such as 2GB, 512MiB or 1000000000")
    return int(float(found[1]) * _UNITS[found[2]])
