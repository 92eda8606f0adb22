"""Protects a few steps that Ctrl-C and SIGTERM must not interrupt."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["undisturbed"]

_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)  # SIGINT is delivered last: its handler raises


@contextmanager
def undisturbed() -> Iterator[None]:
    """
    Hold back Ctrl-C and other signals with Python handlers; their handlers run when the block ends.

    Only for steps of milliseconds. Python runs handlers in the main thread; in any other thread, there is nothing to
    hold back. Signals without a handler in Python, such as SIGKILL, still end the process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[tuple[int, FrameType | None]] = []
    handlers = {number: handler for number in _SIGNALS if callable(handler := signal.getsignal(number))}
    try:
        for each in handlers:
            signal.signal(each, lambda number, frame: held.append((number, frame)))
        yield
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
        for number, frame in held:
            handlers[signal.Signals(number)](number, frame)
