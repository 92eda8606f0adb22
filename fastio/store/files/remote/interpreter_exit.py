"""The end of the interpreter, which must not meet a thread of the client on its way into Python."""

from __future__ import annotations

import atexit
import ctypes
import sys
import threading
import time
import weakref
from functools import cache
from typing import Protocol

__all__ = ["Closable", "close_at_exit"]

_AT_LEAST_S = 0.02  # for a thread that is woken, but has not arrived
_AT_MOST_S = 0.5


_closed_at_exit: weakref.WeakSet[Closable] = weakref.WeakSet()


class Closable(Protocol):
    """Something with a thread."""

    def close(self) -> None:
        """End the thread, and cancel what it does."""
        ...


def close_at_exit(thread: Closable) -> None:
    """
    Close it before the interpreter ends, which then waits until no thread of the client is in Python any more.

    obstore reports the end of a request from a thread of its own. Up to Python 3.13, one that wants the interpreter
    back after it has begun to end is ended by an exception that Rust does not let pass: the process aborts, with all
    its work done. Measured without this: 2 of 31 processes that ended right after their last request.
    """
    _register()
    _closed_at_exit.add(thread)


@cache
def _register() -> None:
    atexit.register(_end)


def _end() -> None:
    for thread in list(_closed_at_exit):
        thread.close()
    if sys.version_info >= (3, 14):
        return  # such a thread sleeps from then on
    began = time.monotonic()
    time.sleep(_AT_LEAST_S)
    while _thread_states() > threading.active_count() and time.monotonic() < began + _AT_MOST_S:
        time.sleep(0.001)


def _thread_states() -> int:
    """Count the threads that are in Python, or wait for their turn: also those that Python did not start."""
    api, count = ctypes.pythonapi, 0
    api.PyInterpreterState_Get.restype = ctypes.c_void_p
    for function in (api.PyInterpreterState_ThreadHead, api.PyThreadState_Next):
        function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_void_p
    state = api.PyInterpreterState_ThreadHead(api.PyInterpreterState_Get())
    while state:
        count += 1
        state = api.PyThreadState_Next(state)
    return count
