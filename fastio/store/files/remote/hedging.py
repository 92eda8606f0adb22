"""Hedging: when a request that takes unusually long is sent a second time."""

from __future__ import annotations

from collections import deque

__all__ = ["Hedging"]

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
