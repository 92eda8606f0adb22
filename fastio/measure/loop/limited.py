"""Cuts a loader off after some time: every measurement runs over that."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["limited"]


def limited(loader: Iterable[Any], *, ends: float, least: int = 1, latest: float = math.inf) -> Iterator[Any]:
    """
    Yield the loader's batches until ``time.perf_counter()`` reaches ``ends``, but at least ``least`` of them.

    From ``latest`` on, one batch is enough.

    No batch is kept here: its memory belongs to the loader's ring. Wrap this in the timer, not the timer in this: a
    step that is cut off must not count.
    """
    left = least
    for held in map(_in_a_list, loader):
        yield held.pop()
        left -= 1
        now = time.perf_counter()
        if (left <= 0 and now >= ends) or now >= latest:
            return


def _in_a_list(batch: Any) -> list[Any]:
    return [batch]
