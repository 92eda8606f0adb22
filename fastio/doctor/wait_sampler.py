"""Samples where a thread waits, and for what: its stack, and the kernel's view of its state."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from fastio.measure.loop.user_code import is_users_code

__all__ = ["Wait", "WaitSampler", "end_samplers", "sampler_of_this_thread"]

# Sampled every 5 ms, a worker that decodes with Pillow took 1.03 to 1.05 of its CPU time, every 10 ms 1.01 (medians
# of 21 interleaved rounds on a Xeon).
_INTERVAL_S = 0.01
_READING = "D"  # uninterruptible waits: for disks and network file systems
_SLEEPING = "S"  # all other waits: sleep, locks, sockets, pipes, other processes


class Wait(NamedTuple):
    """
    A line of code at which a thread was seen waiting; ``is_reading`` means for a disk or a network file system.

    ``file``, ``line`` and ``function`` are the innermost of the user's own code; ``call`` is the library function
    below it, None if there is none.
    """

    is_reading: bool
    file: str
    line: int
    function: str
    call: str | None


class WaitSampler:
    """
    Samples the thread that creates it, from another thread, between ``begin`` and ``end``.

    The kernel tells whether the thread waits. A thread that waits for the GIL counts as runnable, because taking a
    sample releases the GIL. Without /proc, nothing is seen. ``looks`` counts the samples.
    """

    def __init__(self) -> None:
        self.looks = 0
        path = Path(f"/proc/self/task/{threading.get_native_id()}/stat")
        self._stat = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if path.exists() else None
        self._ident = threading.get_ident()
        self._waits: Counter[Wait] = Counter()
        self._root: CodeType | None = None
        self._is_wanted = threading.Event()
        self._is_over = False
        if self._stat is not None:
            threading.Thread(target=self._look_on, name="fastio-doctor-waits", daemon=True).start()

    def begin(self, root: CodeType) -> None:
        """Start sampling what the innermost function with this code calls."""
        self._root = root
        self._is_wanted.set()

    def end(self) -> Counter[Wait]:
        """Stop sampling; returns how often the thread was seen waiting since ``begin``, by line of code."""
        self._is_wanted.clear()
        waits, self._waits = self._waits, Counter()
        return waits

    def close(self) -> None:
        """Stop the sampling thread."""
        self._is_over = True
        self._is_wanted.set()

    def _look_on(self) -> None:
        assert self._stat is not None
        while not self._is_over:
            self._is_wanted.wait()
            time.sleep(_INTERVAL_S)
            if self._is_wanted.is_set() and not self._is_over:
                self._look(self._stat)
        os.close(self._stat)

    def _look(self, stat: int) -> None:
        try:
            state = os.pread(stat, 128, 0).rpartition(b")")[2].split(None, 1)[0].decode()
        except (OSError, IndexError):  # the thread has ended
            self._is_over = True
            return
        self.looks += 1
        frame = sys._current_frames().get(self._ident) if state in (_READING, _SLEEPING) else None
        if frame is not None:
            self._waits[_wait_of(frame, self._root, is_reading=state == _READING)] += 1


def sampler_of_this_thread() -> WaitSampler:
    """Return the sampler of this thread, created on first use; a forked child creates its own."""
    key = os.getpid(), threading.get_ident()
    if key not in _samplers:
        _samplers[key] = WaitSampler()
    return _samplers[key]


def end_samplers() -> None:
    """Stop all samplers of this process."""
    for (pid, _), sampler in _samplers.items():
        if pid == os.getpid():
            sampler.close()
    _samplers.clear()


_samplers: dict[tuple[int, int], WaitSampler] = {}


def _wait_of(innermost: FrameType, root: CodeType | None, *, is_reading: bool) -> Wait:
    """Return the innermost frame of the user's code below ``root``, or the innermost of all if there is none."""
    frame: FrameType | None = innermost
    while frame is not None and frame.f_code is not root and not _is_users(frame):
        frame = frame.f_back
    chosen = innermost if frame is None or frame.f_code is root else frame
    call = None if chosen is innermost else _qualified(innermost.f_code)
    return Wait(is_reading, chosen.f_code.co_filename, chosen.f_lineno, _qualified(chosen.f_code), call)


_users: dict[CodeType, bool] = {}


def _is_users(frame: FrameType) -> bool:
    known = _users.get(frame.f_code)
    if known is None:
        known = _users[frame.f_code] = is_users_code(frame.f_code.co_filename, str(frame.f_globals.get("__name__")))
    return known


def _qualified(code: Any) -> str:
    return str(code.co_qualname).rpartition(".<locals>.")[2]
