"""Requests that somebody waits for, sent by one thread with an event loop; and the end of such threads."""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import os
import sys
import threading
import time
import weakref
from collections.abc import Coroutine, Iterator
from concurrent.futures import CancelledError, Executor
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Protocol, TypeVar

__all__ = [
    "answer_of",
    "close_at_exit",
    "end_requests",
]


Result = TypeVar("Result")

_JOIN_S = 5.0  # for a thread that is told to end; it waits for nothing then

_threads: dict[int, _RequestThread] = {}  # by process: a fork has none
_starting = threading.Lock()


def answer_of(request: Coroutine[Any, Any, Result]) -> Result:
    """
    Send a request, and return its answer.

    Native code that waits for a server does not look for signals, Python's locks do: KeyboardInterrupt comes at once,
    and cancels the request. Other threads may do so by ``end_requests``: CancelledError.
    """
    return _of_process().answer_of(request)


def end_requests(threads: Executor) -> None:
    """Have ``threads`` do nothing more, whose requests are cancelled, as all others of this process are meanwhile."""
    with _of_process().ended():
        threads.shutdown(cancel_futures=True)


class _RequestThread:
    def __init__(self) -> None:
        self._beginning = threading.Lock()
        self._is_ended = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fastio-requests", daemon=True)
        self._thread.start()
        close_at_exit(self)

    def answer_of(self, request: Coroutine[Any, Any, Result]) -> Result:
        if self._loop.is_closed():  # the interpreter ends
            return asyncio.run(request)
        with self._beginning:
            if self._is_ended:
                request.close()
                raise CancelledError
            answer = asyncio.run_coroutine_threadsafe(request, self._loop)
        try:
            return answer.result()
        except BaseException:
            answer.cancel()
            raise

    @contextmanager
    def ended(self) -> Iterator[None]:
        """Cancel all requests, and begin none."""
        with self._beginning:
            self._is_ended = True
        try:
            self._cancel()
            yield
        finally:
            self._is_ended = False

    def _cancel(self) -> None:
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result(_JOIN_S)

    def close(self) -> None:
        """End the thread. See Closable."""
        if self._loop.is_closed():
            return
        self._cancel()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_JOIN_S)
        if not self._loop.is_running():
            self._loop.close()


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _of_process() -> _RequestThread:
    with _starting:
        thread = _threads.get(os.getpid())
        if thread is None:
            thread = _threads[os.getpid()] = _RequestThread()
    return thread


# The end of the interpreter, which must not meet a thread of the client on its way into Python.

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
