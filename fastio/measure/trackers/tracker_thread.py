"""Hands figures to a tracker in a thread of its own, so that a training waits neither for disks nor for servers."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Full, Queue

from fastio.measure.trackers.figures import Figures, Tracker
from fastio.types.units import counted

__all__ = ["TrackerThread"]

_WAITING = 64  # records that wait for a slow tracker; later ones are dropped
_CLOSE_S = 10.0  # seconds that close() gives a tracker to write what waits

_log = logging.getLogger(__name__)


class TrackerThread:
    """
    Writes figures to one tracker, in order.

    If the tracker fails, or is so slow that figures have to be dropped, ``warn`` gets one line. Later figures are
    still tried, and ``close`` says how many are missing.
    """

    def __init__(self, tracker: Tracker, *, warn: Callable[[str], None] = _log.warning) -> None:
        self._tracker = tracker
        self._warn = warn
        self._waiting: Queue[Figures | None] = Queue(_WAITING)
        self._pid = os.getpid()
        self._put = self._written = 0
        self._has_warned = self._is_closed = False
        self._lock = threading.Lock()  # both the training and the thread warn
        self._thread = threading.Thread(target=self._run, name="fastio tracker", daemon=True)
        self._thread.start()

    def put(self, figures: Figures) -> None:
        """Have figures written soon. Never blocks. After ``close`` nothing is written."""
        if self._is_closed:
            return
        self._put += 1
        try:
            self._waiting.put_nowait(figures)
        except Full:
            self._warn_once(f"is too slow: {_WAITING} writes wait for it")

    def close(self) -> None:
        """
        Write what waits and close the tracker, within ten seconds. Calling it twice is harmless.
        """
        if self._is_closed or os.getpid() != self._pid:  # a forked process has the object, but not its thread
            return
        self._is_closed = True
        ends = time.monotonic() + _CLOSE_S
        with suppress(Full):
            self._waiting.put(None, timeout=_CLOSE_S)
            self._thread.join(max(0.0, ends - time.monotonic()))
        if self._thread.is_alive():
            self._warn(f"{self._tracker} has not finished after {_CLOSE_S:.0f} s and is left behind")
        missing = self._put - self._written
        if missing:
            self._warn(f"{self._tracker}: {missing} of {counted(self._put, 'write')} did not arrive")

    def _run(self) -> None:
        while (figures := self._waiting.get()) is not None:
            try:
                self._tracker.write(figures)
                self._written += 1
            except Exception as exc:  # trackers are other people's code: whatever they raise, the training goes on
                self._warn_once(f"failed: {_reason(exc)}")
        try:
            self._tracker.close()
        except Exception as exc:
            self._warn(f"{self._tracker} could not be closed: {_reason(exc)}")

    def _warn_once(self, problem: str) -> None:
        with self._lock:
            if self._has_warned:
                return
            self._has_warned = True
        self._warn(f"{self._tracker} {problem}; figures are missing there, training goes on")


def _reason(error: Exception) -> str:
    """Return the kind of an error and what it says, as one line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(f"{type(error).__name__}: {error}".split())
