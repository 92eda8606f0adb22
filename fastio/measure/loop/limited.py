"""A loader cut off by time: what every measurement runs over."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["limited"]


def limited(loader: Iterable[Any], *, ends: float, least: int = 1, latest: float = math.inf) -> Iterator[Any]:
    """
    The loader's batches until ``time.perf_counter()`` says ``ends``, and ``least`` of them if there are so many.

    At ``latest`` one is enough.

    No batch is kept here: its memory belongs to the loader's ring. Put the timer around this, not this around the
    timer: a step that is left is no step.
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
