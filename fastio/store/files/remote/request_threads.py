"""The two threads with an event loop: of ranges on their way into memory, and of requests that somebody waits for."""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import heapq
import itertools
import os
import sys
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Executor, Future
from contextlib import contextmanager, suppress
from contextvars import Context
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, partial
from typing import Any, Protocol, TypeVar, TypeVarTuple

import numpy as np
from numpy.typing import NDArray

from fastio.errors import StoreError
from fastio.store.files.remote.client import RequestFailed, claim_process

__all__ = [
    "FEWEST",
    "MOST",
    "ByteRange",
    "Download",
    "DownloadThread",
    "InFlight",
    "Need",
    "answer_of",
    "close_at_exit",
    "end_requests",
]


Data = NDArray[np.uint8]
Arguments = TypeVarTuple("Arguments")

_CLOSED = "the store was closed while its samples were fetched: open it again"
_SMALL_BYTES = 512 << 10  # a request for less mostly waits for its first byte: it counts by its size
_LEAST_WEIGHT = 1 / 8
_JOIN_S = 5.0  # for a thread that is told to end; it waits for nothing then


@dataclass(frozen=True, slots=True)
class ByteRange:
    """
    The bytes from ``start`` up to ``stop`` of one object of a store; ``is_kept`` where there is a cache, and with
    ``is_fresh`` from the object itself, whatever lies on this machine.
    """

    shard: int
    start: int
    stop: int
    is_kept: bool = True
    is_fresh: bool = False

    @property
    def size(self) -> int:
        return self.stop - self.start


class Need(IntEnum):
    """When a range is needed: what is needed sooner is sent first."""

    NOW = 0  # somebody waits
    SOON = 1
    LATER = 2  # for a copy on this machine


