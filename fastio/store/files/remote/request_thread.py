"""Requests that somebody waits for: sent by one thread with an event loop, so that Ctrl-C ends the wait at once."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import CancelledError, Executor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from fastio.store.files.remote.interpreter_exit import close_at_exit

__all__ = ["answer_of", "end_requests"]

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
