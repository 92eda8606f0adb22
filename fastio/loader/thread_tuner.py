"""Finds how many decoding threads a training loop needs in its first second, never more than the process may use."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Pool", "ThreadTuner", "Window", "threads_needed"]

_WINDOW_S = 1.0
_LEAST_BATCHES = 8  # least batches in a window that tells anything
_WAITING = 0.02  # the share of its time above which a loop waits for data
_HEADROOM = 1.5  # added to the busy threads: batches do not come evenly


class Pool(Protocol):
    """What is tuned: ``_native.ThreadPool``."""

    @property
    def threads(self) -> int: ...

    @property
    def used(self) -> int: ...

    @property
    def cpu_seconds(self) -> float: ...

    def use(self, threads: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Window:
    """
    What happened in some time: the loop ``waited_s`` for data, the threads computed for ``busy_s``, all in seconds.
    """

    wall_s: float
    waited_s: float
    busy_s: float


def threads_needed(window: Window, *, most: int) -> int:
    """
    Return the fewest threads that keep up with the loop, 1 to ``most``.

    A loop that waits for data more than 2 % of its time gets all threads. Otherwise, it gets the number that was busy
    on average, and half as many again.

    >>> threads_needed(Window(wall_s=1.0, waited_s=0.0, busy_s=1.2), most=8)
    2
    >>> threads_needed(Window(wall_s=1.0, waited_s=0.3, busy_s=1.2), most=8)
    8
    """
    if window.waited_s > _WAITING * window.wall_s:
        return most
    return min(most, max(1, math.ceil(_HEADROOM * window.busy_s / window.wall_s)))


class ThreadTuner:
    """
    Lets a pool use fewer threads if the loop does not need all, so that they leave CPU time to its own computation.

    ``look`` is called with each batch. After a second (and 8 batches) of one iteration, the threads needed are
    chosen, once. It keeps watching: if the loop waits in a later second, it gets all threads back, for good. This
    never changes which batches come.
    """

    def __init__(self) -> None:
        self._begin: tuple[float, float, float, int] | None = None
        self._has_chosen = False
        self._is_settled = False

    def restart(self) -> None:
        """Start an iteration: what was before it does not count."""
        self._begin = None

    def look(self, pool: Pool, *, now_s: float, loading_s: float, batches: int) -> None:
        """Note a batch: the time, the seconds waited and the batches so far."""
        if self._is_settled:
            return
        begin = self._begin  # once: an iteration in another thread may restart
        if begin is None:
            self._begin = now_s, loading_s, pool.cpu_seconds, batches
            return
        begin_s, waited_before_s, busy_before_s, batches_before = begin
        if now_s - begin_s < _WINDOW_S or batches - batches_before < _LEAST_BATCHES:
            return
        self._begin = None
        window = Window(now_s - begin_s, loading_s - waited_before_s, pool.cpu_seconds - busy_before_s)
        needed = threads_needed(window, most=pool.threads)
        if not self._has_chosen:
            self._has_chosen = True
            pool.use(needed)
            self._is_settled = needed == pool.threads
        elif needed == pool.threads:
            pool.use(needed)
            self._is_settled = True