class Download:
    """
    A range on its way. Its bytes live as long as it does, or an array over them; dropping it cancels the request.

    Safe to share between threads.
    """

    __slots__ = ("__weakref__", "_abandon", "_data", "_hurry", "_process", "range")
    _getpid = staticmethod(os.getpid)  # at interpreter exit, this module may have no ``os`` any more

    def __init__(
        self, wanted: ByteRange, data: Future[Data], *, abandon: Callable[[], object], hurry: Callable[[], object]
    ) -> None:
        self.range = wanted
        self._data = data
        self._abandon = abandon
        self._hurry = hurry
        self._process = self._getpid()

    @property
    def done(self) -> bool:
        """Whether the bytes are there, or will never be."""
        return self._data.done()

    @property
    def has_arrived(self) -> bool:
        """Whether the bytes are there."""
        return self._data.done() and self._data.exception() is None

    def hurry(self) -> None:
        """Let it overtake what is needed LATER."""
        self._hurry()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait; False when not done in time. The bytes may be there or not."""
        try:
            self._data.exception(timeout_s)
        except TimeoutError:
            return False
        return True

    def result(self) -> Data | RequestFailed:
        """
        Wait, and return the bytes, read-only, or the failure of the last attempt.

        Raises StoreError for what no attempt can change.
        """
        error = self._data.exception()
        if error is None:
            return self._data.result()
        if isinstance(error, RequestFailed):
            return error
        # Another one: its traceback would hold the caller's frame, and with it the memory of other downloads.
        raise StoreError(str(error)) if isinstance(error, StoreError) else error

    def __del__(self) -> None:
        if self._process == self._getpid() and not self._data.done():
            self._abandon()


class DownloadThread:
    """
    Has ``load`` bring ranges, as many at once as ``in_flight`` allows, those that are needed sooner first. Of small
    ones, up to eight count as one.

    The thread starts with the first range and ends with ``close``. A process that was forked must not use it.
    """

    def __init__(self, load: Callable[[ByteRange], Awaitable[Data]], in_flight: InFlight) -> None:
        self._in_flight = in_flight
        self._load = load
        self._process = os.getpid()
        self._numbers = itertools.count()
        self._starting = threading.Lock()
        self._loop: _Loop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False
        # Of the loop's thread alone: what waits for its turn, by order, and what is under way.
        self._order: list[tuple[Need, int]] = []
        self._waiting: dict[int, tuple[ByteRange, Future[Data]]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._weight = 0.0  # of the tasks

    def begin(self, wanted: ByteRange, need: Need) -> Download:
        """Begin to fetch a range. Raises StoreError."""
        claim_process()
        number, data = next(self._numbers), Future[Data]()
        with self._starting:  # what ``close`` does not see here, it would leave waiting for ever
            loop = self._started()
            loop.call_soon_threadsafe(self._accept, number, wanted, data, need)
        abandon, hurry = (partial(loop.call_soon_threadsafe, each, number) for each in (self._drop, self._hurry))
        return Download(wanted, data, abandon=abandon, hurry=hurry)

    def close(self) -> None:
        """Cancel what is under way, and join the thread; twice does no harm."""
        if self._process != os.getpid():
            return
        with self._starting:
            self._is_closed = True
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_JOIN_S)

    def _started(self) -> _Loop:
        if self._is_closed:
            raise StoreError("the store was closed: open it again")
        if self._loop is None:
            self._loop = _Loop()
            self._thread = threading.Thread(target=self._run, args=(self._loop,), name="fastio-remote", daemon=True)
            self._thread.start()
            close_at_exit(self)
        return self._loop

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            left = list(self._tasks.values())
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            for _, data in self._waiting.values():
                data.set_exception(StoreError(_CLOSED))
            self._waiting.clear()
            with suppress(TimeoutError):  # a file system of fsspec that hangs is left to itself
                loop.run_until_complete(asyncio.wait_for(loop.shutdown_default_executor(), _JOIN_S / 2))
            loop.close()

    def _accept(self, number: int, wanted: ByteRange, data: Future[Data], need: Need) -> None:
        self._waiting[number] = wanted, data
        heapq.heappush(self._order, (need, number))
        self._send()

    def _hurry(self, number: int) -> None:
        if number in self._waiting:  # its later turn finds that it was sent
            heapq.heappush(self._order, (Need.SOON, number))

    def _drop(self, number: int) -> None:
        self._waiting.pop(number, None)
        task = self._tasks.get(number)
        if task is not None:
            task.cancel()

    def _send(self) -> None:
        while self._order and not self._is_closed and len(self._tasks) < MOST and self._weight < self._in_flight.limit:
            _, number = heapq.heappop(self._order)
            if number in self._waiting:
                wanted, data = self._waiting.pop(number)
                self._weight += _weight(wanted)
                task = asyncio.get_running_loop().create_task(self._bring(wanted, data))
                task.add_done_callback(partial(self._finish, number, wanted, data))
                self._tasks[number] = task

    async def _bring(self, wanted: ByteRange, data: Future[Data]) -> None:
        try:
            data.set_result(await self._load(wanted))
        except Exception as exc:  # whoever waits for the bytes gets it
            data.set_exception(exc)
        else:
            self._in_flight.arrived(wanted.size, time.monotonic(), is_full=bool(self._waiting))

    def _finish(self, number: int, wanted: ByteRange, data: Future[Data], task: asyncio.Task[None]) -> None:
        del self._tasks[number]
        self._weight -= _weight(wanted)
        if task.cancelled():
            data.set_exception(StoreError(_CLOSED))
        self._send()


class _Loop(asyncio.SelectorEventLoop):
    """
    An event loop that lets pass what other threads ask of it once it is closed, when nothing is under way any more.

    obstore does so, too: one of its threads that has just found a request not cancelled reports its end then, to a loop
    that may be closed before it gets there. It would print the RuntimeError.
    """

    def call_soon_threadsafe(
        self, callback: Callable[[*Arguments], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.Handle:
        try:
            return super().call_soon_threadsafe(callback, *args, context=context)
        except RuntimeError:
            if not self.is_closed():
                raise
            return asyncio.Handle(callback, args, self, context)


def _weight(wanted: ByteRange) -> float:
    """Return how much of the limit a request takes: sums of these have no rounding error."""
    return max(_LEAST_WEIGHT, min(1.0, wanted.size * 8 // _SMALL_BYTES / 8))


# InFlight: how many requests run at once, found by trying while the rate grows.

FEWEST = 16  # at the start
MOST = 64
_GAIN = 1.1  # a larger limit must be so many times faster to stay
_ROUNDS = 4, 64  # at a limit that proved best, before a larger one is tried again: at first, and at most


class InFlight:
    """
    The limit of requests in flight: 16 at first, at most 64.

    It is compared in rounds of twice as many answers as the limit. While a larger limit brings more bytes a second,
    the next larger one is tried; otherwise the one before it comes back, for a few rounds at first, since one round may
    mislead, then for twice as many each time. Only times count in which requests waited for the limit: a reader that
    asks for little proves nothing. Used by one thread.
    """

    def __init__(self) -> None:
        self.limit = FEWEST
        self._last: tuple[int, float] | None = None  # the limit before this one, and its bytes a second
        self._rest = 0  # rounds until a larger limit is tried
        self._next_rest = _ROUNDS[0]
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
        self._last, self._rest = None, _ROUNDS[1]
        self._restart()

    def _judge(self, rate: float) -> None:
        if self._rest:
            self._rest -= 1
            return
        if self._last is not None and rate < _GAIN * self._last[1]:
            self.limit, self._last, self._rest = self._last[0], None, self._next_rest
            self._next_rest = min(2 * self._next_rest, _ROUNDS[1])
        elif self.limit < MOST:
            if self._last is not None:  # this one proved better
                self._next_rest = _ROUNDS[0]
            self._last = self.limit, rate
            self.limit = min(MOST, 2 * self.limit)

    def _restart(self) -> None:
        self._answers = 0
        self._bytes = 0
        self._began = 0.0


# Requests that somebody waits for, sent by a thread of their own.

Result = TypeVar("Result")


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
        with self._beginning:
            if self._is_ended:
                request.close()
                raise CancelledError
            ends = self._loop.is_closed()  # the interpreter
            answer = None if ends else asyncio.run_coroutine_threadsafe(request, self._loop)
        if answer is None:
            return asyncio.run(request)
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
        with self._beginning:  # whoever began one now would wait for ever
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


_closed_at_exit = weakref.WeakKeyDictionary["Closable", None]()  # in this order: what uses a thread, then the thread


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
    _closed_at_exit[thread] = None


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
