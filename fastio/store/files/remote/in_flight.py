"""InFlight: how many requests run at once, found by trying while the rate grows."""

from __future__ import annotations

__all__ = ["FEWEST", "MOST", "InFlight"]

FEWEST = 8  # at the start
MOST = 64
_GAIN = 1.1  # a larger limit must be so many times faster to stay
_ROUNDS = 64  # at a limit that proved best, before a larger one is tried again


class InFlight:
    """
    The limit of requests in flight: 8 at first, at most 64.

    It is compared in rounds of twice as many answers as the limit. While a larger limit brings more bytes a second,
    the next larger one is tried; otherwise the one before it comes back. Only times count in which requests waited
    for the limit: a reader that asks for little proves nothing. Used by one thread.
    """

    def __init__(self) -> None:
        self.limit = FEWEST
        self._last: tuple[int, float] | None = None  # the limit before this one, and its bytes a second
        self._rest = 0  # rounds until a larger limit is tried
        self._restart()

    def arrived(self, size: int, now: float, *, is_full: bool) -> None:
        """Count an answer of ``size`` bytes; ``is_full`` says that further requests wait for the limit."""
        if not is_full:
            self._restart()
            return
        self._answers += 1
        if self._answers <= self.limit:  # these were sent under the limit before
            self._began = now
            return
        self._bytes += size
        if self._answers >= 3 * self.limit and now > self._began:
            self._judge(self._bytes / (now - self._began))
            self._restart()

    def throttled(self) -> None:
        """Halve the limit: the server said that there are too many requests."""
        self.limit = max(1, self.limit // 2)
        self._last, self._rest = None, _ROUNDS
        self._restart()

    def _judge(self, rate: float) -> None:
        if self._rest:
            self._rest -= 1
            return
        if self._last is not None and rate < _GAIN * self._last[1]:
            self.limit, self._last, self._rest = self._last[0], None, _ROUNDS
        elif self.limit < MOST:
            self._last = self.limit, rate
            self.limit = min(MOST, self.limit + max(1, self.limit // 2))

    def _restart(self) -> None:
        self._answers = 0
        self._bytes = 0
        self._began = 0.0
